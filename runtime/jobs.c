/* jobs.c - the pool of worker threads behind env_real's jobs. */
#include "runtime/jobs.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct wf_jobs {
    pthread_mutex_t lock;
    pthread_cond_t changed;      /* a job came, or `ending` */
    struct wf_mail_list waiting; /* links of jobs; under lock */
    bool ending;                 /* under lock */
    unsigned workers;            /* how many of `threads` run */
    pthread_t threads[];
};

/* NULL: the pool ends and nothing waits any more. */
static struct wf_job *next_job(struct wf_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
    struct wf_mail *link;
    while ((link = wf_mail_list_pop(&jobs->waiting)) == NULL && !jobs->ending) {
        pthread_cond_wait(&jobs->changed, &jobs->lock);
    }
    pthread_mutex_unlock(&jobs->lock);
    return link != NULL ? WF_CONTAINER(link, struct wf_job, link) : NULL;
}

static void *work(void *argument)
{
    /* Jobs are long and nobody waits for one of them alone: longer turns, fewer switches. */
    struct sched_param batch = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &batch);
    for (struct wf_job *job; (job = next_job(argument)) != NULL;) {
        struct wf_actor *owner = job->owner; /* without one the job is gone after its work */
        job->work(job);
        if (owner != NULL) {
            wf_send(owner, &job->done); /* from here on the job is its owner's */
        }
    }
    return NULL;
}

/* Signals are for the host's own threads: ours start with all of them blocked. */
static int start_worker(struct wf_jobs *jobs)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&jobs->threads[jobs->workers], NULL, work, jobs);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0) {
        pthread_setname_np(jobs->threads[jobs->workers], "weft-job");
        jobs->workers++;
    }
    return failed;
}

enum wf_status wf_jobs_new(unsigned workers, struct wf_jobs **jobs_out, struct wf_error *error)
{
    if (workers == 0 || workers > WF_JOBS_WORKERS_MAX) {
        return wf_error_set(error, WF_INVALID, "a job pool has 1 to %d workers, not %u",
                            WF_JOBS_WORKERS_MAX, workers);
    }
    struct wf_jobs *jobs = calloc(1, sizeof *jobs + workers * sizeof jobs->threads[0]);
    if (jobs == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a job pool");
    }
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->changed, NULL);
    while (jobs->workers < workers) {
        int failed = start_worker(jobs);
        if (failed != 0) {
            enum wf_status status = wf_error_set(
                error, WF_NO_RESOURCE,
                "cannot start thread %u of %u for jobs: %s; raise the limit of threads or ask for "
                "fewer workers",
                jobs->workers + 1, workers, strerror(failed));
            wf_jobs_free(jobs);
            return status;
        }
    }
    *jobs_out = jobs;
    return WF_OK;
}

void wf_jobs_submit(struct wf_jobs *jobs, struct wf_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    WF_ASSERT(!jobs->ending);
    wf_mail_list_push(&jobs->waiting, &job->link);
    pthread_cond_signal(&jobs->changed);
    pthread_mutex_unlock(&jobs->lock);
}

void wf_jobs_free(struct wf_jobs *jobs)
{
    if (jobs == NULL) {
        return;
    }
    pthread_mutex_lock(&jobs->lock);
    jobs->ending = true;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->lock);
    for (unsigned i = 0; i < jobs->workers; i++) {
        pthread_join(jobs->threads[i], NULL);
    }
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->lock);
    free(jobs);
}
