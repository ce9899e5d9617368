/* numbered.c - see numbered.h. */
#include "numbered.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/engines/engine.h"

enum { SENTINEL = 0xa5 };

/* --- making ---------------------------------------------------------------------------------- */

static enum wf_status add_group(struct numbered *world, enum wf_side side,
                                const struct wf_recipe *recipe, uint32_t *engines,
                                struct wf_error *error)
{
    uint32_t ranks = wf_recipe_world(recipe), first = 0;
    for (uint32_t m = 0; m < world->input.member_count; m++) {
        first += world->members[m].side == side;
    }
    if (world->input.member_count + ranks > NUMBERED_MEMBERS_MAX) {
        return wf_error_set(error, WF_NO_RESOURCE, "too many ranks for this test");
    }
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t m = world->input.member_count;
        enum wf_status status =
            wf_layout_derive(world->model, recipe, r, &world->layouts[m], error);
        if (status == WF_OK && side == WF_TRAIN) {
            world->own[m] = world->layouts[m];
            world->layouts[m] = NULL;
            status = wf_prepare_derive(world->model, world->own[m], &world->layouts[m],
                                       &world->prepare[m], error);
        }
        if (status != WF_OK) {
            return status;
        }
        world->members[m] = (struct wf_plan_member){
            .side = side,
            .rank = first + r,
            .engine = *engines + wf_recipe_coordinates(recipe, r).engine,
            .layout = world->layouts[m],
            .host = (first + r) / 4 * 2 + (m % 3 == 0 ? side : 0),
        };
        world->input.member_count++;
    }
    *engines += ranks / wf_recipe_ranks_per_engine(recipe);
    return WF_OK;
}

static void find_less_one(struct numbered *world)
{
    world->less_one = calloc(world->model->param_count + 1, sizeof *world->less_one);
    for (uint32_t m = 0; m < NUMBERED_MEMBERS_MAX && world->own[m] != NULL; m++) {
        const struct wf_layout *own = world->own[m];
        for (uint32_t i = 0; i < own->piece_count; i++) {
            const struct wf_piece *piece = &own->pieces[i];
            if (piece->kind == WF_PIECE_DATA && piece->value_rule == WF_VALUE_LESS_ONE) {
                world->less_one[piece->param] = own->tensors[piece->tensor].dtype;
            }
        }
    }
}

/* As all do once everybody's layout is known. */
static enum wf_status plan_targets(struct numbered *world, struct wf_error *error)
{
    uint32_t train = wf_recipe_world(&world->train);
    enum wf_status status = wf_cuts_find(
        world->model, (const struct wf_layout *const *)world->layouts, train, &world->cuts, error);
    for (uint32_t m = train; m < world->input.member_count && status == WF_OK; m++) {
        status = wf_assemble_derive(world->model, world->layouts[m], world->cuts,
                                    &world->planned[m], &world->assemble[m], error);
        if (status == WF_OK && world->planned[m] != NULL) {
            world->members[m].layout = world->planned[m];
        }
    }
    return status;
}

enum wf_status numbered_make(struct numbered *world, const struct wf_model *model,
                             const struct wf_recipe *train, const struct wf_recipe *infer,
                             uint32_t infer_count, struct wf_error *error)
{
    memset(world, 0, sizeof *world);
    world->model = model;
    world->train = *train;
    world->infer_count = infer_count;
    world->input = (struct wf_plan_input){.model = model, .members = world->members};
    uint32_t engines = 0;
    enum wf_status status = add_group(world, WF_TRAIN, train, &engines, error);
    find_less_one(world);
    world->wholes = calloc(world->model->param_count + 1, sizeof *world->wholes);
    engines = 0;
    for (uint32_t i = 0; i < infer_count && status == WF_OK; i++) {
        world->infer[i] = infer[i];
        status = add_group(world, WF_INFER, &infer[i], &engines, error);
    }
    return status == WF_OK ? plan_targets(world, error) : status;
}

void numbered_fini(struct numbered *world)
{
    for (uint32_t m = 0; m < NUMBERED_MEMBERS_MAX; m++) {
        wf_layout_free(world->layouts[m]);
        wf_layout_free(world->own[m]);
        wf_prepare_free(world->prepare[m]);
        wf_assemble_free(world->assemble[m]);
        wf_layout_free(world->planned[m]);
        world->layouts[m] = world->own[m] = world->planned[m] = NULL;
        world->prepare[m] = NULL;
        world->assemble[m] = NULL;
    }
    for (uint32_t p = 0; world->wholes != NULL && p < world->model->param_count; p++) {
        whole_fini(&world->wholes[p]);
    }
    free(world->wholes);
    free(world->less_one);
    wf_cuts_free(world->cuts);
    world->cuts = NULL;
    world->wholes = NULL;
    world->less_one = NULL;
    world->input.member_count = 0;
}

/* --- walking --------------------------------------------------------------------------------- */

/* One index vector after the other; `first` and `second` are where it stands on two sides. */
struct walk {
    uint32_t axis_count;
    uint64_t index[WF_AXES_MAX], counts[WF_AXES_MAX];
    uint64_t first_steps[WF_AXES_MAX], second_steps[WF_AXES_MAX]; /* modulo 2^64 */
    uint64_t first, second;
};

static struct walk walk_nest(const struct wf_nest *nest)
{
    struct walk walk = {
        .axis_count = nest->axis_count, .first = nest->param_first, .second = nest->tensor_offset};
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        walk.counts[a] = nest->axes[a].count;
        walk.first_steps[a] = nest->axes[a].param_step;
        walk.second_steps[a] = (uint64_t)nest->axes[a].tensor_step;
    }
    return walk;
}

static struct walk walk_box(const struct wf_box *box)
{
    struct walk walk = {
        .axis_count = box->axis_count, .first = box->src_offset, .second = box->dst_offset};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        walk.counts[a] = box->axes[a].count;
        walk.first_steps[a] = (uint64_t)box->axes[a].src_step;
        walk.second_steps[a] = (uint64_t)box->axes[a].dst_step;
    }
    return walk;
}

static bool walk_on(struct walk *walk)
{
    for (uint32_t a = walk->axis_count; a-- > 0;) {
        if (++walk->index[a] < walk->counts[a]) {
            walk->first += walk->first_steps[a];
            walk->second += walk->second_steps[a];
            return true;
        }
        walk->index[a] = 0;
        walk->first -= walk->first_steps[a] * (walk->counts[a] - 1);
        walk->second -= walk->second_steps[a] * (walk->counts[a] - 1);
    }
    return false;
}

/* --- tensors --------------------------------------------------------------------------------- */

struct held {
    const struct wf_layout *layout;
    void **tensors;
    uint8_t **marks; /* one an element: how often something was there */
};

static uint64_t elements_of(const struct wf_tensor *tensor)
{
    return tensor->bytes / wf_dtype_bytes(tensor->dtype);
}

static struct held hold(const struct wf_layout *layout)
{
    struct held held = {layout, calloc(layout->tensor_count + 1, sizeof *held.tensors),
                        calloc(layout->tensor_count + 1, sizeof *held.marks)};
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        held.tensors[t] = malloc(layout->tensors[t].bytes + 1);
        memset(held.tensors[t], SENTINEL, layout->tensors[t].bytes);
        held.marks[t] = calloc(elements_of(&layout->tensors[t]) + 1, 1);
    }
    return held;
}

static void drop(struct held *held)
{
    for (uint32_t t = 0; held->layout != NULL && t < held->layout->tensor_count; t++) {
        free(held->tensors[t]);
        free(held->marks[t]);
    }
    free(held->tensors);
    free(held->marks);
    *held = (struct held){0};
}

static bool complain(const struct numbered *world, uint32_t member, uint32_t tensor, uint64_t at,
                     const char *what, char wrong[NUMBERED_WRONG_MAX])
{
    const struct wf_plan_member *m = &world->members[member];
    snprintf(wrong, NUMBERED_WRONG_MAX, "%s rank %" PRIu32 ", tensor %s, element %" PRIu64 ": %s",
             m->side == WF_TRAIN ? "train" : "infer", m->rank, m->layout->tensors[tensor].name, at,
             what);
    return false;
}

/* --- tiles ----------------------------------------------------------------------------------- */

/* Every place of the member's tensors has one piece; those of the parameters are counted. */
static bool member_tiles(const struct numbered *world, uint32_t member, uint16_t **counts,
                         char wrong[NUMBERED_WRONG_MAX])
{
    bool train = world->members[member].side == WF_TRAIN;
    const struct wf_layout *layout = train ? world->own[member] : world->layouts[member];
    struct held held = hold(layout);
    bool good = true;
    for (uint32_t i = 0; i < layout->piece_count && good; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        const struct wf_tensor *tensor = &layout->tensors[piece->tensor];
        struct wf_nest nest = wf_layout_nest(layout, i);
        bool data = piece->kind == WF_PIECE_DATA;
        uint64_t limit = data ? world->model->params[piece->param].elements : UINT64_MAX;
        struct walk walk = walk_nest(&nest);
        do {
            uint64_t at = walk.second / nest.elem_bytes;
            if (at >= elements_of(tensor) || (data && walk.first >= limit)) {
                good = complain(world, member, piece->tensor, at, "beyond the end", wrong);
                break;
            }
            held.marks[piece->tensor][at]++;
            if (data) {
                counts[piece->param][walk.first]++;
            }
        } while (walk_on(&walk));
    }
    for (uint32_t t = 0; t < layout->tensor_count && good; t++) {
        unsigned wanted = layout->tensors[t].kind == WF_TENSOR_WEIGHTS;
        for (uint64_t at = 0; at < elements_of(&layout->tensors[t]) && good; at++) {
            if (held.marks[t][at] != wanted) {
                char what[64];
                snprintf(what, sizeof what, "%u pieces show it, expected %u", held.marks[t][at],
                         wanted);
                good = complain(world, member, t, at, what, wrong);
            }
        }
    }
    drop(&held);
    return good;
}

static bool role_in(const char *role, const char *const *roles)
{
    for (; *roles != NULL; roles++) {
        if (strcmp(role, *roles) == 0) {
            return true;
        }
    }
    return false;
}

/* How often Megatron's ranks hold a parameter, by what its role is; 0: this test does not say. */
static uint64_t megatron_copies(const struct wf_recipe *recipe, const struct wf_model *model,
                                const struct wf_param *param)
{
    static const char *const cut[] = {
        "q",        "k",         "v",           "q_bias",      "k_bias",    "v_bias",
        "o",        "gate",      "up",          "down",        "gate_bias", "up_bias",
        "qkv",      "q_b",       "kv_b",        "shared_gate", "shared_up", "shared_down",
        "gdn_qkvz", "gdn_qkv",   "gdn_z",       "gdn_ba",      "gdn_b",     "gdn_a",
        "gdn_conv", "gdn_a_log", "gdn_dt_bias", "gdn_out",     NULL};
    static const char *const whole[] = {
        "input_norm", "post_norm",     "q_norm",       "k_norm",    "router",   "q_a_norm",
        "kv_a_norm",  "router_bias",   "o_bias",       "down_bias", "gdn_norm", "shared_router",
        "final_norm", "attn_out_norm", "mlp_out_norm", NULL};
    static const char *const expert[] = {"expert_gate",      "expert_up",      "expert_down",
                                         "expert_gate_bias", "expert_up_bias", NULL};
    uint64_t ranks = wf_recipe_world(recipe) / recipe->pp;
    const char *role = model->family->rows[param->row].role;
    const char *stack = param->stack == WF_NONE ? "" : model->family->stacks[param->stack].name;
    if (strcmp(stack, "layer") != 0 && strcmp(role, "final_norm") != 0) {
        return 0;
    }
    struct wf_coordinates at = wf_recipe_coordinates(recipe, 0);
    uint64_t ep = at.group[WF_GROUP_EP].size, etp = at.group[WF_GROUP_ETP].size;
    if (role_in(role, expert)) {
        return ranks / (ep > 0 ? ep : 1) / (etp > 0 ? etp : 1);
    }
    return role_in(role, cut) ? ranks / recipe->tp : role_in(role, whole) ? ranks : 0;
}

/* The parameter's elements are counted alike; and as often as wanted, unless that is 0. */
static bool check_counts(const struct numbered *world, uint32_t param, const uint16_t *counts,
                         uint64_t wanted, const char *side, char wrong[NUMBERED_WRONG_MAX])
{
    const struct wf_param *p = &world->model->params[param];
    for (uint64_t e = 0; e < p->elements; e++) {
        if (counts[e] != counts[0] || (wanted > 0 && counts[e] != wanted)) {
            snprintf(wrong, NUMBERED_WRONG_MAX,
                     "%s ranks hold element %" PRIu64 " of %s %u times, element 0 %u times; "
                     "expected %" PRIu64,
                     side, e, p->name, counts[e], counts[0], wanted);
            return false;
        }
    }
    return true;
}

/* True if the engine declares that it has no place for the parameter, or the recipe leaves it out.
 */
static bool declared_absent(const struct numbered *world, const struct wf_recipe *recipe,
                            const struct wf_param *param)
{
    const struct wf_engine *engine = recipe->engine;
    const struct wf_family *family = world->model->family;
    const char *role = family->rows[param->row].role;
    const char *skipped = engine->skipped_stacks;
    char spec[WF_SPEC_MAX];
    wf_recipe_format(recipe, spec);
    if (strstr(spec, "skip_mtp=1") != NULL || strstr(spec, "mtp=0") != NULL) {
        skipped = "mtp";
    }
    if (skipped != NULL && param->stack != WF_NONE &&
        strstr(skipped, family->stacks[param->stack].name) != NULL) {
        return true;
    }
    for (size_t i = 0; i < engine->row_count; i++) {
        if (engine->rows[i].kind == WF_ROW_ABSENT && strstr(engine->rows[i].parts, role) != NULL) {
            return true;
        }
    }
    for (size_t f = 0; f < family->engine_count; f++) {
        const struct wf_family_engine *own = &family->engines[f];
        for (size_t i = 0; i < own->row_count; i++) {
            if (own->rows[i].kind == WF_ROW_ABSENT && strstr(own->rows[i].parts, role) != NULL) {
                return true;
            }
        }
    }
    return false;
}

static uint16_t **make_counts(const struct wf_model *model)
{
    uint16_t **counts = calloc(model->param_count + 1, sizeof *counts);
    for (uint32_t p = 0; p < model->param_count; p++) {
        counts[p] = calloc(model->params[p].elements + 1, sizeof *counts[p]);
    }
    return counts;
}

static void free_counts(const struct wf_model *model, uint16_t **counts)
{
    for (uint32_t p = 0; p < model->param_count; p++) {
        free(counts[p]);
    }
    free(counts);
}

/* Members [first, end) are all ranks of one recipe. */
static bool group_tiles(const struct numbered *world, const struct wf_recipe *recipe,
                        uint32_t first, uint32_t end, char wrong[NUMBERED_WRONG_MAX])
{
    const struct wf_model *model = world->model;
    uint16_t **counts = make_counts(model);
    bool train = world->members[first].side == WF_TRAIN, good = true;
    for (uint32_t m = first; m < end && good; m++) {
        good = member_tiles(world, m, counts, wrong);
    }
    for (uint32_t p = 0; p < model->param_count && good; p++) {
        const struct wf_param *param = &model->params[p];
        bool megatron = strcmp(recipe->engine->name, "megatron") == 0;
        uint64_t wanted = train && megatron ? megatron_copies(recipe, model, param) : 0;
        if (train) {
            good = check_counts(world, p, counts[p], wanted, "train", wrong);
        }
        for (uint64_t e = 0; e < param->elements && good; e++) {
            if (counts[p][e] == 0 && !declared_absent(world, recipe, param)) {
                snprintf(wrong, NUMBERED_WRONG_MAX, "no %s rank holds element %" PRIu64 " of %s",
                         recipe->engine->name, e, param->name);
                good = false;
            }
        }
    }
    free_counts(model, counts);
    return good;
}

bool numbered_tiles(const struct numbered *world, char wrong[NUMBERED_WRONG_MAX])
{
    uint32_t first = wf_recipe_world(&world->train);
    bool good = group_tiles(world, &world->train, 0, first, wrong);
    for (uint32_t i = 0; i < world->infer_count && good; i++) {
        uint32_t end = first + wf_recipe_world(&world->infer[i]);
        good = group_tiles(world, &world->infer[i], first, end, wrong);
        first = end;
    }
    return good;
}

/* --- moves ----------------------------------------------------------------------------------- */

static void set_numbers(const struct wf_layout *layout, const struct held *held)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind != WF_PIECE_DATA) {
            continue;
        }
        struct wf_nest nest = wf_layout_nest(layout, i);
        enum wf_dtype dtype = layout->tensors[piece->tensor].dtype;
        struct walk walk = walk_nest(&nest);
        do {
            uint64_t number = numbered_number(piece->param, walk.first, dtype);
            memcpy((char *)held->tensors[piece->tensor] + walk.second, &number, nest.elem_bytes);
        } while (walk_on(&walk));
    }
}

/* As the origin does before it grants. */
static void prepare(const struct wf_prepare *prepare, const struct held *held)
{
    for (uint32_t i = 0; prepare != NULL && i < wf_prepare_item_count(prepare); i++) {
        void *scratch = malloc(wf_prepare_scratch_bytes(prepare) + 1);
        wf_prepare_run(prepare, i, (void *const *)held->tensors, scratch);
        free(scratch);
    }
}

/* As the receiver does before it votes. */
static void assemble(const struct wf_assemble *assemble, const struct held *held)
{
    for (uint32_t i = 0; assemble != NULL && i < wf_assemble_item_count(assemble); i++) {
        void *scratch = malloc(wf_assemble_scratch_bytes(assemble));
        wf_assemble_run(assemble, i, (void *const *)held->tensors, scratch);
        free(scratch);
    }
}

/* In two parts, as jobs cut boxes. */
static void copy_op(const struct wf_op *op, const struct held *src, const struct held *dst)
{
    const struct wf_tensor *from = &src->layout->tensors[op->src_tensor];
    const struct wf_tensor *to = &dst->layout->tensors[op->dst_tensor];
    WF_ASSERT(wf_box_within(&op->box, (uint32_t)wf_dtype_bytes(from->dtype), from->bytes,
                            (uint32_t)wf_dtype_bytes(to->dtype), to->bytes));
    uint64_t half = op->box.elements / 2;
    const struct wf_copy_part parts[2] = {{0, half}, {half, op->box.elements - half}};
    for (unsigned i = 0; i < 2; i++) {
        if (parts[i].count > 0) {
            wf_copy_box(&op->box, src->tensors[op->src_tensor], from->dtype,
                        dst->tensors[op->dst_tensor], to->dtype, parts[i]);
        }
    }
    struct walk walk = walk_box(&op->box);
    do {
        dst->marks[op->dst_tensor][walk.second / wf_dtype_bytes(to->dtype)]++;
    } while (walk_on(&walk));
}

static bool check_piece(const struct numbered *world, uint32_t member, const struct held *held,
                        uint32_t index, char wrong[NUMBERED_WRONG_MAX])
{
    const struct wf_piece *piece = &held->layout->pieces[index];
    struct wf_nest nest = wf_layout_nest(held->layout, index);
    enum wf_dtype dtype = held->layout->tensors[piece->tensor].dtype;
    bool data = piece->kind == WF_PIECE_DATA, filled = piece->kind == WF_PIECE_FILL;
    uint64_t number;
    memset(&number, piece->value_rule, sizeof number);
    struct walk walk = walk_nest(&nest);
    do {
        uint64_t at = walk.second / nest.elem_bytes;
        number = filled ? number : numbered_wanted(world, piece->param, walk.first, dtype);
        bool right = memcmp((char *)held->tensors[piece->tensor] + walk.second, &number,
                            nest.elem_bytes) == 0;
        if (!right || held->marks[piece->tensor][at] != data) {
            char what[128];
            snprintf(what, sizeof what, "%s, written %u times", right ? "right" : "wrong",
                     held->marks[piece->tensor][at]);
            return complain(world, member, piece->tensor, at, what, wrong);
        }
    } while (walk_on(&walk));
    return true;
}

static bool member_moves(const struct numbered *world, const struct wf_plan *plan, uint32_t member,
                         const struct held *src, char wrong[NUMBERED_WRONG_MAX])
{
    const struct wf_layout *layout = world->members[member].layout;
    struct held held = hold(layout);
    bool good = true;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        for (uint32_t o = 0; o < edge->op_count && edge->dst_rank == world->members[member].rank;
             o++) {
            copy_op(&edge->ops[o], &src[edge->src_rank], &held);
        }
    }
    wf_layout_write_fills(layout, held.tensors);
    assemble(world->assemble[member], &held);
    for (uint32_t i = 0; i < layout->piece_count && good; i++) {
        good = check_piece(world, member, &held, i, wrong);
    }
    for (uint32_t t = 0; t < layout->tensor_count && good; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        for (uint64_t i = 0; i < tensor->bytes && tensor->kind != WF_TENSOR_WEIGHTS && good; i++) {
            if (((unsigned char *)held.tensors[t])[i] != SENTINEL) {
                good = complain(world, member, t, i, "written though nothing belongs here", wrong);
            }
        }
    }
    drop(&held);
    return good;
}

bool numbered_moves(const struct numbered *world, const struct wf_plan *plan,
                    char wrong[NUMBERED_WRONG_MAX])
{
    uint32_t train = wf_recipe_world(&world->train);
    struct held *src = calloc(train, sizeof *src);
    for (uint32_t r = 0; r < train; r++) {
        src[r] = hold(world->members[r].layout);
        set_numbers(world->own[r], &src[r]);
        prepare(world->prepare[r], &src[r]);
    }
    bool good = true;
    for (uint32_t m = train; m < world->input.member_count && good; m++) {
        good = member_moves(world, plan, m, src, wrong);
    }
    for (uint32_t r = 0; r < train; r++) {
        drop(&src[r]);
    }
    free(src);
    return good;
}

uint64_t numbered_elements(const struct numbered *world)
{
    uint64_t elements = 0;
    for (uint32_t m = wf_recipe_world(&world->train); m < world->input.member_count; m++) {
        const struct wf_layout *layout = world->members[m].layout;
        for (uint32_t t = 0; t < layout->tensor_count; t++) {
            elements += elements_of(&layout->tensors[t]);
        }
    }
    return elements;
}

static bool add_elements(void *user, const struct wf_box *box)
{
    *(uint64_t *)user += box->elements;
    return true;
}

uint64_t numbered_common(const struct wf_nest *a, const struct wf_nest *b)
{
    uint64_t elements = 0;
    wf_nest_intersect(a, b, add_elements, &elements, NULL);
    return elements;
}
