/* torch_globals.c - the names that a state dict's pickle may hold, and what a call of one means. */
#include <inttypes.h>
#include <string.h>

#include "tools/files/torch_pickle_private.h"

enum role {
    ROLE_DICT,
    ROLE_TENSOR,       /* (storage, offset, size, stride, requires_grad, hooks[, metadata]) */
    ROLE_TENSOR_TYPED, /* the same with a dtype behind the hooks */
    ROLE_PARAMETER,    /* (tensor, ...) */
    ROLE_STORAGE,
    ROLE_DTYPE,
    ROLE_PASSED, /* the result is of no interest */
};

/* Sources: torch/_utils.py and torch/storage.py of PyTorch 2.6. */
static const struct global {
    const char *module, *name;
    enum role role;
    enum wf_dtype dtype;
} globals[] = {
    {"collections", "OrderedDict", ROLE_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", ROLE_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v3", ROLE_TENSOR_TYPED, 0},
    {"torch._utils", "_rebuild_parameter", ROLE_PARAMETER, 0},
    {"torch._utils", "_rebuild_parameter_with_state", ROLE_PARAMETER, 0},
    {"torch", "FloatStorage", ROLE_STORAGE, WF_DTYPE_F32},
    {"torch", "HalfStorage", ROLE_STORAGE, WF_DTYPE_F16},
    {"torch", "BFloat16Storage", ROLE_STORAGE, WF_DTYPE_BF16},
    {"torch", "DoubleStorage", ROLE_STORAGE, WF_DTYPE_F64},
    {"torch", "LongStorage", ROLE_STORAGE, WF_DTYPE_I64},
    {"torch", "IntStorage", ROLE_STORAGE, WF_DTYPE_I32},
    {"torch", "ShortStorage", ROLE_STORAGE, WF_DTYPE_I16},
    {"torch", "CharStorage", ROLE_STORAGE, WF_DTYPE_I8},
    {"torch", "ByteStorage", ROLE_STORAGE, WF_DTYPE_U8},
    {"torch", "BoolStorage", ROLE_STORAGE, WF_DTYPE_BOOL},
    {"torch.storage", "UntypedStorage", ROLE_STORAGE, WF_DTYPE_NONE},
    {"torch", "float32", ROLE_DTYPE, WF_DTYPE_F32},
    {"torch", "float16", ROLE_DTYPE, WF_DTYPE_F16},
    {"torch", "bfloat16", ROLE_DTYPE, WF_DTYPE_BF16},
    {"torch", "float64", ROLE_DTYPE, WF_DTYPE_F64},
    {"torch", "float8_e4m3fn", ROLE_DTYPE, WF_DTYPE_F8_E4M3},
    {"torch", "float8_e5m2", ROLE_DTYPE, WF_DTYPE_F8_E5M2},
    {"torch", "int64", ROLE_DTYPE, WF_DTYPE_I64},
    {"torch", "int32", ROLE_DTYPE, WF_DTYPE_I32},
    {"torch", "int16", ROLE_DTYPE, WF_DTYPE_I16},
    {"torch", "int8", ROLE_DTYPE, WF_DTYPE_I8},
    {"torch", "uint8", ROLE_DTYPE, WF_DTYPE_U8},
    {"torch", "bool", ROLE_DTYPE, WF_DTYPE_BOOL},
    /* Types that this build does not know: names and shapes can be compared. */
    {"torch", "float8_e4m3fnuz", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "float8_e5m2fnuz", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "float8_e8m0fnu", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "float4_e2m1fn_x2", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "uint16", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "uint32", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "uint64", ROLE_DTYPE, WF_DTYPE_NONE},
    {"torch", "Size", ROLE_PASSED, 0},
    {"torch", "device", ROLE_PASSED, 0},
    {"_io", "BytesIO", ROLE_PASSED, 0},
    {"_codecs", "encode", ROLE_PASSED, 0},
};

static bool is(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

enum wf_status wf_pickle_global(struct wf_pickle *p, const char *module, size_t module_len,
                                const char *name, size_t name_len, uint32_t *index_out)
{
    for (uint32_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        if (is(module, module_len, globals[i].module) && is(name, name_len, globals[i].name)) {
            *index_out = i;
            return WF_OK;
        }
    }
    int module_shown = module_len < 80 ? (int)module_len : 80,
        name_shown = name_len < 80 ? (int)name_len : 80;
    return wf_pickle_refuse(p, WF_UNSUPPORTED,
                            "it names %.*s.%.*s, which is no part of a state dict; nothing of a "
                            "pickle is run, so save the tensors alone (torch.save of a dict of "
                            "plain tensors)",
                            module_shown, module, name_shown, name);
}

/* Items of a tuple, at most `cap` of them; gives how many it has. */
static uint32_t items_of(const struct wf_pickle *p, uint32_t tuple, uint32_t *values, uint32_t cap)
{
    const struct wf_pickle_object *it = wf_pickle_object(p, tuple);
    uint32_t item = it->items.first;
    for (uint32_t i = 0; i < cap && item != WF_NONE; i++) {
        const struct wf_pickle_item *at = wf_pickle_item(p, item);
        values[i] = at->value;
        item = at->next;
    }
    return it->items.count;
}

static const struct global *global_of(const struct wf_pickle *p, uint32_t object)
{
    const struct wf_pickle_object *it = wf_pickle_object(p, object);
    return it->kind == WF_PICKLE_GLOBAL ? &globals[it->index] : NULL;
}

static enum wf_status make_tensor(struct wf_pickle *p, const struct global *global,
                                  uint32_t arguments, uint32_t *object_out)
{
    enum { STORAGE, OFFSET, SIZE, STRIDE, GRAD, HOOKS, DTYPE, ARGUMENTS };
    bool typed = global->role == ROLE_TENSOR_TYPED;
    uint32_t values[ARGUMENTS], count = items_of(p, arguments, values, ARGUMENTS);
    const struct wf_pickle_object *it = NULL;
    if (count < (typed ? DTYPE + 1u : HOOKS + 1u) || count > ARGUMENTS + 1) {
        return wf_pickle_refuse(p, WF_INVALID, "%s with %" PRIu32 " arguments", global->name,
                                count);
    }
    it = wf_pickle_object(p, values[STORAGE]);
    const struct wf_pickle_object *offset = wf_pickle_object(p, values[OFFSET]);
    const struct global *dtype = typed ? global_of(p, values[DTYPE]) : NULL;
    if (it->kind != WF_PICKLE_STORAGE || offset->kind != WF_PICKLE_INT || offset->integer < 0 ||
        wf_pickle_object(p, values[SIZE])->kind != WF_PICKLE_TUPLE ||
        wf_pickle_object(p, values[STRIDE])->kind != WF_PICKLE_TUPLE ||
        (typed && (dtype == NULL || dtype->role != ROLE_DTYPE))) {
        return wf_pickle_refuse(p, WF_INVALID,
                                "%s: expected a storage, an offset, a size and a stride%s",
                                global->name, typed ? ", and a dtype" : "");
    }
    const struct wf_pickle_storage *storage =
        (struct wf_pickle_storage *)p->storages.at + it->index;
    if (typed ? !storage->untyped && storage->dtype != dtype->dtype : storage->untyped) {
        return wf_pickle_refuse(p, WF_INVALID, "%s of a storage of another dtype, or of none",
                                global->name);
    }
    const struct wf_pickle_parts tensor = {it->index, typed ? dtype->dtype : storage->dtype,
                                           (uint64_t)offset->integer, values[SIZE], values[STRIDE]};
    enum wf_status status = wf_pickle_grow(p, &p->tensors, sizeof tensor);
    status = status == WF_OK ? wf_pickle_new(p, WF_PICKLE_TENSOR, object_out) : status;
    if (status == WF_OK) {
        wf_pickle_object(p, *object_out)->index = p->tensors.count;
        ((struct wf_pickle_parts *)p->tensors.at)[p->tensors.count++] = tensor;
    }
    return status;
}

enum wf_status wf_pickle_call(struct wf_pickle *p, uint32_t callee, uint32_t arguments,
                              uint32_t *object_out)
{
    const struct global *global = global_of(p, callee);
    if (global == NULL || wf_pickle_object(p, arguments)->kind != WF_PICKLE_TUPLE) {
        return wf_pickle_refuse(p, WF_UNSUPPORTED, "a call of something that is no known name");
    }
    uint32_t first = 0, count = items_of(p, arguments, &first, 1);
    switch (global->role) {
    case ROLE_DICT:
        if (count == 0) {
            return wf_pickle_new(p, WF_PICKLE_DICT, object_out);
        }
        break;
    case ROLE_TENSOR:
    case ROLE_TENSOR_TYPED:
        return make_tensor(p, global, arguments, object_out);
    case ROLE_PARAMETER:
        if (count > 0 && wf_pickle_object(p, first)->kind == WF_PICKLE_TENSOR) {
            *object_out = first;
            return WF_OK;
        }
        break;
    case ROLE_PASSED:
        return wf_pickle_new(p, WF_PICKLE_OPAQUE, object_out);
    case ROLE_STORAGE:
    case ROLE_DTYPE:
        break;
    }
    return wf_pickle_refuse(p, WF_UNSUPPORTED, "%s is called with what torch does not give it",
                            global->name);
}

enum wf_status wf_pickle_persistent(struct wf_pickle *p, uint32_t id, uint32_t *object_out)
{
    enum { WORD, CLASS, KEY, LOCATION, ELEMENTS, VALUES };
    uint32_t values[VALUES] = {0};
    const struct global *class = NULL;
    bool tuple = wf_pickle_object(p, id)->kind == WF_PICKLE_TUPLE;
    if (tuple && items_of(p, id, values, VALUES) == VALUES &&
        wf_pickle_text_is(p, values[WORD], "storage") &&
        wf_pickle_object(p, values[KEY])->kind == WF_PICKLE_TEXT &&
        wf_pickle_object(p, values[ELEMENTS])->kind == WF_PICKLE_INT &&
        wf_pickle_object(p, values[ELEMENTS])->integer >= 0) {
        class = global_of(p, values[CLASS]);
    }
    if (class == NULL || class->role != ROLE_STORAGE) {
        return wf_pickle_refuse(p, WF_UNSUPPORTED,
                                "expected (\"storage\", class, key, location, elements)");
    }
    const struct wf_pickle_storage storage = {
        .key = values[KEY],
        .dtype = class->dtype,
        .untyped = class->dtype == WF_DTYPE_NONE,
        .elements = (uint64_t)wf_pickle_object(p, values[ELEMENTS])->integer};
    enum wf_status status = wf_pickle_grow(p, &p->storages, sizeof storage);
    status = status == WF_OK ? wf_pickle_new(p, WF_PICKLE_STORAGE, object_out) : status;
    if (status == WF_OK) {
        wf_pickle_object(p, *object_out)->index = p->storages.count;
        ((struct wf_pickle_storage *)p->storages.at)[p->storages.count++] = storage;
    }
    return status;
}
