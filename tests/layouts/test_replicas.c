/* test_replicas.c - every family, random recipes of both sides: what ranks hold alike has one sum
 * wherever it stands and however it is cut, and one changed element changes the sums of its rank
 * alone. Seeds are fixed: a failure comes again. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/replicas.h"
#include "numbered.h"
#include "zoo.h"

enum { WORLDS = 150, TRIES_PER_WORLD = 60, RANKS_MAX = 16, CASE_MAX = 8192 };

struct rank {
    const struct wf_layout *own;
    void **tensors;
    struct wf_replicas *replicas;
};

struct side {
    const struct numbered *world;
    enum wf_side side;
    const char *name; /* of the case */
    struct wf_layout *layouts[NUMBERED_MEMBERS_MAX];
    struct rank ranks[NUMBERED_MEMBERS_MAX];
    uint32_t count;
};

struct tally {
    unsigned worlds, groups, wide, changed, silent; /* wide: groups of more than one layout class */
    uint64_t elements;
};

static void set_element(void *user, const struct wf_box *box, uint64_t index)
{
    struct {
        uint8_t *to;
        uint32_t param;
        enum wf_dtype dtype;
    } *at = user;
    uint64_t src = box->src_offset, element = box->dst_offset;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        uint64_t digit = index % box->axes[a].count;
        src += digit * (uint64_t)box->axes[a].src_step;
        element += digit * (uint64_t)box->axes[a].dst_step;
        index /= box->axes[a].count;
    }
    uint64_t number = numbered_number(at->param, element, at->dtype);
    memcpy(at->to + src, &number, wf_dtype_bytes(at->dtype));
}

/* Every place of a rank's tensors, repeats too; padding differs between ranks. */
static void fill(struct rank *rank, uint8_t padding)
{
    const struct wf_layout *own = rank->own;
    rank->tensors = calloc(own->tensor_count + 1, sizeof *rank->tensors);
    for (uint32_t t = 0; t < own->tensor_count; t++) {
        rank->tensors[t] = malloc(own->tensors[t].bytes + 1);
        memset(rank->tensors[t], padding, own->tensors[t].bytes);
    }
    for (uint32_t i = 0; i < own->piece_count; i++) {
        const struct wf_piece *piece = &own->pieces[i];
        if (piece->kind == WF_PIECE_FILL) {
            continue;
        }
        struct wf_nest nest = wf_layout_nest(own, i);
        struct wf_box box = {.src_offset = nest.tensor_offset,
                             .dst_offset = nest.param_first,
                             .elements = wf_nest_elements(&nest),
                             .axis_count = nest.axis_count};
        for (uint32_t a = 0; a < nest.axis_count; a++) {
            box.axes[a].count = nest.axes[a].count;
            box.axes[a].src_step = nest.axes[a].tensor_step;
            box.axes[a].dst_step = (int64_t)nest.axes[a].param_step;
        }
        struct {
            uint8_t *to;
            uint32_t param;
            enum wf_dtype dtype;
        } at = {rank->tensors[piece->tensor], piece->param, own->tensors[piece->tensor].dtype};
        for (uint64_t e = 0; e < box.elements; e++) {
            set_element(&at, &box, e);
        }
    }
}

static void compute(struct rank *rank)
{
    uint64_t chunks = wf_replicas_chunks(rank->replicas), half = chunks / 2;
    wf_replicas_compute(rank->replicas, rank->tensors, half, chunks - half);
    wf_replicas_compute(rank->replicas, rank->tensors, 0, half);
}

static void make(struct side *side, uint32_t first, uint32_t count)
{
    struct wf_error error = {0};
    side->count = count;
    for (uint32_t r = 0; r < count; r++) {
        side->layouts[r] = (struct wf_layout *)side->world->members[first + r].layout;
    }
    for (uint32_t r = 0; r < count; r++) {
        struct rank *rank = &side->ranks[r];
        rank->own =
            side->side == WF_TRAIN ? side->world->own[first + r] : side->world->layouts[first + r];
        const struct wf_replicas_input input = {.model = side->world->model,
                                                .layouts = side->layouts,
                                                .rank_count = count,
                                                .rank = r,
                                                .side = side->side,
                                                .own = rank->own};
        enum wf_status status = wf_replicas_new(&input, &rank->replicas, &error);
        cr_assert_eq(status, WF_OK, "%s: %s", side->name, error.text);
        cr_expect_eq(wf_replicas_unseen(rank->replicas), 0, "%s, %s rank %u: %" PRIu64 " unseen",
                     side->name, wf_side_name(side->side), r, wf_replicas_unseen(rank->replicas));
        fill(rank, (uint8_t)(r + 1));
        compute(rank);
    }
}

static void drop(struct side *side)
{
    for (uint32_t r = 0; r < side->count; r++) {
        struct rank *rank = &side->ranks[r];
        for (uint32_t t = 0; t < rank->own->tensor_count; t++) {
            free(rank->tensors[t]);
        }
        free(rank->tensors);
        wf_replicas_free(rank->replicas);
    }
}

/* How many ranks have the group, and whether all say the same of it. */
static void check_group(const struct side *side, const struct wf_replicas_group *group,
                        const struct wf_hash *sum, struct tally *tally)
{
    uint32_t holders = 0;
    bool wide = false;
    const struct wf_layout *layout = NULL;
    for (uint32_t r = 0; r < side->count; r++) {
        uint32_t count;
        const struct wf_replicas_group *theirs =
            wf_replicas_groups(side->ranks[r].replicas, &count);
        for (uint32_t g = 0; g < count; g++) {
            struct wf_hash other;
            if (theirs[g].id != group->id) {
                continue;
            }
            cr_assert(
                wf_replicas_sum(side->ranks[r].replicas, group->id, 0, theirs[g].chunks, &other));
            cr_expect(wf_hash_equal(other, *sum) && theirs[g].chunks == group->chunks &&
                          theirs[g].ranks == group->ranks,
                      "%s: group %u of %s rank %u is another", side->name, group->id,
                      wf_side_name(side->side), r);
            layout = layout == NULL ? side->ranks[r].own : layout;
            wide = wide || !wf_hash_equal(layout->hash, side->ranks[r].own->hash);
            holders++;
        }
    }
    cr_expect_eq(holders, group->ranks, "%s: %u ranks have group %u, not %u", side->name, holders,
                 group->id, group->ranks);
    tally->wide += wide;
}

static void check_alike(struct side *side, struct tally *tally)
{
    char text[WF_NAME_MAX * 3];
    for (uint32_t r = 0; r < side->count; r++) {
        uint32_t count;
        const struct wf_replicas *replicas = side->ranks[r].replicas;
        const struct wf_replicas_group *groups = wf_replicas_groups(replicas, &count);
        for (uint32_t g = 0; g < count; g++) {
            struct wf_hash sum;
            cr_assert(wf_replicas_sum(replicas, groups[g].id, 0, groups[g].chunks, &sum));
            check_group(side, &groups[g], &sum, tally);
        }
        cr_expect_not(wf_replicas_own_differ(replicas, side->world->model, side->ranks[r].own, text,
                                             sizeof text),
                      "%s, %s rank %u: %s", side->name, wf_side_name(side->side), r, text);
        tally->groups += count;
    }
}

/* The first element of a rank's piece stands in another piece too, here or elsewhere, in one type.
 */
static bool stands_elsewhere(const struct side *side, uint32_t rank, uint32_t index)
{
    const struct wf_layout *own = side->ranks[rank].own;
    const struct wf_piece *piece = &own->pieces[index];
    const struct wf_nest one = {.param_first = piece->param_first, .elem_bytes = 1};
    for (uint32_t r = 0; r < side->count; r++) {
        const struct wf_layout *other = side->ranks[r].own;
        for (uint32_t i = 0; i < other->piece_count; i++) {
            enum wf_dtype dtype = other->tensors[other->pieces[i].tensor].dtype;
            struct wf_nest nest = wf_layout_nest(other, i);
            if ((r != rank || i != index) && other->pieces[i].kind == WF_PIECE_DATA &&
                other->pieces[i].param == piece->param &&
                dtype == own->tensors[piece->tensor].dtype && numbered_common(&nest, &one) > 0) {
                return true;
            }
        }
    }
    return false;
}

/* One bit of one place is changed, and its rank's sums with it, or its own copies, if the element
 * stands elsewhere too. */
static void change_one(struct side *side, uint64_t *state, struct tally *tally)
{
    char text[WF_NAME_MAX * 3];
    uint32_t r = (uint32_t)(zoo_random(state) % side->count), count;
    struct rank *rank = &side->ranks[r];
    const struct wf_replicas_group *groups = wf_replicas_groups(rank->replicas, &count);
    struct wf_hash *before = calloc(count + 1, sizeof *before), after;
    for (uint32_t g = 0; g < count; g++) {
        wf_replicas_sum(rank->replicas, groups[g].id, 0, groups[g].chunks, &before[g]);
    }
    uint32_t i = (uint32_t)(zoo_random(state) % (rank->own->piece_count + 1ull));
    if (i < rank->own->piece_count && rank->own->pieces[i].kind == WF_PIECE_DATA) {
        const struct wf_piece *piece = &rank->own->pieces[i];
        ((uint8_t *)rank->tensors[piece->tensor])[piece->tensor_offset] ^= 1;
        compute(rank);
        uint32_t changed = 0;
        for (uint32_t g = 0; g < count; g++) {
            wf_replicas_sum(rank->replicas, groups[g].id, 0, groups[g].chunks, &after);
            if (!wf_hash_equal(after, before[g])) {
                changed++;
                wf_replicas_describe(rank->replicas, side->world->model, rank->own,
                                     (struct wf_replicas_part){.group = groups[g].id}, text,
                                     sizeof text);
                cr_expect(strstr(text, ", element") != NULL, "%s", text);
            }
        }
        bool twice = wf_replicas_own_differ(rank->replicas, side->world->model, rank->own, text,
                                            sizeof text);
        cr_expect_leq(changed, 1, "%s: one element is in %u groups", side->name, changed);
        cr_expect_eq(changed > 0 || twice, stands_elsewhere(side, r, i),
                     "%s: %s of %s rank %u is %sseen", side->name,
                     rank->own->tensors[piece->tensor].name, wf_side_name(side->side), r,
                     changed > 0 || twice ? "" : "not ");
        tally->changed += changed > 0 || twice;
        tally->silent += changed == 0 && !twice;
    }
    free(before);
}

static const struct wf_engine *draw_engine(uint64_t *state, bool train)
{
    static const struct wf_engine *const sources[] = {&wf_engine_megatron, &wf_engine_megatron,
                                                      &wf_engine_fsdp};
    static const struct wf_engine *const targets[] = {&wf_engine_vllm, &wf_engine_sglang};
    return train ? sources[zoo_random(state) % 3] : targets[zoo_random(state) % 2];
}

static bool draw_recipe(const struct wf_model *model, uint64_t *state, bool train,
                        struct wf_recipe *recipe)
{
    char spec[WF_SPEC_MAX];
    struct wf_error error;
    zoo_spec(draw_engine(state, train), model, state, spec);
    return wf_recipe_parse(spec, model, recipe, &error) == WF_OK &&
           wf_recipe_world(recipe) <= RANKS_MAX;
}

static void check_world(struct numbered *world, const char *name, uint64_t *state,
                        struct tally *tally)
{
    uint32_t train = wf_recipe_world(&world->train);
    struct side *side = calloc(1, sizeof *side);
    for (int s = WF_TRAIN; s <= WF_INFER; s++) {
        *side = (struct side){.world = world, .side = (enum wf_side)s, .name = name};
        make(side, s == WF_TRAIN ? 0 : train,
             s == WF_TRAIN ? train : world->input.member_count - train);
        check_alike(side, tally);
        change_one(side, state, tally);
        drop(side);
    }
    free(side);
    tally->worlds++;
}

static void try_world(size_t family, uint64_t *state, struct numbered *world, struct tally *tally)
{
    char config[ZOO_CONFIG_MAX], name[CASE_MAX], specs[3][WF_SPEC_MAX] = {"", "", ""};
    struct wf_model *model = NULL;
    struct wf_recipe train, infer[2];
    struct wf_error error;
    zoo_config(&zoo_families[family], state, config);
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s", config);
    uint32_t groups = 1 + (uint32_t)(zoo_random(state) % 2);
    bool good = draw_recipe(model, state, true, &train);
    for (uint32_t i = 0; i < groups && good; i++) {
        good = draw_recipe(model, state, false, &infer[i]);
    }
    if (good && numbered_make(world, model, &train, infer, groups, &error) == WF_OK) {
        wf_recipe_format(&train, specs[0]);
        wf_recipe_format(&infer[0], specs[1]);
        wf_recipe_format(&infer[groups - 1], specs[2]);
        snprintf(name, sizeof name, "%s -> %s, %s of %s", specs[0], specs[1], specs[2], config);
        check_world(world, name, state, tally);
    }
    if (good) {
        numbered_fini(world);
    }
    wf_model_free(model);
}

Test(replicas, of_random_recipes)
{
    uint64_t state = 0x5eed0900;
    struct numbered *world = calloc(1, sizeof *world);
    struct tally tally = {0};
    size_t families = 0;
    while (zoo_families[families].name != NULL) {
        families++;
    }
    for (unsigned i = 0; i < WORLDS * TRIES_PER_WORLD && tally.worlds < WORLDS; i++) {
        try_world(i % families, &state, world, &tally);
    }
    fprintf(stderr, "%u worlds, %u groups, %u of several classes, %u changes seen, %u not\n",
            tally.worlds, tally.groups, tally.wide, tally.changed, tally.silent);
    cr_expect_eq(tally.worlds, WORLDS);
    cr_expect_gt(tally.wide, WORLDS);
    cr_expect_gt(tally.changed, WORLDS / 2);
    free(world);
}
