/* hf.c - a Hugging Face checkpoint's files: one rank that holds every tensor whole.
 *
 * Most tensors are parameters under their own names; what a family's checkpoint fuses is in the
 * family (rows of engine "hf").
 */
#include "models/engines/engine.h"

static const struct wf_engine_row rows[] = {
    {.name = "{name}", .parts = "*"},
};

static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    (void)recipe;
    (void)rank;
    return (struct wf_coordinates){0};
}

const struct wf_engine wf_engine_hf = {
    .name = "hf",
    .vocab_multiple = 1,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .coordinates = coordinates,
};
