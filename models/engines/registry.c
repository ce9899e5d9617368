/* registry.c - the engines that this build knows, and the checks that follow from any table. */
#include <inttypes.h>
#include <stdlib.h>

#include "models/engines/engine.h"

const struct wf_engine *const wf_engines[] = {
    &wf_engine_hf,
    &wf_engine_megatron,
    &wf_engine_vllm,
    NULL,
};

const struct wf_engine_rows *wf_engine_table(const struct wf_recipe *recipe)
{
    return &recipe->engine->tables[recipe->local_names];
}

uint64_t wf_engine_units(const struct wf_model *model, enum wf_role role, const char **what_out)
{
    switch (role) {
    case WF_ROLE_Q:
    case WF_ROLE_Q_BIAS:
    case WF_ROLE_O:
        *what_out = "query heads";
        return model->query_heads;
    case WF_ROLE_K:
    case WF_ROLE_V:
    case WF_ROLE_K_BIAS:
    case WF_ROLE_V_BIAS:
        *what_out = "KV heads";
        return model->kv_heads;
    case WF_ROLE_EMBEDDING:
    case WF_ROLE_HEAD:
        *what_out = "rows of the padded vocabulary";
        return model->vocab;
    default:
        *what_out = "intermediate rows";
        return model->intermediate;
    }
}

static bool model_has(const struct wf_model *model, enum wf_role role, const char **name_out)
{
    for (uint32_t i = 0; i < model->param_count; i++) {
        if (model->params[i].role == (uint32_t)role) {
            *name_out = model->params[i].name;
            return true;
        }
    }
    return false;
}

static bool table_has(const struct wf_engine_rows *table, enum wf_role role)
{
    for (size_t i = 0; i < table->count; i++) {
        for (size_t part = 0; part < WF_PARTS_MAX; part++) {
            if (table->rows[i].parts[part] == role) {
                return true;
            }
        }
    }
    return false;
}

/* `units` over T ranks: whole numbers of them, or whole numbers of ranks for each where `repeat`.
 */
static enum wf_status check_units(const char *name, uint64_t units, const char *what, uint32_t tp,
                                  bool repeat, struct wf_error *error)
{
    if (units % tp == 0 || (repeat && units < tp && tp % units == 0)) {
        return WF_OK;
    }
    return wf_error_set(error, WF_INVALID,
                        "%s: %" PRIu64 " %s cannot be divided over tp=%" PRIu32 "%s", name, units,
                        what, tp, repeat ? " (neither divides the other)" : "");
}

static bool is_kv(enum wf_role role)
{
    return role == WF_ROLE_K || role == WF_ROLE_V || role == WF_ROLE_K_BIAS ||
           role == WF_ROLE_V_BIAS;
}

static enum wf_status check_row(const struct wf_model *model, const struct wf_recipe *recipe,
                                const struct wf_engine_row *row, struct wf_error *error)
{
    const char *name = row->name;
    for (size_t part = 0; part < WF_PARTS_MAX && row->parts[part] != WF_ROLE_NONE; part++) {
        enum wf_role role = row->parts[part];
        if (row->cut == WF_CUT_NONE || (!model_has(model, role, &name) && role != WF_ROLE_HEAD)) {
            return WF_OK;
        }
        const char *what = NULL;
        uint64_t units = wf_engine_units(model, role, &what);
        if (row->padded) {
            uint64_t multiple = recipe->vocab_multiple;
            units = (units + multiple - 1) / multiple * multiple;
        }
        enum wf_status status = check_units(name, units, what, recipe->tp, is_kv(role), error);
        if (status != WF_OK) {
            return status;
        }
    }
    /* With fewer KV heads than ranks a shard begins inside a group; it must still be whole rows. */
    uint64_t rows = (model->query_heads + 2 * model->kv_heads) * model->head_dim;
    if (row->groups == WF_GROUPS_KV_HEADS) {
        return check_units(row->name, rows, "rows", recipe->tp, false, error);
    }
    return WF_OK;
}

enum wf_status wf_engine_check(const struct wf_model *model, const struct wf_recipe *recipe,
                               struct wf_error *error)
{
    const struct wf_engine *engine = recipe->engine;
    const struct wf_engine_rows *table = wf_engine_table(recipe);
    enum wf_status status = engine->check ? engine->check(model, recipe, error) : WF_OK;
    for (unsigned role = WF_ROLE_NONE + 1; role < WF_ROLE_COUNT && status == WF_OK; role++) {
        const char *name = NULL;
        if (table->count > 0 && model_has(model, role, &name) && !table_has(table, role)) {
            status = wf_error_set(error, WF_UNSUPPORTED, "%s has no place for %s yet", engine->name,
                                  name);
        }
    }
    for (size_t i = 0; i < table->count && status == WF_OK; i++) {
        status = check_row(model, recipe, &table->rows[i], error);
    }
    if (status == WF_OK && engine->chunks) {
        struct wf_chunk chunks[WF_CHUNKS_MAX];
        uint32_t count = 0;
        status = engine->chunks(model, recipe, 0, chunks, &count, error);
    }
    return status;
}
