/* fsdp_flat.c - FSDP1: the parameters of a wrapped module flattened into one, cut by elements.
 *
 * torch/distributed/fsdp/_flat_param.py with use_orig_params: the parameters of each wrapped module
 * (every decoder layer, then what is left in the root) stand in order of registration, each begins
 * at a multiple of 16 bytes of the dtype that is computed with, and the end is padded to a multiple
 * of the ranks, which have equal shares. Each parameter is then a view of one dimension of what of
 * it lies in the share, empty where nothing does; the padding (42.0) is nobody's view. Buffers are
 * no part of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/fsdp.h"
#include "models/layout_private.h"

enum { ALIGN_BYTES = 16 };

/* Order of registration inside a decoder layer and in the root, as the state dicts of transformers
 * 5.24 have it; a family says where its modules differ (wf_family_engine.order). */
static const char *const registered[] = {
    "embedding",
    "sinks",
    "q",
    "q_bias",
    "q_a",
    "q_a_norm",
    "q_b",
    "k",
    "k_bias",
    "v",
    "v_bias",
    "kv_a",
    "kv_a_norm",
    "kv_b",
    "o",
    "o_bias",
    "q_norm",
    "k_norm",
    "indexer_q_b",
    "indexer_k",
    "indexer_k_norm",
    "indexer_k_norm_bias",
    "indexer_weights",
    "gdn_dt_bias",
    "gdn_a_log",
    "gdn_conv",
    "gdn_qkvz",
    "gdn_ba",
    "gdn_norm",
    "gdn_out",
    "gdn_qkv",
    "gdn_z",
    "gdn_b",
    "gdn_a",
    "gate",
    "gate_bias",
    "up",
    "up_bias",
    "down",
    "down_bias",
    "expert_gate",
    "expert_gate_bias",
    "expert_down",
    "expert_down_bias",
    "router",
    "router_bias",
    "router_correction",
    "shared_gate",
    "shared_up",
    "shared_down",
    "shared_router",
    "input_norm",
    "attn_out_norm",
    "post_norm",
    "mlp_out_norm",
    "final_norm",
    "head",
};
enum {
    REGISTERED = sizeof registered / sizeof registered[0],
    PLACES = 32, /* between two neighbours of that list, for what a family puts there */
};

/* A tensor and where it stands. */
struct member {
    uint32_t module; /* 0: the root; layer i is 1 + i */
    uint32_t place;  /* in the order of registration */
    uint32_t param;  /* of its first piece */
    uint32_t tensor;
    bool flat;
    uint64_t elements, offset; /* in the module's flat parameter */
};

struct flattener {
    const struct wf_model *model;
    const struct wf_layout *whole;
    struct member *members; /* one a tensor */
    struct wf_build build;
    uint32_t param; /* while a piece is composed */
    enum wf_value_rule value;
    struct wf_error *error;
};

static int by_registration(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    if (a->module != b->module) {
        return a->module < b->module ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

static uint32_t usual_place(const char *role, size_t len)
{
    uint32_t i = 0;
    while (i < REGISTERED && (strlen(registered[i]) != len || memcmp(registered[i], role, len))) {
        i++;
    }
    return (i + 1) * PLACES;
}

/* WF_NONE where the order of this role is not known. */
static uint32_t place_of(const struct wf_family *family, const char *role)
{
    const char *at = NULL;
    uint32_t found = usual_place(role, strlen(role)), pair = 0;
    for (size_t i = 0; i < family->engine_count; i++) {
        if (strcmp(family->engines[i].engine, wf_engine_fsdp.exceptions) == 0) {
            at = family->engines[i].order;
        }
    }
    for (; at && *at; pair++) {
        size_t len = strcspn(at, " "), less = strcspn(at, "<");
        if (less < len && strlen(role) == less && memcmp(role, at, less) == 0) {
            found = usual_place(at + less + 1, len - less - 1) - PLACES / 2 + pair;
        }
        at += len + strspn(at + len, " ");
    }
    return found <= REGISTERED * PLACES ? found : WF_NONE;
}

static enum wf_status describe(struct flattener *f, const struct wf_piece *first,
                               struct member *member)
{
    const struct wf_param *param = &f->model->params[first->param];
    const struct wf_family *family = f->model->family;
    const struct wf_tensor *tensor = &f->whole->tensors[member->tensor];
    member->param = first->param;
    member->flat = strcmp(family->rows[param->row].role, "router_correction") != 0;
    member->elements = tensor->bytes / wf_dtype_bytes(tensor->dtype);
    member->place = place_of(family, family->rows[param->row].role);
    if (member->place == WF_NONE) {
        return wf_error_set(f->error, WF_UNSUPPORTED,
                            "flat=1: where %s stands in the order of registration is not known",
                            tensor->name);
    }
    if (param->stack == WF_NONE) {
        return WF_OK;
    }
    if (strcmp(family->stacks[param->stack].name, "layer") != 0) {
        return wf_error_set(f->error, WF_UNSUPPORTED,
                            "flat=1: how %s is wrapped is not known; it is no part of a decoder "
                            "layer",
                            param->name);
    }
    member->module = 1 + param->index;
    return WF_OK;
}

/* Fills f->members in order of registration. */
static enum wf_status find_members(struct flattener *f)
{
    const struct wf_layout *whole = f->whole;
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < whole->tensor_count; i++) {
        f->members[i].tensor = i;
        f->members[i].param = WF_NONE;
    }
    for (uint32_t i = 0; i < whole->piece_count && status == WF_OK; i++) {
        const struct wf_piece *piece = &whole->pieces[i];
        struct member *member = &f->members[piece->tensor];
        WF_ASSERT(piece->kind == WF_PIECE_DATA);
        if (member->param == WF_NONE) {
            status = describe(f, piece, member);
        }
    }
    qsort(f->members, whole->tensor_count, sizeof *f->members, by_registration);
    return status;
}

/* One module: [first, end) of the members. Gives each its place and the elements of a share. */
static enum wf_status place(struct flattener *f, const struct wf_recipe *recipe, uint32_t first,
                            uint32_t end, uint64_t *share_out)
{
    enum wf_dtype dtype = WF_DTYPE_NONE;
    uint64_t total = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct wf_tensor *tensor = &f->whole->tensors[f->members[i].tensor];
        if (!f->members[i].flat) {
            continue;
        }
        dtype = dtype == WF_DTYPE_NONE ? tensor->dtype : dtype;
        if (tensor->dtype != dtype) {
            return wf_error_set(f->error, WF_UNSUPPORTED,
                                "flat=1: %s is %s and others of its module are %s; FSDP1 flattens "
                                "one dtype only",
                                tensor->name, wf_dtype_name(tensor->dtype), wf_dtype_name(dtype));
        }
        uint64_t align = recipe->own[WF_FSDP_ALIGN] ? recipe->own[WF_FSDP_ALIGN]
                                                    : ALIGN_BYTES / wf_dtype_bytes(dtype);
        total = (total + align - 1) / align * align;
        f->members[i].offset = total;
        total += f->members[i].elements;
    }
    *share_out = (total + recipe->dp - 1) / recipe->dp;
    return WF_OK;
}

static bool add_nest(void *user, const struct wf_nest *nest)
{
    struct flattener *f = user;
    wf_build_piece(&f->build, f->param, nest, f->value);
    return true;
}

/* Elements [begin, begin + count) of a whole tensor, as a tensor of that many. */
static enum wf_status add_view(struct flattener *f, uint32_t index, uint64_t begin, uint64_t count)
{
    const struct wf_layout *whole = f->whole;
    const struct wf_tensor *tensor = &whole->tensors[index];
    uint32_t bytes = (uint32_t)wf_dtype_bytes(tensor->dtype);
    const struct wf_nest window = {
        .param_first = begin, .elem_bytes = bytes, .axis_count = 1, .axes = {{count, 1, bytes}}};
    enum wf_status status = WF_OK;
    wf_build_tensor(&f->build, tensor->name, tensor->dtype, 1, &count, tensor->kind);
    uint32_t first, end;
    wf_layout_pieces(whole, index, &first, &end);
    for (uint32_t i = first; i < end && count > 0 && status == WF_OK; i++) {
        struct wf_nest nest = wf_layout_nest(whole, i);
        f->param = whole->pieces[i].param;
        f->value = whole->pieces[i].value_rule;
        status = wf_nest_compose(&nest, &window, add_nest, f, f->error);
    }
    return status;
}

/* A buffer stays as it is. */
static void add_whole(struct flattener *f, uint32_t index)
{
    const struct wf_layout *whole = f->whole;
    const struct wf_tensor *tensor = &whole->tensors[index];
    wf_build_tensor(&f->build, tensor->name, tensor->dtype, tensor->ndim, tensor->shape,
                    tensor->kind);
    uint32_t first, end;
    wf_layout_pieces(whole, index, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        struct wf_nest nest = wf_layout_nest(whole, i);
        wf_build_piece(&f->build, whole->pieces[i].param, &nest, whole->pieces[i].value_rule);
    }
}

static void add_aliases(struct flattener *f, uint32_t old_index, uint32_t new_index)
{
    for (uint32_t i = 0; i < f->whole->alias_count; i++) {
        if (f->whole->aliases[i].tensor == old_index) {
            wf_build_alias(&f->build, f->whole->aliases[i].name, new_index);
        }
    }
}

static enum wf_status flatten(struct flattener *f, const struct wf_recipe *recipe, uint32_t shard)
{
    uint32_t count = f->whole->tensor_count, added = 0;
    enum wf_status status = find_members(f);
    for (uint32_t first = 0, end; first < count && status == WF_OK; first = end) {
        uint64_t share = 0;
        for (end = first; end < count && f->members[end].module == f->members[first].module;) {
            end++;
        }
        status = place(f, recipe, first, end, &share);
        uint64_t low = share * shard, high = low + share;
        for (uint32_t i = first; i < end && status == WF_OK; i++) {
            const struct member *member = &f->members[i];
            uint64_t begin = member->offset, stop = begin + member->elements;
            uint64_t from = begin > low ? begin : low, to = stop < high ? stop : high;
            if (member->flat) {
                status = add_view(f, member->tensor, from < to ? from - begin : 0,
                                  from < to ? to - from : 0);
            } else {
                add_whole(f, member->tensor);
            }
            add_aliases(f, member->tensor, added++);
        }
    }
    return status;
}

enum wf_status wf_fsdp_finish(const struct wf_model *model, const struct wf_recipe *recipe,
                              uint32_t rank, struct wf_layout *whole, struct wf_layout **layout_out,
                              struct wf_error *error)
{
    /* One rank alone shards nothing (_init_utils.py makes it NO_SHARD) and keeps the shapes. */
    if (!recipe->own[WF_FSDP_FLAT] || recipe->dp == 1) {
        *layout_out = whole;
        return WF_OK;
    }
    struct flattener f = {.model = model, .whole = whole, .error = error};
    wf_build_begin(&f.build);
    f.members = calloc(whole->tensor_count + 1, sizeof *f.members);
    f.build.failed = f.build.failed || !f.members;
    uint32_t shard = wf_recipe_coordinates(recipe, rank).dp % recipe->dp;
    enum wf_status status = f.members ? flatten(&f, recipe, shard) : WF_OK;
    status = wf_build_end(&f.build, status, layout_out, error);
    free(f.members);
    wf_layout_free(whole);
    return status;
}
