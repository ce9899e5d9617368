/* hold.c - the env's table with a stop in it. */
#include "tools/run/hold.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/messages.h"
#include "models/hash.h"

#define HOLD_VARIABLE "WEFT_TEST_HOLD"

static struct wf_hold *of_env(struct wf_env *env)
{
    return (struct wf_hold *)((char *)(uintptr_t)env->ops - offsetof(struct wf_hold, ops));
}

static void stop_here(struct wf_hold *hold)
{
    int fifo = open(hold->fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fifo < 0) {
        return; /* somebody else has stopped already */
    }
    if (unlink(hold->fifo) == 0) {
        dprintf(fifo, "%d\n", (int)getpid());
        close(fifo);
        raise(SIGSTOP);
    } else {
        close(fifo);
    }
}

/* The point was reached once more. */
static void reached(struct wf_hold *hold, const char *when, const char *what)
{
    if (hold->left > 0 && strcmp(hold->when, when) == 0 && strcmp(hold->what, what) == 0 &&
        --hold->left == 0) {
        stop_here(hold);
    }
}

/* Notes the frame; false if it is a repetition. */
static bool is_new(struct wf_hold *hold, uint64_t conn, const void *bytes, size_t len)
{
    uint64_t hash = wf_hash_bytes(bytes, len);
    for (uint64_t i = 0; i < hold->sent_count && i < WF_HOLD_SENT; i++) {
        if (hold->sent[i].conn == conn && hold->sent[i].bytes == hash) {
            return false;
        }
    }
    hold->sent[hold->sent_count % WF_HOLD_SENT].conn = conn;
    hold->sent[hold->sent_count++ % WF_HOLD_SENT].bytes = hash;
    return true;
}

/* The name of an encoded frame, or "" of one that does not count. Its type is the first element of
 * an array of up to 65,535. */
static const char *frame_name(struct wf_hold *hold, uint64_t conn, const uint8_t *bytes, size_t len)
{
    size_t head = len > 0 && bytes[0] == 0xdc ? 3 : 1;
    const char *name = wf_frame_name(len > head ? bytes[head] : 0);
    return strcmp(name, hold->what) == 0 && is_new(hold, conn, bytes, len) ? name : "";
}

static enum wf_status hold_send(struct wf_env *env, uint64_t conn, const void *bytes,
                                size_t len_bytes, int fd)
{
    struct wf_hold *hold = of_env(env);
    const char *name = frame_name(hold, conn, bytes, len_bytes);
    reached(hold, "before", name);
    enum wf_status status = hold->real->send(env, conn, bytes, len_bytes, fd);
    reached(hold, "after", name);
    return status;
}

static enum wf_status hold_send_shared(struct wf_env *env, uint64_t conn,
                                       struct wf_payload *payload)
{
    struct wf_hold *hold = of_env(env);
    const char *name = frame_name(hold, conn, payload->bytes, payload->len_bytes);
    reached(hold, "before", name);
    enum wf_status status = hold->real->send_shared(env, conn, payload);
    reached(hold, "after", name);
    return status;
}

static void hold_job(struct wf_env *env, struct wf_job *job)
{
    struct wf_hold *hold = of_env(env);
    const char *name = job->name != NULL ? job->name : ""; /* without an owner it is soon gone */
    hold->real->job(env, job);
    reached(hold, "job", name);
}

void wf_hold_init(struct wf_hold *hold, struct wf_env *env, const char *who)
{
    char asked[32];
    memset(hold, 0, sizeof *hold);
    const char *text = getenv(HOLD_VARIABLE);
    if (text == NULL) {
        return;
    }
    unsigned long long count = 0;
    if (sscanf(text, "%31[^,],%7[^,],%31[^,],%llu,%255s", asked, hold->when, hold->what, &count,
               hold->fifo) != 5 ||
        count == 0) {
        fprintf(stderr,
                "weft: " HOLD_VARIABLE ": expected WHO,WHEN,WHAT,N,FIFO, found \"%.100s\"\n", text);
        return;
    }
    if (strcmp(asked, who) != 0) {
        return;
    }
    fprintf(stderr, "weft: %s will stop itself: " HOLD_VARIABLE " asks for it\n", who);
    hold->left = count;
    hold->real = env->ops;
    hold->ops = *env->ops;
    hold->ops.send = hold_send;
    hold->ops.send_shared = hold_send_shared;
    hold->ops.job = hold_job;
    env->ops = &hold->ops;
}
