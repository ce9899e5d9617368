/* test_meta_placement.c - new tables of experts, at the server: when they come into force. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/puppets.h"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_placement, .fini = close_world);

/* Two layers of four slots; `first` tells tables apart. */
static void place(struct puppet *infer, uint64_t first, uint64_t layout)
{
    struct wf_el_slot slots[8];
    for (uint32_t i = 0; i < 8; i++) {
        slots[i].expert = i == 0 ? first : i % 4;
    }
    const struct wf_frame_placement frame = {.engine = infer->engine,
                                             .layout = {layout, 1},
                                             .layers = 2,
                                             .slots = 4,
                                             .experts = slots,
                                             .experts_count = 8};
    infer->hello.layout = frame.layout;
    puppet_send(infer, WF_FRAME_placement, &frame);
}

static const struct wf_el_peer *peer_of(const struct wf_frame *members, const struct puppet *infer)
{
    const struct wf_el_peer *found = NULL;
    for (uint32_t i = 0; i < members->members.peers_count; i++) {
        const struct wf_el_peer *peer = &members->members.peers[i];
        found = peer->side == infer->side && peer->rank == infer->rank ? peer : found;
    }
    cr_assert(found != NULL, "infer rank %u is not in the list", infer->rank);
    return found;
}

/* What `puppet` gets when a table comes into force: the table, then the members. */
static void expect_placed(struct puppet *puppet, uint64_t first, uint64_t layout)
{
    const struct wf_frame *table = puppet_expect(puppet, WF_FRAME_placement);
    cr_assert_eq(table->placement.engine, 0);
    cr_assert_eq(table->placement.layers, 2);
    cr_assert_eq(table->placement.experts_count, 8);
    cr_assert_eq(table->placement.experts[0].expert, first);
    const struct wf_frame *members = puppet_expect(puppet, WF_FRAME_members);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(peer_of(members, world_infer(&w, i))->layout.high, layout + i);
    }
}

Test(meta_placement, a_table_comes_into_force_when_all_ranks_of_its_engine_say_it)
{
    world_open(&w, 2, 2, NULL);
    world_start(&w);
    world_commit(&w, 1);
    struct puppet *train = world_train(&w), *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    place(a, 2, 20);
    puppet_refuses(train, WF_FRAME_members, 200 * PUPPET_MS);
    puppet_publish(train, 2);
    puppet_refuses(a, WF_FRAME_open, 200 * PUPPET_MS); /* half an engine is not planned with */
    place(b, 2, 21);
    for (uint32_t i = 0; i < w.puppet_count; i++) {
        expect_placed(&w.puppets[i], 2, 20);
    }
    struct wf_round_key key = puppet_open(a);
    cr_assert_gt(key.epoch, 1);
}

Test(meta_placement, ranks_that_do_not_agree_are_named)
{
    world_open(&w, 1, 2, NULL);
    world_start(&w);
    place(world_infer(&w, 0), 2, 20);
    place(world_infer(&w, 1), 3, 21);
    const struct wf_frame *frame = puppet_expect(world_train(&w), WF_FRAME_refused);
    cr_assert(strstr(frame->refused.text, "engine 0: infer ranks 0 and 1 have had different tables "
                                          "of experts for") != NULL,
              "%s", frame->refused.text);
}

Test(meta_placement, a_table_may_be_taken_back)
{
    world_open(&w, 1, 2, NULL);
    world_start(&w);
    struct puppet *train = world_train(&w);
    place(world_infer(&w, 0), 2, 20);
    place(world_infer(&w, 1), 2, 21);
    expect_placed(train, 2, 20);
    for (uint32_t i = 0; i < 2; i++) {
        const struct wf_frame_placement rule = {.engine = 0, .layout = {i, 0}};
        puppet_send(world_infer(&w, i), WF_FRAME_placement, &rule);
    }
    cr_assert_eq(puppet_expect(train, WF_FRAME_placement)->placement.layers, 0,
                 "an older table would be kept otherwise");
    const struct wf_frame *members = puppet_expect(train, WF_FRAME_members);
    cr_assert_eq(peer_of(members, world_infer(&w, 1))->layout.high, 1);
}

/* The layout that it has by an older table is not told as its own: nobody could derive it. */
Test(meta_placement, the_layout_of_a_rank_that_is_away_is_not_known_by_a_newer_table)
{
    world_open(&w, 1, 2, NULL);
    world_start(&w);
    struct puppet *train = world_train(&w), *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    b->hello.layout = (struct wf_hash){9, 9};
    puppet_drop(b);
    b->silent = true;
    world_run(&w, 2000 * PUPPET_MS); /* its lease */
    train->seen = train->frame_count;
    place(a, 2, 20);
    puppet_expect(train, WF_FRAME_placement);
    const struct wf_frame *members = puppet_expect(train, WF_FRAME_members);
    cr_assert_eq(peer_of(members, b)->layout.high, 0);
    cr_assert_eq(peer_of(members, a)->layout.high, 20);
}

Test(meta_placement, a_table_of_another_engine_changes_nothing)
{
    world_open(&w, 2, 1, NULL);
    world_start(&w);
    const struct wf_frame_placement other = {.engine = 1, .layout = {5, 5}};
    puppet_send(world_infer(&w, 0), WF_FRAME_placement, &other);
    puppet_refuses(world_train(&w), WF_FRAME_members, 300 * PUPPET_MS);
    world_commit(&w, 1);
}
