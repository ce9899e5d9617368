/* actor.h - messages, inboxes' owners, and how to send.
 *
 * An actor is a struct with a `struct wf_actor` in it and one handler. It lives on one loop for its
 * whole life; its handler runs only there, one message at a time, so its state needs no lock. Any
 * thread may send to it. A message is a struct with a `struct wf_msg` first; it is never copied:
 * sending gives it away.
 *
 *   handler returns WF_FREE   the runtime calls msg->release (nothing if NULL)
 *   handler returns WF_KEEP   the handler has taken the message (stored or forwarded it)
 *
 * A message to a closed actor comes back: `returned` is set and it is delivered to `from`; without
 * a `from` it is released. Control messages of an actor are handled before its data messages;
 * within a lane and sender the order is that of sending.
 */
#ifndef WEFT_RUNTIME_ACTOR_H
#define WEFT_RUNTIME_ACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/mailbox.h"

struct wf_loop;
struct wf_actor;
struct wf_msg;

enum wf_verdict { WF_FREE, WF_KEEP };
enum wf_lane { WF_LANE_CONTROL, WF_LANE_DATA };

typedef enum wf_verdict wf_handler_t(struct wf_actor *self, struct wf_msg *msg);
typedef void wf_release_t(struct wf_msg *msg);

struct wf_msg {
    struct wf_mail mail;   /* link in an inbox or list; belongs to the runtime while sent */
    struct wf_actor *from; /* borrows; where it goes back when the addressee is closed, or NULL */
    wf_release_t *release; /* how to free it; NULL for a message that is part of something else */
    uint32_t kind;         /* what it is; each header that defines messages owns a range */
    uint8_t lane;          /* enum wf_lane */
    bool returned;         /* it came back: the addressee was closed */
};

struct wf_actor {
    struct wf_mailbox inbox;
    struct wf_mail_list control,
        data;                 /* the inbox drained, and same-loop sends; loop thread only */
    struct wf_mail run_link;  /* in the loop's run list */
    struct wf_mail wake_link; /* in the loop's wake list; pushed by another thread's send */
    struct wf_loop *loop;     /* borrows; outlives the actor */
    wf_handler_t *handle;
    const char *name; /* borrows; for logs and traces */
    uint32_t id;      /* creation order on its loop: the only thing that ever orders actors */
    bool scheduled;   /* in the run list, or running with more to do */
    bool inbox_awake; /* the wake list gave it: the inbox must be looked at before sleeping */
    bool closed;
};

/* Loop thread. `self` is caller-owned memory that outlives every sender's last send. */
void wf_actor_init(struct wf_actor *self, struct wf_loop *loop, const char *name,
                   wf_handler_t *handle);
/* Loop thread, never blocks: from now on messages come back to their senders, those queued too. */
void wf_actor_close(struct wf_actor *self);
/* Loop thread, after close, when no thread will send any more. Zeroed memory is fine. */
void wf_actor_fini(struct wf_actor *self);

/* Any thread. Gives `msg` to `to`. A message may not be sent again before it was handled. When `to`
 * is closed and the message has no `from`, release runs on the calling thread. A send from the
 * loop's own thread is in order with that thread's other sends only. */
void wf_send(struct wf_actor *to, struct wf_msg *msg);

#endif
