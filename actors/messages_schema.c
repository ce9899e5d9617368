/* messages_schema.c - turns the one table of messages.h into data, and prints it as documentation.
 */
#include "actors/messages_schema.h"

#include <inttypes.h>

/* --- the table: one function a schema, so that offsets can name their own struct ------------ */
#define FIELD_U64(n, max) {WF_KIND_U64, #n, offsetof(S, n), 0, max, NULL},
#define FIELD_TEXT(n, max) {WF_KIND_TEXT, #n, offsetof(S, n), 0, max, NULL},
#define FIELD_BYTES(n, max) {WF_KIND_BYTES, #n, offsetof(S, n), offsetof(S, n##_len), max, NULL},
#define FIELD_HASH(n, unused) {WF_KIND_HASH, #n, offsetof(S, n), 0, 0, NULL},
#define FIELD_KEY(n, unused) {WF_KIND_KEY, #n, offsetof(S, n), 0, 0, NULL},
#define FIELD_VERSION(n, unused) {WF_KIND_VERSION, #n, offsetof(S, n), 0, 0, NULL},
#define FIELD_CULPRIT(n, unused) {WF_KIND_CULPRIT, #n, offsetof(S, n), 0, 0, NULL},
#define FIELD_LIST(n, el, max) \
    {WF_KIND_LIST, #n, offsetof(S, n), offsetof(S, n##_count), max, el_##el##_schema},
#define FIELD(kind, ...) FIELD_##kind(__VA_ARGS__)

#define SCHEMA(function, tag, name, number)                                                    \
    static const struct wf_schema *function(void)                                              \
    {                                                                                          \
        typedef struct tag S;                                                                  \
        static const struct wf_field fields[] = {                                              \
            WF_FIELDS_##name(FIELD){WF_KIND_END, NULL, 0, 0, 0, NULL}};                        \
        static const struct wf_schema schema = {#name, number, sizeof(S),                      \
                                                sizeof fields / sizeof fields[0] - 1, fields}; \
        return &schema;                                                                        \
    }
#define ELEMENT_SCHEMA(name) SCHEMA(el_##name##_schema, wf_el_##name, name, 0)
WF_ELEMENT_MAP(ELEMENT_SCHEMA)
#define FRAME_SCHEMA(name, number) SCHEMA(name##_schema, wf_frame_##name, name, number)
WF_FRAME_MAP(FRAME_SCHEMA)

const struct wf_schema *wf_schema_find(uint64_t number)
{
    switch (number) {
#define FRAME_CASE(name, number) \
    case number:                 \
        return name##_schema();
        WF_FRAME_MAP(FRAME_CASE)
#undef FRAME_CASE
    default:
        return NULL;
    }
}

const char *wf_frame_name(int type)
{
    const struct wf_schema *schema = type > 0 ? wf_schema_find((uint64_t)type) : NULL;
    return schema != NULL ? schema->name : "unknown";
}

/* --- documentation --------------------------------------------------------------------------- */
static void describe_field(FILE *out, const struct wf_field *field)
{
    switch (field->kind) {
    case WF_KIND_U64:
        if (field->bound == UINT64_MAX) {
            fprintf(out, "`%s` integer", field->name);
        } else {
            fprintf(out, "`%s` integer <= %" PRIu64, field->name, field->bound);
        }
        break;
    case WF_KIND_TEXT:
        fprintf(out, "`%s` text < %" PRIu64, field->name, field->bound);
        break;
    case WF_KIND_BYTES:
        fprintf(out, "`%s` bytes <= %" PRIu64, field->name, field->bound);
        break;
    case WF_KIND_HASH:
        fprintf(out, "`%s` hash", field->name);
        break;
    case WF_KIND_KEY:
        fprintf(out, "`%s` round key", field->name);
        break;
    case WF_KIND_VERSION:
        fprintf(out, "`%s` version", field->name);
        break;
    case WF_KIND_CULPRIT:
        fprintf(out, "`%s` culprit", field->name);
        break;
    case WF_KIND_LIST:
        fprintf(out, "`%s` list of %s <= %" PRIu64, field->name, field->element()->name,
                field->bound);
        break;
    case WF_KIND_END:
        break;
    }
}

static void describe_schema(FILE *out, const struct wf_schema *schema)
{
    for (size_t i = 0; i < schema->field_count; i++) {
        fputs(i == 0 ? " " : ", ", out);
        describe_field(out, &schema->fields[i]);
    }
    fputs(" |\n", out);
}

void wf_frame_describe(FILE *out)
{
    fputs("| type | frame | fields, in order |\n|---|---|---|\n", out);
    for (uint64_t number = 1; number <= UINT8_MAX; number++) {
        const struct wf_schema *schema = wf_schema_find(number);
        if (schema != NULL) {
            fprintf(out, "| %d | %s |", schema->number, schema->name);
            describe_schema(out, schema);
        }
    }
    fputs("\n| element | fields, in order |\n|---|---|\n", out);
#define DESCRIBE_ELEMENT(name)     \
    fprintf(out, "| %s |", #name); \
    describe_schema(out, el_##name##_schema());
    WF_ELEMENT_MAP(DESCRIBE_ELEMENT)
#undef DESCRIBE_ELEMENT
}
