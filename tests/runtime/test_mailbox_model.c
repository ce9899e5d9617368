/* test_mailbox_model.c - every interleaving of a small run of the mailbox's algorithm.
 *
 * Two producers push two messages each; one consumer pops, marks empty, and may close. Each step
 * below is one access to memory that another thread can see, in the order of runtime/mailbox.c, and
 * memory is sequentially consistent (what weaker orders do is for the thread sanitizer and the
 * comments there). All reachable states are visited. Wrong are: a message that is neither popped
 * nor refused when nothing can move any more (a lost wake-up), an owner scheduled twice, a message
 * popped twice or out of its producer's order.
 *
 * One row publishes "empty" by a plain store in place of the compare-and-swap; the model must find
 * the lost wake-up, which shows that it can.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/within.h"

enum {
    PRODUCERS = 2,
    EACH = 2,
    STUB = 0,
    NODES = 1 + PRODUCERS * EACH,
    NONE = 0xff,
    NODE_MASK = 0x0f,
    EMPTY = 0x40,
    CLOSED = 0x80,
    FIRST_TABLE_BITS = 16,
};

enum producer_step { P_LOAD, P_SWAP, P_LINK, P_SCHEDULE };
enum consumer_step {
    C_OFF,         /* not scheduled, or in the run queue */
    C_NEXT,        /* pop: reads tail's next */
    C_SECOND_NEXT, /* pop: tail was the stub, reads the next one's next */
    C_HEAD,        /* pop: is tail the last? */
    C_STUB_LOAD,   /* pop: puts the stub behind it */
    C_STUB_SWAP,
    C_STUB_LINK,
    C_LAST_NEXT, /* pop: reads tail's next again */
    C_MARK_LOAD, /* mark_empty */
    C_MARK_SWAP,
};

/* Only bytes, so that states are compared and hashed as memory. */
struct state {
    uint8_t next[NODES]; /* NONE, or a node */
    uint8_t head;        /* a node and flags */
    uint8_t tail;
    uint8_t producer[PRODUCERS], sent[PRODUCERS], old[PRODUCERS], popped[PRODUCERS];
    uint8_t consumer, stub_old, expected;
    uint8_t run_queue, is_closed, refused, wrong_order;
};

struct model_row {
    const char *name;
    bool plain_store; /* mark_empty without the compare */
    bool may_close;
    bool again; /* each producer sends one message twice, the second time when it was popped */
    bool loses; /* what the model must find */
};

struct model {
    const struct model_row *row;
    struct state *seen;
    bool *used;
    size_t bits, count;
    size_t finals, lost, twice, disorder;
};

/* --- the steps ---------------------------------------------------------------------------------
 */

static uint8_t node_of(const struct model *model, int p, uint8_t index)
{
    return (uint8_t)(1 + p * EACH + (model->row->again ? 0 : index));
}

/* False: this producer cannot move. */
static bool step_producer(const struct model *model, struct state *s, int p)
{
    uint8_t node = node_of(model, p, s->sent[p]);
    switch (s->producer[p]) {
    case P_LOAD:
        if (s->sent[p] == EACH || (model->row->again && s->popped[p] != s->sent[p])) {
            return false;
        }
        s->next[node] = NONE;
        s->old[p] = s->head;
        s->producer[p] = P_SWAP;
        return true;
    case P_SWAP:
        if (s->old[p] & CLOSED) {
            s->refused++;
            s->sent[p]++;
            s->popped[p] += model->row->again; /* a refused message is at hand again */
            s->producer[p] = P_LOAD;
        } else if (s->head != s->old[p]) {
            s->old[p] = s->head;
        } else {
            s->head = node;
            s->producer[p] = P_LINK;
        }
        return true;
    case P_LINK:
        s->next[s->old[p] & NODE_MASK] = node;
        s->producer[p] = P_SCHEDULE;
        return true;
    default:
        s->run_queue += (s->old[p] & EMPTY) != 0;
        s->old[p] = 0;
        s->sent[p]++;
        s->producer[p] = P_LOAD;
        return true;
    }
}

static void take(const struct model *model, struct state *s, uint8_t next)
{
    int p = (s->tail - 1) / EACH;
    if (s->tail == STUB || s->tail != node_of(model, p, s->popped[p])) {
        s->wrong_order = 1;
        return;
    }
    s->popped[p]++;
    s->tail = next;
    s->consumer = C_NEXT;
}

static void pop_gave_nothing(struct state *s)
{
    if (s->tail == STUB) {
        s->consumer = C_MARK_LOAD;
    } else {
        s->run_queue++; /* mark_empty says no without a look */
        s->consumer = C_OFF;
    }
}

static void step_pop(const struct model *model, struct state *s)
{
    uint8_t next = s->next[s->tail];
    switch (s->consumer) {
    case C_NEXT:
        if (s->tail == STUB && next == NONE) {
            pop_gave_nothing(s);
        } else if (s->tail == STUB) {
            s->tail = next;
            s->consumer = C_SECOND_NEXT;
        } else if (next != NONE) {
            take(model, s, next);
        } else {
            s->consumer = C_HEAD;
        }
        break;
    case C_SECOND_NEXT:
        if (next != NONE) {
            take(model, s, next);
        } else {
            s->consumer = C_HEAD;
        }
        break;
    case C_HEAD:
        if ((s->head & NODE_MASK) == s->tail) {
            s->consumer = C_STUB_LOAD;
        } else {
            pop_gave_nothing(s);
        }
        break;
    default: /* C_LAST_NEXT */
        if (next != NONE) {
            take(model, s, next);
        } else {
            pop_gave_nothing(s);
        }
    }
}

static void step_stub(struct state *s)
{
    switch (s->consumer) {
    case C_STUB_LOAD:
        s->next[STUB] = NONE;
        s->stub_old = s->head;
        s->consumer = C_STUB_SWAP;
        break;
    case C_STUB_SWAP:
        if (s->head != s->stub_old) {
            s->stub_old = s->head;
        } else {
            s->head = (uint8_t)(STUB | (s->stub_old & CLOSED));
            s->consumer = C_STUB_LINK;
        }
        break;
    default: /* C_STUB_LINK */
        s->next[s->stub_old & NODE_MASK] = STUB;
        s->stub_old = 0;
        s->consumer = C_LAST_NEXT;
    }
}

static bool step_consumer(const struct model *model, struct state *s)
{
    switch (s->consumer) {
    case C_OFF:
        if (s->run_queue == 0) {
            return false;
        }
        s->run_queue--;
        s->consumer = C_NEXT;
        return true;
    case C_NEXT:
    case C_SECOND_NEXT:
    case C_HEAD:
    case C_LAST_NEXT:
        step_pop(model, s);
        return true;
    case C_STUB_LOAD:
    case C_STUB_SWAP:
    case C_STUB_LINK:
        step_stub(s);
        return true;
    case C_MARK_LOAD:
        s->expected = (uint8_t)(STUB | (s->head & CLOSED));
        s->consumer = C_MARK_SWAP;
        return true;
    default: /* C_MARK_SWAP */
        if (model->row->plain_store || s->head == s->expected) {
            s->head = s->expected | EMPTY;
        } else {
            s->run_queue++;
        }
        s->expected = 0;
        s->consumer = C_OFF;
        return true;
    }
}

/* Between two messages, or while nothing is scheduled, the owner may close. */
static bool step_close(const struct model *model, struct state *s)
{
    if (!model->row->may_close || s->is_closed || (s->consumer != C_OFF && s->consumer != C_NEXT)) {
        return false;
    }
    s->head |= CLOSED;
    s->is_closed = 1;
    return true;
}

/* --- visiting all states -----------------------------------------------------------------------
 */

static uint64_t hash_of(const struct state *s)
{
    const uint8_t *bytes = (const uint8_t *)s;
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof *s; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash ^ hash >> 29;
}

static size_t slot_of(const struct model *model, const struct state *s)
{
    size_t mask = ((size_t)1 << model->bits) - 1, i = hash_of(s) & mask;
    while (model->used[i] && memcmp(&model->seen[i], s, sizeof *s) != 0) {
        i = (i + 1) & mask;
    }
    return i;
}

static void make_table(struct model *model, size_t bits)
{
    model->bits = bits;
    model->seen = calloc((size_t)1 << bits, sizeof *model->seen);
    model->used = calloc((size_t)1 << bits, sizeof *model->used);
    cr_assert(model->seen != NULL && model->used != NULL);
}

static void grow_table(struct model *model)
{
    struct model before = *model;
    make_table(model, before.bits + 1);
    for (size_t i = 0; i < (size_t)1 << before.bits; i++) {
        if (before.used[i]) {
            size_t slot = slot_of(model, &before.seen[i]);
            model->used[slot] = true;
            model->seen[slot] = before.seen[i];
        }
    }
    free(before.seen);
    free(before.used);
}

/* True the first time. */
static bool is_new(struct model *model, const struct state *s)
{
    if (model->count * 2 > (size_t)1 << model->bits) {
        grow_table(model);
    }
    size_t slot = slot_of(model, s);
    if (model->used[slot]) {
        return false;
    }
    model->used[slot] = true;
    model->seen[slot] = *s;
    model->count++;
    return true;
}

static void judge_final(struct model *model, const struct state *s)
{
    unsigned done = model->row->again ? 0 : s->refused;
    for (int p = 0; p < PRODUCERS; p++) {
        done += s->popped[p];
    }
    model->finals++;
    model->lost += done != PRODUCERS * EACH;
}

static void visit(struct model *model, const struct state *s)
{
    if (!is_new(model, s)) {
        return;
    }
    if (s->run_queue + (s->consumer != C_OFF) > 1) {
        model->twice++;
        return;
    }
    if (s->wrong_order) {
        model->disorder++;
        return;
    }
    bool moved = false;
    for (int p = 0; p < PRODUCERS; p++) {
        struct state after = *s;
        if (step_producer(model, &after, p)) {
            moved = true;
            visit(model, &after);
        }
    }
    struct state after = *s;
    if (step_consumer(model, &after)) {
        moved = true;
        visit(model, &after);
    }
    after = *s;
    if (step_close(model, &after)) {
        moved = true;
        visit(model, &after);
    }
    if (!moved) {
        judge_final(model, s);
    }
}

static const struct model_row rows[] = {
    {"as built", false, false, false, false},
    {"closed at any time", false, true, false, false},
    {"messages sent again", false, false, true, false},
    {"messages sent again, closed at any time", false, true, true, false},
    {"empty published by a plain store", true, false, false, true},
    {"plain store, messages sent again", true, false, true, true},
};

Test(mailbox_model, every_interleaving, .init = within_minutes)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model model = {.row = &rows[i]};
        struct state start;
        memset(&start, 0, sizeof start);
        memset(start.next, NONE, sizeof start.next);
        start.head = STUB | EMPTY;
        make_table(&model, FIRST_TABLE_BITS);
        visit(&model, &start);
        free(model.seen);
        free(model.used);
        cr_log_info("%s: %zu states, %zu final, lost %zu", rows[i].name, model.count, model.finals,
                    model.lost);
        cr_assert_gt(model.count, 1000, "%s", rows[i].name);
        cr_assert_eq(model.lost > 0, rows[i].loses, "%s: %zu of %zu ends lost a message",
                     rows[i].name, model.lost, model.finals);
        if (!rows[i].loses) {
            cr_assert_gt(model.finals, 0, "%s", rows[i].name);
            cr_assert_eq(model.twice, 0, "%s: scheduled twice", rows[i].name);
            cr_assert_eq(model.disorder, 0, "%s: out of order", rows[i].name);
        }
    }
}
