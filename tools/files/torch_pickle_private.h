/* torch_pickle_private.h - the machine's objects, shared by the files of the reader of pickles. */
#ifndef WEFT_TOOLS_FILES_TORCH_PICKLE_PRIVATE_H
#define WEFT_TOOLS_FILES_TORCH_PICKLE_PRIVATE_H

#include <stdbool.h>

#include "tools/files/torch_pickle.h"

enum wf_pickle_kind {
    WF_PICKLE_NONE,
    WF_PICKLE_INT, /* and true, false */
    WF_PICKLE_TEXT,
    WF_PICKLE_TUPLE,
    WF_PICKLE_LIST,
    WF_PICKLE_DICT,
    WF_PICKLE_GLOBAL,
    WF_PICKLE_STORAGE,
    WF_PICKLE_TENSOR,
    WF_PICKLE_OPAQUE, /* of no interest: floats, bytes, results of calls that give no tensor */
};

struct wf_pickle_object {
    enum wf_pickle_kind kind;
    bool seen; /* DICT: its entries were given out */
    union {
        int64_t integer;
        struct {
            uint32_t at, len; /* in the pickle */
        } text;
        struct {
            uint32_t first, last, count; /* items; WF_NONE: none */
        } items;                         /* TUPLE, LIST, DICT */
        uint32_t index;                  /* GLOBAL, STORAGE, TENSOR */
    };
};

struct wf_pickle_item {
    uint32_t key, value, next; /* objects; an item. key: DICT only */
};

struct wf_pickle_storage {
    uint32_t key; /* TEXT */
    enum wf_dtype dtype;
    bool untyped; /* counts bytes, and its tensors say their dtype */
    uint64_t elements;
};

struct wf_pickle_parts { /* of a tensor */
    uint32_t storage;    /* index */
    enum wf_dtype dtype;
    uint64_t offset;         /* elements */
    uint32_t shape, strides; /* TUPLE */
};

/* Grows by doubling, up to a limit that the pickle's own length gives. */
struct wf_pickle_array {
    void *at;
    uint32_t count, capacity;
};

struct wf_pickle {
    const uint8_t *bytes;
    size_t len, at;   /* the next byte */
    size_t opcode_at; /* of the opcode that runs */
    struct wf_pickle_array objects, items, stack, marks, memo, storages, tensors;
    struct wf_error *error;
};

struct wf_pickle_object *wf_pickle_object(const struct wf_pickle *p, uint32_t object);
struct wf_pickle_item *wf_pickle_item(const struct wf_pickle *p, uint32_t item);
/* True if the object is this text. */
bool wf_pickle_text_is(const struct wf_pickle *p, uint32_t object, const char *text);

/* Refuses with a sentence that says the opcode's position. */
enum wf_status wf_pickle_refuse(struct wf_pickle *p, enum wf_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum wf_status wf_pickle_new(struct wf_pickle *p, enum wf_pickle_kind kind, uint32_t *object_out);
enum wf_status wf_pickle_grow(struct wf_pickle *p, struct wf_pickle_array *array, size_t size);

/* --- the stack: what stands above the last mark (torch_machine.c) --- */
/* A word behind an array of words: an object on the stack, a height among the marks. */
enum wf_status wf_pickle_push(struct wf_pickle *p, struct wf_pickle_array *array, uint32_t word);
enum wf_status wf_pickle_push_new(struct wf_pickle *p, enum wf_pickle_kind kind);
enum wf_status wf_pickle_push_integer(struct wf_pickle *p, int64_t value);
/* Refuses if fewer than `count` objects are there. */
enum wf_status wf_pickle_need(struct wf_pickle *p, uint32_t count);
/* Object `depth` from the top, which is there. */
uint32_t wf_pickle_peek(const struct wf_pickle *p, uint32_t depth);
/* Ends the part behind the last mark; gives where its objects begin. They stay behind the top. */
enum wf_status wf_pickle_pop_mark(struct wf_pickle *p, uint32_t *first_out, uint32_t *count_out);
enum wf_status wf_pickle_put_memo(struct wf_pickle *p, uint64_t index);
enum wf_status wf_pickle_get_memo(struct wf_pickle *p, uint64_t index);
/* A tuple of `count` objects from `first` of the stack on (perhaps behind its top). */
enum wf_status wf_pickle_make_tuple(struct wf_pickle *p, uint32_t first, uint32_t count);
/* Puts what stands behind the last mark, or the topmost objects, into the list or dict below. */
enum wf_status wf_pickle_fill_marked(struct wf_pickle *p, enum wf_pickle_kind kind);
enum wf_status wf_pickle_fill_top(struct wf_pickle *p, enum wf_pickle_kind kind, uint32_t count);

/* --- names and what they make (torch_globals.c) --- */
/* `index` of a name for an object of kind GLOBAL; a name that is not known is refused. */
enum wf_status wf_pickle_global(struct wf_pickle *p, const char *module, size_t module_len,
                                const char *name, size_t name_len, uint32_t *index_out);
/* What the call of `callee` with the tuple `arguments` gives. */
enum wf_status wf_pickle_call(struct wf_pickle *p, uint32_t callee, uint32_t arguments,
                              uint32_t *object_out);
/* The storage that a persistent id stands for. */
enum wf_status wf_pickle_persistent(struct wf_pickle *p, uint32_t id, uint32_t *object_out);

/* --- giving out (torch_names.c) --- */
enum wf_status wf_pickle_give(struct wf_pickle *p, uint32_t root,
                              const struct wf_pickle_sink *sink);

#endif
