/* inventory.h - reads the tables of tensors in tests/golden: patterns, shapes, ranges of layers. */
#ifndef WEFT_TESTS_MODELS_INVENTORY_H
#define WEFT_TESTS_MODELS_INVENTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/layout.h"

struct inventory_line {
    const char *pattern, *shape, *layers; /* "-": outside the layers */
    unsigned count;
};

/* Calls `each` for every line whose first column is `where` (NULL: tables without that column).
 * Returns the number behind "# total", or 0. */
typedef void inventory_each_t(void *user, const struct inventory_line *line);
uint64_t inventory_read(const char *path, const char *where, inventory_each_t *each, void *user);

/* Expects every tensor of a line in the layout, with its shape; returns how many there are. */
unsigned inventory_expect(const struct wf_layout *layout, uint64_t experts, const char *title,
                          const struct inventory_line *line);

/* The layout of rank 0. */
struct wf_layout *inventory_layout(const struct wf_model *model, const char *spec,
                                   const char *title);

#endif
