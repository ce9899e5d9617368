/* messages_decode.c - bytes to frames: everything is checked before it is believed.
 * Values are taken by runtime/msgpack_read.h.
 */
#include "actors/messages_schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/msgpack_read.h"

struct block { /* one list of a decoded frame; they hang together from wf_frame.memory */
    struct block *next;
    _Alignas(16) uint8_t bytes[];
};

struct reader {
    struct wf_msgpack in;
    const struct wf_schema *schema; /* the frame's */
    const struct wf_field *list;    /* the list being read, or NULL */
    uint32_t list_index;
    const struct wf_field *field;
    struct block *blocks;
    struct wf_error *error;
};

static enum wf_status refuse(struct reader *r, const char *expected, const char *found)
{
    if (r->schema == NULL) {
        return wf_error_set(r->error, WF_PROTOCOL, "not a frame: expected %s, found %s", expected,
                            found);
    }
    const char *frame = r->schema->name;
    if (r->field == NULL) {
        return wf_error_set(r->error, WF_PROTOCOL, "frame %s: expected %s, found %s", frame,
                            expected, found);
    }
    if (r->list != NULL) {
        return wf_error_set(r->error, WF_PROTOCOL,
                            "frame %s, field %s[%" PRIu32 "].%s: expected %s, found %s", frame,
                            r->list->name, r->list_index, r->field->name, expected, found);
    }
    return wf_error_set(r->error, WF_PROTOCOL, "frame %s, field %s: expected %s, found %s", frame,
                        r->field->name, expected, found);
}

static enum wf_status refuse_number(struct reader *r, const char *what, uint64_t limit,
                                    uint64_t found)
{
    char expected[80], text[32];
    snprintf(expected, sizeof expected, "%s up to %" PRIu64, what, limit);
    snprintf(text, sizeof text, "%" PRIu64, found);
    return refuse(r, expected, text);
}

static const char *const form_names[] = {
    [WF_MSGPACK_NUMBER] = "an integer",
    [WF_MSGPACK_TEXT] = "a text",
    [WF_MSGPACK_BYTES] = "bytes",
    [WF_MSGPACK_LIST] = "a list",
};

static enum wf_status read_head(struct reader *r, enum wf_msgpack_form form, uint64_t *number_out)
{
    char found[40];
    switch (wf_msgpack_take_head(&r->in, form, number_out)) {
    case WF_MSGPACK_TAKEN:
        return WF_OK;
    case WF_MSGPACK_ENDS:
        return refuse(r, form_names[form], "the end of the frame");
    case WF_MSGPACK_OTHER:
        break;
    }
    snprintf(found, sizeof found, "something else (0x%02x)", *r->in.at);
    return refuse(r, form_names[form], found);
}

static enum wf_status read_numbers(struct reader *r, uint64_t *numbers_out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum wf_status status = read_head(r, WF_MSGPACK_NUMBER, &numbers_out[i]);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

static enum wf_status read_array_of(struct reader *r, size_t count)
{
    uint64_t found = 0;
    enum wf_status status = read_head(r, WF_MSGPACK_LIST, &found);
    if (status == WF_OK && found != count) {
        char expected[40], text[40];
        snprintf(expected, sizeof expected, "%zu values", count);
        snprintf(text, sizeof text, "%" PRIu64, found);
        return refuse(r, expected, text);
    }
    return status;
}

static enum wf_status read_span(struct reader *r, enum wf_msgpack_form form, uint64_t max,
                                const uint8_t **start_out, size_t *len_out)
{
    uint64_t len = 0;
    enum wf_status status = read_head(r, form, &len);
    if (status != WF_OK) {
        return status;
    }
    if (len > max) {
        return refuse_number(r, form == WF_MSGPACK_TEXT ? "a text with a length" : "a byte count",
                             max, len);
    }
    if (!wf_msgpack_take_span(&r->in, len, start_out)) {
        return refuse(r, form_names[form], "the end of the frame");
    }
    *len_out = (size_t)len;
    return WF_OK;
}

static enum wf_status read_text(struct reader *r, uint64_t bound, char *text_out)
{
    const uint8_t *start = NULL;
    size_t len = 0;
    enum wf_status status = read_span(r, WF_MSGPACK_TEXT, bound - 1, &start, &len);
    if (status != WF_OK) {
        return status;
    }
    if (memchr(start, '\0', len) != NULL) {
        return refuse(r, "a text", "one with a zero byte in it");
    }
    memcpy(text_out, start, len);
    text_out[len] = '\0';
    return WF_OK;
}

static enum wf_status read_hash(struct reader *r, struct wf_hash *hash_out)
{
    const uint8_t *start = NULL;
    size_t len = 0;
    enum wf_status status = read_span(r, WF_MSGPACK_BYTES, WF_HASH_BYTES, &start, &len);
    if (status != WF_OK) {
        return status;
    }
    if (len != WF_HASH_BYTES) {
        return refuse(r, "the 16 bytes of a hash", "fewer");
    }
    *hash_out = (struct wf_hash){wf_big_endian(start, 8), wf_big_endian(start + 8, 8)};
    return WF_OK;
}

static enum wf_status check_terms(struct reader *r, uint64_t a, uint64_t b)
{
    uint64_t term = a > b ? a : b;
    return term <= WF_TERM_MAX ? WF_OK : refuse_number(r, "a term", WF_TERM_MAX, term);
}

static enum wf_status read_key(struct reader *r, struct wf_round_key *key_out)
{
    uint64_t n[WF_KEY_NUMBERS];
    enum wf_status status = read_array_of(r, WF_KEY_NUMBERS);
    if (status == WF_OK) {
        status = read_numbers(r, n, WF_KEY_NUMBERS);
    }
    if (status == WF_OK) {
        status = check_terms(r, n[0], n[3]);
    }
    if (status == WF_OK) {
        *key_out = (struct wf_round_key){n[0], n[1], n[2], {n[3], n[4], n[5]}, n[6]};
    }
    return status;
}

static enum wf_status read_version(struct reader *r, struct wf_version *version_out)
{
    uint64_t n[WF_VERSION_NUMBERS];
    enum wf_status status = read_array_of(r, WF_VERSION_NUMBERS);
    if (status == WF_OK) {
        status = read_numbers(r, n, WF_VERSION_NUMBERS);
    }
    if (status == WF_OK) {
        status = check_terms(r, n[0], 0);
    }
    if (status == WF_OK) {
        *version_out = (struct wf_version){n[0], n[1], n[2]};
    }
    return status;
}

static enum wf_status read_culprit(struct reader *r, struct wf_culprit *culprit_out)
{
    static const uint64_t limits[3] = {WF_CULPRIT_SIDES - 1, WF_RANKS_MAX, WF_ENGINES_MAX};
    uint64_t n[3];
    enum wf_status status = read_array_of(r, WF_CULPRIT_PARTS);
    if (status == WF_OK) {
        status = read_numbers(r, n, 3);
    }
    for (size_t i = 0; status == WF_OK && i < 3; i++) {
        if (n[i] > limits[i]) {
            status = refuse_number(r, "an integer", limits[i], n[i]);
        }
    }
    if (status != WF_OK) {
        return status;
    }
    culprit_out->side = n[0];
    culprit_out->rank = n[1];
    culprit_out->engine = n[2];
    status = read_text(r, WF_HOST_MAX, culprit_out->host);
    if (status == WF_OK) {
        status = read_text(r, WF_OBJECT_MAX, culprit_out->object);
    }
    return status == WF_OK ? read_text(r, WF_REASON_MAX, culprit_out->reason) : status;
}

/* The fewest bytes an element can take: bounds what a count may make us allocate. */
static size_t least_bytes(const struct wf_schema *schema)
{
    static const uint8_t least[] = {
        [WF_KIND_END] = 0,     [WF_KIND_U64] = 1,     [WF_KIND_TEXT] = 1,
        [WF_KIND_BYTES] = 2,   [WF_KIND_HASH] = 18,   [WF_KIND_KEY] = 8,
        [WF_KIND_VERSION] = 4, [WF_KIND_CULPRIT] = 7, [WF_KIND_LIST] = 1,
    };
    size_t bytes = 1;
    for (size_t i = 0; i < schema->field_count; i++) {
        bytes += least[schema->fields[i].kind];
    }
    return bytes;
}

static enum wf_status read_struct(struct reader *r, const struct wf_schema *schema, uint8_t *base);

static enum wf_status read_list(struct reader *r, const struct wf_field *field, uint8_t *base)
{
    const struct wf_schema *element = field->element();
    uint64_t count = 0;
    enum wf_status status = read_head(r, WF_MSGPACK_LIST, &count);
    if (status != WF_OK) {
        return status;
    }
    if (count > field->bound) {
        return refuse_number(r, "a list with a length", field->bound, count);
    }
    if (count > wf_msgpack_left(&r->in) / least_bytes(element)) {
        return refuse(r, "as many elements as the list says", "the end of the frame");
    }
    if (count == 0) {
        return WF_OK;
    }
    struct block *block = calloc(1, sizeof *block + (size_t)count * element->struct_bytes);
    if (block == NULL) {
        return wf_error_set(r->error, WF_NO_MEMORY, "no memory for frame %s", r->schema->name);
    }
    block->next = r->blocks;
    r->blocks = block;
    *(uint8_t **)(base + field->offset) = block->bytes;
    *(uint32_t *)(base + field->size_offset) = (uint32_t)count;
    for (r->list_index = 0; r->list_index < count && status == WF_OK; r->list_index++) {
        r->list = NULL;
        r->field = field;
        status = read_array_of(r, element->field_count);
        if (status == WF_OK) {
            r->list = field;
            status = read_struct(r, element, block->bytes + r->list_index * element->struct_bytes);
        }
    }
    r->list = NULL;
    return status;
}

static enum wf_status read_field(struct reader *r, const struct wf_field *field, uint8_t *base)
{
    uint8_t *at = base + field->offset;
    r->field = field;
    switch (field->kind) {
    case WF_KIND_U64: {
        uint64_t value = 0;
        enum wf_status status = read_head(r, WF_MSGPACK_NUMBER, &value);
        if (status == WF_OK && value > field->bound) {
            return refuse_number(r, "an integer", field->bound, value);
        }
        *(uint64_t *)at = value;
        return status;
    }
    case WF_KIND_TEXT:
        return read_text(r, field->bound, (char *)at);
    case WF_KIND_BYTES: {
        const uint8_t *start = NULL;
        size_t len = 0;
        enum wf_status status = read_span(r, WF_MSGPACK_BYTES, field->bound, &start, &len);
        if (status == WF_OK) {
            memcpy(at, start, len);
            *(uint32_t *)(base + field->size_offset) = (uint32_t)len;
        }
        return status;
    }
    case WF_KIND_HASH:
        return read_hash(r, (struct wf_hash *)at);
    case WF_KIND_KEY:
        return read_key(r, (struct wf_round_key *)at);
    case WF_KIND_VERSION:
        return read_version(r, (struct wf_version *)at);
    case WF_KIND_CULPRIT:
        return read_culprit(r, (struct wf_culprit *)at);
    case WF_KIND_LIST:
        return read_list(r, field, base);
    case WF_KIND_END:
        break;
    }
    WF_ASSERT(!"a field kind of the table");
    return WF_INVALID;
}

static enum wf_status read_struct(struct reader *r, const struct wf_schema *schema, uint8_t *base)
{
    for (size_t i = 0; i < schema->field_count; i++) {
        enum wf_status status = read_field(r, &schema->fields[i], base);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

static enum wf_status read_frame(struct reader *r, struct wf_frame *frame)
{
    uint64_t count = 0, number = 0;
    enum wf_status status = read_head(r, WF_MSGPACK_LIST, &count);
    if (status == WF_OK) {
        status = read_head(r, WF_MSGPACK_NUMBER, &number);
    }
    if (status != WF_OK) {
        return status;
    }
    r->schema = wf_schema_find(number);
    if (r->schema == NULL) {
        return refuse_number(r, "a known frame type", WF_FRAME_peer_refused, number);
    }
    if (count != r->schema->field_count + 1) {
        char expected[40], found[40];
        snprintf(expected, sizeof expected, "%zu fields", r->schema->field_count);
        snprintf(found, sizeof found, "%" PRIu64, count > 0 ? count - 1 : 0);
        return refuse(r, expected, found);
    }
    frame->type = (enum wf_frame_type)number;
    status = read_struct(r, r->schema, (uint8_t *)&frame->challenge); /* all start the union */
    r->field = NULL;
    if (status == WF_OK && wf_msgpack_left(&r->in) > 0) {
        return refuse(r, "the end of the frame", "more bytes");
    }
    return status;
}

enum wf_status wf_frame_decode(const void *bytes, size_t len, struct wf_frame *frame_out,
                               struct wf_error *error)
{
    struct reader reader = {.in = {bytes, (const uint8_t *)bytes + len}, .error = error};
    memset(frame_out, 0, sizeof *frame_out);
    enum wf_status status = WF_OK;
    if (len > WF_FRAME_MAX) {
        status = wf_error_set(error, WF_PROTOCOL, "a frame of %zu bytes, the limit is %d", len,
                              WF_FRAME_MAX);
    } else {
        status = read_frame(&reader, frame_out);
    }
    frame_out->memory = reader.blocks;
    if (status != WF_OK) {
        wf_frame_fini(frame_out);
    }
    return status;
}

int wf_frame_peek(const void *bytes, size_t len)
{
    struct reader reader = {.in = {bytes, (const uint8_t *)bytes + len}};
    uint64_t count = 0, number = 0;
    bool read = read_head(&reader, WF_MSGPACK_LIST, &count) == WF_OK &&
                read_head(&reader, WF_MSGPACK_NUMBER, &number) == WF_OK &&
                wf_schema_find(number) != NULL;
    return read ? (int)number : 0;
}

void wf_frame_fini(struct wf_frame *frame)
{
    struct block *block = frame->memory;
    while (block != NULL) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    memset(frame, 0, sizeof *frame);
}
