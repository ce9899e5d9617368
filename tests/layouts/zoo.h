/* zoo.h - random small configs of every family, and random SPECs of every engine.
 *
 * A config is a text with holes ($H, $tied, ...) that are filled with drawn sizes, small and with
 * many divisors; a SPEC is drawn from the engine's own table of keys, so that a key that is added
 * there is drawn here. Equal states give equal texts. */
#ifndef WEFT_TESTS_LAYOUTS_ZOO_H
#define WEFT_TESTS_LAYOUTS_ZOO_H

#include "models/engines/engine.h"

enum { ZOO_CONFIG_MAX = 4096 };

struct zoo_family {
    const char *name; /* the config's model_type, and what is particular to it */
    const char *text; /* with ' for " */
};
extern const struct zoo_family zoo_families[]; /* ended by a NULL name */

uint64_t zoo_random(uint64_t *state);
unsigned zoo_pick(uint64_t *state, const unsigned *from, unsigned count);
#define ZOO_PICK(state, ...)                         \
    zoo_pick(state, (const unsigned[]){__VA_ARGS__}, \
             sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned))

void zoo_config(const struct zoo_family *family, uint64_t *state, char out[ZOO_CONFIG_MAX]);
/* With sizes of rows and columns `scale` times as large, for what comes in blocks. */
void zoo_config_scaled(const struct zoo_family *family, uint64_t *state, unsigned scale,
                       char out[ZOO_CONFIG_MAX]);
/* `model` says how many layers an explicit pipeline has. */
void zoo_spec(const struct wf_engine *engine, const struct wf_model *model, uint64_t *state,
              char out[WF_SPEC_MAX]);

#endif
