/* unlisted.c - configs of fp8 whose list of modules that are not quantised an engine reads
 * otherwise than the family's rows.
 *
 * Engines make a linear fp8 unless the list leaves it, and each has its own way of finding it there
 * (enum wf_excluded_by). Some linears stand in no checkpoint's fp8 and are made so all the same:
 * Qwen3-MoE's router in vLLM, Qwen3-Next's in_proj_ba. Such a live tensor holds codes where the
 * inventory has numbers; it is told by the config alone, before a tensor is seen. A list that was
 * cut for reading ("...133 more") says nothing of what it does not show.
 */
#include <string.h>

#include "models/engines/engine.h"
#include "models/expr.h"

static const char *quantised_roles(const struct wf_model *model, const struct wf_engine *engine)
{
    for (size_t i = 0; i < model->family->engine_count; i++) {
        const struct wf_family_engine *exceptions = &model->family->engines[i];
        if (strcmp(exceptions->engine, engine->name) == 0) {
            return exceptions->quantised;
        }
    }
    return NULL;
}

static bool has_role(const char *roles, const char *role)
{
    const char *item = NULL;
    size_t len = 0;
    while (wf_expr_next(&roles, ' ', &item, &len)) {
        if (strlen(role) == len && memcmp(item, role, len) == 0) {
            return true;
        }
    }
    return false;
}

static enum wf_status refuse(const struct wf_engine *engine, enum wf_excluded_by by,
                             const struct wf_param *param, bool quantised, struct wf_error *error)
{
    const char *dot = strrchr(param->name, '.');
    int module = (int)(dot ? (size_t)(dot - param->name) : strlen(param->name));
    const char *reads = by == WF_EXCLUDED_BY_PATTERN ? "names and patterns"
                        : by == WF_EXCLUDED_BY_NAME  ? "whole names"
                                                     : "words";
    if (quantised) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: %s reads quantization_config's list of modules by %s, finds this "
                            "one left as it is, and the checkpoint has it in fp8; expected whole "
                            "names of modules in modules_to_not_convert",
                            param->name, engine->name, reads);
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "%s: %s reads quantization_config's list of modules by %s and would hold "
                        "this one in fp8, which the checkpoint has not; list %.*s "
                        "there, and so in each layer",
                        param->name, engine->name, reads, module, param->name);
}

/* One row in all its places; of experts the first speaks for all. */
static enum wf_status check_row(const struct wf_model *model, const struct wf_engine *engine,
                                uint32_t stack, uint32_t row, struct wf_error *error)
{
    bool by_row = wf_model_size(model, "fp8_rows") != 0; /* compressed-tensors, whose own reading */
    enum wf_excluded_by by = by_row ? WF_EXCLUDED_BY_PATTERN : engine->excluded_by;
    uint32_t members = stack == WF_NONE ? 1 : wf_model_stack_count(model, stack);
    for (uint32_t i = 0; i < members; i++) {
        uint32_t found = wf_model_param(model, stack, stack == WF_NONE ? WF_NONE : i, row, 0);
        if (found == WF_NONE) {
            continue;
        }
        const struct wf_param *param = &model->params[found];
        bool quantised = param->dtype == WF_DTYPE_F8_E4M3;
        if (param->ndim > 1 && wf_model_leaves(model, param, by) == quantised) {
            return refuse(engine, by, param, quantised, error);
        }
    }
    return WF_OK;
}

enum wf_status wf_engine_refuse_unlisted(const struct wf_model *model,
                                         const struct wf_engine *engine, struct wf_error *error)
{
    static const char fp8[] = "f8_e4m3:";
    const struct wf_family *family = model->family;
    bool said = wf_model_packing(model)[0] != '\0'; /* not a job's quant= alone */
    bool codes = wf_model_size(model, "fp8") != 0 || wf_model_size(model, "fp8_rows") != 0;
    if (engine->view != WF_VIEW_SPEC || !said || !codes || wf_model_list_is_cut(model)) {
        return WF_OK;
    }
    const char *roles = quantised_roles(model, engine);
    for (uint32_t row = 0; row < family->row_count; row++) {
        const struct wf_family_row *r = &family->rows[row];
        bool linear = r->dtype && strncmp(r->dtype, fp8, strlen(fp8)) == 0;
        if (!linear && !has_role(roles, r->role)) {
            continue;
        }
        for (uint32_t s = 0; s <= family->stack_count; s++) {
            uint32_t stack = s == family->stack_count ? WF_NONE : s;
            bool skipped = stack != WF_NONE && engine->skipped_stacks &&
                           strcmp(family->stacks[s].name, engine->skipped_stacks) == 0;
            if (skipped || !wf_family_row_in_stack(family, r, stack)) {
                continue;
            }
            enum wf_status status = check_row(model, engine, stack, row, error);
            if (status != WF_OK) {
                return status;
            }
        }
    }
    return WF_OK;
}
