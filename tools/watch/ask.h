/* ask.h - asks a server for its status, as an observer over its own protocol. Blocks, at most for
 * the time given; one thread. */
#ifndef WEFT_TOOLS_WATCH_ASK_H
#define WEFT_TOOLS_WATCH_ASK_H

#include "actors/messages.h"
#include "actors/token.h"
#include "runtime/env.h"
#include "runtime/loop.h"

/* `job` may be "": whichever is there. The frame is freed with wf_frame_fini. CONNECTION: nobody
 * answers; REFUSED: not to us, or it is not who should be there; TIMED_OUT. */
enum wf_status wf_ask_status(struct wf_loop *loop, const char *address, const char *job,
                             const struct wf_token *token, uint64_t timeout_ns,
                             struct wf_frame *status_out, struct wf_error *error);

#endif
