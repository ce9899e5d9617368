/* torch_names.c - walks the dicts of a state dict and gives out its tensors by name. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/files/torch_pickle_private.h"

struct walk {
    struct wf_pickle *p;
    const struct wf_pickle_sink *sink;
    char name[WF_NAME_MAX];
};

static void note(const struct walk *walk, const char *name, size_t len, const char *why)
{
    char sentence[WF_NAME_MAX + 128];
    if (walk->sink->note != NULL) {
        snprintf(sentence, sizeof sentence, "%.*s is passed over: %s",
                 (int)(len < WF_NAME_MAX ? len : WF_NAME_MAX), name, why);
        walk->sink->note(walk->sink->user, sentence);
    }
}

/* --- one tensor ------------------------------------------------------------------------------ */

/* Whole numbers of a tuple, none negative. */
static bool take_numbers(const struct wf_pickle *p, uint32_t tuple, uint64_t *out)
{
    uint32_t item = wf_pickle_object(p, tuple)->items.first;
    for (uint32_t d = 0; item != WF_NONE; d++) {
        const struct wf_pickle_item *at = wf_pickle_item(p, item);
        const struct wf_pickle_object *value = wf_pickle_object(p, at->value);
        if (value->kind != WF_PICKLE_INT || value->integer < 0) {
            return false;
        }
        out[d] = (uint64_t)value->integer;
        item = at->next;
    }
    return true;
}

/* Elements, and that they lie inside the storage. */
static bool measure(struct wf_pickle_tensor *tensor, uint64_t offset, uint64_t room)
{
    uint64_t last = offset, reach = 0;
    tensor->elements = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] == 0) {
            tensor->elements = 0;
            return true;
        }
    }
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (__builtin_mul_overflow(tensor->elements, tensor->shape[d], &tensor->elements) ||
            __builtin_mul_overflow(tensor->shape[d] - 1, (uint64_t)tensor->strides[d], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            return false;
        }
    }
    return last < room && tensor->elements <= INT64_MAX;
}

static enum wf_status give_tensor(struct walk *walk, size_t name_len, uint32_t index)
{
    struct wf_pickle *p = walk->p;
    const struct wf_pickle_parts *parts = (struct wf_pickle_parts *)p->tensors.at + index;
    const struct wf_pickle_storage *storage =
        (struct wf_pickle_storage *)p->storages.at + parts->storage;
    const struct wf_pickle_object *key = wf_pickle_object(p, storage->key);
    uint64_t strides[WF_SHAPE_MAX] = {0};
    struct wf_pickle_tensor tensor = {.key = (const char *)p->bytes + key->text.at,
                                      .key_len = key->text.len,
                                      .dtype = parts->dtype};
    uint64_t elem = wf_dtype_bytes(tensor.dtype), unit = storage->untyped ? 1 : elem;
    tensor.ndim = wf_pickle_object(p, parts->shape)->items.count;
    if (tensor.ndim > WF_SHAPE_MAX) {
        return wf_error_set(p->error, WF_INVALID,
                            "%s has %" PRIu32 " dimensions; at most %d are possible", walk->name,
                            tensor.ndim, WF_SHAPE_MAX);
    }
    if (wf_pickle_object(p, parts->strides)->items.count != tensor.ndim ||
        !take_numbers(p, parts->shape, tensor.shape) || !take_numbers(p, parts->strides, strides)) {
        return wf_error_set(p->error, WF_INVALID,
                            "%s: its size and stride are not whole numbers, one for each dimension",
                            walk->name);
    }
    memcpy(tensor.strides, strides, sizeof tensor.strides);
    elem = elem > 0 ? elem : 1; /* of a type that is not known: each element has a byte or more */
    uint64_t room = storage->untyped ? storage->elements / elem : storage->elements;
    if (!measure(&tensor, parts->offset, room) ||
        __builtin_mul_overflow(storage->elements, unit, &tensor.storage_bytes) ||
        __builtin_mul_overflow(parts->offset, elem, &tensor.offset)) {
        return wf_error_set(p->error, WF_INVALID,
                            "%s reaches outside its storage of %" PRIu64 " elements", walk->name,
                            room);
    }
    return walk->sink->tensor(walk->sink->user, walk->name, name_len, &tensor, p->error);
}

/* --- dicts ----------------------------------------------------------------------------------- */

/* Puts a key behind the first `len` bytes of the name; gives the new length, 0 if it cannot. */
static size_t put_key(struct walk *walk, size_t len, uint32_t key)
{
    const struct wf_pickle_object *it = wf_pickle_object(walk->p, key);
    const char *dot = len > 0 ? "." : "";
    size_t room = sizeof walk->name - len;
    int used = -1;
    if (it->kind == WF_PICKLE_INT) {
        used = snprintf(walk->name + len, room, "%s%" PRId64, dot, it->integer);
    } else if (it->kind == WF_PICKLE_TEXT && it->text.len > 0 && it->text.len < WF_NAME_MAX &&
               memchr(walk->p->bytes + it->text.at, '\0', it->text.len) == NULL) {
        used = snprintf(walk->name + len, room, "%s%.*s", dot, (int)it->text.len,
                        (const char *)walk->p->bytes + it->text.at);
    }
    return used > 0 && (size_t)used < room ? len + (size_t)used : 0;
}

static enum wf_status mark_seen(struct walk *walk, uint32_t dict)
{
    struct wf_pickle_object *it = wf_pickle_object(walk->p, dict);
    if (it->seen) {
        return wf_error_set(walk->p->error, WF_UNSUPPORTED,
                            "a dict stands at two places, the second time at %s", walk->name);
    }
    it->seen = true;
    return WF_OK;
}

static enum wf_status give_dict(struct walk *walk, size_t name_len, uint32_t dict, uint32_t depth)
{
    enum wf_status status = mark_seen(walk, dict);
    if (status == WF_OK && depth == WF_PICKLE_NESTING_MAX) {
        status =
            wf_error_set(walk->p->error, WF_INVALID, "dicts stand in dicts more than %d deep at %s",
                         WF_PICKLE_NESTING_MAX, walk->name);
    }
    uint32_t item = wf_pickle_object(walk->p, dict)->items.first;
    while (item != WF_NONE && status == WF_OK) {
        const struct wf_pickle_item at = *wf_pickle_item(walk->p, item);
        const struct wf_pickle_object *value = wf_pickle_object(walk->p, at.value);
        size_t len = put_key(walk, name_len, at.key);
        if (len == 0) {
            return wf_error_set(walk->p->error, WF_INVALID,
                                "behind \"%.*s\": a key that is no text of 1 to %d bytes",
                                (int)name_len, walk->name, WF_NAME_MAX - 1);
        }
        if (value->kind == WF_PICKLE_TENSOR) {
            status = give_tensor(walk, len, value->index);
        } else if (value->kind == WF_PICKLE_DICT) {
            status = give_dict(walk, len, at.value, depth + 1);
        } else {
            note(walk, walk->name, len, "it is no tensor");
        }
        item = at.next;
    }
    return status;
}

/* --- the outermost dict ---------------------------------------------------------------------- */

enum place { BESIDE, ALONE, STAGE };

/* Whether an entry is the model itself: by its key, if its value is a dict. */
static enum place place_of(const struct wf_pickle *p, const struct wf_pickle_item *item)
{
    const struct wf_pickle_object *key = wf_pickle_object(p, item->key);
    if (wf_pickle_object(p, item->value)->kind != WF_PICKLE_DICT || key->kind != WF_PICKLE_TEXT) {
        return BESIDE;
    }
    if (wf_pickle_text_is(p, item->key, "model") || wf_pickle_text_is(p, item->key, "state_dict") ||
        wf_pickle_text_is(p, item->key, "module")) {
        return ALONE;
    }
    const uint8_t *text = p->bytes + key->text.at;
    bool stage = key->text.len > 5 && memcmp(text, "model", 5) == 0;
    for (uint32_t i = 5; stage && i < key->text.len; i++) {
        stage = text[i] >= '0' && text[i] <= '9';
    }
    return stage ? STAGE : BESIDE;
}

/* The entries that are stages; what stands beside them is passed over. */
static enum wf_status give_stages(struct walk *walk, uint32_t dict)
{
    enum wf_status status = mark_seen(walk, dict);
    uint32_t item = wf_pickle_object(walk->p, dict)->items.first;
    while (item != WF_NONE && status == WF_OK) {
        const struct wf_pickle_item at = *wf_pickle_item(walk->p, item);
        size_t len = put_key(walk, 0, at.key);
        if (place_of(walk->p, &at) == STAGE && len > 0) {
            status = give_dict(walk, len, at.value, 1);
        } else {
            note(walk, walk->name, len, "it stands beside the model");
        }
        item = at.next;
    }
    return status;
}

enum wf_status wf_pickle_give(struct wf_pickle *p, uint32_t root, const struct wf_pickle_sink *sink)
{
    struct walk walk = {.p = p, .sink = sink};
    for (uint32_t depth = 0; depth < WF_PICKLE_NESTING_MAX; depth++) {
        uint32_t alone = WF_NONE, item = WF_NONE;
        bool stages = false;
        if (wf_pickle_object(p, root)->kind != WF_PICKLE_DICT) {
            return wf_error_set(p->error, WF_INVALID,
                                "expected a dict of tensors by name; save the state dict itself");
        }
        for (item = wf_pickle_object(p, root)->items.first; item != WF_NONE;
             item = wf_pickle_item(p, item)->next) {
            enum place place = place_of(p, wf_pickle_item(p, item));
            if (place == ALONE && alone != WF_NONE) {
                return wf_error_set(
                    p->error, WF_UNSUPPORTED,
                    "two of \"model\", \"state_dict\" and \"module\" are there; save "
                    "one");
            }
            alone = place == ALONE ? item : alone;
            stages = stages || place == STAGE;
        }
        if (stages) {
            return give_stages(&walk, root);
        }
        if (alone == WF_NONE) {
            return give_dict(&walk, 0, root, 0);
        }
        for (item = wf_pickle_object(p, root)->items.first; item != WF_NONE;
             item = wf_pickle_item(p, item)->next) {
            size_t len = item != alone ? put_key(&walk, 0, wf_pickle_item(p, item)->key) : 0;
            if (item != alone) {
                note(&walk, walk.name, len, "it stands beside the model");
            }
        }
        root = wf_pickle_item(p, alone)->value;
    }
    return wf_error_set(p->error, WF_INVALID, "\"model\" stands in \"model\" more than %d deep",
                        WF_PICKLE_NESTING_MAX);
}
