/* test_transports.c - sources that can be read in several ways: which one is taken, what happens
 * where it does not work, what the reader reports, and spoilt bytes that are named. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"
#include "actors/sender.h"
#include "tests/actors/other_transport.h"
#include "tests/actors/stage.h"
#include "transports/fault.h"

/* How the ranks of a side are equipped. Two train ranks, one infer rank. */
struct side_row {
    const char *transports; /* of "shm", "far" (crosses hosts), "deaf" (shm whose imports fail),
                               "bad" (far that cannot export) */
    const char *hosts[2];
    const char *listen;
};

struct row {
    const char *name;
    struct side_row train, infer;
    const char *dead_address; /* stands before the source's own, or NULL */
    const char *taken[2];     /* per source: the transport */
    const char *says;         /* instead: of the round's error */
    enum wf_status status;
};

static struct wf_transport *make(struct wf_loop *loop, struct wf_transport *shm, const char *name)
{
    struct wf_error error;
    if (strcmp(name, "shm") == 0) {
        return shm;
    }
    struct other_options options = {.name = strcmp(name, "deaf") == 0 ? "shm" : "far",
                                    .maps = strcmp(name, "deaf") == 0,
                                    .refuses = strcmp(name, "deaf") == 0,
                                    .exports_bad = strcmp(name, "bad") == 0};
    struct wf_transport *inner;
    cr_assert_eq(wf_transport_shm_new(loop, 1, &inner, &error), WF_OK, "%s", error.text);
    return other_transport_new(inner, &options);
}

static void equip(struct stage_rank *rank, const void *user)
{
    const struct row *row = user;
    struct wf_rank_options *options = &rank->rank.options;
    const struct side_row *side = options->side == WF_TRAIN ? &row->train : &row->infer;
    struct wf_transport *shm = rank->transports[0];
    char names[64], *save = NULL;
    bool used = false;
    snprintf(names, sizeof names, "%s", side->transports);
    options->transport_count = 0;
    for (char *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        used = used || strcmp(name, "shm") == 0;
        rank->transports[options->transport_count++] = make(rank->rank.loop, shm, name);
    }
    if (!used) {
        shm->ops->close(shm);
    }
    const char *host = options->rank < 2 ? side->hosts[options->rank] : NULL;
    options->host_name = host != NULL ? host : "here";
    options->listen = side->listen != NULL ? side->listen : options->listen;
}

#define BOTH "unix:@weft-stage-* tcp:127.0.0.1:0"
static const struct row rows[] = {
    {.name = "one host",
     .train = {"shm far", {0}, NULL},
     .infer = {"shm far", {0}, NULL},
     .taken = {"shm", "shm"}},
    {.name = "the reader's order counts",
     .train = {"shm far", {0}, NULL},
     .infer = {"far shm", {0}, NULL},
     .taken = {"far", "far"}},
    {.name = "another host",
     .train = {"shm far", {0}, BOTH},
     .infer = {"shm far", {"there"}, NULL},
     .taken = {"far", "far"}},
    {.name = "one source on each host",
     .train = {"shm far", {"here", "there"}, BOTH},
     .infer = {"shm far", {"here"}, NULL},
     .taken = {"shm", "far"}},
    {.name = "mapping is forbidden",
     .train = {"shm far", {0}, NULL},
     .infer = {"deaf far", {0}, NULL},
     .taken = {"far", "far"}},
    {.name = "one host, tcp only: no descriptor can come",
     .train = {"shm", {0}, "tcp:127.0.0.1:0"},
     .infer = {"shm", {0}, NULL},
     .taken = {"shm", "shm"}},
    {.name = "one host, but its unix socket is out of reach",
     .train = {"shm", {0}, "tcp:127.0.0.1:0"},
     .infer = {"shm", {0}, NULL},
     .dead_address = "unix:@weft-stage-nobody",
     .taken = {"shm", "shm"}},
    {.name = "a source that cannot register its memory",
     .train = {"bad shm", {0}, NULL},
     .infer = {"far shm", {0}, NULL},
     .taken = {"shm", "shm"}},
    {.name = "nothing in common",
     .train = {"far", {0}, NULL},
     .infer = {"shm", {0}, NULL},
     .says = "refused this reader: infer rank 0 can read by: shm; train rank",
     .status = WF_REFUSED},
    {.name = "nothing in common once mapping is forbidden",
     .train = {"shm", {0}, NULL},
     .infer = {"deaf far", {0}, NULL},
     .says = "offers: shm; give both the same transport.prefer; shm: region 0: mapping",
     .status = WF_REFUSED},
    {.name = "mapping is forbidden and all there is",
     .train = {"shm", {0}, NULL},
     .infer = {"deaf", {0}, NULL},
     .says = "cannot be used: shm: region 0: mapping is forbidden here",
     .status = WF_UNSUPPORTED},
    {.name = "another host and only shm",
     .train = {"shm", {0}, BOTH},
     .infer = {"shm", {"there"}, NULL},
     .says = "add ucx to transport.prefer",
     .status = WF_UNSUPPORTED},
    {.name = "another host that only unix sockets lead to",
     .train = {"far", {0}, NULL},
     .infer = {"far", {"there"}, NULL},
     .says = "has no address that this rank's host can reach",
     .status = WF_UNSUPPORTED},
};

static void put_dead_address(struct stage *stage, const char *dead)
{
    for (uint32_t i = 0; i < stage->train && dead != NULL; i++) {
        char all[WF_ADDRESS_MAX];
        snprintf(all, sizeof all, "%s %.200s", dead, stage_train(stage, i)->rank.address);
        memcpy(stage_train(stage, i)->rank.address, all, sizeof all);
    }
}

static struct wf_local_msg *read_once(struct stage *stage, const struct wf_round_key *key)
{
    struct stage_rank *infer = stage_infer(stage, 0);
    for (uint32_t i = 0; i < stage->train; i++) {
        struct stage_rank *rank = stage_train(stage, i);
        stage_send(rank, wf_sender_actor(rank->rank.sender), WF_LOCAL_GRANT, key, 0);
    }
    stage_send(infer, wf_receiver_actor(infer->rank.receiver), WF_LOCAL_READ, key,
               infer->env->ops->now_ns(infer->env) + UINT64_C(5000000000));
    struct wf_local_msg *done = stage_wait(stage, infer, WF_LOCAL_READ_DONE);
    cr_assert_not_null(done);
    return done;
}

/* The figures of the answer against what each source was read by. */
static void check_figures(const struct row *row, const struct wf_receiver *receiver,
                          const struct wf_local_msg *done)
{
    uint64_t bytes = 0, edges = 0;
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        const struct receiver_source *source = receiver->sources[i];
        cr_assert_str_eq(source->transport->ops->name, row->taken[source->peer.rank],
                         "%s: source %u", row->name, i);
    }
    for (uint32_t t = 0; t < done->transport_count; t++) {
        uint64_t own_bytes = 0, own_edges = 0;
        for (uint32_t i = 0; i < receiver->source_count; i++) {
            const struct receiver_source *source = receiver->sources[i];
            if (strcmp(source->transport->ops->name, done->transports[t].name) == 0) {
                own_bytes += source->edge->bytes;
                own_edges++;
            }
        }
        cr_assert_eq(done->transports[t].bytes, own_bytes, "%s", row->name);
        cr_assert_eq(done->transports[t].edges, own_edges, "%s", row->name);
        bytes += own_bytes;
        edges += own_edges;
    }
    cr_assert_eq(bytes, done->bytes, "%s", row->name);
    cr_assert_eq(edges, receiver->source_count, "%s", row->name);
}

static void run_row(const struct row *row)
{
    struct stage stage;
    const struct stage_options options = {.train = "megatron:tp=2",
                                          .infer = "vllm:tp=1",
                                          .share_memory = true,
                                          .equip = equip,
                                          .user = row};
    stage_open(&stage, &options);
    put_dead_address(&stage, row->dead_address);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    struct wf_local_msg *done = read_once(&stage, &key);
    if (row->says != NULL) {
        cr_assert_eq(done->status, row->status, "%s: %s", row->name, done->error.text);
        cr_assert_not_null(strstr(done->error.text, row->says), "%s: %s", row->name,
                           done->error.text);
    } else {
        cr_assert_eq(done->status, WF_OK, "%s: %s", row->name, done->error.text);
        check_figures(row, stage_infer(&stage, 0)->rank.receiver, done);
        stage_flip(&stage, &key);
        cr_assert(stage_live_is_right(&stage), "%s", row->name);
    }
    stage_drop(done);
    stage_close(&stage);
}

Test(transports, each_source_is_read_by_the_first_that_works)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_row(&rows[i]);
    }
}

/* --- how many at a time
 * ---------------------------------------------------------------------------- */

/* Reads that never arrive: what was begun stays open. */
static void drop_all(struct stage_rank *rank, const void *user)
{
    const struct wf_fault fault = {.kind = WF_FAULT_DROP, .per_million = 1000000};
    struct wf_error error;
    equip(rank, user);
    if (rank->rank.options.side == WF_INFER) {
        cr_assert_eq(wf_transport_fault_new(rank->rank.loop, rank->transports[0], &fault, 1, 3,
                                            &rank->transports[0], &error),
                     WF_OK);
    }
}

static bool has_begun(void *user)
{
    return ((const struct wf_receiver *)user)->open_reads > 0;
}

Test(transports, mapped_sources_are_read_two_at_a_time_others_all_at_once)
{
    static const struct {
        struct row row;
        uint32_t open;
    } cases[] = {
        {{.name = "mapped", .train = {"shm", {0}, NULL}, .infer = {"shm", {0}, NULL}}, 2},
        {{.name = "far", .train = {"far", {0}, NULL}, .infer = {"far", {0}, NULL}}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stage stage;
        const struct stage_options options = {.train = "megatron:tp=2,pp=2",
                                              .infer = "vllm:tp=1",
                                              .share_memory = true,
                                              .equip = drop_all,
                                              .user = &cases[i].row};
        stage_open(&stage, &options);
        stage_plan(&stage);
        stage_step(&stage, 1);
        struct wf_round_key key = stage_key(&stage, 1, 1);
        struct stage_rank *infer = stage_infer(&stage, 0);
        for (uint32_t t = 0; t < stage.train; t++) {
            stage_send(stage_train(&stage, t), wf_sender_actor(stage_train(&stage, t)->rank.sender),
                       WF_LOCAL_GRANT, &key, 0);
        }
        stage_send(infer, wf_receiver_actor(infer->rank.receiver), WF_LOCAL_READ, &key,
                   infer->env->ops->now_ns(infer->env) + UINT64_C(15000000000));
        cr_assert(stage_run(&stage, has_begun, infer->rank.receiver), "%s", cases[i].row.name);
        cr_assert_eq(infer->rank.receiver->source_count, 4);
        cr_assert_eq(infer->rank.receiver->open_reads, cases[i].open, "%s", cases[i].row.name);
        stage_send(infer, wf_receiver_actor(infer->rank.receiver), WF_LOCAL_STOP, &key, 0);
        stage_drop(stage_wait(&stage, infer, WF_LOCAL_STOPPED));
        stage_close(&stage);
    }
}

Test(transports, nothing_is_exported_for_transports_that_nobody_uses)
{
    struct stage stage;
    const struct stage_options options = {.train = "megatron:tp=2",
                                          .infer = "vllm:tp=1",
                                          .share_memory = true,
                                          .equip = equip,
                                          .user = &rows[0]};
    stage_open(&stage, &options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_drop(read_once(&stage, &key));
    const struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    cr_assert_not_null(sender->slots[0].offers[0].handles);
    cr_assert_null(sender->slots[0].offers[1].handles);
    cr_assert_null(sender->slots[0].bare[0].handles);
    stage_close(&stage);
}

/* --- a source that is lost while its regions are imported
 * ---------------------------------------------------------------------------------- */

static void hold_imports(struct stage_rank *rank, const void *user)
{
    (void)user;
    if (rank->rank.options.side == WF_INFER) {
        const struct other_options options = {.name = "shm", .maps = true, .holds = true};
        rank->transports[0] = other_transport_new(rank->transports[0], &options);
    }
}

static bool holds_two(void *user)
{
    return other_transport_held(user) == 2;
}

static bool is_ready_again(void *user)
{
    const struct wf_receiver *receiver = user;
    return receiver->open_imports == 0 && receiver->sources[0]->state == SOURCE_READY &&
           receiver->sources[1]->state == SOURCE_READY;
}

static bool holds_four(void *user)
{
    return other_transport_held(user) == 4;
}

Test(transports, what_is_imported_after_its_source_was_lost_is_released)
{
    struct stage stage;
    const struct stage_options options = {.train = "megatron:tp=2",
                                          .infer = "vllm:tp=1",
                                          .share_memory = true,
                                          .equip = hold_imports};
    stage_open(&stage, &options);
    stage_plan(&stage);
    struct stage_rank *infer = stage_infer(&stage, 0);
    cr_assert(stage_run(&stage, holds_two, infer->transports[0]));
    for (uint32_t i = 0; i < stage.train; i++) {
        sender_peers_drop(stage_train(&stage, i)->rank.sender);
    }
    cr_assert(stage_run(&stage, holds_four, infer->transports[0]), "it did not connect again");
    other_transport_go(infer->transports[0]);
    cr_assert(stage_run(&stage, is_ready_again, infer->rank.receiver));
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage); /* shm asserts that no region is left */
}

/* --- a source that is connected anew in the middle of a round
 * ------------------------------------------------------------------------------------------- */

static void hold_read(struct stage_rank *rank, const void *user)
{
    (void)user;
    if (rank->rank.options.side == WF_INFER) {
        const struct other_options options = {.name = "shm", .maps = true, .holds_read = true};
        rank->transports[0] = other_transport_new(rank->transports[0], &options);
    }
}

static bool all_but_the_first_are_done(void *user)
{
    const struct wf_receiver *receiver = user;
    bool done = receiver->sources[0]->read_open && receiver->sources[0]->has_digest;
    for (uint32_t i = 1; i < receiver->source_count; i++) {
        done = done && receiver->sources[i]->read_done && receiver->sources[i]->has_digest;
    }
    return done;
}

static bool has_greeted_again(void *user)
{
    const struct receiver_source *source = user;
    return source->state == SOURCE_GREETED && source->transport == NULL;
}

Test(transports, a_source_that_was_read_may_come_back_while_others_are_read)
{
    struct stage stage;
    const struct stage_options options = {.train = "megatron:tp=2,pp=2",
                                          .infer = "vllm:tp=1",
                                          .share_memory = true,
                                          .equip = hold_read};
    stage_open(&stage, &options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    struct stage_rank *infer = stage_infer(&stage, 0);
    struct wf_receiver *receiver = infer->rank.receiver;
    for (uint32_t t = 0; t < stage.train; t++) {
        struct stage_rank *train = stage_train(&stage, t);
        stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, &key, 0);
    }
    stage_send(infer, wf_receiver_actor(receiver), WF_LOCAL_READ, &key,
               infer->env->ops->now_ns(infer->env) + UINT64_C(15000000000));
    cr_assert(stage_run(&stage, all_but_the_first_are_done, receiver));
    struct receiver_source *lost = receiver->sources[1];
    sender_peers_drop(stage_train(&stage, (uint32_t)lost->peer.rank)->rank.sender);
    cr_assert(stage_run(&stage, has_greeted_again, lost));
    other_transport_go(infer->transports[0]);
    while (infer->client.answer_count == 0) {
        wf_loop_turn(infer->rank.loop); /* alone: the source does not answer its hello yet */
    }
    cr_assert(has_greeted_again(lost));
    struct wf_local_msg *done = stage_wait(&stage, infer, WF_LOCAL_READ_DONE);
    cr_assert_eq(done->status, WF_OK, "%s", done->error.text);
    cr_assert_eq(done->transport_count, 1);
    cr_assert_eq(done->transports[0].edges, 4);
    stage_drop(done);
    stage_flip(&stage, &key);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage);
}

/* --- spoilt bytes
 * ---------------------------------------------------------------------------------- */

static void spoil(struct stage_rank *rank, const void *user)
{
    struct wf_error error;
    if (rank->rank.options.side == WF_INFER) {
        cr_assert_eq(wf_transport_fault_new(rank->rank.loop, rank->transports[0], user, 1, 3,
                                            &rank->transports[0], &error),
                     WF_OK);
    }
}

Test(transports, a_flipped_byte_is_named_and_the_next_attempt_is_whole)
{
    static const enum wf_fault_kind kinds[] = {WF_FAULT_FLIP_WIRE, WF_FAULT_FLIP_MEMORY};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *name = wf_fault_kind_name(kinds[i]);
        const struct wf_fault fault = {.kind = kinds[i], .at = 2}; /* the second source's edge */
        const struct stage_options options = {.train = "megatron:tp=2",
                                              .infer = "vllm:tp=1",
                                              .share_memory = true,
                                              .equip = spoil,
                                              .user = &fault};
        struct stage stage;
        stage_open(&stage, &options);
        stage_plan(&stage);
        stage_step(&stage, 1);
        struct wf_round_key key = stage_key(&stage, 1, 1);
        struct wf_local_msg *done = read_once(&stage, &key);
        cr_assert_eq(done->status, WF_DIGEST, "%s: %s", name, done->error.text);
        cr_assert_eq(done->digest_mismatches, 1, "%s", name);
        unsigned chunk, box;
        cr_assert_eq(sscanf(done->culprit.object, "chunk %u of box %u of ", &chunk, &box), 2,
                     "%s: %s", name, done->culprit.object);
        cr_assert_not(stage_infer(&stage, 0)->rank.receiver->staged, "%s", name);
        stage_drop(done);
        key = stage_key(&stage, 1, 2);
        stage_transfer(&stage, &key);
        stage_flip(&stage, &key);
        cr_assert(stage_live_is_right(&stage), "%s", name);
        stage_close(&stage);
    }
}
