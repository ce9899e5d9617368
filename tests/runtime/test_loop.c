/* test_loop.c - a loop over each poller: watches, sleeping, stopping, changing threads. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "runtime/log.h"
#include "runtime/loop.h"
#include "runtime/trace.h"
#include "tests/runtime/clock_env.h"
#include "tests/within.h"

enum { MS = 1000000 };

static const struct poller_row {
    const char *name;
    enum wf_poller_kind kind;
    uint64_t spin_ns;
} poller_rows[] = {
    {"epoll", WF_POLLER_EPOLL, WF_SPIN_DEFAULT_NS},
    {"epoll, no spin", WF_POLLER_EPOLL, 0},
    {"libevent", WF_POLLER_LIBEVENT, WF_SPIN_DEFAULT_NS},
    {"libevent, no spin", WF_POLLER_LIBEVENT, 0},
};

struct fixture {
    const char *name;
    struct clock_env env;
    struct wf_loop *loop;
};

static void on_each(void (*body)(struct fixture *f))
{
    for (size_t i = 0; i < sizeof poller_rows / sizeof poller_rows[0]; i++) {
        const struct poller_row *row = &poller_rows[i];
        struct wf_loop_options options = {.poller = row->kind, .spin_ns = row->spin_ns};
        struct fixture f = {.name = row->name, .env.env.ops = &clock_env_real};
        struct wf_error error;
        cr_assert_eq(wf_loop_new(&options, &f.loop, &error), WF_OK, "%s", error.text);
        wf_loop_set_env(f.loop, &f.env.env);
        body(&f);
        wf_loop_free(f.loop);
    }
}

/* --- sleeping ----------------------------------------------------------------------------------
 */

struct stopper {
    struct wf_timer timer;
    struct wf_loop *loop;
};

static void stop_on_time(struct wf_timer *timer)
{
    wf_loop_stop(((struct stopper *)timer)->loop);
}

/* Whatever the machine's load: a loop that waits for one timer blocks once, perhaps a little more
 * when the clock and the kernel's timer disagree, but never every millisecond. */
static void check_idle(struct fixture *f)
{
    struct stopper stopper = {.timer.fire = stop_on_time, .loop = f->loop};
    wf_timer_arm(f->loop, &stopper.timer, wf_loop_now_ns(f->loop) + 300 * MS);
    wf_loop_run(f->loop);
    struct wf_loop_stats stats = wf_loop_stats(f->loop);
    cr_assert_geq(stats.sleeps, 1, "%s", f->name);
    cr_assert_leq(stats.sleeps, 4, "%s: %llu sleeps", f->name, (unsigned long long)stats.sleeps);
    cr_assert_eq(stats.messages, 0);
}

Test(loop, an_idle_loop_does_not_wake, .init = within_minutes)
{
    on_each(check_idle);
}

static void check_spins(struct fixture *f)
{
    struct stopper stopper = {.timer.fire = stop_on_time, .loop = f->loop};
    wf_timer_arm(f->loop, &stopper.timer, wf_loop_now_ns(f->loop) + MS);
    wf_loop_run(f->loop);
    cr_assert_eq(wf_loop_stats(f->loop).spins, 0, "%s", f->name);
}

Test(loop, on_one_processor_it_does_not_spin)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    on_each(check_spins);
}

/* --- ping-pong between two threads: all sleeps are for something -------------------------------
 */

enum { ROUNDS = 2000 };

struct player {
    struct wf_actor actor;
    struct fixture *fixture;
    struct player *other;
    uint32_t rounds;
    bool keeps_the_last; /* a plays first, so b has the ball at the end */
};

static enum wf_verdict play(struct wf_actor *self, struct wf_msg *msg)
{
    struct player *player = (struct player *)self;
    bool is_over = ++player->rounds == ROUNDS;
    if (is_over) {
        wf_loop_stop(player->fixture->loop);
    }
    if (!is_over || !player->keeps_the_last) {
        wf_send(&player->other->actor, msg);
    }
    return WF_KEEP;
}

static void *run_loop(void *argument)
{
    wf_loop_run(argument);
    return NULL;
}

static void check_two_loops(struct fixture *f)
{
    struct fixture other = *f;
    struct wf_loop_options options = {.poller = WF_POLLER_EPOLL};
    cr_assert_eq(wf_loop_new(&options, &other.loop, NULL), WF_OK);
    wf_loop_set_env(other.loop, &other.env.env);
    struct player a = {.fixture = f}, b = {.fixture = &other, .other = &a, .keeps_the_last = true};
    a.other = &b;
    struct wf_msg ball = {.lane = WF_LANE_DATA};
    wf_actor_init(&a.actor, f->loop, "a", play);
    wf_actor_init(&b.actor, other.loop, "b", play);
    pthread_t threads[2];
    cr_assert_eq(pthread_create(&threads[0], NULL, run_loop, f->loop), 0);
    cr_assert_eq(pthread_create(&threads[1], NULL, run_loop, other.loop), 0);
    wf_send(&a.actor, &ball);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    cr_assert_eq(a.rounds, ROUNDS, "%s", f->name);
    cr_assert_eq(b.rounds, ROUNDS, "%s", f->name);
    wf_actor_close(&a.actor);
    wf_actor_close(&b.actor);
    wf_actor_fini(&a.actor);
    wf_actor_fini(&b.actor);
    wf_loop_free(other.loop);
}

Test(loop, two_loops_wake_each_other, .init = within_minutes)
{
    on_each(check_two_loops);
}

/* --- watches -----------------------------------------------------------------------------------
 */

struct pipe_end {
    struct wf_watch watch;
    struct fixture *fixture;
    struct wf_watch *removes; /* this one, when it is called */
    unsigned called;
};

static void read_byte(struct wf_watch *watch, unsigned events)
{
    struct pipe_end *end = (struct pipe_end *)watch;
    char byte;
    end->called++;
    cr_assert(events & WF_READABLE);
    cr_assert_eq(read(watch->fd, &byte, 1), 1);
    if (end->removes != NULL) {
        wf_watch_remove(end->fixture->loop, end->removes);
    }
    if (byte == 's') {
        wf_loop_stop(end->fixture->loop);
    }
}

static void check_watch(struct fixture *f)
{
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    struct pipe_end end = {.watch = {.fd = fds[0], .events = WF_READABLE, .ready = read_byte},
                           .fixture = f};
    cr_assert_eq(wf_watch_add(f->loop, &end.watch), WF_OK);
    cr_assert_not(wf_loop_turn(f->loop), "%s: nothing came", f->name);
    cr_assert_eq(write(fds[1], "xys", 3), 3);
    wf_loop_run(f->loop);
    cr_assert_eq(end.called, 3, "%s", f->name);
    cr_assert_eq(wf_watch_modify(f->loop, &end.watch, 0), WF_OK);
    cr_assert_eq(write(fds[1], "x", 1), 1);
    cr_assert_not(wf_loop_turn(f->loop), "%s: silent", f->name);
    cr_assert_eq(wf_watch_modify(f->loop, &end.watch, WF_READABLE), WF_OK);
    cr_assert(wf_loop_turn(f->loop));
    cr_assert_eq(end.called, 4, "%s", f->name);
    wf_watch_remove(f->loop, &end.watch);
    close(fds[0]);
    close(fds[1]);
}

Test(loop, a_watch_is_called_in_a_pass, .init = within_minutes)
{
    on_each(check_watch);
}

static void check_removes_other(struct fixture *f)
{
    int fds[2][2];
    struct pipe_end ends[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pipe(fds[i]), 0);
        ends[i] =
            (struct pipe_end){.watch = {.fd = fds[i][0], .events = WF_READABLE, .ready = read_byte},
                              .fixture = f,
                              .removes = &ends[1 - i].watch};
        cr_assert_eq(wf_watch_add(f->loop, &ends[i].watch), WF_OK);
        cr_assert_eq(write(fds[i][1], "x", 1), 1);
    }
    wf_loop_turn(f->loop);
    wf_loop_turn(f->loop);
    cr_assert_eq(ends[0].called + ends[1].called, 1, "%s: a removed watch was called", f->name);
    wf_watch_remove(f->loop, &ends[ends[0].called ? 0 : 1].watch);
    for (int i = 0; i < 2; i++) {
        close(fds[i][0]);
        close(fds[i][1]);
    }
}

Test(loop, a_watch_may_remove_another_that_is_ready_too)
{
    on_each(check_removes_other);
}

/* While actors keep the loop busy, descriptors and timers still get their turn. */
struct busy {
    struct wf_actor actor;
    struct pipe_end end;
    struct stopper stopper;
};

static enum wf_verdict send_to_self(struct wf_actor *self, struct wf_msg *msg)
{
    wf_send(self, msg);
    return WF_KEEP;
}

static void check_busy(struct fixture *f)
{
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    struct busy busy = {
        .end = {.watch = {.fd = fds[0], .events = WF_READABLE, .ready = read_byte}, .fixture = f},
        .stopper = {.timer.fire = stop_on_time, .loop = f->loop}};
    struct wf_msg self = {.lane = WF_LANE_DATA};
    wf_actor_init(&busy.actor, f->loop, "busy", send_to_self);
    wf_send(&busy.actor, &self);
    cr_assert_eq(wf_watch_add(f->loop, &busy.end.watch), WF_OK);
    cr_assert_eq(write(fds[1], "s", 1), 1);
    wf_loop_run(f->loop); /* ends by the byte */
    cr_assert_eq(busy.end.called, 1, "%s", f->name);
    wf_timer_arm(f->loop, &busy.stopper.timer, wf_loop_now_ns(f->loop) + MS);
    wf_loop_run(f->loop); /* ends by the timer */
    cr_assert_eq(wf_loop_stats(f->loop).sleeps, 0, "%s", f->name);
    wf_watch_remove(f->loop, &busy.end.watch);
    wf_actor_close(&busy.actor);
    wf_actor_fini(&busy.actor);
    close(fds[0]);
    close(fds[1]);
}

Test(loop, work_does_not_starve_descriptors_and_timers, .init = within_minutes)
{
    on_each(check_busy);
}

/* --- progress sources --------------------------------------------------------------------------
 */

/* A library that must be called to get on: it has `left` things to do, and as many times as
 * `busy` says it has something by the time the loop wants to sleep. */
struct double_source {
    struct wf_progress_source source;
    struct fixture *fixture;
    unsigned left, busy, progressed, asked, armed;
    struct double_source *removes; /* when it is progressed */
};

static bool double_progress(struct wf_progress_source *source)
{
    struct double_source *me = (struct double_source *)source;
    me->progressed++;
    if (me->removes != NULL) {
        wf_loop_remove_source(me->fixture->loop, &me->removes->source);
        me->removes = NULL;
    }
    if (me->left == 0) {
        return false;
    }
    me->left--;
    return true;
}

static bool double_arm(struct wf_progress_source *source)
{
    struct double_source *me = (struct double_source *)source;
    me->asked++;
    cr_assert_eq(me->left, 0, "it is asked only when nothing moves any more");
    if (me->busy > 0) {
        me->busy--;
        me->left = 2;
        return false;
    }
    me->armed++;
    return true;
}

static void check_source(struct fixture *f)
{
    struct double_source first = {.source = {double_progress, double_arm, NULL},
                                  .fixture = f,
                                  .left = 5,
                                  .busy = 3},
                         second = {.source = {double_progress, double_arm, NULL}, .fixture = f};
    struct stopper stopper = {.timer.fire = stop_on_time, .loop = f->loop};
    wf_loop_add_source(f->loop, &first.source);
    wf_loop_add_source(f->loop, &second.source);
    wf_timer_arm(f->loop, &stopper.timer, wf_loop_now_ns(f->loop) + 300 * MS);
    wf_loop_run(f->loop);
    struct wf_loop_stats stats = wf_loop_stats(f->loop);
    cr_assert_eq(first.left + first.busy, 0, "%s", f->name);
    cr_assert_geq(stats.passes, 5 + 3 * 1, "%s: what moved counts as work", f->name);
    cr_assert_eq(first.asked, second.asked, "%s: all are asked", f->name);
    cr_assert_eq(first.armed + 3, first.asked, "%s", f->name);
    cr_assert_eq(first.armed, stats.sleeps, "%s: armed once for each sleep", f->name);
    cr_assert_geq(stats.sleeps, 1, "%s", f->name);
    cr_assert_leq(stats.sleeps, 4, "%s: %llu sleeps", f->name, (unsigned long long)stats.sleeps);
    wf_loop_remove_source(f->loop, &second.source);
    wf_loop_remove_source(f->loop, &first.source);
}

Test(loop, a_progress_source_is_armed_before_sleeping_and_may_be_busy, .init = within_minutes)
{
    on_each(check_source);
}

static void check_source_removes(struct fixture *f)
{
    struct double_source sources[3];
    for (int i = 0; i < 3; i++) {
        sources[i] =
            (struct double_source){.source = {double_progress, double_arm, NULL}, .fixture = f};
        wf_loop_add_source(f->loop, &sources[i].source);
    }
    sources[0].removes = &sources[1];
    sources[2].removes = &sources[2];
    cr_assert_not(wf_loop_turn(f->loop), "%s", f->name);
    cr_assert_not(wf_loop_turn(f->loop), "%s", f->name);
    cr_assert_eq(sources[0].progressed, 2, "%s", f->name);
    cr_assert_eq(sources[1].progressed, 0, "%s: a removed source was called", f->name);
    cr_assert_eq(sources[2].progressed, 1, "%s", f->name);
    wf_loop_remove_source(f->loop, &sources[0].source);
}

Test(loop, a_progress_source_may_remove_sources)
{
    on_each(check_source_removes);
}

/* --- stopping ----------------------------------------------------------------------------------
 */

static void check_stop(struct fixture *f)
{
    wf_loop_stop(f->loop); /* before it runs */
    wf_loop_run(f->loop);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, run_loop, f->loop), 0);
        wf_loop_stop(f->loop);
        pthread_join(thread, NULL);
    }
}

Test(loop, stop_is_never_missed, .init = within_minutes)
{
    on_each(check_stop);
}

static struct wf_loop *signalled_loop;

static void stop_by_signal(int number)
{
    (void)number;
    wf_loop_stop(signalled_loop);
}

static void raise_soon(struct wf_timer *timer)
{
    (void)timer;
    raise(SIGUSR1);
}

static void check_signal(struct fixture *f)
{
    struct sigaction action = {.sa_handler = stop_by_signal};
    struct wf_timer timer = {.fire = raise_soon};
    signalled_loop = f->loop;
    sigaction(SIGUSR1, &action, NULL);
    wf_timer_arm(f->loop, &timer, wf_loop_now_ns(f->loop) + MS);
    wf_loop_run(f->loop);
}

Test(loop, a_signal_handler_may_stop_it, .init = within_minutes)
{
    on_each(check_signal);
}

/* --- without a poller --------------------------------------------------------------------------
 */

Test(loop, without_a_poller_there_are_no_watches)
{
    struct wf_loop_options options = {.poller = WF_POLLER_NONE};
    struct wf_loop *loop = NULL;
    struct wf_watch watch = {.fd = 0, .events = WF_READABLE};
    cr_assert_eq(wf_loop_new(&options, &loop, NULL), WF_OK);
    cr_assert_eq(wf_watch_add(loop, &watch), WF_UNSUPPORTED);
    cr_assert_not(wf_loop_turn(loop));
    cr_assert_not(wf_loop_has_work(loop));
    cr_assert_eq(wf_loop_next_timer_ns(loop), WF_NEVER_NS);
    wf_loop_free(loop);
}

Test(loop, an_unknown_poller_is_refused)
{
    struct wf_loop_options options = {.poller = (enum wf_poller_kind)77};
    struct wf_loop *loop = NULL;
    struct wf_error error;
    cr_assert_eq(wf_loop_new(&options, &loop, &error), WF_INVALID);
    cr_assert_null(loop);
    wf_loop_free(loop);
}

Test(loop, carries_log_and_trace)
{
    struct wf_loop *loop = NULL;
    struct wf_log log;
    struct wf_trace trace;
    cr_assert_eq(wf_loop_new(NULL, &loop, NULL), WF_OK);
    cr_assert_null(wf_loop_log(loop));
    cr_assert_null(wf_loop_trace(loop));
    wf_loop_set_log(loop, &log);
    wf_loop_set_trace(loop, &trace);
    cr_assert_eq(wf_loop_log(loop), &log);
    cr_assert_eq(wf_loop_trace(loop), &trace);
    wf_loop_free(loop);
}
