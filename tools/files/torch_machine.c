/* torch_machine.c - the pickle machine's objects, stack and memo. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/torch_pickle_private.h"

enum { ARRAY_FIRST = 64 };

/* --- objects --------------------------------------------------------------------------------- */

enum wf_status wf_pickle_refuse(struct wf_pickle *p, enum wf_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return wf_error_set(p->error, status, "byte %zu of the pickle: %s", p->opcode_at, text);
}

enum wf_status wf_pickle_grow(struct wf_pickle *p, struct wf_pickle_array *array, size_t size)
{
    if (array->count < array->capacity) {
        return WF_OK;
    }
    if (array->capacity >= WF_PICKLE_OBJECTS_MAX) {
        return wf_pickle_refuse(p, WF_INVALID, "more than %d objects", WF_PICKLE_OBJECTS_MAX);
    }
    uint32_t capacity = array->capacity == 0 ? ARRAY_FIRST : array->capacity * 2;
    void *grown = realloc(array->at, capacity * size);
    if (grown == NULL) {
        return wf_pickle_refuse(p, WF_NO_MEMORY, "no memory for %" PRIu32 " objects", capacity);
    }
    array->at = grown;
    array->capacity = capacity;
    return WF_OK;
}

struct wf_pickle_object *wf_pickle_object(const struct wf_pickle *p, uint32_t object)
{
    return (struct wf_pickle_object *)p->objects.at + object;
}

struct wf_pickle_item *wf_pickle_item(const struct wf_pickle *p, uint32_t item)
{
    return (struct wf_pickle_item *)p->items.at + item;
}

bool wf_pickle_text_is(const struct wf_pickle *p, uint32_t object, const char *text)
{
    const struct wf_pickle_object *it = wf_pickle_object(p, object);
    size_t len = strlen(text);
    return it->kind == WF_PICKLE_TEXT && it->text.len == len &&
           memcmp(p->bytes + it->text.at, text, len) == 0;
}

enum wf_status wf_pickle_new(struct wf_pickle *p, enum wf_pickle_kind kind, uint32_t *object_out)
{
    enum wf_status status = wf_pickle_grow(p, &p->objects, sizeof(struct wf_pickle_object));
    if (status != WF_OK) {
        return status;
    }
    struct wf_pickle_object *it = wf_pickle_object(p, p->objects.count);
    *it = (struct wf_pickle_object){.kind = kind};
    if (kind == WF_PICKLE_TUPLE || kind == WF_PICKLE_LIST || kind == WF_PICKLE_DICT) {
        it->items.first = it->items.last = WF_NONE;
    }
    *object_out = p->objects.count++;
    return WF_OK;
}

static enum wf_status put_item(struct wf_pickle *p, uint32_t container, uint32_t key,
                               uint32_t value)
{
    enum wf_status status = wf_pickle_grow(p, &p->items, sizeof(struct wf_pickle_item));
    if (status != WF_OK) {
        return status;
    }
    struct wf_pickle_object *it = wf_pickle_object(p, container);
    uint32_t item = p->items.count++;
    *wf_pickle_item(p, item) = (struct wf_pickle_item){key, value, WF_NONE};
    if (it->items.first == WF_NONE) {
        it->items.first = item;
    } else {
        wf_pickle_item(p, it->items.last)->next = item;
    }
    it->items.last = item;
    it->items.count++;
    return WF_OK;
}

/* --- stack and memo -------------------------------------------------------------------------- */

static uint32_t *words(const struct wf_pickle_array *array)
{
    return array->at;
}

enum wf_status wf_pickle_push(struct wf_pickle *p, struct wf_pickle_array *array, uint32_t word)
{
    enum wf_status status = wf_pickle_grow(p, array, sizeof word);
    if (status == WF_OK) {
        words(array)[array->count++] = word;
    }
    return status;
}

enum wf_status wf_pickle_push_new(struct wf_pickle *p, enum wf_pickle_kind kind)
{
    uint32_t object = 0;
    enum wf_status status = wf_pickle_new(p, kind, &object);
    return status == WF_OK ? wf_pickle_push(p, &p->stack, object) : status;
}

enum wf_status wf_pickle_push_integer(struct wf_pickle *p, int64_t value)
{
    enum wf_status status = wf_pickle_push_new(p, WF_PICKLE_INT);
    if (status == WF_OK) {
        wf_pickle_object(p, p->objects.count - 1)->integer = value;
    }
    return status;
}

/* Where the objects of the running part of the stack begin: at the last mark. */
static uint32_t stack_floor(const struct wf_pickle *p)
{
    return p->marks.count > 0 ? words(&p->marks)[p->marks.count - 1] : 0;
}

enum wf_status wf_pickle_need(struct wf_pickle *p, uint32_t count)
{
    return p->stack.count - stack_floor(p) >= count
               ? WF_OK
               : wf_pickle_refuse(p, WF_INVALID,
                                  "an opcode needs %" PRIu32 " objects that are not "
                                  "on the stack",
                                  count);
}

/* Object `depth` from the top, which is there. */
uint32_t wf_pickle_peek(const struct wf_pickle *p, uint32_t depth)
{
    return words(&p->stack)[p->stack.count - 1 - depth];
}

/* Ends the part behind the last mark; gives where its objects begin. They stay behind the top. */
enum wf_status wf_pickle_pop_mark(struct wf_pickle *p, uint32_t *first_out, uint32_t *count_out)
{
    if (p->marks.count == 0) {
        return wf_pickle_refuse(p, WF_INVALID, "an opcode needs a mark that is not on the stack");
    }
    *first_out = stack_floor(p);
    *count_out = p->stack.count - *first_out;
    p->marks.count--;
    p->stack.count = *first_out;
    return WF_OK;
}

enum wf_status wf_pickle_put_memo(struct wf_pickle *p, uint64_t index)
{
    enum wf_status status = wf_pickle_need(p, 1);
    if (status == WF_OK && index >= p->len) { /* each takes more than a byte */
        status = wf_pickle_refuse(p, WF_INVALID,
                                  "memo %" PRIu64 " is beyond any that a pickle of "
                                  "this length has",
                                  index);
    }
    while (status == WF_OK && p->memo.count <= index) {
        status = wf_pickle_push(p, &p->memo, WF_NONE);
    }
    if (status == WF_OK) {
        words(&p->memo)[index] = wf_pickle_peek(p, 0);
    }
    return status;
}

enum wf_status wf_pickle_get_memo(struct wf_pickle *p, uint64_t index)
{
    if (index >= p->memo.count || words(&p->memo)[index] == WF_NONE) {
        return wf_pickle_refuse(p, WF_INVALID, "memo %" PRIu64 " was never put", index);
    }
    return wf_pickle_push(p, &p->stack, words(&p->memo)[index]);
}

/* --- containers ------------------------------------------------------------------------------ */

/* A tuple of `count` objects of which the first is at `first` of the stack (perhaps behind its
 * top). */
enum wf_status wf_pickle_make_tuple(struct wf_pickle *p, uint32_t first, uint32_t count)
{
    uint32_t tuple = 0;
    enum wf_status status = wf_pickle_new(p, WF_PICKLE_TUPLE, &tuple);
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        status = put_item(p, tuple, WF_NONE, words(&p->stack)[first + i]);
    }
    p->stack.count = first;
    return status == WF_OK ? wf_pickle_push(p, &p->stack, tuple) : status;
}

/* Objects from `first` of the stack on, into the container below them, which is there. */
static enum wf_status fill(struct wf_pickle *p, enum wf_pickle_kind kind, uint32_t first,
                           uint32_t count)
{
    uint32_t container = words(&p->stack)[first - 1], step = kind == WF_PICKLE_DICT ? 2 : 1;
    if (wf_pickle_object(p, container)->kind != kind || count % step != 0) {
        return wf_pickle_refuse(p, WF_INVALID, "items for something that is no %s",
                                kind == WF_PICKLE_DICT ? "dict" : "list");
    }
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < count && status == WF_OK; i += step) {
        uint32_t item = words(&p->stack)[first + i];
        status = step == 2 ? put_item(p, container, item, words(&p->stack)[first + i + 1])
                           : put_item(p, container, WF_NONE, item);
    }
    p->stack.count = first;
    return status;
}

enum wf_status wf_pickle_fill_marked(struct wf_pickle *p, enum wf_pickle_kind kind)
{
    uint32_t first = 0, count = 0;
    enum wf_status status = wf_pickle_pop_mark(p, &first, &count);
    if (status == WF_OK && first <= stack_floor(p)) {
        status = wf_pickle_refuse(p, WF_INVALID, "items without anything to put them in");
    }
    return status == WF_OK ? fill(p, kind, first, count) : status;
}

enum wf_status wf_pickle_fill_top(struct wf_pickle *p, enum wf_pickle_kind kind, uint32_t count)
{
    enum wf_status status = wf_pickle_need(p, count + 1);
    return status == WF_OK ? fill(p, kind, p->stack.count - count, count) : status;
}
