/* messages.c - frames to bytes: packing with msgpack-c, driven by the schema. */
#include "actors/messages.h"

#include <inttypes.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "actors/messages_schema.h"

struct writer {
    msgpack_packer packer;
    const struct wf_schema *schema; /* the frame's */
    struct wf_error *error;
};

static enum wf_status bad_field(struct writer *w, const struct wf_field *field, uint64_t found)
{
    return wf_error_set(w->error, WF_INVALID,
                        "frame %s: field %s is %" PRIu64 ", the limit is %" PRIu64, w->schema->name,
                        field->name, found, field->bound);
}

static enum wf_status bad_term(struct writer *w, const struct wf_field *field, uint64_t found)
{
    return wf_error_set(w->error, WF_INVALID,
                        "frame %s: field %s has term %" PRIu64 ", the limit is %" PRIu64,
                        w->schema->name, field->name, found, WF_TERM_MAX);
}

static void write_numbers(struct writer *w, const uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        msgpack_pack_uint64(&w->packer, numbers[i]);
    }
}

static void write_text(struct writer *w, const char *text)
{
    size_t len = strlen(text);
    msgpack_pack_str(&w->packer, len);
    msgpack_pack_str_body(&w->packer, text, len);
}

static void write_hash(struct writer *w, const struct wf_hash *hash)
{
    uint8_t bytes[WF_HASH_BYTES];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(hash->high >> (56 - 8 * i));
        bytes[8 + i] = (uint8_t)(hash->low >> (56 - 8 * i));
    }
    msgpack_pack_bin(&w->packer, sizeof bytes);
    msgpack_pack_bin_body(&w->packer, bytes, sizeof bytes);
}

static enum wf_status write_key(struct writer *w, const struct wf_field *field,
                                const struct wf_round_key *key)
{
    uint64_t numbers[WF_KEY_NUMBERS] = {key->term,         key->epoch,           key->models,
                                        key->version.term, key->version.counter, key->version.step,
                                        key->attempt};
    if (key->term > WF_TERM_MAX || key->version.term > WF_TERM_MAX) {
        return bad_term(w, field, key->term > WF_TERM_MAX ? key->term : key->version.term);
    }
    msgpack_pack_array(&w->packer, WF_KEY_NUMBERS);
    write_numbers(w, numbers, WF_KEY_NUMBERS);
    return WF_OK;
}

static enum wf_status write_version(struct writer *w, const struct wf_field *field,
                                    const struct wf_version *version)
{
    uint64_t numbers[WF_VERSION_NUMBERS] = {version->term, version->counter, version->step};
    if (version->term > WF_TERM_MAX) {
        return bad_term(w, field, version->term);
    }
    msgpack_pack_array(&w->packer, WF_VERSION_NUMBERS);
    write_numbers(w, numbers, WF_VERSION_NUMBERS);
    return WF_OK;
}

static void write_culprit(struct writer *w, const struct wf_culprit *culprit)
{
    uint64_t numbers[] = {culprit->side, culprit->rank, culprit->engine};
    msgpack_pack_array(&w->packer, WF_CULPRIT_PARTS);
    write_numbers(w, numbers, 3);
    write_text(w, culprit->host);
    write_text(w, culprit->object);
    write_text(w, culprit->reason);
}

static enum wf_status write_struct(struct writer *w, const struct wf_schema *schema,
                                   const uint8_t *base);

static enum wf_status write_list(struct writer *w, const struct wf_field *field,
                                 const uint8_t *base)
{
    const struct wf_schema *element = field->element();
    uint32_t count = *(const uint32_t *)(base + field->size_offset);
    const uint8_t *items = *(const uint8_t *const *)(base + field->offset);
    if (count > field->bound) {
        return bad_field(w, field, count);
    }
    msgpack_pack_array(&w->packer, count);
    for (uint32_t i = 0; i < count; i++) {
        msgpack_pack_array(&w->packer, element->field_count);
        enum wf_status status = write_struct(w, element, items + i * element->struct_bytes);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

static enum wf_status write_field(struct writer *w, const struct wf_field *field,
                                  const uint8_t *base)
{
    const uint8_t *at = base + field->offset;
    switch (field->kind) {
    case WF_KIND_U64: {
        uint64_t value = *(const uint64_t *)at;
        if (value > field->bound) {
            return bad_field(w, field, value);
        }
        write_numbers(w, &value, 1);
        return WF_OK;
    }
    case WF_KIND_TEXT: {
        size_t len = strnlen((const char *)at, field->bound);
        if (len >= field->bound) {
            return bad_field(w, field, len);
        }
        write_text(w, (const char *)at);
        return WF_OK;
    }
    case WF_KIND_BYTES: {
        uint32_t len = *(const uint32_t *)(base + field->size_offset);
        if (len > field->bound) {
            return bad_field(w, field, len);
        }
        msgpack_pack_bin(&w->packer, len);
        msgpack_pack_bin_body(&w->packer, at, len);
        return WF_OK;
    }
    case WF_KIND_HASH:
        write_hash(w, (const struct wf_hash *)at);
        return WF_OK;
    case WF_KIND_KEY:
        return write_key(w, field, (const struct wf_round_key *)at);
    case WF_KIND_VERSION:
        return write_version(w, field, (const struct wf_version *)at);
    case WF_KIND_CULPRIT:
        write_culprit(w, (const struct wf_culprit *)at);
        return WF_OK;
    case WF_KIND_LIST:
        return write_list(w, field, base);
    case WF_KIND_END:
        break;
    }
    WF_ASSERT(!"a field kind of the table");
    return WF_INVALID;
}

static enum wf_status write_struct(struct writer *w, const struct wf_schema *schema,
                                   const uint8_t *base)
{
    for (size_t i = 0; i < schema->field_count; i++) {
        enum wf_status status = write_field(w, &schema->fields[i], base);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_frame_encode(enum wf_frame_type type, const void *fields, uint8_t **bytes_out,
                               size_t *len_out, struct wf_error *error)
{
    const struct wf_schema *schema = wf_schema_find(type);
    WF_ASSERT(schema != NULL);
    msgpack_sbuffer buffer;
    msgpack_sbuffer_init(&buffer);
    struct writer writer = {.schema = schema, .error = error};
    msgpack_packer_init(&writer.packer, &buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&writer.packer, schema->field_count + 1);
    msgpack_pack_uint64(&writer.packer, type);
    enum wf_status status = write_struct(&writer, schema, fields);
    if (status == WF_OK && buffer.size > WF_FRAME_MAX) {
        status = wf_error_set(error, WF_NO_RESOURCE, "frame %s would be %zu bytes, the limit is %d",
                              schema->name, buffer.size, WF_FRAME_MAX);
    }
    if (status != WF_OK) {
        msgpack_sbuffer_destroy(&buffer);
        return status;
    }
    *len_out = buffer.size;
    *bytes_out = (uint8_t *)msgpack_sbuffer_release(&buffer);
    return WF_OK;
}

enum wf_status wf_frame_send(struct wf_env *env, uint64_t conn, enum wf_frame_type type,
                             const void *fields, int fd)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    enum wf_status status = wf_frame_encode(type, fields, &bytes, &len, NULL);
    if (status == WF_OK) {
        status = env->ops->send(env, conn, bytes, len, fd);
        free(bytes);
    }
    return status;
}

enum wf_status wf_frame_payload(enum wf_frame_type type, const void *fields,
                                struct wf_payload **payload_out, struct wf_error *error)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    enum wf_status status = wf_frame_encode(type, fields, &bytes, &len, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_payload *payload = wf_payload_new(bytes, len);
    if (payload == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a frame of %zu bytes", len);
    }
    *payload_out = payload;
    return WF_OK;
}
