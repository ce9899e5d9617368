/* torch_pickle.c - the pickle machine: opcodes, stack and memo, of which nothing is called. The
 * opcodes and their arguments are those of Python's Lib/pickletools.py. */
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

static enum wf_status push_word(struct wf_pickle *p, struct wf_pickle_array *array, uint32_t word)
{
    enum wf_status status = wf_pickle_grow(p, array, sizeof word);
    if (status == WF_OK) {
        words(array)[array->count++] = word;
    }
    return status;
}

static enum wf_status push_new(struct wf_pickle *p, enum wf_pickle_kind kind)
{
    uint32_t object = 0;
    enum wf_status status = wf_pickle_new(p, kind, &object);
    return status == WF_OK ? push_word(p, &p->stack, object) : status;
}

static enum wf_status push_integer(struct wf_pickle *p, int64_t value)
{
    enum wf_status status = push_new(p, WF_PICKLE_INT);
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

static enum wf_status need(struct wf_pickle *p, uint32_t count)
{
    return p->stack.count - stack_floor(p) >= count
               ? WF_OK
               : wf_pickle_refuse(p, WF_INVALID,
                                  "an opcode needs %" PRIu32 " objects that are not "
                                  "on the stack",
                                  count);
}

/* Object `depth` from the top, which is there. */
static uint32_t peek(const struct wf_pickle *p, uint32_t depth)
{
    return words(&p->stack)[p->stack.count - 1 - depth];
}

/* Ends the part behind the last mark; gives where its objects begin. They stay behind the top. */
static enum wf_status pop_mark(struct wf_pickle *p, uint32_t *first_out, uint32_t *count_out)
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

static enum wf_status put_memo(struct wf_pickle *p, uint64_t index)
{
    enum wf_status status = need(p, 1);
    if (status == WF_OK && index >= p->len) { /* each takes more than a byte */
        status = wf_pickle_refuse(p, WF_INVALID,
                                  "memo %" PRIu64 " is beyond any that a pickle of "
                                  "this length has",
                                  index);
    }
    while (status == WF_OK && p->memo.count <= index) {
        status = push_word(p, &p->memo, WF_NONE);
    }
    if (status == WF_OK) {
        words(&p->memo)[index] = peek(p, 0);
    }
    return status;
}

static enum wf_status get_memo(struct wf_pickle *p, uint64_t index)
{
    if (index >= p->memo.count || words(&p->memo)[index] == WF_NONE) {
        return wf_pickle_refuse(p, WF_INVALID, "memo %" PRIu64 " was never put", index);
    }
    return push_word(p, &p->stack, words(&p->memo)[index]);
}

/* --- containers ------------------------------------------------------------------------------ */

/* A tuple of `count` objects of which the first is at `first` of the stack (perhaps behind its
 * top). */
static enum wf_status make_tuple(struct wf_pickle *p, uint32_t first, uint32_t count)
{
    uint32_t tuple = 0;
    enum wf_status status = wf_pickle_new(p, WF_PICKLE_TUPLE, &tuple);
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        status = put_item(p, tuple, WF_NONE, words(&p->stack)[first + i]);
    }
    p->stack.count = first;
    return status == WF_OK ? push_word(p, &p->stack, tuple) : status;
}

static enum wf_status tuple_of(struct wf_pickle *p, uint32_t count)
{
    enum wf_status status = need(p, count);
    return status == WF_OK ? make_tuple(p, p->stack.count - count, count) : status;
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

static enum wf_status fill_marked(struct wf_pickle *p, enum wf_pickle_kind kind)
{
    uint32_t first = 0, count = 0;
    enum wf_status status = pop_mark(p, &first, &count);
    if (status == WF_OK && first <= stack_floor(p)) {
        status = wf_pickle_refuse(p, WF_INVALID, "items without anything to put them in");
    }
    return status == WF_OK ? fill(p, kind, first, count) : status;
}

static enum wf_status fill_top(struct wf_pickle *p, enum wf_pickle_kind kind, uint32_t count)
{
    enum wf_status status = need(p, count + 1);
    return status == WF_OK ? fill(p, kind, p->stack.count - count, count) : status;
}

/* --- opcodes --------------------------------------------------------------------------------- */

static uint64_t number(const uint8_t *bytes, size_t len)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static enum wf_status take(struct wf_pickle *p, uint64_t len, const uint8_t **bytes_out)
{
    if (len > p->len - p->at) {
        return wf_pickle_refuse(p, WF_INVALID, "the pickle is cut short");
    }
    *bytes_out = p->bytes + p->at;
    p->at += (size_t)len;
    return WF_OK;
}

/* Bytes behind a length of `width` bytes. */
static enum wf_status take_counted(struct wf_pickle *p, size_t width, const uint8_t **bytes_out,
                                   uint64_t *len_out)
{
    enum wf_status status = take(p, width, bytes_out);
    if (status == WF_OK) {
        *len_out = number(*bytes_out, width);
        status = take(p, *len_out, bytes_out);
    }
    return status;
}

static enum wf_status op_text(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    uint64_t len = 0;
    enum wf_status status = take_counted(p, width, &bytes, &len);
    status = status == WF_OK ? push_new(p, WF_PICKLE_TEXT) : status;
    if (status == WF_OK) {
        struct wf_pickle_object *it = wf_pickle_object(p, p->objects.count - 1);
        it->text.at = (uint32_t)(bytes - p->bytes);
        it->text.len = (uint32_t)len;
    }
    return status;
}

static enum wf_status op_bytes(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    uint64_t len = 0;
    enum wf_status status = take_counted(p, width, &bytes, &len);
    return status == WF_OK ? push_new(p, WF_PICKLE_OPAQUE) : status;
}

static enum wf_status op_skip(struct wf_pickle *p, size_t width) /* PROTO, FRAME */
{
    const uint8_t *bytes = NULL;
    return take(p, width, &bytes);
}

static enum wf_status op_float(struct wf_pickle *p, size_t width)
{
    enum wf_status status = op_skip(p, width);
    return status == WF_OK ? push_new(p, WF_PICKLE_OPAQUE) : status;
}

static enum wf_status op_integer(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    enum wf_status status = take(p, width, &bytes);
    if (status != WF_OK) {
        return status;
    }
    uint64_t value = number(bytes, width);
    return push_integer(p, width == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
}

static enum wf_status op_long(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    uint64_t len = 0;
    enum wf_status status = take_counted(p, width, &bytes, &len);
    if (status == WF_OK && len > 8) {
        status = wf_pickle_refuse(p, WF_UNSUPPORTED, "an integer of %" PRIu64 " bytes", len);
    }
    if (status != WF_OK) {
        return status;
    }
    uint64_t value = number(bytes, (size_t)len);
    if (len > 0 && len < 8 && (bytes[len - 1] & 0x80) != 0) {
        value |= UINT64_MAX << (8 * len);
    }
    return push_integer(p, (int64_t)value);
}

static enum wf_status op_constant(struct wf_pickle *p, size_t value)
{
    return push_integer(p, (int64_t)value);
}

static enum wf_status op_new(struct wf_pickle *p, size_t kind)
{
    return push_new(p, (enum wf_pickle_kind)kind);
}

static enum wf_status op_mark(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return push_word(p, &p->marks, p->stack.count);
}

static enum wf_status op_tuple(struct wf_pickle *p, size_t unused)
{
    uint32_t first = 0, count = 0;
    (void)unused;
    enum wf_status status = pop_mark(p, &first, &count);
    return status == WF_OK ? make_tuple(p, first, count) : status;
}

static enum wf_status op_tuple_n(struct wf_pickle *p, size_t count)
{
    return tuple_of(p, (uint32_t)count);
}

static enum wf_status op_append(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return fill_top(p, WF_PICKLE_LIST, 1);
}

static enum wf_status op_set_item(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return fill_top(p, WF_PICKLE_DICT, 2);
}

static enum wf_status op_fill(struct wf_pickle *p, size_t kind)
{
    return fill_marked(p, (enum wf_pickle_kind)kind);
}

static enum wf_status op_put(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    enum wf_status status = take(p, width, &bytes);
    return status == WF_OK ? put_memo(p, number(bytes, width)) : status;
}

static enum wf_status op_get(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    enum wf_status status = take(p, width, &bytes);
    return status == WF_OK ? get_memo(p, number(bytes, width)) : status;
}

static enum wf_status op_memoize(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return put_memo(p, p->memo.count);
}

static enum wf_status push_global(struct wf_pickle *p, const uint8_t *module, size_t module_len,
                                  const uint8_t *name, size_t name_len)
{
    uint32_t index = 0;
    enum wf_status status =
        wf_pickle_global(p, (const char *)module, module_len, (const char *)name, name_len, &index);
    status = status == WF_OK ? push_new(p, WF_PICKLE_GLOBAL) : status;
    if (status == WF_OK) {
        wf_pickle_object(p, p->objects.count - 1)->index = index;
    }
    return status;
}

static enum wf_status take_line(struct wf_pickle *p, const uint8_t **line_out, size_t *len_out)
{
    const uint8_t *line = p->bytes + p->at;
    const uint8_t *end = p->at < p->len ? memchr(line, '\n', p->len - p->at) : NULL;
    if (end == NULL) {
        return wf_pickle_refuse(p, WF_INVALID, "the pickle is cut short");
    }
    *line_out = line;
    *len_out = (size_t)(end - line);
    p->at += *len_out + 1;
    return WF_OK;
}

static enum wf_status op_global(struct wf_pickle *p, size_t unused)
{
    const uint8_t *module = NULL, *name = NULL;
    size_t module_len = 0, name_len = 0;
    (void)unused;
    enum wf_status status = take_line(p, &module, &module_len);
    status = status == WF_OK ? take_line(p, &name, &name_len) : status;
    return status == WF_OK ? push_global(p, module, module_len, name, name_len) : status;
}

static enum wf_status op_stack_global(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    enum wf_status status = need(p, 2);
    if (status != WF_OK) {
        return status;
    }
    const struct wf_pickle_object module = *wf_pickle_object(p, peek(p, 1)),
                                  name = *wf_pickle_object(p, peek(p, 0));
    if (module.kind != WF_PICKLE_TEXT || name.kind != WF_PICKLE_TEXT) {
        return wf_pickle_refuse(p, WF_INVALID, "a global whose name is no text");
    }
    p->stack.count -= 2;
    return push_global(p, p->bytes + module.text.at, module.text.len, p->bytes + name.text.at,
                       name.text.len);
}

static enum wf_status op_call(struct wf_pickle *p, size_t unused) /* REDUCE, NEWOBJ */
{
    uint32_t made = 0;
    (void)unused;
    enum wf_status status = need(p, 2);
    status = status == WF_OK ? wf_pickle_call(p, peek(p, 1), peek(p, 0), &made) : status;
    if (status == WF_OK) {
        p->stack.count -= 2;
        status = push_word(p, &p->stack, made);
    }
    return status;
}

/* A state dict's own attributes (_metadata), or the rest of an object that is passed over. */
static enum wf_status op_build(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    enum wf_status status = need(p, 2);
    if (status != WF_OK) {
        return status;
    }
    enum wf_pickle_kind kind = wf_pickle_object(p, peek(p, 1))->kind;
    if (kind != WF_PICKLE_DICT && kind != WF_PICKLE_OPAQUE) {
        return wf_pickle_refuse(p, WF_UNSUPPORTED, "BUILD of something that is no dict");
    }
    p->stack.count--;
    return WF_OK;
}

static enum wf_status op_persistent(struct wf_pickle *p, size_t unused)
{
    uint32_t made = 0;
    (void)unused;
    enum wf_status status = need(p, 1);
    status = status == WF_OK ? wf_pickle_persistent(p, peek(p, 0), &made) : status;
    if (status == WF_OK) {
        p->stack.count--;
        status = push_word(p, &p->stack, made);
    }
    return status;
}

enum { OP_STOP = '.' };

static const struct opcode {
    uint8_t code;
    const char *name;
    enum wf_status (*run)(struct wf_pickle *p, size_t argument); /* NULL: refused */
    size_t argument;
} opcodes[] = {
    {0x80, "PROTO", op_skip, 1},
    {0x95, "FRAME", op_skip, 8},
    {'(', "MARK", op_mark, 0},
    {'N', "NONE", op_new, WF_PICKLE_NONE},
    {0x88, "NEWTRUE", op_constant, 1},
    {0x89, "NEWFALSE", op_constant, 0},
    {'J', "BININT", op_integer, 4},
    {'K', "BININT1", op_integer, 1},
    {'M', "BININT2", op_integer, 2},
    {0x8a, "LONG1", op_long, 1},
    {0x8b, "LONG4", op_long, 4},
    {'G', "BINFLOAT", op_float, 8},
    {'X', "BINUNICODE", op_text, 4},
    {0x8c, "SHORT_BINUNICODE", op_text, 1},
    {0x8d, "BINUNICODE8", op_text, 8},
    {'B', "BINBYTES", op_bytes, 4},
    {'C', "SHORT_BINBYTES", op_bytes, 1},
    {0x8e, "BINBYTES8", op_bytes, 8},
    {'}', "EMPTY_DICT", op_new, WF_PICKLE_DICT},
    {']', "EMPTY_LIST", op_new, WF_PICKLE_LIST},
    {')', "EMPTY_TUPLE", op_new, WF_PICKLE_TUPLE},
    {'t', "TUPLE", op_tuple, 0},
    {0x85, "TUPLE1", op_tuple_n, 1},
    {0x86, "TUPLE2", op_tuple_n, 2},
    {0x87, "TUPLE3", op_tuple_n, 3},
    {'a', "APPEND", op_append, 0},
    {'e', "APPENDS", op_fill, WF_PICKLE_LIST},
    {'s', "SETITEM", op_set_item, 0},
    {'u', "SETITEMS", op_fill, WF_PICKLE_DICT},
    {'q', "BINPUT", op_put, 1},
    {'r', "LONG_BINPUT", op_put, 4},
    {0x94, "MEMOIZE", op_memoize, 0},
    {'h', "BINGET", op_get, 1},
    {'j', "LONG_BINGET", op_get, 4},
    {'c', "GLOBAL", op_global, 0},
    {0x93, "STACK_GLOBAL", op_stack_global, 0},
    {'R', "REDUCE", op_call, 0},
    {0x81, "NEWOBJ", op_call, 0},
    {'b', "BUILD", op_build, 0},
    {'Q', "BINPERSID", op_persistent, 0},
    {'i', "INST", NULL, 0},
    {'o', "OBJ", NULL, 0},
    {0x92, "NEWOBJ_EX", NULL, 0},
    {0x82, "EXT1", NULL, 0},
    {0x83, "EXT2", NULL, 0},
    {0x84, "EXT4", NULL, 0},
    {'P', "PERSID", NULL, 0},
    {0x96, "BYTEARRAY8", NULL, 0},
    {0x97, "NEXT_BUFFER", NULL, 0},
    {'d', "DICT", NULL, 0},
    {'l', "LIST", NULL, 0},
    {'0', "POP", NULL, 0},
    {'1', "POP_MARK", NULL, 0},
    {'2', "DUP", NULL, 0},
    {0x8f, "EMPTY_SET", NULL, 0},
    {0x90, "ADDITEMS", NULL, 0},
    {0x91, "FROZENSET", NULL, 0},
    {'U', "SHORT_BINSTRING", NULL, 0},
    {'T', "BINSTRING", NULL, 0},
};

static const struct opcode *find_opcode(uint8_t code)
{
    for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++) {
        if (opcodes[i].code == code) {
            return &opcodes[i];
        }
    }
    return NULL;
}

static enum wf_status step(struct wf_pickle *p)
{
    const struct opcode *opcode = find_opcode(p->bytes[p->opcode_at]);
    if (opcode == NULL || opcode->run == NULL) {
        return wf_pickle_refuse(p, WF_UNSUPPORTED,
                                "the opcode %s (0x%02x) is in no state dict that torch writes",
                                opcode != NULL ? opcode->name : "unknown", p->bytes[p->opcode_at]);
    }
    enum wf_status status = opcode->run(p, opcode->argument);
    if (status != WF_OK) {
        wf_error_prefix(p->error, "%s", opcode->name);
    }
    return status;
}

/* Runs to the end; gives the one object that is left. */
static enum wf_status run(struct wf_pickle *p, uint32_t *root_out)
{
    enum wf_status status = WF_OK;
    while (status == WF_OK) {
        p->opcode_at = p->at;
        if (p->at == p->len) {
            return wf_pickle_refuse(p, WF_INVALID, "the pickle is cut short");
        }
        if (p->bytes[p->at++] == OP_STOP) {
            break;
        }
        status = step(p);
    }
    if (status == WF_OK && (p->stack.count != 1 || p->marks.count != 0 || p->at != p->len)) {
        status = wf_pickle_refuse(p, WF_INVALID,
                                  "the pickle ends with %" PRIu32 " objects and "
                                  "%zu bytes left; expected one object",
                                  p->stack.count, p->len - p->at);
    }
    if (status == WF_OK) {
        *root_out = peek(p, 0);
    }
    return status;
}

enum wf_status wf_pickle_read(const uint8_t *bytes, size_t len, const struct wf_pickle_sink *sink,
                              struct wf_error *error)
{
    struct wf_pickle p = {.bytes = bytes, .len = len, .error = error};
    uint32_t root = 0;
    if (len > WF_PICKLE_BYTES_MAX) {
        return wf_error_set(error, WF_INVALID, "a pickle of %zu bytes; at most %d are read", len,
                            WF_PICKLE_BYTES_MAX);
    }
    enum wf_status status = run(&p, &root);
    status = status == WF_OK ? wf_pickle_give(&p, root, sink) : status;
    free(p.objects.at);
    free(p.items.at);
    free(p.stack.at);
    free(p.marks.at);
    free(p.memo.at);
    free(p.storages.at);
    free(p.tensors.at);
    return status;
}
