/* plan_world.c - see plan_world.h. The mover walks boxes and nests element by element. */
#include "plan_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/prepare.h"

/* --- from recipes ----------------------------------------------------------------------------- */

static bool add_group(struct world *world, enum wf_side side, const char *spec, uint32_t *engine,
                      uint32_t per_host, struct wf_error *error)
{
    struct wf_recipe recipe;
    if (wf_recipe_parse(spec, world->model, &recipe, error) != WF_OK) {
        return false;
    }
    uint32_t world_size = wf_recipe_world(&recipe), rank = 0;
    for (uint32_t m = 0; m < world->input.member_count; m++) {
        rank += world->members[m].side == side;
    }
    for (uint32_t r = 0; r < world_size; r++, rank++) {
        uint32_t m = world->input.member_count;
        WF_ASSERT(m < WORLD_MEMBERS_MAX);
        if (wf_layout_derive(world->model, &recipe, r, &world->layouts[m], error) != WF_OK) {
            return false;
        }
        if (side == WF_TRAIN) {
            struct wf_layout *own = world->layouts[m];
            enum wf_status status =
                wf_prepare_derive(world->model, own, &world->layouts[m], NULL, error);
            WF_ASSERT(status == WF_OK);
            wf_layout_free(own);
        }
        uint32_t host = per_host > 0 ? rank / per_host : side == WF_TRAIN ? 0 : 1;
        world->members[m] =
            (struct wf_plan_member){.side = side,
                                    .rank = rank,
                                    .engine = *engine + wf_recipe_coordinates(&recipe, r).engine,
                                    .layout = world->layouts[m],
                                    .host = host};
        world->input.member_count++;
    }
    *engine += recipe.engines;
    return true;
}

bool world_make(const struct world_spec *spec, struct world *world, struct wf_error *error)
{
    memset(world, 0, sizeof *world);
    world->input.members = world->members;
    if (wf_model_parse(spec->config, strlen(spec->config), NULL, &world->model, error) != WF_OK) {
        return false;
    }
    world->input.model = world->model;
    uint32_t train_engine = 0, engine = 0;
    bool ok = add_group(world, WF_TRAIN, spec->train, &train_engine, spec->per_host, error);
    for (unsigned i = 0; i < WORLD_GROUPS_MAX && spec->infer[i] != NULL && ok; i++) {
        ok = add_group(world, WF_INFER, spec->infer[i], &engine, spec->per_host, error);
    }
    return ok;
}

void world_free(struct world *world)
{
    for (uint32_t m = 0; m < WORLD_MEMBERS_MAX; m++) {
        wf_layout_free(world->layouts[m]);
    }
    if (world->model != NULL && world->model->memory == NULL) {
        free(world->model->params); /* hand-made */
        free(world->model);
    } else {
        wf_model_free(world->model);
    }
    memset(world, 0, sizeof *world);
}

void world_config(const struct world_sizes *sizes, char *text, size_t size)
{
    snprintf(text, size,
             "{\"model_type\": \"%s\", \"hidden_size\": %u, \"num_hidden_layers\": %u, "
             "\"vocab_size\": %u, \"num_attention_heads\": %u, \"num_key_value_heads\": %u, "
             "\"head_dim\": %u, \"intermediate_size\": %u, \"tie_word_embeddings\": %s, "
             "\"torch_dtype\": \"%s\"}",
             sizes->family, sizes->hidden, sizes->layers, sizes->vocab, sizes->query_heads,
             sizes->kv_heads, sizes->head_dim, sizes->intermediate, sizes->tied ? "true" : "false",
             sizes->dtype);
}

/* --- by hand ---------------------------------------------------------------------------------- */

void hand_model(struct world *world, const struct hand_param *params, uint32_t count)
{
    memset(world, 0, sizeof *world);
    world->input.members = world->members;
    world->model = calloc(1, sizeof *world->model);
    world->model->params = calloc(count, sizeof *world->model->params);
    world->model->param_count = count;
    for (uint32_t p = 0; p < count; p++) {
        world->model->params[p] = (struct wf_param){.name = params[p].name,
                                                    .ndim = 2,
                                                    .shape = {params[p].rows, params[p].columns},
                                                    .elements = params[p].rows * params[p].columns,
                                                    .dtype = WF_DTYPE_F32,
                                                    .stack = WF_NONE};
    }
    world->input.model = world->model;
}

void hand_layout(struct world *world, enum wf_side side, uint32_t host, struct wf_build *build)
{
    uint32_t m = world->input.member_count++, rank = 0;
    struct wf_error error;
    enum wf_status status = wf_build_end(build, WF_OK, &world->layouts[m], &error);
    WF_ASSERT(status == WF_OK);
    for (uint32_t i = 0; i < m; i++) {
        rank += world->members[i].side == side;
    }
    world->members[m] = (struct wf_plan_member){
        .side = side, .rank = rank, .engine = rank, .layout = world->layouts[m], .host = host};
}

void hand_rank(struct world *world, enum wf_side side, uint32_t host,
               const struct hand_piece *pieces)
{
    struct wf_build build;
    wf_build_begin(&build);
    uint32_t tensors = 0;
    for (const struct hand_piece *piece = pieces; piece->wide > 0; piece++) {
        if (piece->tensor == tensors) {
            char name[32];
            snprintf(name, sizeof name, "tensor%" PRIu32, tensors++);
            wf_build_tensor(&build, name, piece->dtype, 2,
                            (uint64_t[]){piece->rows, piece->columns}, WF_TENSOR_WEIGHTS);
        }
        uint64_t bytes = wf_dtype_bytes(piece->dtype);
        bool fill = piece->param == UINT32_MAX;
        uint64_t width = fill ? piece->columns : world->model->params[piece->param].shape[1];
        struct wf_nest nest = {
            .param_first = fill ? 0 : piece->param_row * width + piece->param_column,
            .tensor_offset = (piece->tensor_row * piece->columns + piece->tensor_column) * bytes,
            .elem_bytes = (uint32_t)bytes,
            .axis_count = 2,
            .axes = {{piece->high, width, (int64_t)(piece->columns * bytes)},
                     {piece->wide, 1, (int64_t)bytes}}};
        if (fill) {
            wf_build_fill(&build, &nest, 0);
        } else {
            wf_build_piece(&build, piece->param, &nest, WF_VALUE_COPY);
        }
    }
    hand_layout(world, side, host, &build);
}

/* --- moving ----------------------------------------------------------------------------------- */

/* Row-major odometer over `count` axes; false after the last. */
static bool next_index(uint64_t *index, const uint64_t *counts, uint32_t count)
{
    for (uint32_t a = count; a-- > 0;) {
        if (++index[a] < counts[a]) {
            return true;
        }
        index[a] = 0;
    }
    return false;
}

/* A value that different elements and parameters hardly share, never all ones. */
static uint64_t value_of(uint32_t param, uint64_t element)
{
    uint64_t x = (element + 1) * 0x9e3779b97f4a7c15u + param * 0xd1b54a32d192ed03u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 32) & ~UINT64_C(0x8000000080008080);
}

typedef void place_t(void *user, unsigned char *place, uint64_t value, size_t bytes);

/* Calls `act` for each place of a rank that shows an element, with the value of that element. */
static void each_place(const struct wf_layout *layout, unsigned char **tensors, place_t *act,
                       void *user)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind != WF_PIECE_DATA) {
            continue;
        }
        struct wf_nest nest = wf_layout_nest(layout, i);
        uint64_t index[WF_AXES_MAX] = {0}, counts[WF_AXES_MAX];
        for (uint32_t a = 0; a < nest.axis_count; a++) {
            counts[a] = nest.axes[a].count;
        }
        do {
            uint64_t element = nest.param_first, offset = nest.tensor_offset;
            for (uint32_t a = 0; a < nest.axis_count; a++) {
                element += index[a] * nest.axes[a].param_step;
                offset += index[a] * (uint64_t)nest.axes[a].tensor_step;
            }
            act(user, tensors[piece->tensor] + offset, value_of(piece->param, element),
                nest.elem_bytes);
        } while (next_index(index, counts, nest.axis_count));
    }
}

static unsigned char **make_tensors(const struct wf_layout *layout)
{
    unsigned char **tensors = calloc(layout->tensor_count + 1, sizeof *tensors);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        tensors[t] = malloc(layout->tensors[t].bytes + 1);
        memset(tensors[t], 0xff, layout->tensors[t].bytes);
    }
    return tensors;
}

static void free_tensors(const struct wf_layout *layout, unsigned char **tensors)
{
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        free(tensors[t]);
    }
    free(tensors);
}

static void set_place(void *user, unsigned char *place, uint64_t value, size_t bytes)
{
    (void)user;
    memcpy(place, &value, bytes);
}

struct check {
    uint64_t wrong, places;
};

/* A right place is made all ones again: then nothing but ones may be left. */
static void check_place(void *user, unsigned char *place, uint64_t value, size_t bytes)
{
    struct check *check = user;
    check->places++;
    check->wrong += memcmp(place, &value, bytes) != 0;
    memset(place, 0xff, bytes);
}

/* Written once: a place that is not all ones when it is written was written before. */
static uint64_t move_op(const struct wf_op *op, unsigned char *src, unsigned char *dst,
                        size_t bytes)
{
    uint64_t index[WF_AXES_MAX] = {0}, counts[WF_AXES_MAX], twice = 0;
    unsigned char fresh[8];
    memset(fresh, 0xff, sizeof fresh);
    for (uint32_t a = 0; a < op->box.axis_count; a++) {
        counts[a] = op->box.axes[a].count;
    }
    do {
        uint64_t from = op->box.src_offset, to = op->box.dst_offset;
        for (uint32_t a = 0; a < op->box.axis_count; a++) {
            from += index[a] * (uint64_t)op->box.axes[a].src_step;
            to += index[a] * (uint64_t)op->box.axes[a].dst_step;
        }
        twice += memcmp(dst + to, fresh, bytes) != 0;
        memcpy(dst + to, src + from, bytes);
    } while (next_index(index, counts, op->box.axis_count));
    return twice;
}

static uint64_t move_rank(const struct world *world, const struct wf_plan *plan, uint32_t member,
                          unsigned char ***src, char *first_wrong, size_t size)
{
    const struct wf_layout *layout = world->members[member].layout;
    unsigned char **tensors = make_tensors(layout);
    struct check check = {0};
    uint64_t twice = 0, rest = 0;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        if (edge->dst_rank != world->members[member].rank) {
            continue;
        }
        for (uint32_t o = 0; o < edge->op_count; o++) {
            const struct wf_op *op = &edge->ops[o];
            twice += move_op(op, src[edge->src_rank][op->src_tensor], tensors[op->dst_tensor],
                             wf_dtype_bytes(layout->tensors[op->dst_tensor].dtype));
        }
    }
    each_place(layout, tensors, check_place, &check);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        for (uint64_t i = 0; i < layout->tensors[t].bytes; i++) {
            rest += tensors[t][i] != 0xff;
        }
    }
    if (check.wrong + twice + rest > 0 && first_wrong[0] == '\0') {
        snprintf(first_wrong, size,
                 "infer rank %" PRIu32 ": %" PRIu64 " elements wrong, %" PRIu64
                 " written twice, %" PRIu64 " bytes written where nothing belongs",
                 world->members[member].rank, check.wrong, twice, rest);
    }
    free_tensors(layout, tensors);
    return check.wrong + twice + rest;
}

uint64_t world_move(const struct world *world, const struct wf_plan *plan, char *first_wrong,
                    size_t size)
{
    unsigned char **src[WORLD_MEMBERS_MAX];
    uint32_t train = 0;
    uint64_t wrong = 0;
    first_wrong[0] = '\0';
    for (; world->members[train].side == WF_TRAIN; train++) {
        src[train] = make_tensors(world->members[train].layout);
        each_place(world->members[train].layout, src[train], set_place, NULL);
    }
    for (uint32_t m = train; m < world->input.member_count; m++) {
        wrong += move_rank(world, plan, m, src, first_wrong, size);
    }
    for (uint32_t t = 0; t < train; t++) {
        free_tensors(world->members[t].layout, src[t]);
    }
    return wrong;
}

uint64_t world_elements(const struct world *world)
{
    uint64_t elements = 0;
    for (uint32_t m = 0; m < world->input.member_count; m++) {
        const struct wf_layout *layout = world->members[m].layout;
        for (uint32_t i = 0; i < layout->piece_count && world->members[m].side == WF_INFER; i++) {
            struct wf_nest nest = wf_layout_nest(layout, i);
            elements += layout->pieces[i].kind == WF_PIECE_DATA ? wf_nest_elements(&nest) : 0;
        }
    }
    return elements;
}
