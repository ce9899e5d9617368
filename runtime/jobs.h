/* jobs.h - a few threads that do CPU-heavy pure work, so that the loop stays free.
 *
 * The work of env_real's `job`. A job is the caller's memory (struct wf_job in env.h) until its
 * `done` message reaches the owner. Jobs start in the order of submitting; with more than one
 * worker they may finish in another. The threads take no signals and touch no actor.
 */
#ifndef WEFT_RUNTIME_JOBS_H
#define WEFT_RUNTIME_JOBS_H

#include "runtime/env.h"
#include "runtime/status.h"

enum { WF_JOBS_WORKERS_MAX = 256 };

struct wf_jobs;

/* Starts `workers` threads (1 to WF_JOBS_WORKERS_MAX). NO_RESOURCE: the system allows no more
 * threads. */
enum wf_status wf_jobs_new(unsigned workers, struct wf_jobs **jobs_out, struct wf_error *error);
/* Any thread, never blocks for long. job->work and job->owner are set. */
void wf_jobs_submit(struct wf_jobs *jobs, struct wf_job *job);
/* Blocks until every job submitted was done and sent, then ends the threads. NULL is fine. Nobody
 * submits any more; the owners must still be there. */
void wf_jobs_free(struct wf_jobs *jobs);

#endif
