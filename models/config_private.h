/* config_private.h - between config.c (keys), config_sizes.c (values), config_inventory.c
 * (parameters), config_names.c (their index), config_vary.c and variant.c (models made of a model):
 * what a model keeps behind wf_model.memory.
 *
 * A place is a member of a stack: places are counted through all stacks in the family's order. */
#ifndef WEFT_MODELS_CONFIG_PRIVATE_H
#define WEFT_MODELS_CONFIG_PRIVATE_H

#include "models/config.h"
#include "models/families/family.h"

/* Limits of a configuration, so that no product of sizes can overflow unseen. */
#define WF_MODEL_SIZE_MAX ((uint64_t)1 << 31)     /* any one size */
#define WF_MODEL_ELEMENTS_MAX ((uint64_t)1 << 56) /* of all parameters together */
#define WF_MODEL_PARAMS_MAX ((uint32_t)1 << 20)

enum wf_size_kind {
    WF_SIZE_RULE,   /* no key: the family's `otherwise` */
    WF_SIZE_NUMBER, /* `value` stands in the config */
    WF_SIZE_LIST,   /* raw[layer] */
    WF_SIZE_SET,    /* 1 where raw has the layer */
};

struct wf_size_value {
    enum wf_size_kind kind;
    bool null;   /* the key is there and null */
    bool varies; /* with the place: `at` holds the values */
    uint64_t value;
    uint32_t *raw; /* what the config lists; owned */
    uint32_t raw_count;
    uint64_t *at; /* [places]; owned */
};

struct wf_stack_value {
    uint32_t count, base; /* members; place of the first */
    uint64_t first;       /* its number */
};

/* Where a row's parameters of one place begin, and the step from expert to expert. */
struct wf_param_entry {
    uint32_t first, step;
};

enum { WF_EXCLUDED_MAX = 16384, WF_EXCLUDED_WILD_MAX = 64, WF_EXCLUDED_CHOICES_MAX = 4 };
/* Of a name in a regular expression. */
#define WF_EXCLUDED_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

struct wf_excluded_entry {
    uint64_t hash;
    char text[WF_NAME_MAX];
};

enum { WF_PACKING_MAX = 96 };

/* Modules that a quantised checkpoint leaves as they are. */
struct wf_excluded {
    struct wf_excluded_entry *entries; /* sorted by hash; owned */
    uint32_t count, room, wild_count;
    bool numbered; /* an entry has a digit: experts may differ */
    bool cut;      /* an entry begins with "...": a list that somebody shortened for reading */
};
enum wf_status wf_excluded_add(struct wf_excluded *list, const char *text, size_t len,
                               struct wf_error *error);
/* False where there is no memory. */
bool wf_excluded_copy(const struct wf_excluded *from, struct wf_excluded *to);
void wf_excluded_sort(struct wf_excluded *list); /* once, after the last one */
bool wf_excluded_has(const struct wf_excluded *list, const char *module);

struct wf_model_memory {
    struct wf_size_value sizes[WF_FAMILY_SIZES_MAX];
    struct wf_stack_value stacks[WF_FAMILY_STACKS_MAX];
    uint32_t places, experts;
    struct wf_excluded excluded;
    char packing[WF_PACKING_MAX];   /* how the config calls its quantisation; "": none */
    char *names;                    /* of all parameters, each with its NUL */
    char *variant_names;            /* of those that variant.c added */
    uint64_t *slots;                /* hash table over names: half a hash, parameter or WF_NONE */
    uint32_t slot_mask;             /* slots are a power of two */
    struct wf_param_entry *entries; /* [row][1 + place]; 0 is outside the stacks */
};

static inline struct wf_model_memory *wf_memory(const struct wf_model *model)
{
    return model->memory;
}

/* Works out every size, the stacks, and whether the family's requirements hold. What the config
 * says stands in sizes[].kind, null, value and raw. */
enum wf_status wf_model_resolve(struct wf_model *model, struct wf_error *error);
/* Fills params, names, their index and the hash of a model that was resolved. */
enum wf_status wf_model_build(struct wf_model *model, struct wf_error *error);
/* Makes the index by name anew; `hashes` are wf_hash_bytes of the names. INVALID: one name twice.
 */
enum wf_status wf_model_index(struct wf_model *model, const uint64_t *hashes,
                              struct wf_error *error);
/* A size that a varied model has whatever the config said; one that the family has not is left out.
 */
struct wf_size_change {
    const char *name;
    uint64_t value;
};
/* The model of the same config but for `changes`. Not of a model with variants. */
enum wf_status wf_model_vary(const struct wf_model *model, const struct wf_size_change *changes,
                             size_t count, struct wf_model **model_out, struct wf_error *error);
/* Index of a size of the family, or WF_NONE. */
uint32_t wf_family_find_size(const struct wf_family *family, const char *name, size_t len);

#endif
