/* test_timers.c - order, re-arming and cancelling of timers; against a sorted list at random. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "runtime/loop.h"
#include "runtime/timers.h"
#include "tests/runtime/clock_env.h"

enum { TIMERS = 200, STEPS = 5000, FIRED_MAX = 64 };

struct probe {
    struct wf_timer timer;
    char letter;
    char *fired; /* where letters are appended */
    struct wf_loop *loop;
    struct wf_timer *arm, *cancel; /* what its fire does to another */
    uint64_t arm_ns;
};

static void note_fire(struct wf_timer *timer)
{
    struct probe *probe = (struct probe *)timer;
    cr_assert(!wf_timer_is_armed(timer));
    probe->fired[strlen(probe->fired)] = probe->letter;
    if (probe->arm != NULL) {
        wf_timer_arm(probe->loop, probe->arm, probe->arm_ns);
    }
    if (probe->cancel != NULL) {
        wf_timer_cancel(probe->loop, probe->cancel);
    }
}

/* Steps: a letter and a number arm a timer, ~letter cancels, @number sets the time and turns once.
 */
static const struct timer_row {
    const char *name, *steps, *fired;
} timer_rows[] = {
    {"by time", "a3 b1 c2 @3", "bca"},
    {"equal times by arming", "c5 a5 b5 @5", "cab"},
    {"not before its time", "a5 @4", ""},
    {"later ones stay", "a1 b9 @5", "a"},
    {"re-armed later", "a1 b2 a3 @2", "b"},
    {"re-armed earlier", "a5 b2 a1 @2", "ab"},
    {"re-armed to the same time goes last", "a2 b2 a2 @2", "ba"},
    {"cancelled", "a1 b2 ~a @5", "b"},
    {"cancelled while unarmed", "~a a1 ~a ~a @5", ""},
    {"armed again after firing", "a1 @1 a2 @2", "aa"},
    {"never", "a18446744073709551615 @18446744073709551614", ""},
};

static void run_steps(struct wf_loop *loop, struct clock_env *env, struct probe *probes,
                      const char *steps)
{
    while (*steps != '\0') {
        char what = *steps++;
        if (what == '~') {
            wf_timer_cancel(loop, &probes[*steps++ - 'a'].timer);
        } else if (what != ' ') {
            uint64_t number = strtoull(steps, (char **)&steps, 10);
            if (what == '@') {
                env->set_ns = number;
                wf_loop_turn(loop);
            } else {
                wf_timer_arm(loop, &probes[what - 'a'].timer, number);
            }
        }
    }
}

static struct wf_loop *make_loop(struct clock_env *env)
{
    struct wf_loop_options options = {.poller = WF_POLLER_NONE};
    struct wf_loop *loop = NULL;
    cr_assert_eq(wf_loop_new(&options, &loop, NULL), WF_OK);
    wf_loop_set_env(loop, &env->env);
    return loop;
}

Test(timers, fire_in_order)
{
    for (size_t i = 0; i < sizeof timer_rows / sizeof timer_rows[0]; i++) {
        struct clock_env env = {.env.ops = &clock_env_by_hand};
        struct wf_loop *loop = make_loop(&env);
        struct probe probes[3] = {0};
        char fired[FIRED_MAX] = "";
        for (int p = 0; p < 3; p++) {
            probes[p] =
                (struct probe){.timer.fire = note_fire, .letter = (char)('a' + p), .fired = fired};
        }
        run_steps(loop, &env, probes, timer_rows[i].steps);
        cr_assert_str_eq(fired, timer_rows[i].fired, "%s: fired \"%s\"", timer_rows[i].name, fired);
        wf_loop_free(loop);
    }
}

Test(timers, a_fire_may_arm_and_cancel_others)
{
    struct clock_env env = {.env.ops = &clock_env_by_hand};
    struct wf_loop *loop = make_loop(&env);
    char fired[FIRED_MAX] = "";
    struct probe c = {.timer.fire = note_fire, .letter = 'c', .fired = fired};
    struct probe b = {.timer.fire = note_fire, .letter = 'b', .fired = fired};
    struct probe a = {.timer.fire = note_fire,
                      .letter = 'a',
                      .fired = fired,
                      .loop = loop,
                      .arm = &a.timer, /* itself, already due */
                      .arm_ns = 1,
                      .cancel = &b.timer};
    wf_timer_arm(loop, &a.timer, 1);
    wf_timer_arm(loop, &b.timer, 2);
    wf_timer_arm(loop, &c.timer, 0);
    env.set_ns = 5;
    cr_assert(wf_loop_turn(loop));
    cr_assert_str_eq(fired, "ca", "what is armed meanwhile waits for the next pass");
    cr_assert_eq(wf_loop_next_timer_ns(loop), 1);
    wf_loop_turn(loop);
    cr_assert_str_eq(fired, "caa");
    wf_timer_cancel(loop, &a.timer);
    cr_assert_eq(wf_loop_next_timer_ns(loop), WF_NEVER_NS);
    wf_loop_free(loop);
}

static void note_order(struct wf_timer *timer)
{
    (void)timer;
}

/* The least by (due, order) of all that are armed, by looking at each. */
static struct wf_timer *least(struct wf_timer *timers)
{
    struct wf_timer *best = NULL;
    for (size_t i = 0; i < TIMERS; i++) {
        if (wf_timer_is_armed(&timers[i]) &&
            (best == NULL || timers[i].due_ns < best->due_ns ||
             (timers[i].due_ns == best->due_ns && timers[i].order < best->order))) {
            best = &timers[i];
        }
    }
    return best;
}

Test(timers, a_heap_agrees_with_looking_at_each)
{
    struct wf_timers heap = {0};
    static struct wf_timer timers[TIMERS];
    uint64_t state = 12345;
    for (int step = 0; step < STEPS; step++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        struct wf_timer *timer = &timers[(state >> 33) % TIMERS];
        timer->fire = note_order;
        if ((state >> 60) % 4 == 0) {
            wf_timers_cancel(&heap, timer);
        } else {
            wf_timers_arm(&heap, timer, (state >> 20) % 50);
        }
        struct wf_timer *best = least(timers);
        cr_assert_eq(wf_timers_next_ns(&heap), best != NULL ? best->due_ns : WF_NEVER_NS, "step %d",
                     step);
        cr_assert(best == NULL || heap.heap[0] == best, "step %d", step);
    }
    wf_timers_fini(&heap);
}
