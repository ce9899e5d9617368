/* test_client_placement.c - new tables of experts, at a rank: what it tells, what it refuses. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/client_world.h"

static struct client_world w;
static struct wf_model *model;
static struct wf_layout *by_rule;

enum { LAYERS = 2, SLOTS = 4 };
static const uint32_t swapped[LAYERS * SLOTS] = {1, 0, 2, 3, 0, 1, 2, 3};
static const struct wf_placement table = {LAYERS, SLOTS, swapped};

static void close_world(void)
{
    struct wf_layout *last = w.rank.layout; /* the rank's own, as its tables */
    client_close(&w);
    for (uint32_t i = 0; i < w.rank.layouts_before_count; i++) {
        wf_layout_free(w.rank.layouts_before[i]);
    }
    free(w.rank.layouts_before);
    wf_layout_free(last);
    wf_table_release(w.rank.table);
    wf_model_free(model);
}

TestSuite(placement, .fini = close_world);

static void open_world(void)
{
    static const char config[] =
        "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
        "\"vocab_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 8, \"intermediate_size\": 16, \"num_experts\": 4, "
        "\"moe_intermediate_size\": 8, \"torch_dtype\": \"float32\"}";
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s",
                 error.text);
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    cr_assert_eq(wf_recipe_parse("sglang:tp=2,ep=2", model, &w.rank.recipe, &error), WF_OK, "%s",
                 error.text);
    w.rank.options.model = model;
    cr_assert_eq(wf_layout_derive(model, &w.rank.recipe, 0, &by_rule, &error), WF_OK, "%s",
                 error.text);
    w.rank.layout = by_rule;
}

static enum wf_status place(const struct wf_placement *placement, const char *sentence)
{
    struct wf_error error = {0};
    enum wf_status status = wf_client_place(w.client, placement, &error);
    cr_assert(strstr(error.text, sentence) != NULL, "got \"%s\"", error.text);
    return status;
}

static void send_table(const struct wf_placement *placement)
{
    struct wf_el_slot slots[LAYERS * SLOTS];
    for (uint32_t i = 0; i < LAYERS * SLOTS; i++) {
        slots[i].expert = placement->experts[i];
    }
    const struct wf_frame_placement frame = {
        .layers = LAYERS, .slots = SLOTS, .experts = slots, .experts_count = LAYERS * SLOTS};
    client_send(&w, WF_FRAME_placement, &frame);
}

static void send_members(uint64_t epoch, struct wf_hash layout)
{
    struct wf_el_peer self = {.side = WF_INFER, .incarnation = 42, .layout = layout};
    const struct wf_frame_members frame = {
        .term = w.term, .epoch = epoch, .peers = &self, .peers_count = 1};
    client_send(&w, WF_FRAME_members, &frame);
}

/* The planner has a plan with the tables that it was given. */
static void answer_planned(void)
{
    const struct wf_local_msg *asked = client_asked(&w, &w.converter, WF_LOCAL_PLAN);
    struct wf_local_msg *answer = wf_local_msg_new(WF_LOCAL_PLANNED, &w.converter.actor);
    struct wf_agreed *agreed = wf_agreed_new();
    agreed->tables = wf_tables_copy(&asked->tables);
    agreed->plan = calloc(1, sizeof *agreed->plan);
    cr_assert(agreed->plan != NULL);
    agreed->plan->references = 1;
    answer->agreed = agreed;
    wf_send(wf_meta_client_actor(w.client), &answer->msg);
    client_expect(&w, WF_FRAME_planned);
}

Test(placement, what_it_has_at_start_is_told_before_it_joins)
{
    struct wf_error error = {0};
    open_world();
    cr_assert_eq(wf_table_new(0, &table, &w.rank.table, &error), WF_OK);
    client_expect(&w, WF_FRAME_hello);
    client_welcome(&w, true, (struct wf_version){0});
    const struct wf_frame_placement *told = &client_expect(&w, WF_FRAME_placement)->placement;
    cr_assert_eq(told->experts_count, LAYERS * SLOTS);
    cr_assert_eq(told->experts[0].expert, 1);
    cr_assert(wf_hash_equal(told->layout, by_rule->hash));
    client_expect(&w, WF_FRAME_joined);
}

Test(placement, by_rule_nothing_is_told)
{
    open_world();
    client_expect(&w, WF_FRAME_hello);
    client_welcome(&w, true, (struct wf_version){0});
    client_silent(&w, WF_FRAME_placement, 200 * CLIENT_MS);
}

Test(placement, a_round_of_a_plan_with_the_old_table_is_refused_by_name)
{
    open_world();
    client_join(&w);
    send_members(1, by_rule->hash);
    answer_planned();
    cr_assert_eq(place(&table, ""), WF_OK);
    const struct wf_frame_placement *told = &client_expect(&w, WF_FRAME_placement)->placement;
    struct wf_hash placed = told->layout;
    cr_assert(!wf_hash_equal(placed, by_rule->hash));
    const struct wf_frame_open open = {.round = client_key(&w, 1, 1),
                                       .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_open, &open);
    const struct wf_frame_vote *vote = &client_expect(&w, WF_FRAME_vote)->vote;
    cr_assert_eq(vote->yes, 0);
    cr_assert(strstr(vote->culprit.reason, "stale placement of experts: the plan has table") !=
                  NULL,
              "%s", vote->culprit.reason);
    cr_assert_eq(w.receiver.asked_count, 0, "nothing is read");
    /* a list that was made before the server heard of it is not planned; the server is told again
     */
    send_members(2, by_rule->hash);
    told = &client_expect(&w, WF_FRAME_placement)->placement;
    cr_assert(wf_hash_equal(told->layout, placed));
    client_run(&w, 100 * CLIENT_MS);
    cr_assert_eq(w.converter.asked_count, 1);
    /* the one that knows it is */
    send_table(&table);
    send_members(3, placed);
    answer_planned();
    struct wf_frame_open next = {.round = client_key(&w, 1, 2), .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_open, &next);
    client_asked(&w, &w.receiver, WF_LOCAL_READ);
}

Test(placement, a_round_under_way_keeps_experts_where_they_are)
{
    open_world();
    client_join(&w);
    send_members(1, by_rule->hash);
    answer_planned();
    client_reach(&w, WF_RANK_READ, 1);
    cr_assert_eq(place(&table, "a round is under way: place experts when it is over"), WF_AGAIN);
    cr_assert_eq(w.rank.layout, by_rule);
}

/* Some ranks of its engine may have heard of the second alone. */
Test(placement, one_table_may_follow_another_before_anybody_plans)
{
    open_world();
    client_join(&w);
    send_members(1, by_rule->hash);
    answer_planned();
    for (uint64_t i = 0; i < 8; i++) {
        cr_assert_eq(place(i % 2 == 0 ? &table : NULL, ""), WF_OK);
        client_expect(&w, WF_FRAME_placement);
    }
    cr_assert(wf_hash_equal(w.rank.layout->hash, by_rule->hash));
    cr_assert_eq(w.rank.layouts_before_count, 8, "a plan may have any of them");
    send_members(2, by_rule->hash);
    answer_planned();
    cr_assert_eq(w.rank.layouts_before_count, WF_LAYOUTS_BEFORE);
}

/* A replica that reads this engine's weights would read them while they move. */
Test(placement, reads_by_another_engine_end)
{
    open_world();
    client_join(&w);
    client_reach(&w, WF_RANK_FLIPPED, 1);
    struct wf_el_member reader = {.side = WF_INFER, .rank = 5};
    const struct wf_frame_open open = {.round = client_key(&w, 1, 2),
                                       .deadline_ns = 1000 * CLIENT_MS,
                                       .source = 1,
                                       .members = &reader,
                                       .members_count = 1};
    client_send(&w, WF_FRAME_open, &open);
    client_run(&w, 50 * CLIENT_MS);
    cr_assert(w.client->fill.source);
    cr_assert_eq(place(&table, ""), WF_OK);
    cr_assert(!w.client->fill.source && !w.client->fill.wanted && !w.client->fill.granted);
    struct wf_frame_open again = open;
    again.round.attempt++;
    client_send(&w, WF_FRAME_open, &again);
    const struct wf_frame_vote *vote = &client_expect(&w, WF_FRAME_vote)->vote;
    cr_assert(vote->yes == 0 && strstr(vote->culprit.reason, "is moving its experts") != NULL, "%s",
              vote->culprit.reason);
}

Test(placement, tables_that_do_not_fit_are_refused)
{
    static const uint32_t nobody[LAYERS * SLOTS] = {0, 1, 2, 3, 0, 1, 2, 4};
    static const uint32_t twice[LAYERS * SLOTS] = {0, 1, 2, 3, 0, 1, 2, 2};
    const struct wf_placement unknown = {LAYERS, SLOTS, nobody};
    const struct wf_placement missing = {LAYERS, SLOTS, twice};
    const struct wf_placement short_one = {1, SLOTS, swapped};
    open_world();
    client_join(&w);
    cr_assert_eq(place(&unknown, "has expert 4 in slot 3 of layer 1: experts are 0 to 3"),
                 WF_INVALID);
    cr_assert_eq(place(&missing, "has expert 3 in no slot of layer 1: each needs one"), WF_INVALID);
    cr_assert_eq(place(&short_one, "has 4 slots of 1 layers; expected 4 slots"), WF_INVALID);
    cr_assert_eq(w.rank.layout, by_rule);
    client_silent(&w, WF_FRAME_placement, 100 * CLIENT_MS);
}
