/* infer.c - an inference rank of `weft run`: the stand-in for one worker of an engine.
 *
 * Holds its weights, answers the pause hook once its engine's reader has stopped, and after each
 * version checks every element against the checkpoint by tools/check/verify.h, which shares no code
 * with what moved them. The account of a version (elements, reads, memory, spans) goes to the
 * server as a note.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "runtime/jobs.h"
#include "tools/check/verify.h"
#include "tools/commands.h"
#include "tools/files/version_folder.h"
#include "tools/run/alter.h"
#include "tools/run/checkable.h"
#include "tools/run/engine_work.h"
#include "tools/run/memory.h"
#include "tools/run/process.h"
#include "tools/run/reader_link.h"

#define RECONNECT_NS 100000000ULL
#define PLACE_AGAIN_NS 10000000ULL

enum { CHECK_DONE = 0x1200 };

struct infer {
    struct wf_process process;
    struct wf_layout *layout;
    struct wf_checkpoint *checkpoint;
    struct wf_verify *verify;
    struct wf_run_memory memory;
    struct wf_engine_work *work; /* NULL: the engine derives nothing */
    struct wf_store *store;      /* NULL: the job has no folder of versions */
    /* where experts stand: next versions, the live one, what `verify` checks (tools/run/setup.h) */
    uint32_t table, live_table, verify_table;
    struct wf_timer placing; /* a table is due, and a round is under way */
    /* the reader */
    uint64_t conn;
    bool linked, pausing, quiescing, serving, counting;
    struct wf_timer reconnect;
    /* the check */
    struct wf_jobs *checks; /* a thread of its own: what the rank's has to do has deadlines */
    struct wf_job check_job;
    bool checking;
    /* of the check that runs: its thread reads these and not what is live by then */
    struct wf_version check_version;
    uint32_t check_table;
    /* what the last check found, until the reader has counted (the next may run by then) */
    struct wf_version found_version;
    struct wf_verify_result found;
    enum wf_status check_status;
    struct wf_error check_error;
    struct wf_verify_result checked;
    struct wf_version live, noted;
    uint64_t resumed_ns, pause_start_ns, own_peak;
};

static struct infer *of(const struct wf_process *process)
{
    return WF_CONTAINER(process, struct infer, process);
}

/* Outside the element check, whose buffers are not the rank's. */
static void measure_memory(struct infer *r)
{
    if (!r->checking) {
        uint64_t own = wf_run_own_bytes();
        r->own_peak = own > r->own_peak ? own : r->own_peak;
    }
}

/* `checked`: NULL where the version was not. */
static void send_note(struct infer *r, struct wf_version version,
                      const struct wf_verify_result *checked, const struct wf_reader_frame *counts)
{
    struct wf_frame_note note = {.version = version, .own_bytes_peak = r->own_peak};
    wf_run_transports_describe(&r->process.transports, note.text, sizeof note.text);
    if (checked != NULL) {
        note.elements_checked = checked->elements_checked;
        note.elements_wrong = checked->elements_wrong;
    }
    if (counts != NULL) {
        note.torn_reads = counts->torn;
        note.reads = counts->forward;
    }
    wf_process_note(&r->process, &note);
}

/* --- the reader
 * ------------------------------------------------------------------------------------ */
static void tell_reader(struct infer *r, enum wf_reader_word word)
{
    struct wf_reader_frame frame = {.word = word, .step = r->live.step, .table = r->live_table};
    if (r->linked) {
        r->process.env->ops->send(r->process.env, r->conn, &frame, sizeof frame, -1);
    }
}

/* The weights' descriptor, then where each tensor is. */
static void introduce(struct infer *r)
{
    size_t len =
        sizeof(struct wf_reader_frame) + r->layout->tensor_count * sizeof(struct wf_reader_tensor);
    uint8_t *bytes = calloc(1, len);
    WF_ASSERT(bytes != NULL);
    struct wf_reader_frame *frame = (struct wf_reader_frame *)bytes;
    struct wf_reader_tensor *table = (struct wf_reader_tensor *)(frame + 1);
    *frame = (struct wf_reader_frame){.word = WF_READER_WEIGHTS,
                                      .engine_rank = r->process.place.engine_rank,
                                      .bytes = r->memory.region.len_bytes};
    for (uint32_t i = 0; i < r->layout->tensor_count; i++) {
        snprintf(table[i].name, sizeof table[i].name, "%s", r->layout->tensors[i].name);
        table[i].offset = r->memory.tensors[i].offset;
        table[i].bytes = r->layout->tensors[i].bytes;
        table[i].dtype = r->layout->tensors[i].dtype;
    }
    r->process.env->ops->send(r->process.env, r->conn, bytes, len, r->memory.region.fd);
    free(bytes);
    if (r->serving) {
        tell_reader(r, WF_READER_RESUME);
    }
}

static void connect_reader(struct wf_timer *timer)
{
    struct infer *r = WF_CONTAINER(timer, struct infer, reconnect);
    struct wf_error error;
    if (r->process.env->ops->connect(r->process.env, &r->process.actor,
                                     r->process.options->reader_socket, &r->conn,
                                     &error) != WF_OK) {
        wf_process_say(&r->process, error.text);
        wf_process_end(&r->process, WF_EXIT_FAILED);
    }
}

/* Answers the pause hook when nobody reads the weights any more. */
static void answer_quiesce(struct infer *r)
{
    if (r->quiescing && !r->pausing && !r->checking) {
        r->quiescing = false;
        wf_rank_quiesced(r->process.rank);
    }
}

/* After the job's end: the check that runs and its account come first. */
static bool busy(const struct wf_process *process)
{
    return of(process)->checking || of(process)->counting;
}

static void reader_said(struct infer *r, const struct wf_wire_msg *wire)
{
    struct wf_reader_frame frame;
    if (wire->len_bytes != sizeof frame) {
        return;
    }
    memcpy(&frame, wire->bytes, sizeof frame);
    if (frame.word == WF_READER_PAUSED) {
        r->pausing = false;
        send_note(r, r->live, NULL, &frame);
        answer_quiesce(r);
    } else if (frame.word == WF_READER_COUNTED && r->counting) {
        r->counting = false;
        send_note(r, r->found_version, &r->found, &frame);
        wf_process_stop_when_quiet(&r->process);
    }
}

static void reader_event(struct infer *r, const struct wf_wire_msg *wire)
{
    if (wire->conn != r->conn) {
        return;
    }
    if (wire->msg.kind == WF_WIRE_OPENED) {
        r->linked = true;
        introduce(r);
    } else if (wire->msg.kind == WF_WIRE_FRAME) {
        reader_said(r, wire);
    } else {
        r->linked = false; /* a reader that is gone reads nothing */
        r->pausing = false;
        if (r->counting) {
            r->counting = false;
            send_note(r, r->found_version, &r->found, NULL);
        }
        answer_quiesce(r);
        wf_process_stop_when_quiet(&r->process);
        wf_timer_arm(r->process.loop, &r->reconnect,
                     wf_loop_now_ns(r->process.loop) + RECONNECT_NS);
    }
}

/* --- the check
 * ---------------------------------------------------------------------------------------- */
static bool lookup(void *user, const char *name, struct wf_verify_live *live_out)
{
    struct infer *r = user;
    if (strcmp(name, WF_PACKED_HEAD) == 0) {
        live_out->address = wf_engine_work_packed(r->work, &live_out->bytes, &live_out->dtype);
        return live_out->address != NULL;
    }
    uint32_t tensor = wf_layout_find(r->layout, name, strlen(name));
    if (tensor == UINT32_MAX) {
        return false;
    }
    live_out->address = r->memory.tensors[tensor].address;
    live_out->dtype = r->layout->tensors[tensor].dtype;
    live_out->bytes = r->layout->tensors[tensor].bytes;
    return true;
}

static bool packs_head(const struct infer *r)
{
    return r->process.setup->job.run.packed_head && r->process.setup->model->tied;
}

static enum wf_status open_verify(struct infer *r, struct wf_error *error)
{
    struct wf_verify_place place =
        wf_run_verify_place(r->process.setup, r->process.options->rank, r->check_table);
    place.packed_rows = packs_head(r) ? WF_PACKED_ROWS : 0;
    wf_verify_free(r->verify);
    r->verify = NULL;
    r->verify_table = r->check_table;
    return wf_verify_open(r->checkpoint, r->process.setup->model, &place, &r->verify, error);
}

static void check_work(struct wf_job *job)
{
    struct infer *r = WF_CONTAINER(job, struct infer, check_job);
    memset(&r->checked, 0, sizeof r->checked);
    r->check_status = r->verify_table == r->check_table ? WF_OK : open_verify(r, &r->check_error);
    if (r->check_status == WF_OK) {
        r->check_status = wf_verify_rank(r->verify, r->check_version.step, lookup, r, &r->checked,
                                         &r->check_error);
    }
}

static void check_ended(struct infer *r)
{
    uint64_t now = wf_process_now_ns(&r->process);
    r->checking = false;
    wf_process_span(&r->process, "check", r->resumed_ns, now, r->check_version.step);
    if (r->check_status != WF_OK) {
        wf_process_say(&r->process, r->check_error.text);
        wf_process_end(&r->process, WF_EXIT_FAILED);
    } else if (r->checked.elements_wrong > 0) {
        char line[WF_NAME_MAX + 160];
        snprintf(line, sizeof line,
                 "version %llu: %llu %s wrong, first %s[%llu]: expected bits 0x%x, found "
                 "0x%x",
                 (unsigned long long)r->check_version.step,
                 (unsigned long long)r->checked.elements_wrong,
                 r->checked.elements_wrong == 1 ? "element is" : "elements are",
                 r->checked.first_wrong.tensor, (unsigned long long)r->checked.first_wrong.index,
                 r->checked.first_wrong.expected, r->checked.first_wrong.found);
        wf_process_say(&r->process, line);
    }
    if (r->counting) { /* the reader is late: that one goes without its counts */
        send_note(r, r->found_version, &r->found, NULL);
    }
    r->found = r->checked;
    r->found_version = r->check_version;
    if (r->linked) {
        r->counting = true;
        tell_reader(r, WF_READER_COUNT);
    } else {
        send_note(r, r->found_version, &r->found, NULL);
    }
    answer_quiesce(r);
    wf_process_stop_when_quiet(&r->process);
}

static void start_check(struct infer *r)
{
    uint64_t every = r->process.setup->job.policy.validate_every;
    if (wf_version_compare(r->live, r->noted) == 0) {
        return; /* resumed with the version of before */
    }
    r->noted = r->live;
    measure_memory(r);
    /* A pause waits for the check of the version before; without pauses (run.skip_pause) the next
     * version may be here first, and goes unchecked. */
    if (every == 0 || r->live.step % every != 0 || r->checking) {
        send_note(r, r->live, NULL, NULL);
        return;
    }
    r->checking = true;
    r->check_version = r->live;
    r->check_table = r->live_table;
    r->check_job = (struct wf_job){.owner = &r->process.actor, .work = check_work, .name = "check"};
    r->check_job.done.kind = CHECK_DONE;
    wf_jobs_submit(r->checks, &r->check_job);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct infer *r = WF_CONTAINER(self, struct infer, process.actor);
    if (msg->kind == CHECK_DONE) {
        check_ended(r);
        return WF_KEEP;
    }
    reader_event(r, (const struct wf_wire_msg *)msg);
    return WF_FREE;
}

/* --- hooks
 * -------------------------------------------------------------------------------------------- */
static void on_quiesce(void *host, struct wf_rank *rank)
{
    struct infer *r = of(host);
    (void)rank;
    measure_memory(r);
    r->pause_start_ns = wf_process_now_ns(&r->process);
    r->serving = false;
    r->quiescing = true;
    r->pausing = r->linked;
    tell_reader(r, WF_READER_PAUSE);
    answer_quiesce(r);
}

/* The engine's host moves its experts after this version, if the job says so. */
static void place_experts(struct wf_timer *timer)
{
    struct infer *r = WF_CONTAINER(timer, struct infer, placing);
    struct wf_error error;
    uint32_t due = wf_run_table_after(r->process.setup, r->process.place.group, r->live.step);
    if (due == r->table) {
        return;
    }
    enum wf_status status = wf_rank_place(
        r->process.rank, wf_run_table(r->process.setup, r->process.place.group, due), &error);
    if (status == WF_OK) {
        r->table = due;
    } else if (status == WF_AGAIN) {
        wf_timer_arm(r->process.loop, timer, wf_loop_now_ns(r->process.loop) + PLACE_AGAIN_NS);
    } else {
        wf_process_say(&r->process, error.text);
        wf_process_end(&r->process, WF_EXIT_FAILED);
    }
}

static void on_resume(void *host, struct wf_rank *rank, struct wf_version version)
{
    struct infer *r = of(host);
    (void)rank;
    r->resumed_ns = wf_process_now_ns(&r->process);
    if (r->pause_start_ns != 0) {
        wf_process_span(&r->process, "pause", r->pause_start_ns, r->resumed_ns, r->live.step);
        r->pause_start_ns = 0;
    }
    r->live_table = wf_version_compare(r->live, version) != 0 ? r->table : r->live_table;
    r->live = version;
    wf_alter_weights(&r->process, r->layout, &r->memory, version.step);
    r->serving = true;
    tell_reader(r, WF_READER_RESUME);
    start_check(r);
    place_experts(&r->placing);
}

/* Pool threads: what the engine derives of a version, and its change. */
static enum wf_status on_after_write(void *host, struct wf_rank *rank, struct wf_version version,
                                     void *const *written, struct wf_error *error)
{
    (void)rank;
    (void)version;
    (void)error;
    wf_engine_work_make(of(host)->work, written);
    return WF_OK;
}

static enum wf_status on_after_flip(void *host, struct wf_rank *rank, struct wf_version version,
                                    struct wf_error *error)
{
    (void)rank;
    (void)version;
    (void)error;
    wf_engine_work_adopt(of(host)->work);
    return WF_OK;
}

static void on_aborted(void *host, struct wf_rank *rank, struct wf_version version,
                       uint64_t attempt, bool again, const struct wf_culprit *culprit)
{
    struct infer *r = of(host);
    (void)again;
    char line[WF_CULPRIT_TEXT + 200], who[WF_CULPRIT_TEXT], live[WF_VERSION_TEXT + 16];
    /* In place, while it was written to. */
    bool dirty = !wf_version_is_none(r->live) && wf_version_is_none(wf_rank_live(rank));
    wf_culprit_format(culprit, who);
    wf_version_format(r->live, live);
    snprintf(line, sizeof line, "version %llu, attempt %llu aborted: %s; this rank %s%s",
             (unsigned long long)version.step, (unsigned long long)attempt, who,
             wf_version_is_none(r->live) ? "has no version yet"
             : dirty                     ? "serves nothing: its weights are parts of two versions"
                                         : "stays on ",
             wf_version_is_none(r->live) || dirty ? "" : live);
    if (dirty || wf_process_tells_aborts(&r->process)) {
        wf_process_say(&r->process, line);
    }
}

/* Its engine has moved its experts since the start of the job, this process has begun anew. */
static enum wf_status on_take_table(void *host, struct wf_rank *rank,
                                    const struct wf_placement *placement, struct wf_error *error)
{
    struct infer *r = of(host);
    (void)rank;
    uint32_t table = wf_run_table_find(r->process.setup, r->process.place.group, placement);
    if (table == UINT32_MAX) {
        return wf_error_set(error, WF_STALE,
                            "none of this job file's placements: is it the file that the job was "
                            "started from?");
    }
    r->table = r->live_table = table;
    return WF_OK;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */
static enum wf_status prepare(struct infer *r, struct wf_error *error)
{
    struct wf_recipe recipe = r->process.setup->infer[r->process.place.group];
    r->table = r->live_table = wf_run_table_after(r->process.setup, r->process.place.group, 0);
    r->check_table = r->live_table;
    recipe.placement = wf_run_table(r->process.setup, r->process.place.group, r->table);
    enum wf_status status = wf_layout_derive(r->process.setup->model, &recipe,
                                             r->process.place.group_rank, &r->layout, error);
    if (status == WF_OK) {
        status = wf_run_setup_open(r->process.setup, r->process.setup->job.policy.extras_refuse,
                                   &r->checkpoint, error);
    }
    bool checks_elements = r->process.setup->job.policy.validate_every > 0;
    if (status == WF_OK && checks_elements) {
        status = open_verify(r, error);
    }
    if (status == WF_OK && checks_elements) {
        status = wf_run_check_tensors(r->layout, r->verify, error);
    }
    if (status == WF_OK && r->process.setup->job.files.folder[0] != '\0') {
        status = wf_version_store_new(r->process.setup->job.files.folder, &r->store, error);
    }
    if (status == WF_OK) {
        status = wf_run_memory_new(r->layout, true, &r->memory, error);
    }
    if (recipe.engine->layout != NULL) {
        return status; /* what an engine that nobody knows derives, nobody knows */
    }
    return status == WF_OK
               ? wf_engine_work_new(r->layout, &r->memory, packs_head(r), &r->work, error)
               : status;
}

static enum wf_status join(struct infer *r, struct wf_error *error)
{
    const struct wf_run_setup *setup = r->process.setup;
    const struct wf_job_group *group = &setup->job.infer[r->process.place.group];
    const char *ignore[WF_IGNORE_MAX];
    struct wf_recipe recipe = setup->infer[r->process.place.group];
    struct wf_rank_options rank;
    for (uint32_t i = 0; i < group->ignore_count; i++) {
        ignore[i] = group->ignore[i];
    }
    recipe.placement = wf_run_table(setup, r->process.place.group, r->table);
    wf_process_rank_options(&r->process, &r->memory, &rank);
    rank.recipe = &recipe;
    rank.ignore = ignore;
    rank.ignore_count = group->ignore_count;
    rank.store = r->store;
    rank.skip_quiesce = setup->job.run.skip_pause;
    rank.hooks =
        (struct wf_rank_hooks){.quiesce = on_quiesce, .resume = on_resume, .aborted = on_aborted};
    rank.hooks.take_table = on_take_table;
    if (r->work != NULL && !setup->job.run.skip_derived) {
        rank.hooks.after_write = on_after_write;
        rank.hooks.after_flip = on_after_flip;
    }
    return wf_process_join(&r->process, &rank, error);
}

static enum wf_status start(struct wf_process *process, struct wf_error *error)
{
    struct infer *r = of(process);
    enum wf_status status = prepare(r, error);
    status = status == WF_OK ? wf_jobs_new(1, &r->checks, error) : status;
    if (status == WF_OK) {
        r->placing.fire = place_experts;
        r->placing.name = "a table of experts";
        status = join(r, error);
    }
    if (status == WF_OK && process->options->reader_socket != NULL) {
        r->reconnect.fire = connect_reader;
        r->reconnect.name = "the reader";
        connect_reader(&r->reconnect);
    }
    return status;
}

static void close_links(struct wf_process *process)
{
    struct infer *r = of(process);
    WF_ASSERT(!r->checking); /* the loop does not end before a check has */
    wf_jobs_free(r->checks);
    wf_timer_cancel(process->loop, &r->reconnect);
    wf_timer_cancel(process->loop, &r->placing);
    if (r->conn != 0) {
        process->env->ops->close(process->env, r->conn);
    }
}

static void fini(struct wf_process *process)
{
    struct infer *r = of(process);
    wf_engine_work_free(r->work);
    wf_run_memory_fini(&r->memory);
    wf_version_store_free(r->store);
    wf_verify_free(r->verify);
    wf_checkpoint_free(r->checkpoint);
    wf_layout_free(r->layout);
}

int wf_infer_process(const struct wf_run_setup *setup, const struct wf_process_options *options)
{
    static const struct wf_process_kind kind = {.name = "engine worker",
                                                .handle = handle,
                                                .start = start,
                                                .busy = busy,
                                                .close = close_links,
                                                .fini = fini};
    struct infer *r = calloc(1, sizeof *r);
    WF_ASSERT(r != NULL);
    int exit_status = wf_process_run(&r->process, &kind, setup, options);
    free(r);
    return exit_status;
}
