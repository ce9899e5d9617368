/* checkable.c - see checkable.h. */
#include "tools/run/checkable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/engines/engine.h"

static bool is_expected(const struct wf_layout *layout, uint32_t tensor,
                        const struct wf_verify *verify)
{
    for (uint32_t i = 0; i < wf_verify_tensor_count(verify); i++) {
        const char *name = wf_verify_tensor_name(verify, i);
        if (wf_layout_find(layout, name, strlen(name)) == tensor) {
            return true;
        }
    }
    return false;
}

/* What the check expects, in the layout: but for the stand-in's own. */
static enum wf_status find_expected(const struct wf_layout *layout, const struct wf_verify *verify,
                                    uint32_t index, struct wf_error *error)
{
    const char *name = wf_verify_tensor_name(verify, index);
    uint64_t elements = wf_verify_tensor_elements(verify, index), found = 0;
    uint32_t at = wf_layout_find(layout, name, strlen(name));
    if (strncmp(name, "packed:", strlen("packed:")) == 0) {
        return WF_OK;
    }
    if (at != UINT32_MAX) {
        found = layout->tensors[at].bytes / wf_dtype_bytes(layout->tensors[at].dtype);
    }
    return found == elements ? WF_OK
                             : wf_error_set(error, WF_UNSUPPORTED,
                                            "the element check expects %" PRIu64
                                            " elements of %s, and the layout "
                                            "has %" PRIu64 ": one of them does not know this model",
                                            elements, name, found);
}

enum wf_status wf_run_check_tensors(const struct wf_layout *layout, const struct wf_verify *verify,
                                    struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        if (tensor->kind == WF_TENSOR_WEIGHTS && !is_expected(layout, t, verify)) {
            return wf_error_set(error, WF_UNSUPPORTED, "the element check does not know %s",
                                tensor->name);
        }
    }
    for (uint32_t i = 0; status == WF_OK && i < wf_verify_tensor_count(verify); i++) {
        status = find_expected(layout, verify, i, error);
    }
    return status;
}

/* One rank of a group. */
static enum wf_status ask_rank(const struct wf_run_setup *setup, uint32_t infer_rank,
                               struct wf_error *error)
{
    struct wf_run_place at = wf_run_place(setup, infer_rank);
    struct wf_verify_place place = wf_run_verify_place(setup, infer_rank, 0);
    struct wf_verify *verify = NULL;
    struct wf_layout *layout = NULL;
    enum wf_status status = wf_verify_open(NULL, setup->model, &place, &verify, error);
    if (status == WF_OK) {
        status =
            wf_layout_derive(setup->model, &setup->infer[at.group], at.group_rank, &layout, error);
    }
    if (status == WF_OK) {
        status = wf_run_check_tensors(layout, verify, error);
    }
    wf_layout_free(layout);
    wf_verify_free(verify);
    return status;
}

/* All ranks of the group's first engine: the others are alike. */
static enum wf_status ask(const struct wf_run_setup *setup, uint32_t group, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    uint32_t first = UINT32_MAX;
    for (uint32_t rank = 0; rank < setup->infer_ranks && status == WF_OK; rank++) {
        struct wf_run_place at = wf_run_place(setup, rank);
        first = at.group == group && first == UINT32_MAX ? at.engine : first;
        if (at.group == group && at.engine == first) {
            status = ask_rank(setup, rank, error);
        }
    }
    return status;
}

enum wf_status wf_run_check_all(const struct wf_run_setup *setup, struct wf_run_check *checks_out,
                                uint32_t *count_out, struct wf_error *error)
{
    bool wanted = setup->job.policy.validate_every > 0;
    *count_out = 0;
    for (uint32_t g = 0; g < setup->job.infer_count; g++) {
        struct wf_run_check *check = &checks_out[*count_out];
        bool spelled = setup->infer[g].engine->layout != NULL; /* a manifest */
        if (wf_run_keeps(setup, g)) {
            continue;
        }
        *check = (struct wf_run_check){.group = setup->job.infer[g].name,
                                       .spec = setup->job.infer[g].spec};
        enum wf_status status = ask(setup, g, error);
        check->knows = status == WF_OK;
        if (!check->knows && wanted) {
            char why[sizeof check->why];
            snprintf(why, sizeof why, "%.400s", error->text);
            return wf_error_set(error, status,
                                "infer[%u] (%s): %s; set policy.validate_every to 0 to run without "
                                "checking elements and reads",
                                g, check->spec, why);
        }
        if (!check->knows) {
            check->by = WF_RUN_CHECK_NOTHING;
            snprintf(check->why, sizeof check->why,
                     "nothing is checked, neither elements nor "
                     "reads: %.400s",
                     error->text);
        } else if (!wanted) {
            check->by = WF_RUN_CHECK_NOTHING;
            snprintf(check->why, sizeof check->why,
                     "no elements are checked: policy.validate_every is 0");
        } else if (!wf_verify_is_retold(setup->model, &setup->infer[g])) {
            check->by = WF_RUN_CHECK_LAYOUT;
            bool packed = !spelled && wf_verify_is_packed(setup->model);
            snprintf(check->why, sizeof check->why,
                     "elements are checked against the layout that moved them, which %s%s alone "
                     "gives: were it wrong, the check would not find that",
                     spelled  ? "a manifest"
                     : packed ? "our own reading of "
                              : "the table of the family ",
                     spelled  ? ""
                     : packed ? wf_model_packing(setup->model)
                              : setup->model->family->name);
        }
        ++*count_out;
    }
    return WF_OK;
}
