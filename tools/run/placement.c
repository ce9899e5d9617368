/* placement.c - reads a table of experts. */
#include "tools/run/placement.h"

#include <fcntl.h>
#include <stdlib.h>

#include "models/json.h"
#include "tools/files/io.h"

enum { PLACEMENT_BYTES_MAX = 16 << 20, PLACEMENT_EXPERT_MAX = 1 << 20 };

static enum wf_status take_row(struct json_object *row, size_t layer, size_t slots,
                               uint32_t *experts_out, struct wf_error *error)
{
    if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != slots) {
        return wf_error_set(error, WF_INVALID,
                            "layer %zu: expected a list of %zu experts, as layer 0 has", layer,
                            slots);
    }
    for (size_t i = 0; i < slots; i++) {
        struct json_object *value = json_object_array_get_idx(row, i);
        int64_t expert = json_object_get_int64(value);
        if (!json_object_is_type(value, json_type_int) || expert < 0 ||
            expert > PLACEMENT_EXPERT_MAX) {
            return wf_error_set(error, WF_INVALID,
                                "layer %zu, slot %zu: expected the number of an expert", layer, i);
        }
        experts_out[i] = (uint32_t)expert;
    }
    return WF_OK;
}

static enum wf_status take_table(struct json_object *root, struct wf_placement *placement_out,
                                 struct wf_error *error)
{
    struct json_object *table = root, *member = NULL;
    if (json_object_object_get_ex(root, "physical_to_logical_map", &member)) {
        table = member;
    }
    bool list = json_object_is_type(table, json_type_array) && json_object_array_length(table) > 0;
    struct json_object *first = list ? json_object_array_get_idx(table, 0) : NULL;
    if (!json_object_is_type(first, json_type_array) || json_object_array_length(first) == 0) {
        return wf_error_set(error, WF_INVALID, "expected a list of layers, each a list of experts");
    }
    size_t layers = json_object_array_length(table), slots = json_object_array_length(first);
    uint32_t *experts = calloc(layers * slots, sizeof *experts);
    if (experts == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a table of experts");
    }
    *placement_out = (struct wf_placement){
        .layers = (uint32_t)layers, .slots = (uint32_t)slots, .experts = experts};
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < layers && status == WF_OK; i++) {
        status =
            take_row(json_object_array_get_idx(table, i), i, slots, &experts[i * slots], error);
    }
    return status;
}

enum wf_status wf_run_placement_load(const char *path, struct wf_placement *placement_out,
                                     struct wf_error *error)
{
    char *text = NULL;
    size_t len = 0;
    struct json_object *root = NULL;
    *placement_out = (struct wf_placement){0};
    enum wf_status status =
        wf_file_read_all(AT_FDCWD, path, PLACEMENT_BYTES_MAX, &text, &len, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_json_parse(text, len, WF_JSON_STRICT, &root, error);
    if (status == WF_OK) {
        status = take_table(root, placement_out, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
        wf_run_placement_fini(placement_out);
    }
    json_object_put(root);
    free(text);
    return status;
}

void wf_run_placement_fini(struct wf_placement *placement)
{
    free((void *)(uintptr_t)placement->experts);
    *placement = (struct wf_placement){0};
}
