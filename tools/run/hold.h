/* hold.h - test only: a process of `weft run` or `weft server` that stops itself at a named point.
 *
 * tools/fault-matrix strikes at every state of the protocol, and a state may last microseconds. So
 * the environment may ask one process of a job to stop itself (SIGSTOP) at a point that it reaches
 * anyway:
 *
 *   WEFT_TEST_HOLD=WHO,WHEN,WHAT,N,FIFO      infer:1,before,vote,2,/tmp/x/held
 *
 * WHO is the process (train:0, infer:3, server, compare). WHEN and WHAT: `before` or `after` the
 * Nth frame of that name (docs/protocol.md) that it sends, or `job` and the name of the Nth job it
 * issues
 * ("shm copy"). A frame that it repeats, on a slow machine, is not another one: the same bytes on
 * the same connection count once. At the point it removes FIFO and writes its process id into it,
 * then stops; who cannot remove FIFO does not stop, so only one process of a job ever does: not the
 * one that is started again after it. Nothing outside this file and its callers knows of it,
 * and without the variable nothing is changed. Loop thread only.
 */
#ifndef WEFT_TOOLS_RUN_HOLD_H
#define WEFT_TOOLS_RUN_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/env.h"

enum { WF_HOLD_NAME_MAX = 32, WF_HOLD_PATH_MAX = 256, WF_HOLD_SENT = 64 };

struct wf_hold {
    struct wf_env_ops ops;         /* those of the env, with ours between */
    const struct wf_env_ops *real; /* NULL: nothing is asked of this process */
    char when[8], what[WF_HOLD_NAME_MAX], fifo[WF_HOLD_PATH_MAX];
    uint64_t left; /* of N */
    struct {
        uint64_t conn, bytes; /* the connection, and a hash */
    } sent[WF_HOLD_SENT];     /* ring: frames of that name */
    uint64_t sent_count;
};

/* `who` is this process. Changes env->ops if the environment asks this process to stop; `hold` has
 * to live as long as the env. Says so on standard error, and complains about a value that makes no
 * sense. */
void wf_hold_init(struct wf_hold *hold, struct wf_env *env, const char *who);

#endif
