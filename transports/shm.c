/* shm.c - the shared-memory transport: takes reads, cuts them into jobs, ends them. */
#include "transports/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/read_check.h"

static void finish(struct shm_read *open)
{
    struct shm *shm = open->shm;
    struct shm_read **link = &shm->reads;
    while (*link != open) {
        link = &(*link)->next;
    }
    *link = open->next;
    wf_timer_cancel(shm->loop, &open->deadline);
    struct wf_read *read = open->read;
    for (uint32_t i = 0; i < read->src_count; i++) {
        if (read->src[i].remote != NULL) {
            ((struct shm_remote *)read->src[i].remote)->open_reads--;
        }
    }
    read->transport_data = NULL;
    free(open);
    wf_send(read->owner, &read->done);
}

/* No more jobs; done follows with the last that runs. */
static void drain(struct shm_read *open)
{
    open->draining = true;
    if (open->running == 0) {
        finish(open);
    }
}

/* Gives `job` the next part of the read. */
static void take_part(struct shm_read *open, struct shm_job *job)
{
    const struct wf_read *read = open->read;
    uint64_t budget = SHM_JOB_BYTES;
    job->op = open->op;
    job->element = open->element;
    for (unsigned touched = 0; open->op < read->op_count && touched < SHM_JOB_OPS; touched++) {
        const struct wf_op *op = &read->ops[open->op];
        uint64_t elem = wf_dtype_bytes(read->dst[op->dst_tensor].dtype);
        uint64_t left = op->box.elements - open->element, fits = budget / elem;
        if (left > fits) {
            open->element += fits;
            break;
        }
        budget -= left * elem;
        open->op++;
        open->element = 0;
    }
    job->end_op = open->op;
    job->end_element = open->element;
}

static void issue_jobs(struct shm *shm)
{
    struct wf_env *env = wf_loop_env(shm->loop);
    for (struct shm_read *open = shm->reads; open != NULL && shm->idle != NULL; open = open->next) {
        while (!open->draining && open->op < open->read->op_count && shm->idle != NULL) {
            struct shm_job *job = shm->idle;
            shm->idle = job->next_idle;
            take_part(open, job);
            job->read = open;
            open->running++;
            env->ops->job(env, &job->job);
        }
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct shm *shm = WF_CONTAINER(self, struct shm, actor);
    if (msg->kind == SHM_IMPORT_DONE) {
        shm_import_ended(shm, msg);
        return WF_KEEP;
    }
    WF_ASSERT(msg->kind == SHM_JOB_DONE);
    struct shm_job *job = WF_CONTAINER(msg, struct shm_job, job.done);
    struct shm_read *open = job->read;
    job->read = NULL;
    job->next_idle = shm->idle;
    shm->idle = job;
    open->running--;
    open->read->bytes += job->bytes;
    if (job->status != WF_OK) {
        wf_read_fail(open->read, job->status, job->failed_op, job->text);
        open->draining = true;
    }
    issue_jobs(shm);
    if (open->running == 0 && (open->draining || open->op == open->read->op_count)) {
        finish(open);
    }
    return WF_KEEP; /* part of the slot */
}

static void deadline_passed(struct wf_timer *timer)
{
    struct shm_read *open = WF_CONTAINER(timer, struct shm_read, deadline);
    wf_read_fail(open->read, WF_TIMED_OUT, open->op < open->read->op_count ? open->op : UINT32_MAX,
                 "the deadline passed");
    drain(open);
}

/* --- starting and cancelling ------------------------------------------------------------------ */

static void start_read(struct wf_transport *t, struct wf_read *read)
{
    struct shm *shm = WF_CONTAINER(t, struct shm, base);
    if (!wf_read_begin(t, read, wf_loop_now_ns(shm->loop))) {
        wf_send(read->owner, &read->done);
        return;
    }
    struct shm_read *open = calloc(1, sizeof *open);
    if (open == NULL) {
        wf_read_fail(read, WF_NO_MEMORY, UINT32_MAX, "no memory for the read's own record");
        wf_send(read->owner, &read->done);
        return;
    }
    for (uint32_t i = 0; i < read->src_count; i++) {
        if (read->src[i].remote != NULL) {
            ((struct shm_remote *)read->src[i].remote)->open_reads++;
        }
    }
    open->read = read;
    open->shm = shm;
    open->deadline.fire = deadline_passed;
    open->deadline.name = "shm read";
    read->transport_data = open;
    struct shm_read **link = &shm->reads;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = open;
    if (read->deadline_ns != WF_NEVER_NS) {
        wf_timer_arm(shm->loop, &open->deadline, read->deadline_ns);
    }
    issue_jobs(shm);
}

static void cancel_read(struct wf_transport *t, struct wf_read *read)
{
    (void)t;
    struct shm_read *open = read->transport_data;
    if (open != NULL) {
        wf_read_fail(read, WF_CANCELLED, UINT32_MAX, "cancelled");
        drain(open);
    }
}

/* --- making and closing ----------------------------------------------------------------------- */

static void withdraw_region(struct wf_transport *t, const struct wf_handle *handle)
{
    /* Pages cannot be taken from a reader that has them mapped; grants keep it from reading. */
    (void)t;
    (void)handle;
}

static void close_shm(struct wf_transport *t)
{
    struct shm *shm = WF_CONTAINER(t, struct shm, base);
    WF_ASSERT(shm->reads == NULL && shm->remotes == 0 && shm->imports == 0);
    wf_actor_close(&shm->actor);
    wf_actor_fini(&shm->actor);
    for (unsigned i = 0; i < shm->job_count; i++) {
        free(shm->jobs[i].bounce);
    }
    free(shm->jobs);
    free(shm->nonce);
    free(shm);
}

static const struct wf_transport_ops shm_ops = {
    .name = "shm",
    .caps = WF_CAP_MAP | WF_CAP_GET | WF_CAP_CAST,
    .export_region = shm_export_region,
    .withdraw_region = withdraw_region,
    .import_region = shm_import_region,
    .release_region = shm_release_region,
    .read = start_read,
    .cancel = cancel_read,
    .close = close_shm,
};

enum wf_status wf_transport_shm_new(struct wf_loop *loop, unsigned parallel,
                                    struct wf_transport **transport_out, struct wf_error *error)
{
    if (parallel > SHM_PARALLEL_MAX) {
        return wf_error_set(error, WF_INVALID, "%u copy threads; expected at most %d", parallel,
                            SHM_PARALLEL_MAX);
    }
    struct shm *shm = calloc(1, sizeof *shm);
    unsigned job_count = 2 * (parallel == 0 ? 1 : parallel);
    struct shm_job *jobs = calloc(job_count, sizeof *jobs);
    uint8_t *nonce = calloc(1, SHM_NONCE_BYTES);
    if (shm == NULL || jobs == NULL || nonce == NULL) {
        free(shm);
        free(jobs);
        free(nonce);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the shm transport");
    }
    shm->base.ops = &shm_ops;
    shm->loop = loop;
    shm->jobs = jobs;
    shm->job_count = job_count;
    shm->nonce = nonce;
    struct wf_env *env = wf_loop_env(loop);
    env->ops->random(env, nonce, SHM_NONCE_BYTES);
    wf_actor_init(&shm->actor, loop, "shm", handle);
    for (unsigned i = 0; i < job_count; i++) {
        jobs[i].job = (struct wf_job){.done = {.kind = SHM_JOB_DONE},
                                      .owner = &shm->actor,
                                      .work = shm_job_work,
                                      .name = "shm copy"};
        jobs[i].next_idle = shm->idle;
        shm->idle = &jobs[i];
    }
    *transport_out = &shm->base;
    return WF_OK;
}
