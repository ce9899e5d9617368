/* hf.c - a Hugging Face folder as an engine: one rank that has every parameter whole. */
#include "models/engines/engine.h"

static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    (void)recipe;
    (void)rank;
    return (struct wf_coordinates){0};
}

/* No rows: wf_layout_hf makes its layout from the inventory itself. */
const struct wf_engine wf_engine_hf = {
    .name = "hf",
    .vocab_multiple = 1,
    .coordinates = coordinates,
};
