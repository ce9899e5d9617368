/* manifest.c - the engine that is none: ranks whose layouts are spelled out in files.
 *
 * For tensors that no recipe describes. The files were read when the job's model was made
 * (models/manifest_set.h); an engine's ranks are told apart by their numbers alone, as stages are.
 */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout_private.h"
#include "models/manifest_set.h"

static const struct wf_engine_key keys[] = {
    {.name = "files", .kind = WF_KEY_LAYOUT},
    {.name = "ranks",
     .kind = WF_KEY_SIZE,
     .offset = offsetof(struct wf_recipe, pp),
     .normal = 1,
     .max = WF_WORLD_MAX},
    {.name = "engines",
     .kind = WF_KEY_SIZE,
     .offset = offsetof(struct wf_recipe, engines),
     .normal = 1,
     .max = WF_WORLD_MAX},
    {.name = "quant",
     .kind = WF_KEY_WORD,
     .offset = offsetof(struct wf_recipe, quant),
     .words = WF_RECIPE_QUANT_WORDS},
};

static enum wf_status check_recipe(const struct wf_recipe *recipe, struct wf_error *error)
{
    const char *mark = strchr(recipe->layout, '%');
    bool numbered = mark != NULL && mark[1] == 'd' && strchr(mark + 1, '%') == NULL;
    if (recipe->layout[0] == '\0' || (mark != NULL && !numbered)) {
        return wf_error_set(error, WF_INVALID,
                            "files: expected the path of the ranks' manifests, with one %%d for a "
                            "rank's number (files=manifests/rank-%%d.manifest), found \"%s\"",
                            recipe->layout);
    }
    if (recipe->pp > 1 && !numbered) {
        return wf_error_set(error, WF_INVALID,
                            "files=%s: expected %%d in it: each of %" PRIu32 " ranks has a "
                            "manifest of its own",
                            recipe->layout, recipe->pp);
    }
    return WF_OK;
}

static enum wf_status find(const struct wf_model *model, const struct wf_recipe *recipe,
                           uint32_t rank, const struct wf_layout **layout_out,
                           struct wf_error *error)
{
    *layout_out = wf_model_manifest(model, recipe->layout, rank % recipe->pp);
    return *layout_out != NULL
               ? WF_OK
               : wf_error_set(error, WF_UNSUPPORTED,
                              "no manifest was read for rank %" PRIu32
                              " of %s: weft layout, plan, run, compare and dump read them, as "
                              "groups of a job",
                              rank, recipe->layout);
}

static enum wf_status check(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error)
{
    const struct wf_layout *layout = NULL;
    enum wf_status status = WF_OK;
    for (uint32_t rank = 0; rank < recipe->pp && status == WF_OK; rank++) {
        status = find(model, recipe, rank, &layout, error);
    }
    return status;
}

static enum wf_status layout(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t rank, struct wf_layout **layout_out, struct wf_error *error)
{
    const struct wf_layout *read = NULL;
    struct wf_build build;
    enum wf_status status = find(model, recipe, rank, &read, error);
    if (status != WF_OK) {
        return status;
    }
    wf_build_from(&build, read);
    return wf_build_end(&build, WF_OK, layout_out, error);
}

static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    return (struct wf_coordinates){.engine = rank / recipe->pp, .pp = rank % recipe->pp};
}

const struct wf_engine wf_engine_manifest = {
    .name = "manifest",
    .view = WF_VIEW_SPEC,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple = 1,
    .check_recipe = check_recipe,
    .check = check,
    .coordinates = coordinates,
    .layout = layout,
};
