/* case.c - a fixture's case.json becomes a model, and SPEC text that the one parser of SPECs reads.
 */
#include "tools/layout/case_private.h"

#include <stdio.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/json.h"

static enum wf_status parse_model(struct json_object *root, const struct wf_family *const *families,
                                  struct wf_model **model_out, struct wf_error *error)
{
    struct json_object *config = wf_case_get(root, "hf_config"),
                       *type = wf_case_get(root, "hf_model_type");
    if (!json_object_is_type(config, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "case.json: \"hf_config\" is needed, as an object");
    }
    if (type && !wf_case_get(config, "model_type")) {
        json_object_object_add(config, "model_type", json_object_get(type));
    }
    size_t len = 0;
    const char *text = json_object_to_json_string_length(config, JSON_C_TO_STRING_PLAIN, &len);
    enum wf_status status = text ? wf_model_parse(text, len, families, model_out, error)
                                 : wf_error_set(error, WF_NO_MEMORY, "no memory for a config");
    if (status != WF_OK) {
        wf_error_prefix(error, "hf_config");
    }
    return status;
}

/* `begin` of "framework"; frameworks with more words behind it are meant. */
static const struct framework {
    const char *begin, *engine;
    wf_case_reader_t *reader;
} frameworks[] = {
    {"megatron-core", "megatron", wf_case_megatron},
    {"torch FSDP1 ", "fsdp", wf_case_fsdp},
    {"torch FSDP2 ", "fsdp", wf_case_fsdp},
    {"vllm", "vllm", wf_case_vllm},
    {"sglang", "sglang", wf_case_sglang},
};

static const struct framework *find_framework(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof frameworks / sizeof frameworks[0]; i++) {
        size_t begin = strlen(frameworks[i].begin);
        bool whole = frameworks[i].begin[begin - 1] != ' ';
        if (len >= begin && (!whole || len == begin) &&
            memcmp(text, frameworks[i].begin, begin) == 0) {
            return &frameworks[i];
        }
    }
    return NULL;
}

static const struct wf_engine *replaced(const struct wf_engine *engine,
                                        const struct wf_engine *const *by)
{
    for (; by != NULL && *by != NULL; by++) {
        if (strcmp((*by)->name, engine->name) == 0) {
            return *by;
        }
    }
    return engine;
}

static enum wf_status parse_case(struct json_object *root, const struct wf_case_tables *tables,
                                 struct wf_case *it, struct wf_error *error)
{
    struct wf_case_spec spec = {.text = ""};
    const char *framework = NULL;
    size_t len = 0;
    enum wf_status status = wf_case_need_text(root, "framework", &framework, &len, error);
    if (status != WF_OK) {
        return status;
    }
    const struct framework *known = find_framework(framework, len);
    if (!known) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "layouts of %.60s are not supported; this build knows megatron-core, "
                            "torch FSDP1, torch FSDP2, vllm and sglang",
                            framework);
    }
    status = parse_model(root, tables->families, &it->model, error);
    if (status != WF_OK) {
        return status;
    }
    spec.used = (size_t)snprintf(spec.text, sizeof spec.text, "%s:", known->engine);
    status = known->reader(root, it, &spec, error);
    if (status == WF_OK && spec.full) {
        status = wf_error_set(error, WF_INVALID, "case.json: its SPEC would be too long");
    }
    if (status == WF_OK) {
        status = wf_recipe_parse(spec.text, it->model, &it->recipe, error);
    }
    if (status == WF_OK) {
        it->recipe.engine = replaced(it->recipe.engine, tables->engines);
    }
    return status;
}

enum wf_status wf_case_parse(const char *text, size_t len, const struct wf_case_tables *tables,
                             struct wf_case *case_out, struct wf_error *error)
{
    static const struct wf_case_tables none;
    struct json_object *root = NULL;
    struct wf_case it = {0};
    enum wf_status status = wf_json_parse(text, len, WF_JSON_PYTHON, &root, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "case.json");
        return status;
    }
    status = json_object_is_type(root, json_type_object)
                 ? parse_case(root, tables ? tables : &none, &it, error)
                 : wf_error_set(error, WF_INVALID, "case.json: an object is expected");
    json_object_put(root);
    if (status != WF_OK) {
        wf_case_fini(&it);
        return status;
    }
    *case_out = it;
    return WF_OK;
}

void wf_case_fini(struct wf_case *it)
{
    wf_model_free(it->model);
    it->model = NULL;
}
