/* plan_prove_sets.c - maps and sets of numbers for the coverage proof, as lists of nests. */
#include <stdlib.h>
#include <string.h>

#include "actors/plan_prove_parts.h"

enum {
    /* Nests into which steps without common factors may fall; more cannot be proven. */
    NESTS_MAX = 1 << 20,
};

enum wf_status wf_proof_no_memory(struct wf_error *error)
{
    return wf_error_set(error, WF_NO_MEMORY, "not enough memory to prove the plan");
}

void wf_proof_list_fini(struct wf_proof_list *list)
{
    free(list->nests);
    free(list->owners);
    *list = (struct wf_proof_list){0};
}

static void append_nest(struct wf_proof_list *list, const struct wf_nest *nest, uint32_t owner)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity < 32 ? 64 : 2 * list->capacity;
        struct wf_nest *nests = realloc(list->nests, capacity * sizeof *nests);
        list->nests = nests != NULL ? nests : list->nests;
        uint32_t *owners = realloc(list->owners, capacity * sizeof *owners);
        list->owners = owners != NULL ? owners : list->owners;
        if (nests == NULL || owners == NULL) {
            list->failed = true;
            return;
        }
        list->capacity = capacity;
    }
    list->nests[list->count] = *nest;
    list->owners[list->count++] = owner;
}

static bool is_chain(const struct wf_nest *sorted)
{
    for (uint32_t a = 1; a < sorted->axis_count; a++) {
        uint64_t outer = sorted->axes[a - 1].param_step, inner = sorted->axes[a].param_step;
        if (inner > 0 && (outer % inner != 0 || sorted->axes[a].count > outer / inner)) {
            return false;
        }
    }
    return true;
}

/* Writes the outermost axis out as long as the steps are no chain. */
static bool append_chains(struct wf_proof_list *list, const struct wf_nest *sorted, uint32_t owner)
{
    if (is_chain(sorted)) {
        append_nest(list, sorted, owner);
        return true;
    }
    struct wf_nest part = *sorted;
    part.axis_count--;
    memmove(&part.axes[0], &part.axes[1], part.axis_count * sizeof part.axes[0]);
    for (uint64_t i = 0; i < sorted->axes[0].count; i++) {
        if (list->failed || list->count > NESTS_MAX || !append_chains(list, &part, owner)) {
            return false;
        }
        part.param_first += sorted->axes[0].param_step;
        part.tensor_offset += (uint64_t)sorted->axes[0].tensor_step;
    }
    return true;
}

bool wf_proof_add_map(struct wf_proof_list *list, const struct wf_proof_map *map, uint32_t owner)
{
    struct wf_nest nest = {.param_first = map->from, .tensor_offset = map->to, .elem_bytes = 1};
    for (uint32_t a = 0; a < map->axis_count; a++) {
        uint64_t count = map->axes[a].count, step = (uint64_t)map->axes[a].from_step;
        int64_t to_step = map->axes[a].to_step;
        if (count == 1) {
            continue;
        }
        if (count == 0 || nest.axis_count == WF_AXES_MAX) {
            return false;
        }
        if (map->axes[a].from_step < 0) { /* walked from its other end */
            nest.param_first += (count - 1) * step;
            nest.tensor_offset += (count - 1) * (uint64_t)to_step;
            step = -step;
            to_step = -to_step;
        }
        uint32_t at = nest.axis_count++;
        for (; at > 0 && nest.axes[at - 1].param_step < step; at--) {
            nest.axes[at] = nest.axes[at - 1];
        }
        nest.axes[at] = (struct wf_axis){count, step, to_step};
    }
    return append_chains(list, &nest, owner);
}

bool wf_proof_add_bytes(struct wf_proof_list *list, const struct wf_proof_map *map,
                        uint32_t elem_bytes, uint32_t owner)
{
    struct wf_proof_map bytes = {.from = map->from};
    bool run = elem_bytes == 1;
    for (uint32_t a = 0; a < map->axis_count; a++) {
        uint64_t count = map->axes[a].count;
        int64_t step = map->axes[a].from_step;
        if (count > 1 && step == 0) {
            return false;
        }
        if (!run && step == (int64_t)elem_bytes) { /* close neighbours: a run of bytes */
            count *= elem_bytes;
            step = 1;
            run = true;
        }
        bytes.axes[bytes.axis_count].count = count;
        bytes.axes[bytes.axis_count++].from_step = step;
    }
    if (!run) {
        if (bytes.axis_count > WF_AXES_MAX) {
            return false;
        }
        bytes.axes[bytes.axis_count].count = elem_bytes;
        bytes.axes[bytes.axis_count++].from_step = 1;
    }
    return wf_proof_add_map(list, &bytes, owner);
}

/* --- common numbers --------------------------------------------------------------------------- */

struct start {
    uint64_t first, end;
    size_t index;
};

static int compare_starts(const void *a, const void *b)
{
    const struct start *x = a, *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static uint64_t nest_end(const struct wf_nest *nest)
{
    uint64_t last = nest->param_first;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        last += (nest->axes[a].count - 1) * nest->axes[a].param_step;
    }
    return last + 1;
}

static bool note_common(void *user, const struct wf_box *box)
{
    struct wf_proof_clash *clash = user;
    clash->found = true;
    clash->at = box->param_first;
    return false;
}

enum wf_status wf_proof_clash(const struct wf_proof_list *list, struct wf_proof_clash *clash_out,
                              struct wf_error *error)
{
    struct start *starts = calloc(list->count + 1, sizeof *starts);
    if (starts == NULL || list->failed) {
        free(starts);
        return wf_proof_no_memory(error);
    }
    for (size_t i = 0; i < list->count; i++) {
        starts[i] = (struct start){list->nests[i].param_first, nest_end(&list->nests[i]), i};
    }
    qsort(starts, list->count, sizeof *starts, compare_starts);
    struct wf_proof_clash clash = {0};
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < list->count && status == WF_OK && !clash.found; i++) {
        size_t a = starts[i].index;
        for (size_t j = i + 1;
             j < list->count && starts[j].first < starts[i].end && status == WF_OK && !clash.found;
             j++) {
            size_t b = starts[j].index;
            clash.a = list->owners[a];
            clash.b = list->owners[b];
            status =
                wf_nest_intersect(&list->nests[a], &list->nests[b], note_common, &clash, error);
        }
    }
    free(starts);
    if (status == WF_OK) {
        *clash_out = clash;
    }
    return status;
}
