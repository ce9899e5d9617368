/* manifest_private.h - the reader behind manifest.c, manifest_tables.c and manifest_cursor.c. */
#ifndef WEFT_MODELS_MANIFEST_PRIVATE_H
#define WEFT_MODELS_MANIFEST_PRIVATE_H

#include "models/layout_private.h"
#include "models/manifest.h"
#include "runtime/msgpack_read.h"

struct wf_manifest_type {
    enum wf_dtype dtype;
    enum wf_tensor_kind kind;
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    bool ordered;
    uint32_t order[WF_SHAPE_MAX];
    uint64_t bytes;
};

struct wf_manifest_word {
    const char *text; /* in the manifest */
    uint32_t len;
};

struct wf_manifest_reader {
    const uint8_t *bytes;         /* the manifest */
    struct wf_msgpack in;         /* what of it is not read yet */
    const struct wf_model *model; /* or NULL */
    struct wf_error *error;
    const char *part; /* of the manifest, for messages */
    uint32_t index;   /* in that part */
    struct wf_manifest_word *words;
    uint32_t *params; /* the model's, or the manifest's own */
    struct wf_manifest_type *types;
    struct wf_nest *forms; /* from element and byte 0 on */
    uint32_t *built;       /* by form: the layout's */
    uint32_t word_count, param_count, type_count, form_count;
    uint32_t piece_count, next_param;
    uint32_t before[WF_MANIFEST_NAME_WORDS_MAX], before_count;
    struct wf_build build;
    bool has_hash;
    struct wf_hash hash;
    struct wf_manifest *out;
    size_t text_used, text_room;
};

/* INVALID: what was expected where the reader stands. */
enum wf_status wf_manifest_refuse(struct wf_manifest_reader *r, const char *expected);

/* --- manifest_cursor.c: the next value, or wf_manifest_refuse's sentence and the reader as it was.
 */
/* A whole number in [0, most]. */
enum wf_status wf_manifest_take_number(struct wf_manifest_reader *r, uint64_t most,
                                       uint64_t *number_out);
/* One below `count`. */
enum wf_status wf_manifest_take_index(struct wf_manifest_reader *r, uint32_t count,
                                      uint32_t *index_out);
/* A whole number of either sign. */
enum wf_status wf_manifest_take_signed(struct wf_manifest_reader *r, int64_t *number_out);
/* The head of a list of [least, most] entries, each of which has a byte at least. */
enum wf_status wf_manifest_take_list(struct wf_manifest_reader *r, uint32_t least, uint32_t most,
                                     uint32_t *count_out);
/* Borrows from the manifest. */
enum wf_status wf_manifest_take_text(struct wf_manifest_reader *r,
                                     struct wf_manifest_word *text_out);

/* --- manifest_tables.c: whole parts of the manifest, into the reader's lists ----------------- */
enum wf_status wf_manifest_take_words(struct wf_manifest_reader *r);
enum wf_status wf_manifest_take_params(struct wf_manifest_reader *r);
enum wf_status wf_manifest_take_types(struct wf_manifest_reader *r);
enum wf_status wf_manifest_take_forms(struct wf_manifest_reader *r);
/* A name by its words (NUL-terminated). */
enum wf_status wf_manifest_take_name(struct wf_manifest_reader *r, char name[WF_NAME_MAX],
                                     size_t *len_out);

#endif
