/* case_fsdp.c - case.json of torch FSDP1, FSDP2 and DTensor: SPEC text of the engine fsdp. */
#include "tools/layout/case_private.h"

#include <string.h>

#include "models/json.h"

enum { MESH_AXES_MAX = 4, MESH_SIZE_MAX = 1 << 16 };

/* Names of mesh axes, and the SPEC's key and word for each. */
static const struct {
    const char *mesh, *key;
} axes[] = {
    {"replicate", "replicate"},
    {"dp_replicate", "replicate"},
    {"shard", "dp"},
    {"dp_shard", "dp"},
    {"dp", "dp"},
    {"fsdp", "dp"},
    {"tp", "tp"},
};

static const char *key_of_axis(struct json_object *name)
{
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        if (json_object_is_type(name, json_type_string) &&
            strcmp(json_object_get_string(name), axes[i].mesh) == 0) {
            return axes[i].key;
        }
    }
    return NULL;
}

/* Ranks are numbered row by row over the mesh: its last axis is the fastest, `order`'s first. */
static enum wf_status put_mesh(struct wf_case_spec *spec, struct json_object *root,
                               struct wf_error *error)
{
    struct json_object *mesh = wf_case_get(root, "mesh");
    struct json_object *shape = wf_case_get(mesh, "shape"), *names = wf_case_get(mesh, "names");
    if (!json_object_is_type(shape, json_type_array) ||
        !json_object_is_type(names, json_type_array) ||
        json_object_array_length(shape) != json_object_array_length(names) ||
        json_object_array_length(shape) > MESH_AXES_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "case.json: \"mesh\" is needed, with as many \"names\" as sizes in "
                            "\"shape\", at most %d",
                            MESH_AXES_MAX);
    }
    char order[64] = "";
    for (size_t i = json_object_array_length(shape); i-- > 0;) {
        struct json_object *size = json_object_array_get_idx(shape, i);
        struct json_object *name = json_object_array_get_idx(names, i);
        const char *key = key_of_axis(name);
        int64_t number = json_object_is_type(size, json_type_int) ? json_object_get_int64(size) : 0;
        if (!key) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "case.json: a mesh axis named %.60s is not supported; expected "
                                "replicate, dp, shard or tp",
                                json_object_to_json_string(name));
        }
        if (number < 1 || number > MESH_SIZE_MAX || strstr(order, key)) {
            return wf_error_set(error, WF_INVALID,
                                "case.json: mesh axis %s: expected once, of 1 to %d ranks", key,
                                MESH_SIZE_MAX);
        }
        wf_case_put_number(spec, key, (uint64_t)number);
        strcat(strcat(order, order[0] ? "-" : ""), key);
    }
    wf_case_put(spec, "order", order, strlen(order));
    return WF_OK;
}

/* What each parameter's shards stand on follows from the keys of a SPEC, but for the dimension: it
 * is 1 where FSDP was told so, then for all parameters of two dimensions and more. */
static bool shards_columns(struct json_object *root)
{
    struct json_object *tensors = wf_case_get(root, "tensors");
    if (!json_object_is_type(tensors, json_type_object)) {
        return false;
    }
    json_object_object_foreach(tensors, name, tensor)
    {
        (void)name;
        struct json_object *dims = wf_case_get(tensor, "mesh_dims");
        struct json_object *placements = wf_case_get(tensor, "placements");
        size_t count =
            json_object_is_type(dims, json_type_array) ? json_object_array_length(dims) : 0;
        for (size_t i = 0; i < count; i++) {
            const char *key = key_of_axis(json_object_array_get_idx(dims, i));
            const char *placement =
                json_object_get_string(json_object_array_get_idx(placements, i));
            if (key && strcmp(key, "dp") == 0 && placement &&
                (strcmp(placement, "S(1)") == 0 || strncmp(placement, "_S(1,", 5) == 0)) {
                return true;
            }
        }
    }
    return false;
}

static enum wf_status put_flat(struct wf_case_spec *spec, struct json_object *root,
                               struct wf_error *error)
{
    struct json_object *ranks = wf_case_get(root, "flat_parameters");
    const char *framework = json_object_get_string(wf_case_get(root, "framework"));
    if (!strstr(framework, "use_orig_params")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: FSDP1 without use_orig_params is not supported");
    }
    if (!json_object_is_type(ranks, json_type_array) || json_object_array_length(ranks) == 0) {
        return wf_error_set(error, WF_INVALID,
                            "case.json: \"flat_parameters\" is needed, a list for each rank");
    }
    wf_case_put(spec, "flat", "1", 1);
    wf_case_put_number(spec, "dp", json_object_array_length(ranks));
    return WF_OK;
}

enum wf_status wf_case_fsdp(struct json_object *root, struct wf_case *it, struct wf_case_spec *spec,
                            struct wf_error *error)
{
    (void)it;
    static const char wrapping[] = "every decoder layer, then the root";
    if (!wf_case_text_begins(root, "wrapping", wrapping)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: expected the wrapping \"%s\"; another one is not supported",
                            wrapping);
    }
    bool flat = wf_case_text_begins(root, "framework", "torch FSDP1");
    enum wf_status status = flat ? put_flat(spec, root, error) : put_mesh(spec, root, error);
    if (status == WF_OK && shards_columns(root)) {
        wf_case_put(spec, "shard", "1", 1);
    }
    wf_case_put(spec, "dtype", "f32", 3); /* of every executed case: master weights */
    return status;
}
