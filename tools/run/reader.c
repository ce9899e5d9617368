/* reader.c - the process that stands in for an engine's inference: forward passes over live
 * weights.
 *
 * It knows nothing of Weft but the pause hook: ranks hand it their weights, tell it to pause and to
 * resume. A pass runs only while all ranks of the engine have resumed; it takes some milliseconds,
 * samples positions of all tensors of all ranks, and must see one version (tools/check/reader.h).
 */
#include "tools/check/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/check/step.h"
#include "tools/commands.h"
#include "tools/run/process.h"
#include "tools/run/reader_link.h"

#define TICK_MIN_NS 4000000ULL
enum { TICKS_A_PASS = 4 };

struct read_rank {
    uint64_t conn; /* 0: not here */
    struct wf_verify *verify;
    struct wf_verify_live *live; /* by verify's tensors */
    uint8_t *map;
    uint64_t map_bytes;
    bool resumed;
    uint64_t step, table;          /* table: of `verify` */
    struct wf_reader_frame counts; /* since its last report */
};

struct engine_reader {
    struct wf_process process;
    struct wf_checkpoint *checkpoint;
    struct read_rank *ranks;
    uint32_t rank_count;
    struct wf_reader *reader;
    struct wf_timer tick;
    uint64_t listener, tick_ns, seed;
    uint32_t positions; /* a tick */
    uint32_t ticks;     /* left of the pass; 0: none runs */
    uint64_t pass_step; /* what the engine served when the pass began */
};

static struct engine_reader *of(const struct wf_process *process)
{
    return WF_CONTAINER(process, struct engine_reader, process);
}

/* --- passes
 * ------------------------------------------------------------------------------------------ */
static bool may_run(const struct engine_reader *e)
{
    for (uint32_t i = 0; i < e->rank_count; i++) {
        if (e->ranks[i].conn == 0 || !e->ranks[i].resumed || e->ranks[i].step != e->ranks[0].step) {
            return false;
        }
    }
    return true;
}

static void end_pass(struct engine_reader *e)
{
    struct wf_reader_seen seen;
    wf_reader_end(e->reader, &seen);
    uint64_t bit = e->pass_step % WF_STEP_PERIOD;
    bool other = !seen.torn && (seen.versions[bit / 64] >> (bit % 64) & 1) == 0;
    if (seen.torn || other) {
        char line[WF_NAME_MAX + 120];
        snprintf(line, sizeof line, "%s read in %s of rank %u, element %llu",
                 seen.torn ? "torn" : "another version than the engine said,", seen.tensor,
                 seen.rank, (unsigned long long)seen.index);
        wf_process_say(&e->process, line);
    }
    /* One rank carries the engine's counts, or every torn read would count once a rank. */
    e->ranks[0].counts.forward++;
    e->ranks[0].counts.positions += seen.positions;
    e->ranks[0].counts.torn += seen.torn || other;
    e->ticks = 0;
}

static void sample(struct engine_reader *e, uint32_t ticks)
{
    struct wf_error error;
    if (wf_reader_sample(e->reader, e->positions * ticks, &error) != WF_OK) {
        wf_process_say(&e->process, error.text);
        wf_process_end(&e->process, WF_EXIT_FAILED);
    }
}

/* Drains the pass that runs: what an engine's pause hook has to do before it may say "paused". */
static void drain(struct engine_reader *e)
{
    if (e->ticks > 0) {
        sample(e, e->ticks);
        end_pass(e);
    }
}

static void ticked(struct wf_timer *timer)
{
    struct engine_reader *e = WF_CONTAINER(timer, struct engine_reader, tick);
    if (e->ticks == 0) {
        if (!may_run(e)) {
            return;
        }
        e->ticks = TICKS_A_PASS;
        e->pass_step = e->ranks[0].step;
        wf_reader_begin(e->reader);
    }
    sample(e, 1);
    if (--e->ticks == 0) {
        end_pass(e);
    }
    wf_timer_arm(e->process.loop, timer, wf_loop_now_ns(e->process.loop) + e->tick_ns);
}

static void start_ticking(struct engine_reader *e)
{
    if (may_run(e) && !wf_timer_is_armed(&e->tick)) {
        wf_timer_arm(e->process.loop, &e->tick, wf_loop_now_ns(e->process.loop) + e->tick_ns);
    }
}

/* --- ranks
 * ------------------------------------------------------------------------------------------- */
static void forget(struct engine_reader *e, struct read_rank *rank)
{
    drain(e);
    wf_reader_free(e->reader);
    e->reader = NULL;
    if (rank->map != NULL) {
        munmap(rank->map, rank->map_bytes);
    }
    wf_verify_free(rank->verify);
    free(rank->live);
    memset(rank, 0, sizeof *rank);
}

static struct wf_verify_place place_of(const struct engine_reader *e, uint32_t engine_rank,
                                       uint32_t table)
{
    uint32_t first = 0;
    while (wf_run_place(e->process.setup, first).engine != e->process.options->rank) {
        first++;
    }
    return wf_run_verify_place(e->process.setup, first + engine_rank, table);
}

static enum wf_status find_tensors(struct read_rank *rank, const struct wf_reader_tensor *table,
                                   size_t count, struct wf_error *error)
{
    uint32_t wanted = wf_verify_tensor_count(rank->verify);
    rank->live = calloc(wanted + 1, sizeof *rank->live);
    WF_ASSERT(rank->live != NULL);
    for (uint32_t i = 0; i < wanted; i++) {
        const char *name = wf_verify_tensor_name(rank->verify, i);
        for (size_t k = 0; k < count && rank->live[i].address == NULL; k++) {
            if (strncmp(table[k].name, name, WF_NAME_MAX) == 0 &&
                table[k].offset <= rank->map_bytes &&
                table[k].bytes <= rank->map_bytes - table[k].offset) {
                rank->live[i] = (struct wf_verify_live){
                    rank->map + table[k].offset, (enum wf_dtype)table[k].dtype, table[k].bytes};
            }
        }
        if (rank->live[i].address == NULL) {
            return wf_error_set(error, WF_NOT_FOUND, "a rank has no tensor %s", name);
        }
    }
    return WF_OK;
}

static enum wf_status map_rank(struct engine_reader *e, struct read_rank *rank, int fd,
                               const struct wf_reader_frame *frame, size_t len,
                               struct wf_error *error)
{
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || (uint64_t)info.st_size < frame->bytes) {
        return wf_error_set(error, WF_PROTOCOL, "a rank sent no weights");
    }
    rank->map_bytes = frame->bytes;
    rank->map = mmap(NULL, frame->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (rank->map == MAP_FAILED) {
        rank->map = NULL;
        return wf_error_set(error, WF_IO, "cannot map a rank's weights: %s", strerror(errno));
    }
    struct wf_verify_place place = place_of(e, frame->engine_rank, 0);
    enum wf_status status =
        wf_verify_open(e->checkpoint, e->process.setup->model, &place, &rank->verify, error);
    return status != WF_OK
               ? status
               : find_tensors(rank, (const struct wf_reader_tensor *)(frame + 1),
                              (len - sizeof *frame) / sizeof(struct wf_reader_tensor), error);
}

/* With all ranks here, the reader can be made. */
static enum wf_status make_reader(struct engine_reader *e, struct wf_error *error)
{
    struct wf_reader_rank *ranks = calloc(e->rank_count, sizeof *ranks);
    WF_ASSERT(ranks != NULL);
    bool all = true;
    for (uint32_t i = 0; i < e->rank_count; i++) {
        all = all && e->ranks[i].conn != 0;
        ranks[i] = (struct wf_reader_rank){e->ranks[i].verify, e->checkpoint, e->ranks[i].live};
    }
    enum wf_status status =
        all ? wf_reader_new(ranks, e->rank_count, e->seed, &e->reader, error) : WF_OK;
    free(ranks);
    return status;
}

/* Its experts stand by another table now; the reader is made again when all ranks said so. */
static enum wf_status take_table(struct engine_reader *e, struct read_rank *rank, uint64_t table,
                                 struct wf_error *error)
{
    struct wf_verify_place place = place_of(e, (uint32_t)(rank - e->ranks), (uint32_t)table);
    struct wf_verify *verify = NULL;
    drain(e);
    enum wf_status status =
        wf_verify_open(e->checkpoint, e->process.setup->model, &place, &verify, error);
    if (status != WF_OK) {
        return status;
    }
    wf_reader_free(e->reader);
    e->reader = NULL;
    wf_verify_free(rank->verify);
    rank->verify = verify;
    rank->table = table;
    return make_reader(e, error);
}

static void take_weights(struct engine_reader *e, struct wf_wire_msg *wire)
{
    struct wf_error error;
    struct wf_reader_frame *frame = malloc(wire->len_bytes); /* aligned, unlike the wire's */
    WF_ASSERT(frame != NULL);
    memcpy(frame, wire->bytes, wire->len_bytes);
    if (frame->engine_rank >= e->rank_count) {
        free(frame);
        return;
    }
    struct read_rank *rank = &e->ranks[frame->engine_rank];
    forget(e, rank);
    enum wf_status status = map_rank(e, rank, wire->fd, frame, wire->len_bytes, &error);
    free(frame);
    rank->conn = wire->conn;
    if (status == WF_OK) {
        status = make_reader(e, &error);
    }
    if (status != WF_OK) {
        wf_process_say(&e->process, error.text);
        wf_process_end(&e->process, WF_EXIT_FAILED);
    }
}

static void answer(struct engine_reader *e, struct read_rank *rank, enum wf_reader_word word)
{
    rank->counts.word = word;
    e->process.env->ops->send(e->process.env, rank->conn, &rank->counts, sizeof rank->counts, -1);
    memset(&rank->counts, 0, sizeof rank->counts);
}

static struct read_rank *find_rank(struct engine_reader *e, uint64_t conn)
{
    for (uint32_t i = 0; i < e->rank_count; i++) {
        if (e->ranks[i].conn == conn) {
            return &e->ranks[i];
        }
    }
    return NULL;
}

static void take_frame(struct engine_reader *e, struct wf_wire_msg *wire)
{
    struct wf_reader_frame frame;
    if (wire->len_bytes < sizeof frame) {
        return;
    }
    memcpy(&frame, wire->bytes, sizeof frame);
    struct read_rank *rank = find_rank(e, wire->conn);
    if (frame.word == WF_READER_WEIGHTS) {
        take_weights(e, wire);
    } else if (rank == NULL) {
        return;
    } else if (frame.word == WF_READER_PAUSE) {
        drain(e);
        rank->resumed = false;
        answer(e, rank, WF_READER_PAUSED);
    } else if (frame.word == WF_READER_COUNT) {
        answer(e, rank, WF_READER_COUNTED);
    } else if (frame.word == WF_READER_RESUME) {
        struct wf_error error;
        if (frame.table != rank->table && take_table(e, rank, frame.table, &error) != WF_OK) {
            wf_process_say(&e->process, error.text);
            wf_process_end(&e->process, WF_EXIT_FAILED);
            return;
        }
        rank->resumed = true;
        rank->step = frame.step;
        start_ticking(e);
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct engine_reader *e = WF_CONTAINER(self, struct engine_reader, process.actor);
    struct wf_wire_msg *wire = (struct wf_wire_msg *)msg;
    if (msg->kind == WF_WIRE_FRAME) {
        take_frame(e, wire);
    } else if (msg->kind == WF_WIRE_CLOSED && find_rank(e, wire->conn) != NULL) {
        forget(e, find_rank(e, wire->conn));
    }
    return WF_FREE;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */
/* The job's readers together keep to WF_READER_RATE_MAX positions a second. */
static void set_rate(struct engine_reader *e)
{
    uint64_t rate = WF_READER_RATE_MAX / e->process.setup->engines;
    rate = rate > 0 ? rate : 1;
    e->positions = (uint32_t)(rate * TICK_MIN_NS / 1000000000ULL);
    e->positions = e->positions > 0 ? e->positions : 1;
    e->tick_ns = e->positions * (1000000000ULL / rate);
    e->tick_ns = e->tick_ns < TICK_MIN_NS ? TICK_MIN_NS : e->tick_ns;
}

static enum wf_status start(struct wf_process *process, struct wf_error *error)
{
    struct engine_reader *e = of(process);
    const struct wf_run_setup *setup = process->setup;
    char bound[WF_ADDRESS_MAX];
    for (uint32_t i = 0; i < setup->infer_ranks; i++) {
        e->rank_count += wf_run_place(setup, i).engine == process->options->rank;
    }
    e->ranks = calloc(e->rank_count, sizeof *e->ranks);
    WF_ASSERT(e->ranks != NULL);
    set_rate(e);
    e->tick.fire = ticked;
    e->tick.name = "forward pass";
    process->env->ops->random(process->env, &e->seed, sizeof e->seed);
    enum wf_status status = wf_run_setup_open(setup, false, &e->checkpoint, error);
    if (status == WF_OK) {
        status =
            process->env->ops->listen(process->env, &process->actor,
                                      process->options->reader_socket, bound, &e->listener, error);
    }
    return status;
}

static void close_pass(struct wf_process *process)
{
    struct engine_reader *e = of(process);
    wf_timer_cancel(process->loop, &e->tick);
    drain(e);
}

static void fini(struct wf_process *process)
{
    struct engine_reader *e = of(process);
    for (uint32_t i = 0; i < e->rank_count; i++) {
        forget(e, &e->ranks[i]);
    }
    wf_checkpoint_free(e->checkpoint);
    free(e->ranks);
}

int wf_reader_process(const struct wf_run_setup *setup, const struct wf_process_options *options)
{
    static const struct wf_process_kind kind = {.name = "reader",
                                                .reader = true,
                                                .handle = handle,
                                                .start = start,
                                                .close = close_pass,
                                                .fini = fini};
    struct engine_reader *e = calloc(1, sizeof *e);
    WF_ASSERT(e != NULL);
    int exit_status = wf_process_run(&e->process, &kind, setup, options);
    free(e);
    return exit_status;
}
