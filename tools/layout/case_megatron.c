/* case_megatron.c - case.json of Megatron-core: SPEC text of the engine megatron. */
#include "tools/layout/case_private.h"

#include <string.h>

#include "models/families/family.h"
#include "models/json.h"

/* What the options say together, and no single key of a SPEC. */
struct options {
    bool account_embedding, account_loss;
    bool says_shared_gate, shared_gate;
    bool sequential; /* experts one module each */
    bool single;     /* or all of them in one tensor */
    bool says_further;
    struct json_object *further; /* mtp_num_layers, with `says_further` */
};

/* --- explicit pipelines ---------------------------------------------------------------------- */

static bool add_stages(char *plain, size_t *used, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ',') {
            continue;
        }
        if (*used == WF_PIPELINE_TEXT_MAX) {
            return false;
        }
        plain[(*used)++] = text[i];
    }
    return true;
}

/* [["embedding", "decoder"], ["decoder", "loss"]] says what "Et|tL" says. */
static bool add_list(char *plain, size_t *used, struct json_object *stages)
{
    static const struct {
        const char *name;
        char symbol;
    } kinds[] = {{"embedding", 'E'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'}};
    for (size_t i = 0; i < json_object_array_length(stages); i++) {
        struct json_object *stage = json_object_array_get_idx(stages, i);
        if (!json_object_is_type(stage, json_type_array) ||
            (i > 0 && !add_stages(plain, used, "|", 1))) {
            return false;
        }
        for (size_t k = 0; k < json_object_array_length(stage); k++) {
            const char *name = json_object_get_string(json_object_array_get_idx(stage, k));
            size_t kind = 0;
            while (kind < 4 && (!name || strcmp(name, kinds[kind].name) != 0)) {
                kind++;
            }
            if (kind == 4 || !add_stages(plain, used, &kinds[kind].symbol, 1)) {
                return false;
            }
        }
    }
    return true;
}

static enum wf_status put_layout(struct wf_case_spec *spec, struct json_object *value,
                                 struct wf_error *error)
{
    char plain[WF_PIPELINE_TEXT_MAX];
    size_t used = 0;
    bool good = false;
    if (json_object_is_type(value, json_type_string)) {
        good = add_stages(plain, &used, json_object_get_string(value),
                          (size_t)json_object_get_string_len(value));
    } else if (json_object_is_type(value, json_type_array)) {
        good = add_list(plain, &used, value);
    }
    if (!good) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: pipeline_model_parallel_layout: expected a string or a "
                            "list of lists of embedding, decoder, mtp and loss, of at most %d "
                            "letters",
                            WF_PIPELINE_TEXT_MAX);
    }
    wf_case_put(spec, "layout", plain, used);
    return WF_OK;
}

/* --- options --------------------------------------------------------------------------------- */

/* Options that change how the model computes, not what it holds. */
static const char *const harmless[] = {
    "apply_rope_fusion",
    "attention_backend",
    "attention_softmax_in_fp32",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "deterministic_mode",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "moe_aux_loss_coeff",
    "moe_permute_fusion",
    "moe_router_dtype",
    "moe_router_load_balancing_type",
    "moe_router_pre_softmax",
    "moe_router_topk",
    "moe_token_dispatcher_type",
    "persist_layer_norm",
    "recompute_granularity",
    "sequence_parallel",
    "variable_seq_lengths",
};

static bool is_harmless(const char *key)
{
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (strcmp(key, harmless[i]) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t further_layers(const struct wf_model *model)
{
    for (uint32_t i = 0; i < model->family->stack_count; i++) {
        if (strcmp(model->family->stacks[i].name, "mtp") == 0) {
            return wf_model_stack_count(model, i);
        }
    }
    return 0;
}

/* What a bridge sets mtp_num_layers to of itself: to what the config says, and then to 0 too, but
 * mbridge in its class of DeepSeek only. NULL: it leaves it unset, which Megatron's default is. */
static struct json_object *bridge_further(struct json_object *root, const struct wf_model *model,
                                          bool mbridge)
{
    struct json_object *config = wf_case_get(root, "hf_config"),
                       *text = wf_case_get(config, "text_config");
    if (mbridge && strcmp(model->model_type, "deepseek_v3") != 0) {
        return NULL;
    }
    config = text ? text : config;
    struct json_object *count = wf_case_get(config, "num_nextn_predict_layers");
    return count ? count : wf_case_get(config, "mtp_num_hidden_layers");
}

/* The model's config says how many layers predict further tokens; Megatron has those or none. None
 * and 0 differ in where the final norm stands (transformer/transformer_block.py:
 * has_final_layernorm_in_this_stage). */
static enum wf_status put_further(struct wf_case_spec *spec, struct json_object *root,
                                  const struct wf_model *model, bool mbridge,
                                  const struct options *options, struct wf_error *error)
{
    struct json_object *value =
        options->says_further ? options->further : bridge_further(root, model, mbridge);
    uint64_t here = further_layers(model);
    bool set = json_object_is_type(value, json_type_int) && json_object_get_int64(value) >= 0;
    uint64_t wanted = set ? (uint64_t)json_object_get_int64(value) : 0;
    if (wanted != 0 && wanted != here) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: mtp_num_layers %llu, but the model's config has %llu",
                            (unsigned long long)wanted, (unsigned long long)here);
    }
    if (wanted == 0 && here > 0) {
        wf_case_put(spec, "skip_mtp", "1", 1);
    }
    if (wanted == 0 && set) {
        wf_case_put(spec, "final_norm", "layer", strlen("layer"));
    }
    return WF_OK;
}

static enum wf_status put_count(struct wf_case_spec *spec, const char *key,
                                struct json_object *value, struct wf_error *error)
{
    if (json_object_is_type(value, json_type_null)) {
        return WF_OK;
    }
    int64_t count = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
    if (count < 1 || count > WF_LAYERS_MAX) {
        return wf_error_set(error, WF_INVALID, "case.json: %s: expected 1 to %d layers", key,
                            WF_LAYERS_MAX);
    }
    wf_case_put_number(spec, key, (uint64_t)count);
    return WF_OK;
}

static enum wf_status put_option(struct wf_case_spec *spec, const char *key,
                                 struct json_object *value, struct options *options,
                                 struct wf_error *error)
{
    if (strcmp(key, "num_layers_in_first_pipeline_stage") == 0) {
        return put_count(spec, "first", value, error);
    }
    if (strcmp(key, "num_layers_in_last_pipeline_stage") == 0) {
        return put_count(spec, "last", value, error);
    }
    if (strcmp(key, "pipeline_model_parallel_layout") == 0) {
        return json_object_is_type(value, json_type_null) ? WF_OK : put_layout(spec, value, error);
    }
    if (strcmp(key, "mtp_num_layers") == 0) {
        options->says_further = true;
        options->further = value;
        return WF_OK;
    }
    bool set = wf_case_is_true(value);
    if (strcmp(key, "account_for_embedding_in_pipeline_split") == 0) {
        options->account_embedding = set;
    } else if (strcmp(key, "account_for_loss_in_pipeline_split") == 0) {
        options->account_loss = set;
    } else if (strcmp(key, "moe_shared_expert_gate") == 0) {
        options->says_shared_gate = true;
        options->shared_gate = set;
    } else if (strcmp(key, "moe_grouped_gemm") == 0) {
        options->sequential = !set;
    } else if (strcmp(key, "moe_single_grouped_weight") == 0) {
        options->single = set;
    } else if (!is_harmless(key)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: the Megatron option %.60s is not known", key);
    }
    return WF_OK;
}

static void put_together(struct wf_case_spec *spec, const struct options *options)
{
    const char *account = options->account_embedding && options->account_loss ? "embedding+loss"
                          : options->account_embedding                        ? "embedding"
                          : options->account_loss                             ? "loss"
                                                                              : NULL;
    if (account) {
        wf_case_put(spec, "account", account, strlen(account));
    }
    if (options->says_shared_gate && !options->shared_gate) {
        wf_case_put(spec, "shared_gate", "0", 1);
    }
    const char *experts = options->sequential ? "sequential" : options->single ? "single" : NULL;
    if (experts) {
        wf_case_put(spec, "experts", experts, strlen(experts));
    }
}

/* mbridge's class of this model leaves out the gate of the shared expert unless told. */
static bool drops_shared_gate(const struct wf_model *model, bool mbridge)
{
    return mbridge && strcmp(model->model_type, "qwen2_moe") == 0;
}

static enum wf_status put_options(struct wf_case_spec *spec, struct json_object *root,
                                  const struct wf_model *model, struct wf_error *error)
{
    struct json_object *overrides = wf_case_get(root, "megatron_config_overrides");
    const char *loader = json_object_get_string(wf_case_get(root, "loader"));
    bool local = wf_case_text_begins(root, "transformer_engine", "not used");
    bool mbridge = loader && strstr(loader, "mbridge");
    struct options options = {.sequential = local,
                              .says_shared_gate = drops_shared_gate(model, mbridge)};
    if (overrides && !json_object_is_type(overrides, json_type_object)) {
        return wf_error_set(error, WF_INVALID,
                            "case.json: \"megatron_config_overrides\" must be an object");
    }
    if (local) {
        wf_case_put(spec, "names", "local", strlen("local"));
    }
    if (mbridge) {
        wf_case_put(spec, "loader", "mbridge", strlen("mbridge"));
    }
    if (overrides) {
        json_object_object_foreach(overrides, key, value)
        {
            enum wf_status status = put_option(spec, key, value, &options, error);
            if (status != WF_OK) {
                return status;
            }
        }
    }
    put_together(spec, &options);
    return put_further(spec, root, model, mbridge, &options, error);
}

/* Sizes that no key of a SPEC says are 1, or the layout is another. */
static enum wf_status refuse_further_sizes(struct json_object *parallel, const char *const *keys,
                                           size_t count, struct wf_error *error)
{
    json_object_object_foreach(parallel, key, value)
    {
        size_t i = 0;
        while (i < count && strcmp(keys[i], key) != 0) {
            i++;
        }
        if (i == count && strcmp(key, "world") != 0 && json_object_is_type(value, json_type_int) &&
            json_object_get_int64(value) != 1) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "case.json: the parallel size %.60s is not known", key);
        }
    }
    return WF_OK;
}

enum wf_status wf_case_megatron(struct json_object *root, struct wf_case *it,
                                struct wf_case_spec *spec, struct wf_error *error)
{
    static const char *const keys[] = {"tp", "pp", "vpp", "dp", "cp", "ep", "etp"};
    uint64_t multiple = 1;
    enum wf_status status =
        wf_json_get_u64(root, "padded_vocab_multiple", 1, 1u << 30, &multiple, error);
    if (status == WF_OK || status == WF_NOT_FOUND) {
        wf_case_put_number(spec, "vocab_div", multiple); /* null: the loader does not pad */
        status = wf_case_put_version(spec, root, error);
    }
    if (status == WF_OK) {
        status = wf_case_put_parallel(spec, root, keys, sizeof keys / sizeof keys[0], error);
    }
    if (status == WF_OK) {
        status = refuse_further_sizes(wf_case_get(root, "parallel"), keys,
                                      sizeof keys / sizeof keys[0], error);
    }
    if (status == WF_OK) {
        status = put_options(spec, root, it->model, error);
    }
    size_t len = 0;
    const char *order = wf_case_text(wf_case_get(root, "parallel"), "order", &len);
    if (order) {
        wf_case_put(spec, "order", order, len);
    }
    wf_case_put(spec, "dtype", "bf16", 4); /* params_dtype of every executed case */
    return status;
}
