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
    struct wf_process process;
    struct wf_layout *layout;
    struct wf_run_memory memory;
    void **tensors; /* by the layout's tensors */
    char *config;   /* text of the model's config.json */
    size_t config_len;
    struct wf_store *store;
    struct wf_version live, stored; /* stored: the newest that lies there */
    char label[WF_LABEL_MAX];
    bool quiescing, writing;
    struct wf_job write_job;
    uint64_t write_start_ns;
    enum wf_status write_status;
    struct wf_error write_error;
};

static struct keeper *of(const struct wf_process *process)
{
    return WF_CONTAINER(process, struct keeper, process);
}

static void send_note(struct keeper *k)
{
    struct wf_frame_note note = {.version = k->live, .own_bytes_peak = wf_run_own_bytes()};
    wf_process_note(&k->process, &note);
}

/* --- writing ---------------------------------------------------------------------------------- */
/* Any thread. */
static void say_note(void *user, const char *sentence)
{
    const struct keeper *k = user;
    wf_process_say(&k->process, sentence);
}

static void write_work(struct wf_job *job)
{
    struct keeper *k = WF_CONTAINER(job, struct keeper, write_job);
    const struct wf_job_file *file = &k->process.setup->job;
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
    k->write_start_ns = wf_process_now_ns(&k->process);
    snprintf(k->label, sizeof k->label, "%s", wf_rank_label(k->process.rank));
    wf_rank_stored(k->process.rank, k->live, true);
    k->write_job = (struct wf_job){.owner = &k->process.actor, .work = write_work, .name = "write"};
    k->write_job.done.kind = WRITE_DONE;
    k->process.env->ops->job(k->process.env, &k->write_job);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct keeper *k = WF_CONTAINER(self, struct keeper, process.actor);
    WF_ASSERT(msg->kind == WRITE_DONE);
    wf_process_span(&k->process, "write", k->write_start_ns, wf_process_now_ns(&k->process),
                    k->live.step);
    k->writing = false;
    if (k->write_status == WF_OK) {
        k->stored = k->live;
    } else {
        char line[WF_ERROR_TEXT_MAX + 64];
        snprintf(line, sizeof line, "version %llu is in no folder: %s",
                 (unsigned long long)k->live.step, k->write_error.text);
        wf_process_say(&k->process, line);
        k->process.exit_status = WF_EXIT_FAILED;
    }
    wf_rank_stored(k->process.rank, k->stored, false);
    send_note(k);
    if (k->quiescing) {
        k->quiescing = false;
        wf_rank_quiesced(k->process.rank);
    }
    wf_process_stop_when_quiet(&k->process);
    return WF_KEEP;
}

/* --- hooks ------------------------------------------------------------------------------------ */
static void on_quiesce(void *host, struct wf_rank *rank)
{
    struct keeper *k = of(host);
    if (k->writing) {
        k->quiescing = true;
    } else {
        wf_rank_quiesced(rank);
    }
}

static void on_resume(void *host, struct wf_rank *rank, struct wf_version version)
{
    struct keeper *k = of(host);
    (void)rank;
    bool known = wf_version_compare(version, k->live) == 0;
    bool there = wf_version_compare(version, k->stored) == 0;
    k->live = version;
    if (known || there || version.step % k->process.setup->job.files.every != 0) {
        send_note(k);
    } else {
        start_write(k);
    }
}

static bool busy(const struct wf_process *process)
{
    return of(process)->writing;
}

/* --- the whole -------------------------------------------------------------------------------- */
/* What lies there from before: others may be filled from it. */
static enum wf_status look(struct keeper *k, struct wf_error *error)
{
    const struct wf_job_file *job = &k->process.setup->job;
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
    const struct wf_job_file *job = &k->process.setup->job;
    enum wf_status status =
        wf_layout_derive(k->process.setup->model, &k->process.setup->infer[k->process.place.group],
                         0, &k->layout, error);
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

static enum wf_status start(struct wf_process *process, struct wf_error *error)
{
    struct keeper *k = of(process);
    struct wf_rank_options rank;
    enum wf_status status = prepare(k, error);
    if (status == WF_OK) {
        wf_process_rank_options(process, &k->memory, &rank);
        rank.store = k->store;
        rank.hooks = (struct wf_rank_hooks){.quiesce = on_quiesce, .resume = on_resume};
        status = wf_process_join(process, &rank, error);
    }
    if (status == WF_OK) {
        wf_rank_stored(process->rank, k->stored, false);
    }
    return status;
}

static void fini(struct wf_process *process)
{
    struct keeper *k = of(process);
    wf_version_store_free(k->store);
    wf_run_memory_fini(&k->memory);
    wf_layout_free(k->layout);
    free(k->tensors);
    free(k->config);
}

int wf_keeper_process(const struct wf_run_setup *setup, const struct wf_process_options *options)
{
    static const struct wf_process_kind kind = {
        .name = "keeper", .handle = handle, .start = start, .busy = busy, .fini = fini};
    struct keeper *k = calloc(1, sizeof *k);
    WF_ASSERT(k != NULL);
    int exit_status = wf_process_run(&k->process, &kind, setup, options);
    free(k);
    return exit_status;
}
