/* bench_runtime.c - `weft bench runtime`: messages between actors of one loop, and how long a
 * message takes to a loop of another thread, asleep or spinning.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/loop.h"
#include "tools/bench/bench.h"
#include "tools/measure/samples.h"

enum {
    MESSAGES = 1000000, /* of one sample */
    FAN_SENDERS = 20,
    FAN_BATCH = 64, /* a sender's messages on their way at a time */
    RING = 100,
    WAKES_ASLEEP = 100,
    WAKES_SPINNING = 500,
    PATIENCE = 20000,         /* looks at an arrival before the processor is given to others */
    PAUSE_ASLEEP_NS = 200000, /* long enough for a thread to fall asleep */
};

/* --- messages within one loop ------------------------------------------------------------------
 */

static uint64_t env_now_ns(struct wf_env *env)
{
    (void)env;
    return wf_bench_now_ns();
}

static const struct wf_env_ops bench_env_ops = {.now_ns = env_now_ns};

static struct wf_loop *make_loop(enum wf_poller_kind poller, uint64_t spin_ns, struct wf_env *env)
{
    struct wf_loop_options options = {.poller = poller, .spin_ns = spin_ns};
    struct wf_loop *loop = NULL;
    *env = (struct wf_env){.ops = &bench_env_ops};
    if (wf_loop_new(&options, &loop, NULL) == WF_OK) {
        wf_loop_set_env(loop, env);
    }
    return loop;
}

struct fan_message {
    struct wf_msg msg;
    struct relay *sender;
    struct fan_message *next_free;
};

/* An actor of ping-pong, ring and fan-in. */
struct relay {
    struct wf_actor actor;
    struct relay *next; /* whom it sends to */
    uint64_t *left;     /* messages still to be handled, shared by all of the case */
    struct wf_msg tick; /* a fan-in sender's reminder to go on */
    struct fan_message *free, messages[FAN_BATCH];
};

static enum wf_verdict pass_on(struct wf_actor *self, struct wf_msg *msg)
{
    struct relay *relay = (struct relay *)self;
    if (*relay->left > 0) {
        --*relay->left;
        wf_send(&relay->next->actor, msg);
    }
    return WF_KEEP;
}

static void release_fan_message(struct wf_msg *msg)
{
    struct fan_message *message = (struct fan_message *)msg;
    message->next_free = message->sender->free;
    message->sender->free = message;
}

static enum wf_verdict sink(struct wf_actor *self, struct wf_msg *msg)
{
    (void)msg;
    --*((struct relay *)self)->left;
    return WF_FREE;
}

static enum wf_verdict fan_send(struct wf_actor *self, struct wf_msg *msg)
{
    struct relay *relay = (struct relay *)self;
    while (relay->free != NULL) {
        struct fan_message *message = relay->free;
        relay->free = message->next_free;
        wf_send(&relay->next->actor, &message->msg);
    }
    if (*relay->left > FAN_SENDERS * FAN_BATCH) {
        wf_send(self, msg);
    }
    return WF_KEEP;
}

struct message_case {
    enum wf_poller_kind poller;
    unsigned actors;
    bool fan_in;
};

static void start_fan_sender(struct relay *sender, struct relay *to)
{
    sender->next = to;
    for (unsigned m = 0; m < FAN_BATCH; m++) {
        sender->messages[m].sender = sender;
        sender->messages[m].msg =
            (struct wf_msg){.lane = WF_LANE_DATA, .release = release_fan_message};
        release_fan_message(&sender->messages[m].msg);
    }
    sender->tick = (struct wf_msg){.lane = WF_LANE_DATA};
    wf_send(&sender->actor, &sender->tick);
}

static void start(const struct message_case *spec, struct wf_loop *loop, struct relay *relays,
                  uint64_t *left)
{
    for (unsigned i = 0; i < spec->actors; i++) {
        wf_handler_t *handler = !spec->fan_in ? pass_on : i == 0 ? sink : fan_send;
        wf_actor_init(&relays[i].actor, loop, "relay", handler);
        relays[i].left = left;
        relays[i].next = &relays[(i + 1) % spec->actors];
    }
    wf_loop_turn(loop);
    for (unsigned i = 1; spec->fan_in && i < spec->actors; i++) {
        start_fan_sender(&relays[i], &relays[0]);
    }
    if (!spec->fan_in) {
        relays[0].tick = (struct wf_msg){.lane = WF_LANE_DATA};
        wf_send(&relays[0].actor, &relays[0].tick);
    }
}

static double measure_messages(void *context)
{
    const struct message_case *spec = context;
    struct wf_env env;
    struct wf_loop *loop = make_loop(spec->poller, 0, &env);
    struct relay *relays = calloc(spec->actors, sizeof *relays);
    double rate = -1;
    if (loop != NULL && relays != NULL) {
        uint64_t left = MESSAGES;
        start(spec, loop, relays, &left);
        uint64_t begin_ns = wf_bench_now_ns(), before = wf_loop_stats(loop).messages;
        while (wf_loop_turn(loop)) {
        }
        uint64_t handled = wf_loop_stats(loop).messages - before;
        rate = (double)handled * 1e9 / (double)(wf_bench_now_ns() - begin_ns);
        for (unsigned i = 0; i < spec->actors; i++) {
            wf_actor_close(&relays[i].actor);
            wf_actor_fini(&relays[i].actor);
        }
    }
    free(relays);
    wf_loop_free(loop);
    return rate;
}

/* --- waking a loop of another thread -----------------------------------------------------------
 */

struct wake_case {
    enum wf_poller_kind poller;
    bool asleep; /* else the loop spins */
};

struct wake_target {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env env;
    struct wf_msg msg;
    int event_fd;                    /* for the limit */
    _Atomic(uint64_t) sent, arrived; /* for the limit: number of the wake */
    _Atomic(uint64_t) arrived_ns;    /* when the last one arrived */
    uint64_t count;
};

static enum wf_verdict note_arrival(struct wf_actor *self, struct wf_msg *msg)
{
    (void)msg;
    struct wake_target *target = (struct wake_target *)self;
    atomic_store(&target->arrived_ns, wf_bench_now_ns());
    atomic_fetch_add(&target->arrived, 1);
    return WF_KEEP;
}

static void *run_loop(void *argument)
{
    wf_loop_run(((struct wake_target *)argument)->loop);
    return NULL;
}

static void pause_ns(long ns)
{
    struct timespec left = {.tv_nsec = ns};
    nanosleep(&left, NULL);
}

/* Puts the caller and `other` on two processors, if there are two: on one of them a wake is another
 * thing, cheaper for a sleeper and hopeless for a spinner. Gives what the caller may use again. */
static cpu_set_t part_from(pthread_t other)
{
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
        CPU_ZERO(&usable);
    }
    unsigned placed = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && placed < 2 && CPU_COUNT(&usable) > 1; cpu++) {
        if (CPU_ISSET(cpu, &usable)) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(placed == 0 ? pthread_self() : other, sizeof one, &one);
            placed++;
        }
    }
    return usable;
}

/* Sends wakes by `ring`, one at a time; the median time from before it to the arrival. */
static double measure_wakes(struct wake_target *target, pthread_t other, bool asleep,
                            void (*ring)(struct wake_target *target))
{
    static const unsigned counts[] = {WAKES_SPINNING, WAKES_ASLEEP};
    double samples_us[WAKES_SPINNING];
    cpu_set_t usable = part_from(other);
    for (unsigned i = 0; i < counts[asleep]; i++) {
        if (asleep) {
            pause_ns(PAUSE_ASLEEP_NS);
        }
        uint64_t begin_ns = wf_bench_now_ns();
        ring(target);
        for (unsigned looks = 0; atomic_load(&target->arrived) != i + 1; looks++) {
            if (looks > PATIENCE) {
                sched_yield(); /* the other thread is kept off: not the median's business */
            }
        }
        samples_us[i] = (double)(atomic_load(&target->arrived_ns) - begin_ns) / 1e3;
    }
    pthread_setaffinity_np(pthread_self(), sizeof usable, &usable);
    return wf_quantile(samples_us, counts[asleep], 0.5);
}

static void ring_loop(struct wake_target *target)
{
    wf_send(&target->actor, &target->msg);
}

static double measure_wake(void *context)
{
    const struct wake_case *spec = context;
    struct wake_target *target = calloc(1, sizeof *target);
    uint64_t spin_ns = spec->asleep ? 0 : UINT64_C(1000000000);
    if (target == NULL || (target->loop = make_loop(spec->poller, spin_ns, &target->env)) == NULL) {
        free(target);
        return -1;
    }
    wf_actor_init(&target->actor, target->loop, "target", note_arrival);
    pthread_t thread;
    double median_us = -1;
    if (pthread_create(&thread, NULL, run_loop, target) == 0) {
        median_us = measure_wakes(target, thread, spec->asleep, ring_loop);
        wf_loop_stop(target->loop);
        pthread_join(thread, NULL);
    }
    wf_actor_close(&target->actor);
    wf_actor_fini(&target->actor);
    wf_loop_free(target->loop);
    free(target);
    return median_us;
}

static void ring_event_fd(struct wake_target *target)
{
    uint64_t one = 1;
    ssize_t written = write(target->event_fd, &one, sizeof one);
    (void)written;
}

static void *wait_event_fd(void *argument)
{
    struct wake_target *target = argument;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, target->event_fd, &event);
    for (uint64_t i = 0; i < target->count;) {
        if (epoll_wait(epoll_fd, &event, 1, -1) == 1) {
            atomic_store(&target->arrived_ns, wf_bench_now_ns());
            atomic_fetch_add(&target->arrived, 1);
            i++;
        }
    }
    close(epoll_fd);
    return NULL;
}

static void ring_flag(struct wake_target *target)
{
    atomic_fetch_add(&target->sent, 1);
}

static void *wait_flag(void *argument)
{
    struct wake_target *target = argument;
    for (uint64_t i = 1; i <= target->count; i++) {
        for (unsigned looks = 0; atomic_load(&target->sent) != i; looks++) {
            if (looks > PATIENCE) {
                sched_yield();
            }
        }
        atomic_store(&target->arrived_ns, wf_bench_now_ns());
        atomic_fetch_add(&target->arrived, 1);
    }
    return NULL;
}

/* The least that two threads need: an eventfd in an epoll for a sleeper, one word for a spinner. */
static double measure_bare_wake(void *context)
{
    const struct wake_case *spec = context;
    struct wake_target *target = calloc(1, sizeof *target);
    if (target == NULL) {
        return -1;
    }
    target->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    target->count = spec->asleep ? WAKES_ASLEEP : WAKES_SPINNING;
    pthread_t thread;
    double median_us = -1;
    if (pthread_create(&thread, NULL, spec->asleep ? wait_event_fd : wait_flag, target) == 0) {
        median_us =
            measure_wakes(target, thread, spec->asleep, spec->asleep ? ring_event_fd : ring_flag);
        pthread_join(thread, NULL);
    }
    close(target->event_fd);
    free(target);
    return median_us;
}

/* --- the table ---------------------------------------------------------------------------------
 */

static const struct {
    const char *name, *params;
    struct message_case spec;
} message_rows[] = {
    {"runtime/ping_pong", "actors=2,poller=epoll", {WF_POLLER_EPOLL, 2, false}},
    {"runtime/ping_pong", "actors=2,poller=libevent", {WF_POLLER_LIBEVENT, 2, false}},
    {"runtime/fan_in", "senders=20,poller=epoll", {WF_POLLER_EPOLL, FAN_SENDERS + 1, true}},
    {"runtime/ring", "actors=100,poller=epoll", {WF_POLLER_EPOLL, RING, false}},
};

static const struct {
    const char *name, *params, *limit_how;
    struct wake_case spec;
} wake_rows[] = {
    {"runtime/wake_asleep", "poller=epoll", "a bare eventfd in an epoll", {WF_POLLER_EPOLL, true}},
    {"runtime/wake_asleep",
     "poller=libevent",
     "a bare eventfd in an epoll",
     {WF_POLLER_LIBEVENT, true}},
    {"runtime/wake_spinning", "poller=epoll", "one shared word", {WF_POLLER_EPOLL, false}},
    {"runtime/wake_spinning", "poller=libevent", "one shared word", {WF_POLLER_LIBEVENT, false}},
};

enum wf_status wf_bench_runtime(struct wf_bench *bench, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof message_rows / sizeof message_rows[0] && status == WF_OK; i++) {
        struct wf_bench_case row = {.name = message_rows[i].name,
                                    .params = message_rows[i].params,
                                    .unit = "messages/s",
                                    .measure = measure_messages};
        struct message_case spec = message_rows[i].spec;
        status = wf_bench_case(bench, &row, &spec, error);
    }
    for (size_t i = 0; i < sizeof wake_rows / sizeof wake_rows[0] && status == WF_OK; i++) {
        struct wf_bench_case row = {.name = wake_rows[i].name,
                                    .params = wake_rows[i].params,
                                    .unit = "us",
                                    .lower_is_better = true,
                                    .measure = measure_wake,
                                    .limit_how = wake_rows[i].limit_how,
                                    .limit = measure_bare_wake};
        struct wake_case spec = wake_rows[i].spec;
        status = wf_bench_case(bench, &row, &spec, error);
    }
    return status;
}
