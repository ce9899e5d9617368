/* tsan_mailbox.c - three producers and a consumer on one mailbox, real threads, watched by the
 * thread sanitizer: contents travel with the message, none is lost, each producer's order is kept,
 * and after closing every message is either popped or refused.
 */
#include <pthread.h>
#include <sched.h>

#include "runtime/mailbox.h"
#include "tests/tsan/check.h"

enum { PRODUCERS = 3, EACH = 20000 };

struct parcel {
    struct wf_mail mail;
    unsigned producer, number; /* plain: the sanitizer sees whether pushing orders them */
};

struct shared {
    struct wf_mailbox box;
    atomic_int scheduled; /* stands for the run list: 1 while the consumer must look */
};

struct producer {
    struct shared *shared;
    unsigned number, refused;
    pthread_t thread;
};

static void *produce(void *argument)
{
    struct producer *producer = argument;
    for (unsigned i = 0; i < EACH; i++) {
        struct parcel *parcel = malloc(sizeof *parcel);
        CHECK(parcel != NULL);
        parcel->producer = producer->number;
        parcel->number = i;
        switch (wf_mailbox_push(&producer->shared->box, &parcel->mail)) {
        case WF_PUSH_SCHEDULE:
            CHECK(atomic_exchange(&producer->shared->scheduled, 1) == 0);
            break;
        case WF_PUSH_QUEUED:
            break;
        case WF_PUSH_CLOSED:
            producer->refused++;
            free(parcel);
        }
    }
    return NULL;
}

/* Pops until nothing comes; how many came. */
static unsigned consume(struct shared *shared, unsigned *next_of_producer)
{
    unsigned count = 0;
    for (struct wf_mail *mail; (mail = wf_mailbox_pop(&shared->box)) != NULL; count++) {
        struct parcel *parcel = (struct parcel *)mail;
        CHECK(parcel->number == next_of_producer[parcel->producer]);
        next_of_producer[parcel->producer]++;
        free(parcel);
    }
    return count;
}

/* One turn of the owner when it is scheduled. */
static unsigned turn(struct shared *shared, unsigned *next_of_producer)
{
    if (atomic_load(&shared->scheduled) == 0) {
        sched_yield();
        return 0;
    }
    unsigned count = consume(shared, next_of_producer);
    /* Cleared before the mark: once the box is empty a producer may set it again. */
    atomic_store(&shared->scheduled, 0);
    if (!wf_mailbox_mark_empty(&shared->box)) {
        atomic_store(&shared->scheduled, 1);
    }
    return count;
}

static void run(unsigned close_after)
{
    struct shared shared = {0};
    struct producer producers[PRODUCERS];
    unsigned next_of_producer[PRODUCERS] = {0}, popped = 0, refused = 0;
    wf_mailbox_init(&shared.box);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.shared = &shared, .number = i};
        CHECK(pthread_create(&producers[i].thread, NULL, produce, &producers[i]) == 0);
    }
    while (popped < close_after) {
        popped += turn(&shared, next_of_producer);
    }
    if (close_after < PRODUCERS * EACH) {
        wf_mailbox_close(&shared.box);
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        pthread_join(producers[i].thread, NULL);
        refused += producers[i].refused;
    }
    popped += consume(&shared, next_of_producer);
    CHECK(popped + refused == PRODUCERS * EACH);
    printf("close after %u: popped %u, refused %u\n", close_after, popped, refused);
}

int main(void)
{
    run(PRODUCERS * EACH);
    run(1000);
    run(0);
    return 0;
}
