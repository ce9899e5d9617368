/* test_meta_replicas.c - what ranks say of what they hold alike, as the server sees it: whom it
 * asks and when, what it compares, what it says of it, and for whom it does not wait. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "tests/actors/puppets.h"

enum { ENGINES = 4, GROUP = 7, CHUNKS = 8 };
#define OBJECT "alpha, element 7, in beta"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_replicas, .fini = close_world);

/* How a rank answers. */
enum manner {
    ALIKE,
    ODD,
    OTHER_ODD,
    OF_ANOTHER_PLAN,
    OF_OTHER_CHUNKS,
    NOTHING,
    FAILS,
    TWICE,
    SILENT,
    LEAVES
};
enum { DIFFERENT_CHUNK = 5, ELEMENTS = 1000, DIFFERENT_ELEMENT = 613 }; /* of an odd rank */

static struct puppet *observer;
static uint32_t answered[PUPPETS_MAX]; /* frames that were looked at */

static void start(uint32_t engines)
{
    const struct wf_server_options options = {.validate_every = 2};
    world_open(&w, engines, 1, &options);
    world_start(&w);
    observer = world_guest(&w, NULL);
    puppet_connect(observer);
    memset(answered, 0, sizeof answered);
}

/* Of chunks, or of elements of the one that differs. */
static struct wf_hash sum_of(enum manner manner, uint64_t first, uint64_t count, uint64_t odd_one)
{
    bool inside = first <= odd_one && odd_one < first + count;
    uint64_t odd = manner == ODD && inside ? 1 : manner == OTHER_ODD && inside ? 2 : 0;
    return (struct wf_hash){first * 100 + count, odd};
}

static void answer(struct puppet *rank, const struct wf_frame_replicas_request *request,
                   enum manner manner)
{
    struct wf_el_replica sum = {.group = GROUP, .chunks = CHUNKS};
    struct wf_frame_replicas replicas = {.round = request->round,
                                         .group = request->group,
                                         .first = request->first,
                                         .count = request->count,
                                         .within = request->within,
                                         .elements = request->elements,
                                         .plan = rank->input,
                                         .sums = &sum,
                                         .sums_count = manner != NOTHING && manner != FAILS,
                                         .failed = manner == FAILS};
    if (request->count == 0) {
        sum.sum = sum_of(manner, 0, CHUNKS, DIFFERENT_CHUNK);
        replicas.plan.low += manner == OF_ANOTHER_PLAN;
        sum.chunks += manner == OF_OTHER_CHUNKS;
        sum.sum.high += manner == OF_ANOTHER_PLAN || manner == OF_OTHER_CHUNKS;
        strcpy(replicas.object, manner == TWICE ? OBJECT : manner == FAILS ? "out of luck" : "");
    } else if (request->elements == 0) {
        cr_assert_eq(request->group, GROUP);
        sum.sum = sum_of(manner, request->first, request->count, DIFFERENT_CHUNK);
        replicas.holds = request->count == 1 ? ELEMENTS : 0;
        strcpy(replicas.object, request->count == 1 ? "a chunk" : "");
    } else {
        cr_assert(request->first == DIFFERENT_CHUNK && request->count == 1, "another chunk");
        sum.sum = sum_of(manner, request->within, request->elements, DIFFERENT_ELEMENT);
        bool found = request->within == DIFFERENT_ELEMENT && request->elements == 1;
        strcpy(replicas.object, found ? OBJECT : "elements");
    }
    puppet_send(rank, WF_FRAME_replicas, &replicas);
}

/* Answers what was asked since, by each rank's manner; gives how many were asked. */
static uint32_t answer_all(const enum manner *manners)
{
    uint32_t asked = 0;
    for (uint32_t p = 0; p < 1 + w.infer_ranks; p++) {
        struct puppet *rank = &w.puppets[p];
        enum manner manner = rank->side == WF_TRAIN ? manners[0] : manners[1 + rank->rank];
        for (; answered[p] < rank->frame_count; answered[p]++) {
            const struct wf_frame *frame = &rank->frames[answered[p]];
            if (frame->type != WF_FRAME_replicas_request) {
                continue;
            }
            asked++;
            if (manner == LEAVES && rank->conn != 0) {
                const struct wf_frame_leave leave = {.reason = "test"};
                puppet_send(rank, WF_FRAME_leave, &leave);
            } else if (manner != SILENT && manner != LEAVES) {
                answer(rank, &frame->replicas_request, manner);
            }
        }
    }
    return asked;
}

/* Runs on until the observer hears of a round's end. */
static const struct wf_frame_round_report *report_of(const enum manner *manners)
{
    uint32_t before = puppet_count(observer, WF_FRAME_round_report);
    for (uint32_t i = 0; i < 20000 && puppet_count(observer, WF_FRAME_round_report) == before;
         i++) {
        answer_all(manners);
        world_run(&w, 20 * PUPPET_MS);
    }
    return &puppet_expect(observer, WF_FRAME_round_report)->round_report;
}

/* Infer ranks read and vote; the train side is asked meanwhile. */
static struct wf_round_key vote_all(uint64_t step)
{
    struct wf_round_key key = {0};
    puppet_publish(world_train(&w), step);
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        key = puppet_open(world_infer(&w, i));
        puppet_vote(world_infer(&w, i), key, true);
    }
    return key;
}

static void flip_all(struct wf_round_key key)
{
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        struct puppet *rank = world_infer(&w, i);
        puppet_expect(rank, WF_FRAME_decide);
        puppet_key(rank, WF_FRAME_quiesced, key);
        puppet_expect(rank, WF_FRAME_flip);
        puppet_flipped(rank, key);
    }
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        puppet_expect(world_infer(&w, i), WF_FRAME_resume);
        puppet_resumed(world_infer(&w, i), key);
    }
}

static const struct row {
    const char *name;
    enum manner manners[1 + ENGINES]; /* the train rank's, then the engines' */
    uint64_t checked, different;
    uint32_t culprit; /* infer rank; UINT32_MAX: nobody */
    const char *words;
} rows[] = {
    {"all alike", {ALIKE, ALIKE, ALIKE, ALIKE, ALIKE}, 5, 0, UINT32_MAX, ""},
    {"the first of four",
     {ALIKE, ODD, ALIKE, ALIKE, ALIKE},
     5,
     1,
     0,
     "holds other bytes of " OBJECT ", than infer rank 1 "},
    {"the last of four",
     {ALIKE, ALIKE, ALIKE, ALIKE, ODD},
     5,
     1,
     3,
     "3 of the 4 ranks that hold it"},
    {"two and two",
     {ALIKE, ALIKE, ODD, ODD, ALIKE},
     5,
     2,
     1,
     "which of them is wrong is not known"},
    {"two that differ each in its way",
     {ALIKE, ODD, ALIKE, OTHER_ODD, ALIKE},
     5,
     2,
     0,
     "which of them is wrong is not known"},
    {"one that said it of another plan",
     {ALIKE, ALIKE, OF_ANOTHER_PLAN, ALIKE, ALIKE},
     5,
     0,
     UINT32_MAX,
     ""},
    {"one whose group has other chunks",
     {ALIKE, OF_OTHER_CHUNKS, ALIKE, ALIKE, ALIKE},
     5,
     0,
     UINT32_MAX,
     ""},
    {"one that can say nothing",
     {ALIKE, NOTHING, ODD, ALIKE, ALIKE},
     4,
     1,
     1,
     "2 of the 3 ranks that hold it"},
    {"one that could not compare",
     {ALIKE, FAILS, ODD, ALIKE, ALIKE},
     4,
     1,
     1,
     "2 of the 3 ranks that hold it"},
    {"one that holds something twice",
     {ALIKE, ALIKE, ALIKE, TWICE, ALIKE},
     5,
     1,
     2,
     "holds two copies that differ: " OBJECT},
    {"one that leaves",
     {ALIKE, LEAVES, ODD, ALIKE, ALIKE},
     4,
     1,
     1,
     "2 of the 3 ranks that hold it"},
    {"one that never answers",
     {ALIKE, SILENT, ODD, ALIKE, ALIKE},
     4,
     1,
     1,
     "holds other bytes of what both hold alike than infer rank 2 "},
    {"one that never answers, and the others are alike",
     {ALIKE, SILENT, ALIKE, ALIKE, ALIKE},
     4,
     0,
     UINT32_MAX,
     ""},
};

/* Where it is not known which of two is wrong, the other one is named too, by the same sentence. */
static void check_other(const struct wf_frame_round_report *report, const struct row *row)
{
    bool both = strstr(row->words, "not known") != NULL;
    char text[WF_CULPRIT_TEXT];
    wf_culprit_format(&report->other, text);
    cr_expect_eq(wf_culprit_is_none(&report->other), !both, "%s: %s", row->name, text);
    if (both) {
        cr_expect_neq(report->other.rank, report->culprit.rank, "%s", row->name);
        char than[128];
        snprintf(than, sizeof than, "holds other bytes of " OBJECT ", than infer rank %u ",
                 row->culprit);
        cr_expect_not_null(strstr(text, than), "%s: %s", row->name, text);
        cr_expect_not_null(strstr(text, row->words), "%s: %s", row->name, text);
        cr_expect_str_eq(report->other.object, OBJECT, "%s", row->name);
    }
}

Test(meta_replicas, engines)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        start(ENGINES);
        struct wf_round_key key = vote_all(2);
        while (answer_all(row->manners) == 0) {
            world_run(&w, PUPPET_MS);
        }
        flip_all(key);
        const struct wf_frame_round_report *report = report_of(row->manners);
        cr_expect(report->opened_ns > report->total_ns && report->total_ns > 0,
                  "%s: it was over before copies were compared", row->name);
        char text[WF_CULPRIT_TEXT];
        wf_culprit_format(&report->culprit, text);
        cr_expect_eq(report->state, WF_REPORT_COMMITTED, "%s: %s", row->name, text);
        cr_expect_eq(report->replicas_checked, row->checked, "%s: %llu checked", row->name,
                     (unsigned long long)report->replicas_checked);
        cr_expect_eq(report->replicas_different, row->different, "%s: %llu different", row->name,
                     (unsigned long long)report->replicas_different);
        if (row->culprit == UINT32_MAX) {
            cr_expect(strstr(text, "holds") == NULL, "%s: %s", row->name, text);
        } else {
            cr_expect_eq(report->culprit.rank, row->culprit, "%s: %s", row->name, text);
            cr_expect_not_null(strstr(text, row->words), "%s: %s", row->name, text);
        }
        check_other(report, row);
        struct wf_frame_status status;
        wf_meta_server_status(w.server, 0, &status);
        cr_expect_eq(status.replicas_different, row->different, "%s", row->name);
        cr_expect_eq(status.rounds[status.rounds_count - 1].other.rank, report->other.rank);
        cr_expect_str_eq(status.rounds[status.rounds_count - 1].other.reason, report->other.reason);
        wf_meta_server_status_fini(&status);
        world_close(&w);
    }
    start(1);
}

/* What a train rank is asked is of the round that it heard of last. */
static void check_requests(const struct puppet *train)
{
    const struct wf_round_key *round = NULL;
    for (uint32_t f = 0; f < train->frame_count; f++) {
        const struct wf_frame *frame = &train->frames[f];
        round = frame->type == WF_FRAME_open ? &frame->open.round : round;
        cr_expect(frame->type != WF_FRAME_replicas_request ||
                      (round != NULL && wf_round_key_equal(&frame->replicas_request.round, round)),
                  "frame %u asks of another round", f);
    }
}

/* Nothing is decided before the train side has answered, and nothing where it does not agree. */
Test(meta_replicas, trainers)
{
    static const enum manner silent[3] = {SILENT}, twice[3] = {TWICE};
    start(2);
    world_commit(&w, 1); /* not validated: nobody is asked */
    cr_expect_eq(puppet_count(world_train(&w), WF_FRAME_replicas_request), 0);
    struct wf_round_key key = vote_all(2);
    puppet_refuses(world_infer(&w, 0), WF_FRAME_decide, 2000 * PUPPET_MS);
    cr_expect_gt(puppet_count(world_train(&w), WF_FRAME_replicas_request), 1, "it is asked again");
    answer_all(silent);
    const struct wf_frame *abort = puppet_expect(world_infer(&w, 0), WF_FRAME_abort);
    cr_expect_not_null(strstr(abort->abort.culprit.reason, "did not say what it holds of version"),
                       "%s", abort->abort.culprit.reason);
    for (uint32_t i = 0; i < 2; i++) {
        puppet_key(world_infer(&w, i), WF_FRAME_aborted, key);
    }
    cr_expect_eq(puppet_expect(world_train(&w), WF_FRAME_round_aborted)->round_aborted.again, 1);
    for (uint32_t i = 0; i < 2; i++) { /* the same version, once more */
        key = puppet_open(world_infer(&w, i));
        puppet_vote(world_infer(&w, i), key, true);
    }
    uint32_t aborts = puppet_count(world_infer(&w, 0), WF_FRAME_abort);
    while (puppet_count(world_infer(&w, 0), WF_FRAME_abort) == aborts) {
        answer_all(twice); /* what was asked again of the attempt before too */
        world_run(&w, PUPPET_MS);
    }
    check_requests(world_train(&w));
    abort = puppet_expect(world_infer(&w, 0), WF_FRAME_abort);
    cr_expect_not_null(strstr(abort->abort.culprit.reason, "holds two copies that differ"), "%s",
                       abort->abort.culprit.reason);
    for (uint32_t i = 0; i < 2; i++) {
        puppet_key(world_infer(&w, i), WF_FRAME_aborted, key);
    }
    const struct wf_frame *told = puppet_expect(world_train(&w), WF_FRAME_round_aborted);
    cr_expect_eq(told->round_aborted.again, 0, "another attempt would read the same");
    world_commit(&w, 3);
}

enum { TRAINERS = 3 };

static const struct {
    const char *name;
    enum manner manners[TRAINERS];
    bool searched; /* all answer; else only to the first request */
    const char *words;
    uint64_t again;
} late_rows[] = {
    {"two differ and do not say where",
     {ALIKE, ALIKE, ODD},
     false,
     "holds other bytes of what both hold alike than train rank 0 (host here); 2 of the 3",
     0},
    {"two differ and one says nothing at all",
     {ALIKE, ODD, SILENT},
     true,
     "holds other bytes of what both hold alike than train rank 0 (host here); which",
     0},
    {"two are alike and one says nothing at all",
     {ALIKE, ALIKE, SILENT},
     true,
     "did not say what it holds of version",
     1},
};

static void answer_trainers(const enum manner *manners, bool all)
{
    for (uint32_t t = 0; t < TRAINERS; t++) {
        struct puppet *rank = world_trainer(&w, t);
        for (; answered[t] < rank->frame_count; answered[t]++) {
            const struct wf_frame *frame = &rank->frames[answered[t]];
            if (frame->type == WF_FRAME_replicas_request && manners[t] != SILENT &&
                (all || frame->replicas_request.count == 0)) {
                answer(rank, &frame->replicas_request, manners[t]);
            }
        }
    }
}

/* What is known at the deadline counts: a difference is no lateness, and is not tried again. */
Test(meta_replicas, trainers_at_the_deadline)
{
    const struct wf_server_options options = {.validate_every = 2, .train_ranks = TRAINERS};
    for (size_t i = 0; i < sizeof late_rows / sizeof late_rows[0]; i++) {
        const char *name = late_rows[i].name;
        world_open(&w, 1, 1, &options);
        world_start(&w);
        memset(answered, 0, sizeof answered);
        for (uint32_t t = 1; t < TRAINERS; t++) {
            puppet_expect(world_trainer(&w, t), WF_FRAME_generation);
        }
        for (uint32_t t = 0; t < TRAINERS; t++) {
            puppet_publish(world_trainer(&w, t), 2);
        }
        struct puppet *reader = world_infer(&w, 0);
        struct wf_round_key key = puppet_open(reader);
        puppet_vote(reader, key, true);
        while (puppet_count(reader, WF_FRAME_abort) == 0) {
            answer_trainers(late_rows[i].manners, late_rows[i].searched);
            world_run(&w, 10 * PUPPET_MS);
        }
        const struct wf_frame *abort = puppet_expect(reader, WF_FRAME_abort);
        cr_expect_not_null(strstr(abort->abort.culprit.reason, late_rows[i].words), "%s: %s", name,
                           abort->abort.culprit.reason);
        puppet_key(reader, WF_FRAME_aborted, key);
        const struct wf_frame *told = puppet_expect(world_train(&w), WF_FRAME_round_aborted);
        cr_expect_eq(told->round_aborted.again, late_rows[i].again, "%s", name);
        world_close(&w);
    }
    start(1);
}

struct ear {
    struct wf_log_sink sink; /* first */
    char line[WF_LOG_LINE_MAX];
};

static void hear(struct wf_log_sink *sink, enum wf_log_level level, const char *line, size_t len)
{
    struct ear *ear = (struct ear *)sink;
    (void)level;
    if (strstr(line, "could not compare") != NULL) {
        snprintf(ear->line, sizeof ear->line, "%.*s", (int)len, line);
    }
}

/* A rank that cannot compare stops nobody, and is not taken for one that agrees. */
Test(meta_replicas, who_could_not_compare_is_told_of)
{
    static const enum manner fails[2] = {FAILS, ALIKE};
    struct ear ear = {.sink = {hear}};
    struct wf_log log;
    start(1);
    wf_log_init(&log, &ear.sink, wf_loop_env(w.server_loop), WF_LOG_WARN, "server");
    wf_loop_set_log(w.server_loop, &log);
    struct wf_round_key key = vote_all(2);
    while (answer_all(fails) == 0) {
        world_run(&w, PUPPET_MS);
    }
    flip_all(key);
    cr_expect_eq(report_of(fails)->replicas_checked, 1, "the engine's");
    cr_expect_not_null(strstr(ear.line, "train rank 0 (host here) could not compare what it holds "
                                        "with others' copies: out of luck; "),
                       "%s", ear.line);
    wf_loop_set_log(w.server_loop, NULL);
}

/* --- in place ------------------------------------------------------------------------------------
 */
/* From PERMIT to RESUMED; the round has been opened and the rank paused. */
static void commit_in_place(struct puppet *rank, struct wf_round_key key)
{
    puppet_expect(rank, WF_FRAME_permit);
    puppet_vote(rank, key, true);
    puppet_expect(rank, WF_FRAME_decide);
    puppet_key(rank, WF_FRAME_quiesced, key);
    puppet_expect(rank, WF_FRAME_flip);
    puppet_flipped(rank, key);
    puppet_expect(rank, WF_FRAME_resume);
    puppet_resumed(rank, key);
    puppet_expect(world_train(&w), WF_FRAME_released);
    puppet_key(world_train(&w), WF_FRAME_told, key);
}

/* The next round's pause; another's OPEN may be repeated before. */
static struct wf_round_key pause_in_place(struct puppet *rank, struct wf_round_key before)
{
    struct wf_round_key key = before;
    while (wf_round_key_equal(&key, &before)) {
        key = puppet_open(rank);
    }
    puppet_key(rank, WF_FRAME_quiesced, key);
    return key;
}

/* The round is given up, for that reason, and the engine serves version 1 on. */
static void give_up_in_place(struct puppet *rank, struct wf_round_key key, const char *words)
{
    uint32_t resumed = puppet_count(rank, WF_FRAME_resume);
    const struct wf_frame *abort = puppet_expect(rank, WF_FRAME_abort);
    cr_expect_not_null(strstr(abort->abort.culprit.reason, words), "%s",
                       abort->abort.culprit.reason);
    puppet_key(rank, WF_FRAME_aborted, key);
    cr_expect_eq(puppet_expect(rank, WF_FRAME_resume)->resume.version.step, 1);
    cr_expect_eq(puppet_count(rank, WF_FRAME_resume), resumed + 1);
    puppet_resumed(rank, key);
}

/* What an engine serves is not written over before the train side is known to agree. */
Test(meta_replicas, trainers_of_engines_in_place)
{
    static const enum manner silent[2] = {SILENT}, twice[2] = {TWICE}, alike[2] = {ALIKE, ALIKE};
    const struct wf_server_options options = {.validate_every = 2};
    world_open(&w, 1, 1, &options);
    struct puppet *rank = world_infer(&w, 0);
    rank->hello.mode = WF_MODE_IN_PLACE;
    world_start(&w);
    memset(answered, 0, sizeof answered);
    puppet_publish(world_train(&w), 1); /* not validated: nobody waits for an answer */
    struct wf_round_key key = pause_in_place(rank, (struct wf_round_key){0});
    commit_in_place(rank, key);
    puppet_publish(world_train(&w), 2);
    key = pause_in_place(rank, key);
    answer_all(silent);
    give_up_in_place(rank, key, "did not say what it holds of version");
    key = pause_in_place(rank, key); /* the same version, once more */
    puppet_refuses(rank, WF_FRAME_permit, 500 * PUPPET_MS);
    answer_all(twice);
    give_up_in_place(rank, key, "holds two copies that differ");
    puppet_publish(world_train(&w), 4);
    key = pause_in_place(rank, key);
    puppet_refuses(rank, WF_FRAME_permit, 500 * PUPPET_MS);
    answer_all(alike);
    puppet_expect(rank, WF_FRAME_permit);
    cr_expect_eq(puppet_count(rank, WF_FRAME_permit), 2, "of versions 1 and 4");
}
