/* side.h - one of two sets of files that are compared: where each parameter's elements lie.
 *
 * A side is a Hugging Face folder, a dump (tools/files/dump.h), or what running ranks hold
 * (tools/live/live.h), whose regions are then the files. Its parameters have canonical
 * names; each has sources, the places of its elements in the ranks' files, which follow from the
 * layouts (models/layout.h). Files are taken as they are: a tensor that is absent, has another
 * shape or is unknown goes into a list and stops nothing.
 *
 * Where the model's family, the recipe or a layout is refused, the refusal goes into a list too,
 * and every tensor of the files is a parameter under its own name (with "rank N: " before it in a
 * dump of several ranks), so that two sides of one kind can still be compared.
 *
 * Reading is by pread through a window: nothing is mapped, nothing larger than the window and the
 * caller's buffer is in memory. A side belongs to one thread.
 */
#ifndef WEFT_TOOLS_COMPARE_SIDE_H
#define WEFT_TOOLS_COMPARE_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/layout.h"
#include "tools/files/dump.h"
#include "tools/live/live.h"

enum {
    WF_SIDE_WINDOW_BYTES = 4 << 20,       /* read at a time where elements are gathered */
    WF_SIDE_WINDOW_MAX_BYTES = 128 << 20, /* where a transposed tensor needs more */
    WF_SIDE_RUN_BYTES = 16 << 10,         /* longer runs are read straight to their place */
};

/* What a source gives that the ones before it of the same parameter do not. */
enum wf_source_part {
    WF_SOURCE_NEW,  /* all of it */
    WF_SOURCE_COPY, /* nothing: a replica, or a tied tensor that is there twice */
    WF_SOURCE_BOTH, /* some of it */
};

struct wf_side_source {
    uint32_t rank, tensor; /* of the rank's file */
    uint32_t piece;        /* of the rank's layout; WF_NONE: the whole tensor, row-major */
    uint16_t part;         /* enum wf_source_part */
    uint16_t value_rule;   /* enum wf_value_rule */
};

struct wf_side_param {
    const char *name; /* owned by the side */
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    uint64_t elements, held; /* held: how many of them some rank has */
    enum wf_dtype dtype;     /* in the files; NONE: no source, or a type this build does not know */
    uint32_t first_source, source_count;
    uint32_t scales;        /* codes of fp8: the parameter of their scales, or WF_NONE */
    uint32_t in_model;      /* index in the model or WF_NONE */
    uint32_t layer, expert; /* as the name says, or WF_NONE */
    bool planned;           /* the layouts have a place for it */
    bool less_one;          /* the files hold the value minus 1 */
    bool marked;            /* parts overlap or miss: reads must be told what was written */
    bool dtypes_differ;     /* between its sources: cannot be read */
};

/* A tensor whose shape is not what the model says. */
struct wf_side_shape {
    char *name; /* canonical where the tensor is a parameter, else the framework's; owned */
    uint32_t rank, expected_ndim, found_ndim;
    uint64_t expected[WF_SHAPE_MAX], found[WF_SHAPE_MAX];
};

struct wf_texts {
    char **items; /* owned */
    uint32_t count, capacity;
};

struct wf_side_rank {
    struct wf_dump_rank files;
    struct wf_layout *layout; /* NULL: by names */
    uint32_t *live;           /* of each layout tensor and alias: tensor of the file or WF_NONE */
};

struct wf_compare_side {
    char *path;
    char spec[WF_SPEC_MAX];       /* "hf", "megatron:tp=3", "" if it was refused */
    bool by_names;                /* no model or no layouts */
    bool recipe_wrong;            /* and that is the recipe.json's fault, not Weft's */
    bool serves;                  /* an engine's: padding must hold its fill */
    bool partial;                 /* one rank of several: what it has not is not missing */
    const struct wf_model *model; /* the view of the side's recipe; NULL if refused */
    struct wf_model *owned;       /* of which it is a view */
    struct wf_model *config;      /* of the config alone; NULL if refused. Owned, or `owned` */
    struct wf_side_rank *ranks;
    uint32_t rank_count;
    struct wf_side_param *params; /* in the model's order */
    uint32_t param_count;
    uint32_t *by_name; /* indices of params, sorted by name */
    struct wf_side_source *sources;
    uint32_t source_count;
    struct wf_texts refused, unknown, notes; /* sentences; names; sentences */
    struct wf_side_shape *shapes;
    uint32_t shape_count, shape_capacity;
    struct wf_version version; /* of a job, that it is: a version folder, running ranks; or none */
    void *window;
    uint64_t window_bytes;
    uint64_t bytes_read;
};

/* `families` as everywhere; may be NULL. Fails only for what cannot be read at all (no folder, no
 * files, a broken header). End with wf_side_close, also after a failure. */
enum wf_status wf_side_open(const char *path, const struct wf_family *const *families,
                            struct wf_compare_side *side, struct wf_error *error);
/* Which running ranks. */
enum wf_side_who { WF_LIVE_ENGINE, WF_LIVE_RANK /* of the infer side */, WF_LIVE_TRAIN };
struct wf_side_live {
    struct wf_live *live;
    const struct wf_model *config; /* the job's; borrowed for the call */
    const char *config_path;       /* where it comes from, for messages; NULL: side A */
    enum wf_side_who who;
    uint32_t number;     /* of the engine or the rank */
    const char *address; /* of the server, for messages */
    const char *model;   /* the job file's, with which the job began; or NULL */
    const char *beside;  /* the job file, beside which its manifests lie; or NULL */
};
/* What ranks of a running job hold; all that is read later is one version, as long as wf_live_check
 * says so. `live` is borrowed until the side is closed. MISMATCH: the job has another model;
 * NOT_FOUND: there is no such engine or rank; otherwise as wf_live_connect and wf_live_begin. */
enum wf_status wf_side_open_live(const struct wf_side_live *options, struct wf_compare_side *side,
                                 struct wf_error *error);
void wf_side_close(struct wf_compare_side *side);

/* Index of a parameter, or WF_NONE. */
uint32_t wf_side_find(const struct wf_compare_side *side, const char *name);

/* Elements [first, first + count) of a parameter in row-major order, cast to `as`, into `out`;
 * elements that no rank has are left as they were. `seen` (count bytes, zeroed; NULL unless the
 * parameter is `marked`): 1 where an element was written. Where the files hold the value minus 1,
 * 1 is added in f32, and `as` must be f32.
 * UNSUPPORTED: the dtypes cannot be cast into `as`. */
enum wf_status wf_side_read(struct wf_compare_side *side, uint32_t param, uint64_t first,
                            uint64_t count, enum wf_dtype as, void *out, uint8_t *seen,
                            struct wf_error *error);
/* The same from one source alone (which may be a copy). */
enum wf_status wf_side_read_source(struct wf_compare_side *side, uint32_t param, uint32_t source,
                                   uint64_t first, uint64_t count, enum wf_dtype as, void *out,
                                   uint8_t *seen, struct wf_error *error);
/* True if a source shows an element of the range (or may). */
bool wf_side_source_in(const struct wf_compare_side *side, uint32_t param, uint32_t source,
                       uint64_t first, uint64_t count);
/* Elements to read at a time so that nothing is read from the files many times over. */
uint64_t wf_side_tile(const struct wf_compare_side *side, uint32_t param, uint64_t wanted);

/* Compares what a rank's fills should hold with what they hold. */
struct wf_side_padding {
    const char *tensor;
    uint32_t rank;
    uint8_t expected;
    uint64_t wrong, first; /* bytes that differ; the first one's place in the tensor */
};
typedef void wf_side_padding_t(void *user, const struct wf_side_padding *padding);
/* `found` is called for each fill that does not hold its byte. */
enum wf_status wf_side_check_fills(struct wf_compare_side *side, uint32_t rank,
                                   wf_side_padding_t *found, void *user, struct wf_error *error);

/* End of the name of a parameter that says how the codes of a matrix scale. */
#define WF_SIDE_SCALES "_scale_inv"
#define WF_SIDE_ROW_SCALES ".weight_scale"
bool wf_side_ends_with(const char *name, const char *end); /* and has more than that */
/* Bytes of the name of the matrix whose codes a parameter of this name scales; 0: it is not called
 * like scales. */
size_t wf_side_scales_stem(const char *name);

/* Adds a formatted line. */
enum wf_status wf_texts_add(struct wf_texts *texts, struct wf_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void wf_texts_fini(struct wf_texts *texts);

/* The tensor of a file that a source names. */
const struct wf_dump_tensor *wf_side_tensor(const struct wf_compare_side *side,
                                            const struct wf_side_source *source);
/* For side_*.c: where a source's elements stand, in the file's dtype. */
struct wf_nest wf_side_nest(const struct wf_compare_side *side, const struct wf_side_param *param,
                            const struct wf_side_source *source);
/* The live tensors of `rank` under the layout, or NULL (row-major). */
const int64_t *wf_side_order(const struct wf_compare_side *side,
                             const struct wf_side_source *source);

#endif
