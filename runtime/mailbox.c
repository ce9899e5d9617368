/* mailbox.c - the lock-free inbox: push by any thread, pop by one.
 *
 * `head` is the last node pushed plus two flag bits; following `next` from `tail` meets all nodes.
 * The stub stands in when everything else was taken, so that a node can be given away while it was
 * the last. A push is two steps, (1) head := node by compare-and-swap, (2) old head's next := node;
 * between them the chain has a gap, which pop sees as "nothing now" and mark_empty as "not empty".
 *
 * A compare-and-swap rather than Vyukov's exchange in step 1, because a closed box must keep its
 * tag; an old head seen again after it was taken and pushed once more (ABA) is the last node all
 * the same, which is all that step 2 relies on.
 */
#include "runtime/mailbox.h"

#define FLAG_EMPTY ((uintptr_t)1)
#define FLAG_CLOSED ((uintptr_t)2)
#define FLAGS (FLAG_EMPTY | FLAG_CLOSED)

static struct wf_mail *mail_of(uintptr_t head)
{
    return (struct wf_mail *)(head & ~FLAGS);
}

void wf_mailbox_init(struct wf_mailbox *box)
{
    atomic_init(&box->stub.next, NULL);
    atomic_init(&box->head, (uintptr_t)&box->stub | FLAG_EMPTY);
    box->tail = &box->stub;
}

/* Links `mail` behind the last node; gives the head word that it replaced. `keep` are the flags
 * that stay; a box with a flag in `refuse` is left alone. */
static uintptr_t append(struct wf_mailbox *box, struct wf_mail *mail, uintptr_t keep,
                        uintptr_t refuse)
{
    atomic_store_explicit(&mail->next, NULL, memory_order_relaxed);
    uintptr_t old = atomic_load_explicit(&box->head, memory_order_relaxed);
    /* Release: whoever links behind `mail` next must find its next already NULL. Acquire pairs with
     * that release of the push before, whose node is written below; a relaxed one could have our
     * link overwritten by that NULL. */
    do {
        if (old & refuse) {
            return old;
        }
    } while (!atomic_compare_exchange_weak_explicit(&box->head, &old,
                                                    (uintptr_t)mail | (old & keep),
                                                    memory_order_acq_rel, memory_order_relaxed));
    /* Release: pairs with the acquire of next in pop; the message's contents travel by it. */
    atomic_store_explicit(&mail_of(old)->next, mail, memory_order_release);
    return old;
}

enum wf_push wf_mailbox_push(struct wf_mailbox *box, struct wf_mail *mail)
{
    uintptr_t old = append(box, mail, 0, FLAG_CLOSED);
    if (old & FLAG_CLOSED) {
        return WF_PUSH_CLOSED;
    }
    return old & FLAG_EMPTY ? WF_PUSH_SCHEDULE : WF_PUSH_QUEUED;
}

static struct wf_mail *next_of(struct wf_mail *mail)
{
    return atomic_load_explicit(&mail->next, memory_order_acquire);
}

struct wf_mail *wf_mailbox_pop(struct wf_mailbox *box)
{
    struct wf_mail *tail = box->tail, *next = next_of(tail);
    if (tail == &box->stub) {
        if (next == NULL) {
            return NULL;
        }
        box->tail = tail = next;
        next = next_of(tail);
    }
    if (next == NULL) {
        if (mail_of(atomic_load_explicit(&box->head, memory_order_relaxed)) != tail) {
            return NULL; /* someone is between the two steps of a push behind `tail` */
        }
        /* `tail` is the last: put the stub behind it, so that it can go. A node in the box means
         * that the empty bit is clear, so only the closed tag must be kept. */
        append(box, &box->stub, FLAG_CLOSED, 0);
        next = next_of(tail);
        if (next == NULL) {
            return NULL; /* a push came in front of the stub and is half done */
        }
    }
    box->tail = next;
    return tail;
}

bool wf_mailbox_mark_empty(struct wf_mailbox *box)
{
    if (box->tail != &box->stub) {
        return false;
    }
    uintptr_t closed =
        atomic_load_explicit(&box->head, memory_order_relaxed) & FLAG_CLOSED; /* ours alone */
    uintptr_t expected = (uintptr_t)&box->stub | closed;
    /* Fails when a push came since pop looked: a plain store here would lose it, and its sender,
     * having seen no empty bit, would not schedule us. Release pairs with the acquire in append. */
    return atomic_compare_exchange_strong_explicit(&box->head, &expected, expected | FLAG_EMPTY,
                                                   memory_order_release, memory_order_relaxed);
}

void wf_mailbox_close(struct wf_mailbox *box)
{
    atomic_fetch_or_explicit(&box->head, FLAG_CLOSED, memory_order_acq_rel);
}
