/* less_one.c - which parameters the trainers of a job hold less 1, and in what type.
 *
 * Such a value is rounded once when 1 is taken off it, and comes back to the engine with 1 added
 * (models/prepare.h): the element check has to know it.
 */
#include <stdlib.h>

#include "models/layout.h"
#include "tools/run/setup.h"

static void note_pieces(const struct wf_layout *layout, enum wf_dtype *types)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind == WF_PIECE_DATA && piece->value_rule == WF_VALUE_LESS_ONE) {
            types[piece->param] = layout->tensors[piece->tensor].dtype;
        }
    }
}

enum wf_status wf_run_less_one(const struct wf_model *model, const struct wf_recipe *train,
                               enum wf_dtype **types_out, struct wf_error *error)
{
    enum wf_dtype *types = calloc(model->param_count + 1ull, sizeof *types);
    uint32_t world = wf_recipe_world(train), stages = 0; /* of a pipeline, seen so far */
    enum wf_status status = WF_OK;
    if (types == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u parameters", model->param_count);
    }
    for (uint32_t rank = 0; rank < world && status == WF_OK; rank++) {
        struct wf_layout *layout = NULL;
        if (wf_recipe_coordinates(train, rank).pp != stages) {
            continue; /* what is held less 1 follows from the stage */
        }
        stages++;
        status = wf_layout_derive(model, train, rank, &layout, error);
        if (status == WF_OK) {
            note_pieces(layout, types);
            wf_layout_free(layout);
        }
    }
    if (status != WF_OK) {
        free(types);
        return status;
    }
    *types_out = types;
    return WF_OK;
}
