/* env_real.c - the real outside: CLOCK_MONOTONIC, getrandom, sockets (wire.h), a pool of threads.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "runtime/env.h"
#include "runtime/files.h"
#include "runtime/jobs.h"
#include "runtime/splitmix.h"
#include "runtime/wire.h"

struct env_real {
    struct wf_env env; /* first */
    struct wire wire;
    struct wf_jobs *jobs;
    uint64_t choices; /* state of a splitmix64 */
};

static struct env_real *of_env(struct wf_env *env)
{
    return (struct env_real *)env;
}

static uint64_t real_now_ns(struct wf_env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t real_wall_s(struct wf_env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}

static uint64_t real_choose(struct wf_env *env, uint64_t n)
{
    WF_ASSERT(n > 0);
    uint64_t drawn = wf_splitmix64(&of_env(env)->choices);
    return (uint64_t)(((unsigned __int128)drawn * n) >> 64);
}

static void real_random(struct wf_env *env, void *bytes, size_t len_bytes)
{
    (void)env;
    for (uint8_t *to = bytes; len_bytes > 0;) {
        ssize_t got = getrandom(to, len_bytes, 0);
        /* Incarnations and keys cannot be guessed at: without them nothing may go on. */
        WF_ASSERT(got > 0 || errno == EINTR);
        if (got > 0) {
            to += got;
            len_bytes -= (size_t)got;
        }
    }
}

static enum wf_status real_listen(struct wf_env *env, struct wf_actor *owner, const char *address,
                                  char bound_out[WF_ADDRESS_MAX], uint64_t *listener_out,
                                  struct wf_error *error)
{
    return wire_listen(&of_env(env)->wire, owner, address, bound_out, listener_out, error);
}

static enum wf_status real_connect(struct wf_env *env, struct wf_actor *owner, const char *address,
                                   uint64_t *conn_out, struct wf_error *error)
{
    return wire_connect(&of_env(env)->wire, owner, address, conn_out, error);
}

static void real_guard(struct wf_env *env, uint64_t listener, struct wf_actor *foreign)
{
    wire_guard(&of_env(env)->wire, listener, foreign);
}

static void real_trust(struct wf_env *env, uint64_t conn)
{
    wire_trust(&of_env(env)->wire, conn);
}

static enum wf_status real_send(struct wf_env *env, uint64_t conn, const void *bytes,
                                size_t len_bytes, int fd)
{
    return wire_send(&of_env(env)->wire, conn, bytes, len_bytes, fd);
}

static enum wf_status real_send_shared(struct wf_env *env, uint64_t conn,
                                       struct wf_payload *payload)
{
    return wire_send_shared(&of_env(env)->wire, conn, payload);
}

static void real_close(struct wf_env *env, uint64_t conn_or_listener)
{
    wire_close(&of_env(env)->wire, conn_or_listener);
}

static void real_job(struct wf_env *env, struct wf_job *job)
{
    wf_jobs_submit(of_env(env)->jobs, job);
}

static const struct wf_env_ops real_ops = {
    .now_ns = real_now_ns,
    .wall_s = real_wall_s,
    .choose = real_choose,
    .random = real_random,
    .listen = real_listen,
    .connect = real_connect,
    .guard = real_guard,
    .trust = real_trust,
    .send = real_send,
    .send_shared = real_send_shared,
    .close = real_close,
    .folder_open = wf_files_open,
    .file_read = wf_files_read,
    .file_append = wf_files_append,
    .file_replace = wf_files_replace,
    .folder_close = wf_files_close,
    .job = real_job,
};

enum wf_status wf_env_real_new(struct wf_loop *loop, const struct wf_env_real_options *options,
                               struct wf_env **env_out, struct wf_error *error)
{
    struct env_real *real = calloc(1, sizeof *real);
    if (real == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an env");
    }
    real->env.ops = &real_ops;
    real_random(&real->env, &real->choices, sizeof real->choices);
    unsigned workers = options == NULL || options->workers == 0 ? 1 : options->workers;
    enum wf_status status = wf_jobs_new(workers, &real->jobs, error);
    if (status == WF_OK) {
        status = wire_init(&real->wire, &real->env, loop,
                           options == NULL ? 0 : options->frame_timeout_ns, error);
    }
    if (status != WF_OK) {
        wf_jobs_free(real->jobs);
        free(real);
        return status;
    }
    *env_out = &real->env;
    return WF_OK;
}

void wf_env_real_free(struct wf_env *env)
{
    if (env == NULL) {
        return;
    }
    struct env_real *real = of_env(env);
    wf_jobs_free(real->jobs); /* first: a look-up may be out, and comes back to the wire's actor */
    wire_fini(&real->wire);
    free(real);
}
