/* test_actor.c - order, lanes, quotas, giving back, and the hand-over between threads. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/loop.h"
#include "tests/runtime/clock_env.h"
#include "tests/within.h"

enum { SEEN_MAX = 512 };

struct recorder {
    struct wf_actor actor;
    uint32_t seen[SEEN_MAX];
    unsigned count, returned;
    uint32_t close_at; /* closes itself at this kind, 0 never */
    unsigned *released;
};

struct note {
    struct wf_msg msg;
    unsigned *released;
};

static void release_note(struct wf_msg *msg)
{
    (*((struct note *)msg)->released)++;
}

static enum wf_verdict record(struct wf_actor *self, struct wf_msg *msg)
{
    struct recorder *recorder = (struct recorder *)self;
    cr_assert(recorder->count < SEEN_MAX);
    recorder->seen[recorder->count++] = msg->kind;
    recorder->returned += msg->returned;
    if (recorder->close_at != 0 && msg->kind == recorder->close_at) {
        wf_actor_close(self);
    }
    return WF_FREE;
}

static struct wf_loop *make_loop(void)
{
    struct wf_loop_options options = {.poller = WF_POLLER_NONE};
    struct wf_loop *loop = NULL;
    struct wf_error error;
    cr_assert_eq(wf_loop_new(&options, &loop, &error), WF_OK, "%s", error.text);
    return loop;
}

static void turn_until_idle(struct wf_loop *loop)
{
    while (wf_loop_turn(loop)) {
    }
    cr_assert(!wf_loop_has_work(loop));
}

static void end(struct recorder *recorder)
{
    wf_actor_close(&recorder->actor);
    wf_actor_fini(&recorder->actor);
}

/* Each row: what is sent, in which lanes, before and after the loop has a thread; what is seen. */
static const struct order_row {
    const char *name;
    const char *sent; /* capital: control */
    const char *seen;
} order_rows[] = {
    {"one lane keeps its order", "abcdef", "abcdef"},
    {"control goes first", "abAcBd", "ABabcd"},
    {"only control", "ABC", "ABC"},
    {"nothing", "", ""},
};

Test(actor, messages_arrive_in_order_and_control_first)
{
    for (size_t i = 0; i < sizeof order_rows / sizeof order_rows[0]; i++) {
        for (int bound = 0; bound < 2; bound++) {
            const struct order_row *row = &order_rows[i];
            struct wf_loop *loop = make_loop();
            struct recorder recorder = {0};
            wf_actor_init(&recorder.actor, loop, "recorder", record);
            if (bound) {
                wf_loop_turn(loop); /* from now on sends of this thread go to the lists directly */
            }
            unsigned released = 0;
            struct note notes[8] = {0};
            for (size_t n = 0; row->sent[n] != '\0'; n++) {
                notes[n].released = &released;
                notes[n].msg =
                    (struct wf_msg){.kind = (uint32_t)row->sent[n],
                                    .release = release_note,
                                    .lane = row->sent[n] < 'a' ? WF_LANE_CONTROL : WF_LANE_DATA};
                wf_send(&recorder.actor, &notes[n].msg);
            }
            turn_until_idle(loop);
            cr_assert_eq(recorder.count, strlen(row->seen), "%s", row->name);
            cr_assert_eq(released, strlen(row->seen), "%s", row->name);
            for (unsigned n = 0; n < recorder.count; n++) {
                cr_assert_eq(recorder.seen[n], (uint32_t)row->seen[n], "%s: %u", row->name, n);
            }
            end(&recorder);
            wf_loop_free(loop);
        }
    }
}

Test(actor, a_turn_takes_at_most_its_quota)
{
    struct wf_loop *loop = make_loop();
    struct recorder recorder = {0};
    wf_actor_init(&recorder.actor, loop, "recorder", record);
    struct wf_msg messages[WF_TURN_MESSAGES + 1] = {0};
    for (unsigned i = 0; i <= WF_TURN_MESSAGES; i++) {
        wf_send(&recorder.actor, &messages[i]);
    }
    cr_assert(wf_loop_turn(loop));
    cr_assert_eq(recorder.count, WF_TURN_MESSAGES);
    cr_assert(wf_loop_has_work(loop));
    cr_assert(wf_loop_turn(loop));
    cr_assert_eq(recorder.count, WF_TURN_MESSAGES + 1);
    cr_assert_eq(wf_loop_stats(loop).messages, WF_TURN_MESSAGES + 1);
    end(&recorder);
    wf_loop_free(loop);
}

/* Each row: who is closed when, and what becomes of the message to it. */
static const struct closed_row {
    const char *name;
    bool bound, close_before_send, has_from, from_closed;
    unsigned released, came_back;
} closed_rows[] = {
    {"comes back, same thread", true, true, true, false, 1, 1},
    {"comes back through the inbox", false, true, true, false, 1, 1},
    {"nobody to give it back to", true, true, false, false, 1, 0},
    {"the sender is closed too", true, true, true, true, 1, 0},
    {"queued when it closes", true, false, true, false, 1, 1},
    {"in the inbox when it closes", false, false, true, false, 1, 1},
    {"in the inbox when it closes, no sender", false, false, false, false, 1, 0},
};

Test(actor, a_message_to_a_closed_actor_is_not_lost)
{
    for (size_t i = 0; i < sizeof closed_rows / sizeof closed_rows[0]; i++) {
        const struct closed_row *row = &closed_rows[i];
        struct wf_loop *loop = make_loop();
        struct recorder from = {0}, to = {0};
        wf_actor_init(&from.actor, loop, "from", record);
        wf_actor_init(&to.actor, loop, "to", record);
        if (row->bound) {
            wf_loop_turn(loop);
        }
        unsigned released = 0;
        struct note note = {.msg = {.kind = 7,
                                    .release = release_note,
                                    .from = row->has_from ? &from.actor : NULL,
                                    .returned = true},
                            .released = &released};
        if (row->from_closed) {
            wf_actor_close(&from.actor);
        }
        if (row->close_before_send) {
            wf_actor_close(&to.actor);
        }
        wf_send(&to.actor, &note.msg);
        wf_actor_close(&to.actor);
        turn_until_idle(loop);
        cr_assert_eq(to.count, 0, "%s", row->name);
        cr_assert_eq(from.returned, row->came_back, "%s", row->name);
        cr_assert_eq(released, row->released, "%s", row->name);
        end(&from);
        end(&to);
        wf_loop_free(loop);
    }
}

Test(actor, closing_in_a_handler_gives_back_the_rest)
{
    struct wf_loop *loop = make_loop();
    struct recorder from = {0}, to = {.close_at = 2};
    wf_actor_init(&from.actor, loop, "from", record);
    wf_actor_init(&to.actor, loop, "to", record);
    struct wf_msg messages[4] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        messages[i] = (struct wf_msg){.kind = i + 1, .from = &from.actor};
        wf_send(&to.actor, &messages[i]);
    }
    turn_until_idle(loop);
    cr_assert_eq(to.count, 2);
    cr_assert_eq(from.returned, 2);
    cr_assert_eq(from.seen[0], 3);
    cr_assert_eq(from.seen[1], 4);
    end(&from);
    end(&to);
    wf_loop_free(loop);
}

Test(actor, an_actor_may_go_while_it_is_scheduled)
{
    struct wf_loop *loop = make_loop();
    struct recorder first = {0}, second = {0}, third = {0};
    wf_actor_init(&first.actor, loop, "first", record);
    wf_actor_init(&second.actor, loop, "second", record);
    wf_actor_init(&third.actor, loop, "third", record);
    wf_loop_turn(loop);
    struct wf_msg messages[3] = {0};
    wf_send(&first.actor, &messages[0]);
    wf_send(&second.actor, &messages[1]);
    wf_send(&third.actor, &messages[2]);
    end(&second);
    turn_until_idle(loop);
    cr_assert_eq(first.count, 1);
    cr_assert_eq(second.count, 0);
    cr_assert_eq(third.count, 1);
    end(&first);
    end(&third);
    wf_loop_free(loop);
}

Test(actor, zeroed_memory_may_be_finished)
{
    struct wf_actor actor = {0};
    wf_actor_fini(&actor);
}

/* Without a poller the env chooses: the last of those left runs next, one message is the least. */
Test(actor, the_simulator_chooses_who_runs)
{
    struct clock_env last = {.env.ops = &clock_env_by_hand},
                     first = {.env.ops = &clock_env_choosing_first};
    struct recorder a = {0}, b = {0}, c = {0};
    struct recorder *all[] = {&a, &b, &c};
    struct wf_loop *loop = make_loop();
    wf_loop_set_env(loop, &last.env);
    struct wf_msg messages[6] = {0};
    for (unsigned i = 0; i < 3; i++) {
        wf_actor_init(&all[i]->actor, loop, "chosen", record);
        wf_send(&all[i]->actor, &messages[2 * i]);
        wf_send(&all[i]->actor, &messages[2 * i + 1]);
    }
    turn_until_idle(loop);
    cr_assert_eq(a.count + b.count + c.count, 6);

    wf_loop_set_env(loop, &first.env);
    wf_send(&a.actor, &messages[0]);
    wf_send(&a.actor, &messages[1]);
    cr_assert(wf_loop_turn(loop));
    cr_assert_eq(a.count, 3, "choose gave 0, so one message is taken");
    turn_until_idle(loop);
    cr_assert_eq(a.count, 4);
    for (unsigned i = 0; i < 3; i++) {
        end(all[i]);
    }
    wf_loop_free(loop);
}

/* --- two threads -------------------------------------------------------------------------------
 */

enum { CROSSING = 20000 };

struct counter {
    struct wf_actor actor;
    struct wf_loop *loop;
    uint32_t expected;
};

static enum wf_verdict count_up(struct wf_actor *self, struct wf_msg *msg)
{
    struct counter *counter = (struct counter *)self;
    cr_assert_eq(msg->kind, counter->expected);
    if (++counter->expected == CROSSING) {
        wf_loop_stop(counter->loop);
    }
    return WF_FREE;
}

static void *run_loop(void *argument)
{
    wf_loop_run(argument);
    return NULL;
}

static const struct crossing_row {
    const char *name;
    enum wf_poller_kind poller;
    uint64_t spin_ns;
} crossing_rows[] = {
    {"epoll, spinning", WF_POLLER_EPOLL, WF_SPIN_DEFAULT_NS},
    {"epoll, sleeping at once", WF_POLLER_EPOLL, 0},
    {"libevent, spinning", WF_POLLER_LIBEVENT, WF_SPIN_DEFAULT_NS},
    {"libevent, sleeping at once", WF_POLLER_LIBEVENT, 0},
};

Test(actor, another_threads_messages_arrive_all_and_in_order, .init = within_minutes)
{
    for (size_t i = 0; i < sizeof crossing_rows / sizeof crossing_rows[0]; i++) {
        const struct crossing_row *row = &crossing_rows[i];
        struct wf_loop_options options = {.poller = row->poller, .spin_ns = row->spin_ns};
        struct clock_env env = {.env.ops = &clock_env_real};
        struct counter counter = {0};
        struct wf_error error;
        cr_assert_eq(wf_loop_new(&options, &counter.loop, &error), WF_OK, "%s", error.text);
        wf_loop_set_env(counter.loop, &env.env);
        wf_actor_init(&counter.actor, counter.loop, "counter", count_up);
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, run_loop, counter.loop), 0);
        struct wf_msg *messages = calloc(CROSSING, sizeof *messages);
        for (uint32_t n = 0; n < CROSSING; n++) {
            messages[n].kind = n;
            messages[n].lane = WF_LANE_DATA;
            wf_send(&counter.actor, &messages[n]);
        }
        pthread_join(thread, NULL);
        cr_assert_eq(counter.expected, CROSSING, "%s", row->name);
        wf_actor_close(&counter.actor);
        wf_actor_fini(&counter.actor);
        wf_loop_free(counter.loop);
        free(messages);
    }
}
