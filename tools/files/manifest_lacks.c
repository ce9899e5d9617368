/* manifest_lacks.c - which parameters of its view no manifest of a group names. */
#include "tools/files/manifest_lacks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/engines/engine.h"
#include "models/manifest_set.h"
#include "models/variant.h"
#include "tools/files/manifest_files.h"

static void mark(const struct wf_layout *layout, bool *held)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        if (layout->pieces[i].kind != WF_PIECE_FILL) {
            held[layout->pieces[i].param] = true;
        }
    }
}

/* Of a matrix, its codes and its scales either the one or the others will do: the manifest chose.
 */
static bool is_held(const struct wf_model *model, const bool *held, uint32_t param)
{
    const struct wf_variant_pair *pair = wf_model_pair(model, param);
    return held[param] ||
           (pair != NULL && (param == pair->matrix ? held[pair->codes] : held[pair->matrix]));
}

static void count_lacking(const struct wf_model *model, const struct wf_recipe *recipe,
                          struct wf_manifest_lacks *lacks)
{
    const struct wf_model *view = wf_model_view(model, recipe);
    bool *held = calloc(model->param_count + 1ull, sizeof *held);
    WF_ASSERT(held != NULL);
    for (uint32_t rank = 0; rank < lacks->ranks; rank++) {
        mark(wf_model_manifest(model, recipe->layout, rank), held);
    }
    lacks->params = view->param_count;
    for (uint32_t p = 0; p < view->param_count; p++) {
        uint32_t param = wf_model_of_view(model, view, p);
        if (!is_held(model, held, param) && lacks->count++ == 0) {
            lacks->first = model->params[param].name;
        }
    }
    free(held);
}

bool wf_manifest_lacks_find(const struct wf_model *model, const struct wf_recipe *recipe,
                            const char *spec, const char *beside,
                            struct wf_manifest_lacks *lacks_out)
{
    char next[WF_MANIFEST_PATH_MAX];
    struct wf_error ignored;
    *lacks_out =
        (struct wf_manifest_lacks){.spec = spec, .ranks = wf_recipe_ranks_per_engine(recipe)};
    if (recipe->engine != &wf_engine_manifest) {
        return false;
    }
    count_lacking(model, recipe, lacks_out);
    lacks_out->next_file =
        strstr(recipe->layout, "%d") != NULL &&
        wf_manifest_file_path(recipe->layout, beside, lacks_out->ranks, next, &ignored) == WF_OK &&
        access(next, F_OK) == 0;
    return lacks_out->count > 0 || lacks_out->next_file;
}

void wf_manifest_lacks_format(const struct wf_manifest_lacks *lacks,
                              char text_out[WF_MANIFEST_LACKS_TEXT])
{
    int used = snprintf(text_out, WF_MANIFEST_LACKS_TEXT, "%.160s: ", lacks->spec);
    if (lacks->count > 0) {
        used += snprintf(text_out + used, WF_MANIFEST_LACKS_TEXT - (size_t)used,
                         "none of its ranks has %" PRIu32 " of the model's %" PRIu32
                         " parameters, the first is %.160s%s",
                         lacks->count, lacks->params, lacks->first, lacks->next_file ? "; " : "");
    }
    if (lacks->next_file) {
        snprintf(text_out + used, WF_MANIFEST_LACKS_TEXT - (size_t)used,
                 "there is a manifest for rank %" PRIu32 " too, but ranks=%" PRIu32, lacks->ranks,
                 lacks->ranks);
    }
}

struct json_object *wf_manifest_lacks_json(const struct wf_manifest_lacks *lacks, uint32_t count)
{
    struct json_object *list = json_object_new_array();
    for (uint32_t i = 0; i < count; i++) {
        struct json_object *one = json_object_new_object();
        json_object_object_add(one, "spec", json_object_new_string(lacks[i].spec));
        json_object_object_add(one, "lacks", json_object_new_uint64(lacks[i].count));
        json_object_object_add(one, "of", json_object_new_uint64(lacks[i].params));
        json_object_object_add(one, "first",
                               lacks[i].first ? json_object_new_string(lacks[i].first) : NULL);
        json_object_object_add(one, "next_file", json_object_new_boolean(lacks[i].next_file));
        json_object_array_add(list, one);
    }
    return list;
}
