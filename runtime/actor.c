/* actor.c - sending, running one actor, and what happens to messages nobody takes. */
#include "runtime/actor.h"

#include "runtime/scheduler.h"
#include "runtime/status.h"

/* Messages moved from the inbox in one run, so that a fast sender cannot hold the loop here. */
enum { WF_DRAIN_MESSAGES = 4096 };

static struct wf_msg *msg_of(struct wf_mail *mail)
{
    return (struct wf_msg *)mail; /* its first member */
}

static void deliver(struct wf_actor *to, struct wf_msg *msg);

/* The addressee is closed: back to the sender, once; a message that nobody wants is released. */
static void give_back(struct wf_msg *msg)
{
    if (msg->from != NULL && !msg->returned) {
        msg->returned = true;
        deliver(msg->from, msg);
    } else if (msg->release != NULL) {
        msg->release(msg);
    }
}

static void queue(struct wf_actor *actor, struct wf_msg *msg)
{
    struct wf_mail_list *list = msg->lane == WF_LANE_CONTROL ? &actor->control : &actor->data;
    wf_mail_list_push(list, &msg->mail);
}

static void deliver(struct wf_actor *to, struct wf_msg *msg)
{
    struct wf_scheduler *scheduler = wf_loop_scheduler(to->loop);
    if (wf_scheduler_is_here(scheduler)) {
        if (to->closed) {
            give_back(msg);
            return;
        }
        queue(to, msg);
        if (!to->scheduled) {
            wf_scheduler_add(scheduler, to);
        }
        return;
    }
    switch (wf_mailbox_push(&to->inbox, &msg->mail)) {
    case WF_PUSH_QUEUED:
        break;
    case WF_PUSH_SCHEDULE:
        if (wf_scheduler_wake(scheduler, to)) {
            wf_loop_wake(to->loop);
        }
        break;
    case WF_PUSH_CLOSED:
        give_back(msg);
        break;
    }
}

void wf_send(struct wf_actor *to, struct wf_msg *msg)
{
    msg->returned = false;
    deliver(to, msg);
}

void wf_actor_init(struct wf_actor *self, struct wf_loop *loop, const char *name,
                   wf_handler_t *handle)
{
    struct wf_scheduler *scheduler = wf_loop_scheduler(loop);
    wf_scheduler_assert_here(scheduler);
    *self = (struct wf_actor){.loop = loop, .handle = handle, .name = name};
    wf_mailbox_init(&self->inbox);
    self->id = scheduler->next_id++;
    scheduler->actors++;
}

/* Moves what arrived in the inbox to the lanes. */
static void drain(struct wf_actor *actor)
{
    for (unsigned i = 0; i < WF_DRAIN_MESSAGES; i++) {
        struct wf_mail *mail = wf_mailbox_pop(&actor->inbox);
        if (mail == NULL) {
            return;
        }
        queue(actor, msg_of(mail));
    }
}

static struct wf_msg *take(struct wf_actor *actor)
{
    struct wf_mail *mail = wf_mail_list_pop(&actor->control);
    return msg_of(mail != NULL ? mail : wf_mail_list_pop(&actor->data));
}

static void handle(struct wf_actor *actor, struct wf_msg *msg)
{
    if (actor->closed) {
        give_back(msg);
    } else if (actor->handle(actor, msg) == WF_FREE && msg->release != NULL) {
        msg->release(msg);
    }
}

bool wf_actor_run(struct wf_actor *actor, unsigned limit)
{
    if (actor->inbox_awake) {
        drain(actor);
    }
    unsigned handled = 0;
    for (struct wf_msg *msg; handled < limit && (msg = take(actor)) != NULL; handled++) {
        handle(actor, msg);
    }
    wf_loop_scheduler(actor->loop)->messages += handled;
    if (actor->control.first != NULL || actor->data.first != NULL) {
        return true;
    }
    if (actor->inbox_awake && wf_mailbox_mark_empty(&actor->inbox)) {
        actor->inbox_awake = false;
    }
    return actor->inbox_awake;
}

void wf_actor_close(struct wf_actor *self)
{
    wf_scheduler_assert_here(wf_loop_scheduler(self->loop));
    if (self->closed) {
        return;
    }
    self->closed = true;
    wf_mailbox_close(&self->inbox);
    /* What is queued goes back now. A push that is half done comes out of the inbox in a later run:
     * its sender has woken this actor or is about to. */
    drain(self);
    for (struct wf_msg *msg; (msg = take(self)) != NULL;) {
        give_back(msg);
    }
}

void wf_actor_fini(struct wf_actor *self)
{
    if (self->loop == NULL) {
        return;
    }
    struct wf_scheduler *scheduler = wf_loop_scheduler(self->loop);
    wf_scheduler_assert_here(scheduler);
    WF_ASSERT(self->closed);
    WF_ASSERT(scheduler->running != self);
    wf_scheduler_take_wakes(scheduler);
    while (wf_actor_run(self, WF_DRAIN_MESSAGES)) {
    }
    if (self->scheduled) {
        wf_scheduler_remove(scheduler, self);
    }
    scheduler->actors--;
    self->loop = NULL;
}
