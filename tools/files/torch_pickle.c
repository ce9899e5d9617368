/* torch_pickle.c - the opcodes of the pickle machine, of which nothing is called. They and their
 * arguments are those of Python's Lib/pickletools.py. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/torch_pickle_private.h"

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
    status = status == WF_OK ? wf_pickle_push_new(p, WF_PICKLE_TEXT) : status;
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
    return status == WF_OK ? wf_pickle_push_new(p, WF_PICKLE_OPAQUE) : status;
}

static enum wf_status op_skip(struct wf_pickle *p, size_t width) /* PROTO, FRAME */
{
    const uint8_t *bytes = NULL;
    return take(p, width, &bytes);
}

static enum wf_status op_float(struct wf_pickle *p, size_t width)
{
    enum wf_status status = op_skip(p, width);
    return status == WF_OK ? wf_pickle_push_new(p, WF_PICKLE_OPAQUE) : status;
}

static enum wf_status op_integer(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    enum wf_status status = take(p, width, &bytes);
    if (status != WF_OK) {
        return status;
    }
    uint64_t value = number(bytes, width);
    return wf_pickle_push_integer(p, width == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
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
    return wf_pickle_push_integer(p, (int64_t)value);
}

static enum wf_status op_constant(struct wf_pickle *p, size_t value)
{
    return wf_pickle_push_integer(p, (int64_t)value);
}

static enum wf_status op_new(struct wf_pickle *p, size_t kind)
{
    return wf_pickle_push_new(p, (enum wf_pickle_kind)kind);
}

static enum wf_status op_mark(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return wf_pickle_push(p, &p->marks, p->stack.count);
}

static enum wf_status op_tuple(struct wf_pickle *p, size_t unused)
{
    uint32_t first = 0, count = 0;
    (void)unused;
    enum wf_status status = wf_pickle_pop_mark(p, &first, &count);
    return status == WF_OK ? wf_pickle_make_tuple(p, first, count) : status;
}

static enum wf_status op_tuple_n(struct wf_pickle *p, size_t count)
{
    enum wf_status status = wf_pickle_need(p, (uint32_t)count);
    return status == WF_OK
               ? wf_pickle_make_tuple(p, p->stack.count - (uint32_t)count, (uint32_t)count)
               : status;
}

static enum wf_status op_append(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return wf_pickle_fill_top(p, WF_PICKLE_LIST, 1);
}

static enum wf_status op_set_item(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return wf_pickle_fill_top(p, WF_PICKLE_DICT, 2);
}

static enum wf_status op_fill(struct wf_pickle *p, size_t kind)
{
    return wf_pickle_fill_marked(p, (enum wf_pickle_kind)kind);
}

static enum wf_status op_put(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    enum wf_status status = take(p, width, &bytes);
    return status == WF_OK ? wf_pickle_put_memo(p, number(bytes, width)) : status;
}

static enum wf_status op_get(struct wf_pickle *p, size_t width)
{
    const uint8_t *bytes = NULL;
    enum wf_status status = take(p, width, &bytes);
    return status == WF_OK ? wf_pickle_get_memo(p, number(bytes, width)) : status;
}

static enum wf_status op_memoize(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    return wf_pickle_put_memo(p, p->memo.count);
}

static enum wf_status push_global(struct wf_pickle *p, const uint8_t *module, size_t module_len,
                                  const uint8_t *name, size_t name_len)
{
    uint32_t index = 0;
    enum wf_status status =
        wf_pickle_global(p, (const char *)module, module_len, (const char *)name, name_len, &index);
    status = status == WF_OK ? wf_pickle_push_new(p, WF_PICKLE_GLOBAL) : status;
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
    enum wf_status status = wf_pickle_need(p, 2);
    if (status != WF_OK) {
        return status;
    }
    const struct wf_pickle_object module = *wf_pickle_object(p, wf_pickle_peek(p, 1)),
                                  name = *wf_pickle_object(p, wf_pickle_peek(p, 0));
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
    enum wf_status status = wf_pickle_need(p, 2);
    status = status == WF_OK ? wf_pickle_call(p, wf_pickle_peek(p, 1), wf_pickle_peek(p, 0), &made)
                             : status;
    if (status == WF_OK) {
        p->stack.count -= 2;
        status = wf_pickle_push(p, &p->stack, made);
    }
    return status;
}

/* A state dict's own attributes (_metadata), or the rest of an object that is passed over. */
static enum wf_status op_build(struct wf_pickle *p, size_t unused)
{
    (void)unused;
    enum wf_status status = wf_pickle_need(p, 2);
    if (status != WF_OK) {
        return status;
    }
    enum wf_pickle_kind kind = wf_pickle_object(p, wf_pickle_peek(p, 1))->kind;
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
    enum wf_status status = wf_pickle_need(p, 1);
    status = status == WF_OK ? wf_pickle_persistent(p, wf_pickle_peek(p, 0), &made) : status;
    if (status == WF_OK) {
        p->stack.count--;
        status = wf_pickle_push(p, &p->stack, made);
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
        *root_out = wf_pickle_peek(p, 0);
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
