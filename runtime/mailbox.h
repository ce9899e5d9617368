/* mailbox.h - the lock-free inbox: many producers, one consumer, intrusive.
 *
 * Vyukov's intrusive queue with an "empty" bit in the head word, as ponyc does: the producer whose
 * exchange finds the bit set must schedule the owner; the owner sets it by compare-and-swap as its
 * last act, so no wake-up can be lost. A second bit is the "closed" tag. All orders of two
 * producers and the consumer were enumerated (tests/runtime/test_mailbox_model.c); with a plain
 * store in place of the compare-and-swap that model finds the lost wake-up.
 */
#ifndef WEFT_RUNTIME_MAILBOX_H
#define WEFT_RUNTIME_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/container.h"

enum { WF_CACHE_LINE = 64 };

struct wf_mail {
    _Atomic(struct wf_mail *) next;
};

struct wf_mailbox {
    _Atomic(uintptr_t) head;                       /* last pushed | flags; producers */
    char apart[WF_CACHE_LINE - sizeof(uintptr_t)]; /* padding, so that plain malloc aligns enough */
    struct wf_mail *tail;                          /* next to pop; consumer only */
    struct wf_mail stub;
};

/* A plain list for one thread, first in first out. */
struct wf_mail_list {
    struct wf_mail *first, *last;
};

enum wf_push { WF_PUSH_QUEUED, WF_PUSH_SCHEDULE, WF_PUSH_CLOSED };

void wf_mailbox_init(struct wf_mailbox *box); /* empty, unscheduled */
/* Any thread. SCHEDULE: the caller must put the owner on its loop's run list. CLOSED: not queued.
 */
enum wf_push wf_mailbox_push(struct wf_mailbox *box, struct wf_mail *mail);
/* Consumer. NULL: nothing that can be taken now (a push may be half done). May be called while the
 * box is marked empty: it then gives NULL, or what came in the meantime. */
struct wf_mail *wf_mailbox_pop(struct wf_mailbox *box);
/* Consumer, after pop gave NULL: marks it empty. False: something came or is half pushed; the owner
 * stays scheduled. */
bool wf_mailbox_mark_empty(struct wf_mailbox *box);
/* Consumer. Later pushes give CLOSED; what is queued stays to be popped. */
void wf_mailbox_close(struct wf_mailbox *box);

/* Lists are in the header because every message within a loop passes through two of them. They
 * belong to one thread: relaxed accesses are plain ones. */
static inline void wf_mail_list_push(struct wf_mail_list *list, struct wf_mail *mail)
{
    atomic_store_explicit(&mail->next, NULL, memory_order_relaxed);
    if (list->last == NULL) {
        list->first = mail;
    } else {
        atomic_store_explicit(&list->last->next, mail, memory_order_relaxed);
    }
    list->last = mail;
}

/* NULL: empty. */
static inline struct wf_mail *wf_mail_list_pop(struct wf_mail_list *list)
{
    struct wf_mail *mail = list->first;
    if (mail != NULL) {
        list->first = atomic_load_explicit(&mail->next, memory_order_relaxed);
        if (list->first == NULL) {
            list->last = NULL;
        }
    }
    return mail;
}

#endif
