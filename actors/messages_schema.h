/* messages_schema.h - the table of messages.h as data. Private to the codec (messages*.c). */
#ifndef WEFT_ACTORS_MESSAGES_SCHEMA_H
#define WEFT_ACTORS_MESSAGES_SCHEMA_H

#include "actors/messages.h"

enum wf_field_kind {
    WF_KIND_END,
    WF_KIND_U64,
    WF_KIND_TEXT,
    WF_KIND_BYTES,
    WF_KIND_HASH,
    WF_KIND_KEY,
    WF_KIND_VERSION,
    WF_KIND_CULPRIT,
    WF_KIND_LIST,
};

enum { WF_KEY_NUMBERS = 7, WF_VERSION_NUMBERS = 3, WF_CULPRIT_PARTS = 6 };

struct wf_schema;
struct wf_field {
    enum wf_field_kind kind;
    const char *name;
    size_t offset;
    size_t size_offset; /* BYTES: of the length; LIST: of the count */
    uint64_t bound;
    const struct wf_schema *(*element)(void); /* LIST */
};
struct wf_schema {
    const char *name;
    int number; /* frames */
    size_t struct_bytes;
    size_t field_count;
    const struct wf_field *fields;
};

/* The schema of a frame type, or NULL for a number that is none. */
const struct wf_schema *wf_schema_find(uint64_t number);

#endif
