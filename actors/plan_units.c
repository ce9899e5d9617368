/* plan_units.c - what the infer side needs: the boxes where target pieces meet atoms.
 *
 * Done once per pair of classes. Refuses what no train rank holds, and what cannot be cast.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"
#include "models/variant.h"

/* One target piece while it is cut. */
struct cutter {
    struct wf_plan_build *build;
    const struct wf_layout *layout;
    uint32_t dst_class, piece, atom;
    uint64_t elements; /* found so far, repeats included */
};

static bool append_unit(void *user, const struct wf_box *box)
{
    struct cutter *cutter = user;
    struct wf_plan_build *build = cutter->build;
    const struct wf_piece *piece = &cutter->layout->pieces[cutter->piece];
    size_t elem_bytes = wf_dtype_bytes(cutter->layout->tensors[piece->tensor].dtype);
    build->units = wf_plan_grow(&build->arena, build->units, &build->unit_capacity,
                                build->unit_count + 1ull, sizeof *build->units);
    if (build->units == NULL) {
        return false;
    }
    struct wf_plan_unit *unit = &build->units[build->unit_count++];
    *unit = (struct wf_plan_unit){.bytes = box->elements * elem_bytes,
                                  .dst_class = cutter->dst_class,
                                  .dst_tensor = piece->tensor,
                                  .param = piece->param,
                                  .atom = cutter->atom};
    unit->nest.param_first = box->src_offset; /* an atom's bytes are the parameter's elements */
    unit->nest.tensor_offset = box->dst_offset;
    unit->nest.elem_bytes = (uint32_t)elem_bytes;
    unit->nest.axis_count = box->axis_count;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        unit->nest.axes[a] = (struct wf_axis){box->axes[a].count, (uint64_t)box->axes[a].src_step,
                                              box->axes[a].dst_step};
    }
    cutter->elements += box->elements;
    return true;
}

static enum wf_status refuse_cast(const struct cutter *cutter, const struct wf_plan_atom *atom,
                                  const struct wf_tensor *from, const struct wf_tensor *to,
                                  struct wf_error *error)
{
    const struct wf_plan_build *build = cutter->build;
    const struct wf_piece *piece = &cutter->layout->pieces[cutter->piece];
    const struct wf_param *param = &build->input->model->params[piece->param];
    char box[WF_PLAN_SET_TEXT];
    wf_plan_set_format(&atom->set, param, box);
    return wf_error_set(error, WF_UNSUPPORTED,
                        "parameter %s, %s: train rank %" PRIu32
                        " holds it as %s (%s) and infer rank "
                        "%" PRIu32 " needs it as %s (%s); this build casts f32, f16 and bf16 only",
                        param->name, box, build->src[atom->holders[0].src_class].ranks[0],
                        wf_dtype_name(from->dtype), from->name,
                        build->dst[cutter->dst_class].ranks[0], wf_dtype_name(to->dtype), to->name);
}

/* A norm that one side stores zero-centred and the other does not: ops copy and cast, they do not
 * add. */
static enum wf_status refuse_value(const struct cutter *cutter, const struct wf_plan_atom *atom,
                                   const struct wf_tensor *from, const struct wf_tensor *to,
                                   struct wf_error *error)
{
    const struct wf_plan_build *build = cutter->build;
    const struct wf_piece *piece = &cutter->layout->pieces[cutter->piece];
    bool target = piece->value_rule == WF_VALUE_LESS_ONE;
    return wf_error_set(error, WF_UNSUPPORTED,
                        "parameter %s: train rank %" PRIu32 " holds %s (%s) and infer rank %" PRIu32
                        " needs %s (%s); this build moves and casts values, it does not add to "
                        "them",
                        build->input->model->params[piece->param].name,
                        build->src[atom->holders[0].src_class].ranks[0],
                        target ? "its values" : "its values less 1", from->name,
                        build->dst[cutter->dst_class].ranks[0],
                        target ? "its values less 1" : "its values", to->name);
}

static enum wf_status check_cast(const struct cutter *cutter, const struct wf_plan_atom *atom,
                                 struct wf_error *error)
{
    const struct wf_layout *src = cutter->build->src[atom->holders[0].src_class].layout;
    const struct wf_tensor *from = &src->tensors[src->pieces[atom->holders[0].piece].tensor];
    const struct wf_tensor *to =
        &cutter->layout->tensors[cutter->layout->pieces[cutter->piece].tensor];
    if (src->pieces[atom->holders[0].piece].value_rule !=
        cutter->layout->pieces[cutter->piece].value_rule) {
        return refuse_value(cutter, atom, from, to, error);
    }
    return wf_dtype_castable(from->dtype, to->dtype) ? WF_OK
                                                     : refuse_cast(cutter, atom, from, to, error);
}

/* Names the first box of a target piece that no train rank holds. */
static enum wf_status refuse_missing(const struct cutter *cutter, const struct wf_nest *nest,
                                     struct wf_error *error)
{
    struct wf_plan_build *build = cutter->build;
    const struct wf_piece *piece = &cutter->layout->pieces[cutter->piece];
    const struct wf_param *param = &build->input->model->params[piece->param];
    uint32_t first = build->atom_first[piece->param], end = build->atom_first[piece->param + 1];
    struct wf_nest whole = wf_plan_set_of(nest);
    struct wf_plan_sets left = {.nests = &whole, .count = 1, .arena = &build->arena};
    for (uint32_t a = first; a < end; a++) {
        struct wf_plan_sets rest = {.arena = &build->arena};
        for (uint32_t i = 0; i < left.count; i++) {
            enum wf_status status = wf_plan_set_minus(&left.nests[i], &build->atoms[a].set,
                                                      param->elements, &rest, error);
            if (status != WF_OK) {
                return status;
            }
        }
        left = rest;
    }
    WF_ASSERT(left.count > 0); /* fewer elements than needed were found */
    const struct wf_model *model = build->input->model;
    const struct wf_variant_pair *pair = wf_model_pair(model, piece->param);
    if (pair != NULL && pair->matrix != piece->param) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "parameter %s: infer rank %" PRIu32
                            " needs it as codes and scales (%s), and no source has those, or the "
                            "matrix in f32, f16 or bf16 of which they could be made: let another "
                            "source give it, or give the engine quant=none",
                            model->params[pair->matrix].name,
                            build->dst[cutter->dst_class].ranks[0],
                            wf_quant_name(model->variants->rule));
    }
    char box[WF_PLAN_SET_TEXT];
    wf_plan_set_format(&left.nests[0], param, box);
    return wf_error_set(error, WF_INVALID,
                        "parameter %s, %s: infer rank %" PRIu32
                        " needs it for %s, but none of the %" PRIu32 " train ranks holds %s",
                        param->name, box, build->dst[cutter->dst_class].ranks[0],
                        cutter->layout->tensors[piece->tensor].name, build->train_count,
                        first == end ? "any of this parameter" : "that part");
}

static enum wf_status cut_piece(struct cutter *cutter, struct wf_error *error)
{
    struct wf_plan_build *build = cutter->build;
    uint32_t param = cutter->layout->pieces[cutter->piece].param;
    struct wf_nest nest = wf_layout_nest(cutter->layout, cutter->piece);
    struct wf_nest needed = wf_plan_set_of(&nest);
    uint64_t end = wf_plan_set_end(&needed);
    cutter->elements = 0;
    for (uint32_t a = build->atom_first[param]; a < build->atom_first[param + 1]; a++) {
        const struct wf_plan_atom *atom = &build->atoms[a];
        if (atom->set.param_first >= end || wf_plan_set_end(&atom->set) <= needed.param_first) {
            continue;
        }
        uint64_t before = cutter->elements;
        cutter->atom = a;
        enum wf_status status = wf_nest_intersect(&atom->set, &nest, append_unit, cutter, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "parameter %s", build->input->model->params[param].name);
            return status;
        }
        if (build->arena.failed) {
            return wf_plan_no_memory(error);
        }
        status = cutter->elements > before ? check_cast(cutter, atom, error) : WF_OK;
        if (status != WF_OK) {
            return status;
        }
    }
    return cutter->elements == wf_nest_elements(&nest) ? WF_OK
                                                       : refuse_missing(cutter, &nest, error);
}

static int compare_units(const void *a, const void *b)
{
    const struct wf_plan_unit *x = a, *y = b;
    if (x->dst_tensor != y->dst_tensor) {
        return x->dst_tensor < y->dst_tensor ? -1 : 1;
    }
    return x->nest.tensor_offset < y->nest.tensor_offset
               ? -1
               : x->nest.tensor_offset > y->nest.tensor_offset;
}

static void add_demand(struct wf_plan_build *build, uint32_t class)
{
    for (uint32_t u = build->unit_first[class]; u < build->unit_count; u++) {
        const struct wf_plan_atom *atom = &build->atoms[build->units[u].atom];
        build->groups[atom->group].demand += build->units[u].bytes * build->dst[class].rank_count;
    }
}

enum wf_status wf_plan_units(struct wf_plan_build *build, struct wf_error *error)
{
    build->unit_first = wf_plan_alloc(&build->arena, build->dst_count + 1ull, sizeof(uint32_t));
    if (build->unit_first == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t c = 0; c < build->dst_count; c++) {
        const struct wf_plan_class *class = &build->dst[c];
        struct cutter cutter = {.build = build, .layout = class->layout, .dst_class = c};
        build->unit_first[c] = build->unit_count;
        for (uint32_t i = 0; i < class->piece_count; i++) {
            cutter.piece = class->order[i];
            enum wf_status status = cut_piece(&cutter, error);
            if (status != WF_OK) {
                return status;
            }
        }
        if (build->unit_count > build->unit_first[c]) {
            qsort(build->units + build->unit_first[c], build->unit_count - build->unit_first[c],
                  sizeof *build->units, compare_units);
        }
        add_demand(build, c);
    }
    build->unit_first[build->dst_count] = build->unit_count;
    return WF_OK;
}

/* --- bytes that are needed at least once -------------------------------------------------------
 */

/* The type of what an infer class has of a parameter. */
static enum wf_dtype shown_dtype(const struct wf_plan_build *build,
                                 const struct wf_plan_shown *shown)
{
    const struct wf_layout *layout = build->dst[shown->class].layout;
    return layout->tensors[layout->pieces[shown->piece].tensor].dtype;
}

/* The different sets that infer classes need of one parameter in one type. */
static enum wf_status gather_needed(struct wf_plan_build *build, uint32_t param,
                                    enum wf_dtype dtype, struct wf_plan_sets *sets,
                                    struct wf_error *error)
{
    const struct wf_plan_index *index = &build->dst_index;
    for (uint32_t i = index->first[param]; i < index->first[param + 1]; i++) {
        const struct wf_plan_shown *shown = &index->shown[i];
        if (shown_dtype(build, shown) != dtype) {
            continue;
        }
        struct wf_nest nest = wf_layout_nest(build->dst[shown->class].layout, shown->piece);
        struct wf_nest set = wf_plan_set_of(&nest);
        uint32_t at = 0;
        while (at < sets->count && !wf_plan_set_equal(&sets->nests[at], &set)) {
            at++;
        }
        if (at < sets->count) {
            continue;
        }
        sets->nests =
            wf_plan_grow(sets->arena, sets->nests, &sets->capacity, sets->count + 1ull, sizeof set);
        if (sets->nests == NULL) {
            return wf_plan_no_memory(error);
        }
        sets->nests[sets->count++] = set;
    }
    return WF_OK;
}

static enum wf_status needed_elements(struct wf_plan_build *build, uint32_t param,
                                      enum wf_dtype dtype, uint64_t *elements_out,
                                      struct wf_error *error)
{
    uint64_t whole = build->input->model->params[param].elements;
    struct wf_plan_sets needed = {.arena = &build->scratch}, cut = {.arena = &build->scratch};
    struct wf_plan_cover *covers = NULL;
    enum wf_status status = gather_needed(build, param, dtype, &needed, error);
    for (uint32_t i = 0; i < needed.count && status == WF_OK; i++) {
        if (wf_nest_elements(&needed.nests[i]) == whole) {
            *elements_out = whole;
            return WF_OK;
        }
    }
    if (status == WF_OK) {
        status = wf_plan_partition(&build->scratch, needed.nests, needed.count, whole, &cut,
                                   &covers, error);
    }
    if (status == WF_OK) {
        *elements_out = wf_plan_sets_elements(&cut);
    }
    return status;
}

static enum wf_status param_unique(struct wf_plan_build *build, uint32_t param, uint64_t *bytes,
                                   struct wf_error *error)
{
    bool seen[WF_DTYPE_COUNT] = {false};
    const struct wf_plan_index *index = &build->dst_index;
    for (uint32_t i = index->first[param]; i < index->first[param + 1]; i++) {
        enum wf_dtype dtype = shown_dtype(build, &index->shown[i]);
        uint64_t elements = 0;
        if (seen[dtype]) {
            continue;
        }
        seen[dtype] = true;
        enum wf_status status = needed_elements(build, param, dtype, &elements, error);
        if (status != WF_OK) {
            return status;
        }
        *bytes += elements * wf_dtype_bytes(dtype);
    }
    wf_plan_arena_reset(&build->scratch);
    return WF_OK;
}

enum wf_status wf_plan_unique(struct wf_plan_build *build, uint64_t *bytes_out,
                              struct wf_error *error)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < build->input->model->param_count; p++) {
        enum wf_status status = param_unique(build, p, &bytes, error);
        if (status != WF_OK) {
            return status;
        }
    }
    *bytes_out = bytes;
    return WF_OK;
}
