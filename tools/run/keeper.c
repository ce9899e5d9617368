/* keeper.c - an inference rank of `weft run` that serves nobody: it keeps versions as folders.
 *
 * Its layout is that of a Hugging Face folder (spec `hf`), so it gets every parameter whole, by the
 * plan, the digests and the commit of any other engine. What is committed and in its memory it
 * writes to `files.folder` (tools/files/version_folder.h), as a job; the next version has to wait
 * until that is done, because the memory is written from. A version that cannot be written is told,
 * and the job goes on; the process then ends with a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/files/hf_folder.h"
#include "tools/files/version_folder.h"
#include "tools/run/memory.h"
#include "tools/run/process.h"

enum { WRITE_DONE = 0x1300 };

struct keeper {
    struct wf_actor actor;
    struct wf_process process;
    const struct wf_process_options *options;
    struct wf_run_setup *setup;
    struct wf_run_place place;
    struct wf_layout *layout;
    struct wf_run_memory memory;
    void **tensors; /* by the layout's tensors */
    char *config;   /* text of the model's config.json */
    size_t config_len;
    struct wf_rank *rank;
    struct wf_store *store;
    struct wf_version live, stored; /* stored: the newest that lies there */
    char label[WF_LABEL_MAX];
    bool quiescing, writing, closing, ended;
    struct wf_job write_job;
    uint64_t write_start_ns;
    enum wf_status write_status;
    struct wf_error write_error;
};

static uint64_t now_ns(struct keeper *k)
{
    return k->process.env->ops->now_ns(k->process.env);
}

static void send_note(struct keeper *k)
{
    struct wf_el_span spans[WF_NOTE_SPANS];
    const struct wf_frame_note note = {.side = WF_INFER,
                                       .rank = k->options->rank,
                                       .engine = k->place.engine,
                                       .version = k->live,
                                       .own_bytes_peak = wf_run_own_bytes(),
                                       .spans = spans,
                                       .spans_count = wf_process_spans(&k->process, spans)};
    wf_rank_note(k->rank, &note);
}

static void stop_when_quiet(struct keeper *k)
{
    if (k->ended && !k->writing) {
        wf_loop_stop(k->process.loop);
    }
}

static void end(struct keeper *k, int exit_status)
{
    if (k->process.exit_status == 0) {
        k->process.exit_status = exit_status;
    }
    if (!k->closing) {
        k->closing = true;
        wf_rank_close(k->rank);
    }
}

/* --- writing ---------------------------------------------------------------------------------- */
/* Any thread. */
static void say_note(void *user, const char *sentence)
{
    const struct keeper *k = user;
    wf_process_say(k->options, sentence);
}

static void write_work(struct wf_job *job)
{
    struct keeper *k = (struct keeper *)((char *)job - offsetof(struct keeper, write_job));
    const struct wf_job_file *file = &k->setup->job;
    const struct wf_version_save save = {.place = file->files.folder,
                                         .job = file->name,
                                         .version = k->live,
                                         .label = k->label,
                                         .config = k->config,
                                         .config_len = k->config_len,
                                         .layout = k->layout,
                                         .tensors = k->tensors,
                                         .keep = file->files.keep,
                                         .notes = {.say = say_note, .user = k}};
    k->write_status = wf_version_write(&save, &k->write_error);
}

static void start_write(struct keeper *k)
{
    k->writing = true;
    k->write_start_ns = now_ns(k);
    snprintf(k->label, sizeof k->label, "%s", wf_rank_label(k->rank));
    wf_rank_stored(k->rank, k->live, true);
    k->write_job = (struct wf_job){.owner = &k->actor, .work = write_work, .name = "write"};
    k->write_job.done.kind = WRITE_DONE;
    k->process.env->ops->job(k->process.env, &k->write_job);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct keeper *k = (struct keeper *)((char *)self - offsetof(struct keeper, actor));
    WF_ASSERT(msg->kind == WRITE_DONE);
    struct wf_trace_span span = {"write", k->write_start_ns, now_ns(k), k->live.step, 0};
    wf_trace_add(&k->process.trace, span);
    k->writing = false;
    if (k->write_status == WF_OK) {
        k->stored = k->live;
    } else {
        char line[WF_ERROR_TEXT_MAX + 64];
        snprintf(line, sizeof line, "version %llu is in no folder: %s",
                 (unsigned long long)k->live.step, k->write_error.text);
        wf_process_say(k->options, line);
        k->process.exit_status = WF_EXIT_FAILED;
    }
    wf_rank_stored(k->rank, k->stored, false);
    send_note(k);
    if (k->quiescing) {
        k->quiescing = false;
        wf_rank_quiesced(k->rank);
    }
    stop_when_quiet(k);
    return WF_KEEP;
}

/* --- hooks ------------------------------------------------------------------------------------ */
static void on_quiesce(void *host, struct wf_rank *rank)
{
    struct keeper *k = host;
    if (k->writing) {
        k->quiescing = true;
    } else {
        wf_rank_quiesced(rank);
    }
}

static void on_resume(void *host, struct wf_rank *rank, struct wf_version version)
{
    struct keeper *k = host;
    (void)rank;
    bool known = wf_version_compare(version, k->live) == 0;
    bool there = wf_version_compare(version, k->stored) == 0;
    k->live = version;
    if (known || there || version.step % k->setup->job.files.every != 0) {
        send_note(k);
    } else {
        start_write(k);
    }
}

static void on_ended(void *host, struct wf_rank *rank, const struct wf_error *why)
{
    struct keeper *k = host;
    (void)rank;
    k->closing = true;
    if (why->status != WF_CLOSED) {
        wf_process_say(k->options, why->text);
        k->process.exit_status = WF_EXIT_FAILED;
    }
    k->ended = true;
    stop_when_quiet(k);
}

static void gate_said(void *user, const char *line)
{
    (void)user;
    (void)line;
}

static void asked_to_end(void *user)
{
    end(user, WF_EXIT_FAILED);
}

/* --- the whole -------------------------------------------------------------------------------- */
/* What lies there from before: others may be filled from it. */
static enum wf_status look(struct keeper *k, struct wf_error *error)
{
    const struct wf_job_file *job = &k->setup->job;
    const struct wf_version_notes notes = {.say = say_note, .user = k};
    enum wf_status status = wf_version_prepare(job->files.folder, &notes, error);
    if (status != WF_OK) {
        return status;
    }
    status =
        wf_version_newest(job->files.folder, job->name, k->layout, say_note, k, &k->stored, error);
    return status == WF_NOT_FOUND ? WF_OK : status;
}

static enum wf_status prepare(struct keeper *k, struct wf_error *error)
{
    const struct wf_job_file *job = &k->setup->job;
    enum wf_status status =
        wf_layout_derive(k->setup->model, &k->setup->infer[k->place.group], 0, &k->layout, error);
    if (status == WF_OK) {
        status = wf_hf_config_read(job->model, &k->config, &k->config_len, error);
    }
    if (status == WF_OK) {
        status = wf_run_memory_new(k->layout, true, &k->memory, error);
    }
    if (status != WF_OK) {
        return status;
    }
    k->tensors = calloc(k->layout->tensor_count + 1, sizeof(void *));
    WF_ASSERT(k->tensors != NULL);
    for (uint32_t i = 0; i < k->layout->tensor_count; i++) {
        k->tensors[i] = k->memory.tensors[i].address;
    }
    status = wf_version_store_new(job->files.folder, &k->store, error);
    return status == WF_OK ? look(k, error) : status;
}

static enum wf_status start(struct keeper *k, struct wf_error *error)
{
    const struct wf_job_group *group = &k->setup->job.infer[k->place.group];
    struct wf_rank_options rank;
    wf_process_rank_options(&k->process, k->setup, k->options, &rank);
    rank.engine = k->place.engine;
    rank.group = group->name;
    rank.group_rank = k->place.group_rank;
    rank.recipe = &k->setup->infer[k->place.group];
    rank.regions = &k->memory.region;
    rank.region_count = 1;
    rank.tensors = k->memory.tensors;
    rank.tensor_count = k->memory.tensor_count;
    rank.mode = group->mode;
    rank.store = k->store;
    rank.host = k;
    rank.hooks =
        (struct wf_rank_hooks){.quiesce = on_quiesce, .resume = on_resume, .ended = on_ended};
    enum wf_status status = wf_rank_new(k->process.loop, &rank, &k->rank, error);
    if (status == WF_OK) {
        wf_rank_stored(k->rank, k->stored, false);
        k->process.user = k;
        k->process.gate_said = gate_said;
        k->process.asked_to_end = asked_to_end;
        status = wf_process_watch(&k->process, k->options, error);
    }
    return status;
}

static void finish(struct keeper *k)
{
    if (k->rank != NULL) {
        wf_rank_free(k->rank);
    }
    if (k->process.loop != NULL) {
        wf_actor_close(&k->actor);
        while (wf_loop_turn(k->process.loop)) {
        }
        wf_actor_fini(&k->actor);
        wf_process_fini(&k->process);
    }
    wf_version_store_free(k->store);
    wf_run_memory_fini(&k->memory);
    wf_layout_free(k->layout);
    free(k->tensors);
    free(k->config);
}

int wf_keeper_process(struct wf_run_setup *setup, const struct wf_process_options *options)
{
    struct wf_error error;
    struct keeper *k = calloc(1, sizeof *k);
    WF_ASSERT(k != NULL);
    k->setup = setup;
    k->options = options;
    k->place = wf_run_place(setup, options->rank);
    enum wf_status status = wf_process_init(&k->process, setup, options, 1, &error);
    if (status == WF_OK) {
        wf_actor_init(&k->actor, k->process.loop, "keeper", handle);
        status = prepare(k, &error);
    }
    if (status == WF_OK) {
        status = start(k, &error);
    }
    if (status == WF_OK) {
        wf_loop_run(k->process.loop);
    } else {
        wf_process_say(options, error.text);
        k->process.exit_status = WF_EXIT_FAILED;
    }
    int exit_status = k->process.exit_status;
    finish(k);
    free(k);
    return exit_status;
}
