/* train.c - a trainer rank of `weft run`: the stand-in for a training framework.
 *
 *   weights of step s --gate allows s+1--> optimizer step (a job) --> publish --> released or given
 * up
 *
 * The weights are always those of one step. A restart of any train rank makes all publish what they
 * have again, under the new generation; the restarted one first rebuilds the job's newest step from
 * the checkpoint.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/step.h"
#include "tools/commands.h"
#include "tools/run/alter.h"
#include "tools/run/load.h"
#include "tools/run/process.h"

enum { STEP_DONE = 0x1100 };

struct train {
    struct wf_process process;
    struct wf_layout *layout;
    struct wf_checkpoint *checkpoint;
    struct wf_run_memory memory;
    struct wf_job step_job;
    enum wf_status step_status;
    struct wf_error step_error;
    uint64_t step_target; /* of the step job: set before it starts */
    uint64_t allowed;     /* the gate */
    uint64_t current;     /* the step that the weights are */
    uint64_t published;
    uint64_t rebuild; /* the step a restarted rank has to get to at once */
    bool each; /* nobody waits between steps: every step is published before the next is made */
    bool ready, held, stepping, finish, idle;
    uint64_t step_start_ns, hold_start_ns;
};

static struct train *of(const struct wf_process *process)
{
    return WF_CONTAINER(process, struct train, process);
}

/* A span of the weights' own step that ends now. */
static void add_span(struct train *t, const char *name, uint64_t start_ns)
{
    wf_process_span(&t->process, name, start_ns, wf_process_now_ns(&t->process), t->current);
}

static void send_note(struct train *t, struct wf_version version, uint64_t attempt,
                      const char *text)
{
    struct wf_frame_note note = {
        .version = version, .attempt = attempt, .own_bytes_peak = wf_run_own_bytes()};
    snprintf(note.text, sizeof note.text, "%s", text);
    wf_process_note(&t->process, &note);
}

/* The optimizer: every element moves to its next value. In place where the tensors have the
 * checkpoint's dtype and values, otherwise from the checkpoint, as step_value is defined there. */
static void step_work(struct wf_job *job)
{
    struct train *t = WF_CONTAINER(job, struct train, step_job);
    uint64_t target = t->step_target;
    bool in_place = target == t->current + 1;
    for (uint32_t i = 0; i < t->layout->tensor_count; i++) {
        in_place = in_place && t->layout->tensors[i].dtype == t->process.setup->model->dtype;
    }
    for (uint32_t i = 0; i < t->layout->piece_count; i++) {
        const struct wf_piece *piece = &t->layout->pieces[i];
        in_place = in_place && (piece->kind != WF_PIECE_DATA || piece->value_rule == WF_VALUE_COPY);
    }
    t->step_status = WF_OK;
    if (!in_place) {
        t->step_status = wf_run_load(t->checkpoint, t->process.setup->model, t->layout, &t->memory,
                                     target, &t->step_error);
        return;
    }
    for (uint32_t i = 0; i < t->layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &t->layout->tensors[i];
        wf_step_apply(t->memory.tensors[i].address, tensor->dtype,
                      tensor->bytes / wf_dtype_bytes(tensor->dtype), 1);
    }
}

static void publish(struct train *t)
{
    struct wf_error error;
    char label[WF_LABEL_MAX];
    snprintf(label, sizeof label, "step-%llu", (unsigned long long)t->current);
    enum wf_status status = wf_rank_publish_within(t->process.rank, t->current, label,
                                                   t->process.setup->job.deadline_ns, &error);
    if (status == WF_OK) {
        t->published = t->current;
        t->held = true; /* until released, or in snapshot mode until copied */
        t->hold_start_ns = wf_process_now_ns(&t->process);
    } else if (status != WF_AGAIN) {
        wf_process_say(&t->process, error.text);
        wf_process_end(&t->process, WF_EXIT_FAILED);
    }
}

/* Does what can be done next; called after every change. */
static void go_on(struct train *t)
{
    if (!t->ready || t->stepping || t->held || t->process.closing) {
        return;
    }
    bool unpublished = t->current > 0 && t->published != t->current;
    if ((t->current < t->allowed && !(t->each && unpublished)) || t->current < t->rebuild) {
        t->stepping = true;
        t->step_target = t->rebuild > t->current ? t->rebuild : t->current + 1;
        t->step_start_ns = wf_process_now_ns(&t->process);
        t->step_job =
            (struct wf_job){.owner = &t->process.actor, .work = step_work, .name = "step"};
        t->step_job.done.kind = STEP_DONE;
        t->process.env->ops->job(t->process.env, &t->step_job);
    } else if (unpublished) {
        publish(t);
    } else if (t->finish && !t->idle) {
        t->idle = true;
        wf_rank_idle(t->process.rank);
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct train *t = WF_CONTAINER(self, struct train, process.actor);
    WF_ASSERT(msg->kind == STEP_DONE);
    t->stepping = false;
    if (t->process.ended) {
        wf_process_stop_when_quiet(&t->process);
        return WF_KEEP;
    }
    if (t->step_status != WF_OK) {
        wf_process_say(&t->process, t->step_error.text);
        wf_process_end(&t->process, WF_EXIT_FAILED);
        return WF_KEEP;
    }
    t->current = t->step_target;
    wf_alter_weights(&t->process, t->layout, &t->memory, t->current);
    add_span(t, "step", t->step_start_ns);
    go_on(t);
    return WF_KEEP;
}

/* --- hooks
 * ---------------------------------------------------------------------------------------- */
static void on_ready(void *host, struct wf_rank *rank, bool restarted, uint64_t step)
{
    struct train *t = of(host);
    (void)rank;
    t->ready = true;
    t->rebuild = step;
    if (restarted) {
        t->published = 0;
        t->held = false;
        t->idle = false;
    }
    go_on(t);
}

static void on_released(void *host, struct wf_rank *rank, struct wf_version version,
                        uint32_t engines)
{
    struct train *t = of(host);
    (void)rank;
    if (t->held) {
        add_span(t, "hold", t->hold_start_ns);
    }
    send_note(t, version, 0, engines == 0 ? "given up" : "");
    if (version.step == t->published) {
        t->held = false;
    }
    go_on(t);
}

/* The caller of an update is told now; what it must not do is to train on. */
static void on_in_doubt(void *host, struct wf_rank *rank, struct wf_version version)
{
    struct train *t = of(host);
    (void)rank;
    char line[160];
    snprintf(line, sizeof line, "version %llu is in doubt: its outcome is not known in time; %s",
             (unsigned long long)version.step,
             t->held ? "the weights stay held" : "its copy stays as it is");
    wf_process_say(&t->process, line);
    send_note(t, version, 0, WF_RUN_IN_DOUBT);
}

static void on_copied(void *host, struct wf_rank *rank, struct wf_version version,
                      const struct wf_error *why)
{
    struct train *t = of(host);
    (void)rank;
    add_span(t, "snapshot", t->hold_start_ns);
    if (why != NULL) {
        wf_process_say(&t->process, why->text);
        send_note(t, version, 0, "given up");
    }
    t->held = false;
    go_on(t);
}

static void on_aborted(void *host, struct wf_rank *rank, struct wf_version version,
                       uint64_t attempt, bool again, const struct wf_culprit *culprit)
{
    struct train *t = of(host);
    (void)rank;
    char line[WF_CULPRIT_TEXT + 128], who[WF_CULPRIT_TEXT];
    wf_culprit_format(culprit, who);
    snprintf(line, sizeof line, "version %llu, attempt %llu aborted: %s; %s",
             (unsigned long long)version.step, (unsigned long long)attempt, who,
             again ? "held for another attempt" : "the weights are free");
    if (wf_process_tells_aborts(&t->process)) {
        wf_process_say(&t->process, line);
    }
    send_note(t, version, attempt, again ? "" : "given up");
    if (!again && version.step == t->published) {
        t->held = false;
    }
    go_on(t);
}

/* A step that runs still writes the weights. */
static bool busy(const struct wf_process *process)
{
    return of(process)->stepping;
}

/* --- the gate
 * ---------------------------------------------------------------------------------------- */
static void gate_said(struct wf_process *process, const char *line)
{
    struct train *t = of(process);
    unsigned long long step;
    if (sscanf(line, "step %llu", &step) == 1 && step > t->allowed) {
        t->allowed = step;
    } else if (strcmp(line, "publish each") == 0) {
        t->each = true;
    } else if (strcmp(line, "finish") == 0) {
        t->finish = true;
    }
    go_on(t);
}

static enum wf_status load(struct train *t, struct wf_error *error)
{
    const struct wf_run_setup *setup = t->process.setup;
    uint64_t start_ns = wf_process_now_ns(&t->process);
    enum wf_status status =
        wf_layout_derive(setup->model, &setup->train, t->process.options->rank, &t->layout, error);
    if (status == WF_OK) {
        status = wf_run_setup_open(setup, setup->job.policy.extras_refuse, &t->checkpoint, error);
    }
    if (status == WF_OK) {
        status = wf_run_memory_new(t->layout, setup->job.transport.share_memory, &t->memory, error);
    }
    if (status == WF_OK) {
        status = wf_run_load(t->checkpoint, setup->model, t->layout, &t->memory, t->current, error);
    }
    add_span(t, "load", start_ns);
    return status;
}

static enum wf_status start(struct wf_process *process, struct wf_error *error)
{
    struct train *t = of(process);
    struct wf_rank_options rank;
    enum wf_status status = load(t, error);
    if (status != WF_OK) {
        return status;
    }
    wf_process_rank_options(process, &t->memory, &rank);
    rank.hooks = (struct wf_rank_hooks){.ready = on_ready,
                                        .copied = on_copied,
                                        .in_doubt = on_in_doubt,
                                        .released = on_released,
                                        .aborted = on_aborted};
    return wf_process_join(process, &rank, error);
}

static void fini(struct wf_process *process)
{
    struct train *t = of(process);
    wf_run_memory_fini(&t->memory);
    wf_checkpoint_free(t->checkpoint);
    wf_layout_free(t->layout);
}

int wf_train_process(const struct wf_run_setup *setup, const struct wf_process_options *options)
{
    static const struct wf_process_kind kind = {.name = "trainer",
                                                .handle = handle,
                                                .start = start,
                                                .gate_said = gate_said,
                                                .busy = busy,
                                                .fini = fini};
    struct train *t = calloc(1, sizeof *t);
    WF_ASSERT(t != NULL);
    t->allowed = options->gate ? 0 : setup->job.run.versions;
    t->finish = !options->gate;
    t->each = !options->gate && !setup->job.policy.drop_to_latest;
    int exit_status = wf_process_run(&t->process, &kind, setup, options);
    free(t);
    return exit_status;
}
