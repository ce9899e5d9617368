/* keys.h - entries of an engine's table of keys (engine.h): number, flag, word, and what is known
 * and refused. `field` is a member of wf_recipe: tp, own[WF_FSDP_SHARD]. */
#ifndef WEFT_MODELS_ENGINES_KEYS_H
#define WEFT_MODELS_ENGINES_KEYS_H

#include <stddef.h>

#include "models/engines/engine.h"

/* `normal_` 0 when absent: worked out, or none. */
#define WF_SIZE_KEY(name_, field, normal_, max_)                                         \
    {                                                                                    \
        .name = name_, .kind = WF_KEY_SIZE, .offset = offsetof(struct wf_recipe, field), \
        .normal = normal_, .max = max_                                                   \
    }
/* A size of the world: 1 when absent. */
#define WF_RANKS_KEY(name_, field) WF_SIZE_KEY(name_, field, 1, WF_WORLD_MAX)
#define WF_FLAG_KEY(name_, field, normal_)                                               \
    {                                                                                    \
        .name = name_, .kind = WF_KEY_FLAG, .offset = offsetof(struct wf_recipe, field), \
        .normal = normal_                                                                \
    }
/* The first word when absent. */
#define WF_WORD_KEY(name_, field, words_)                                                \
    {                                                                                    \
        .name = name_, .kind = WF_KEY_WORD, .offset = offsetof(struct wf_recipe, field), \
        .words = words_                                                                  \
    }
/* `only_`: the one value that is no refusal; NULL: none is. */
#define WF_REFUSED_KEY(name_, only_, why)                                  \
    {                                                                      \
        .name = name_, .kind = WF_KEY_REFUSED, .words = why, .only = only_ \
    }

#endif
