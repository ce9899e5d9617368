/* test_poller.c - the contract of runtime/poller.h, checked on each of its implementations. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/poller.h"
#include "tests/runtime/descriptors.h"
#include "tests/within.h"

enum { MANY = 200, MS = 1000000 };

static const struct implementation {
    const char *name;
    enum wf_status (*make)(struct wf_poller **poller_out, struct wf_error *error);
} implementations[] = {
    {"epoll", wf_poller_epoll_new},
    {"libevent", wf_poller_libevent_new},
};

/* One poller under test and a pair of connected sockets, ours being ends[0]. */
struct fixture {
    const char *name;
    struct wf_poller *poller;
    int ends[2];
    struct wf_watch watch;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void open_fixture(struct fixture *f, const struct implementation *implementation)
{
    struct wf_error error;
    *f = (struct fixture){.name = implementation->name};
    cr_assert_eq(implementation->make(&f->poller, &error), WF_OK, "%s: %s", f->name, error.text);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, f->ends), 0);
    f->watch = (struct wf_watch){.fd = f->ends[0]};
}

static void close_fixture(struct fixture *f)
{
    f->poller->ops->free(f->poller);
    close(f->ends[0]);
    close(f->ends[1]);
}

static void watch(struct fixture *f, unsigned events)
{
    f->watch.events = events;
    cr_assert_eq(f->poller->ops->add(f->poller, &f->watch), WF_OK, "%s", f->name);
}

/* What a look without waiting reports of f->watch; 0 for nothing. */
static unsigned look(struct fixture *f)
{
    unsigned events;
    f->poller->ops->wait(f->poller, 0, 0);
    struct wf_watch *ready = wf_poller_take(f->poller, &events);
    if (ready == NULL) {
        return 0;
    }
    cr_assert_eq(ready, &f->watch, "%s", f->name);
    cr_assert_null(wf_poller_take(f->poller, &(unsigned){0}), "%s: reported twice", f->name);
    return events;
}

/* Every contract test runs `body` on each implementation. */
static void on_each(void (*body)(struct fixture *f))
{
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        struct fixture f;
        open_fixture(&f, &implementations[i]);
        body(&f);
        close_fixture(&f);
    }
}

/* --- what is ready -----------------------------------------------------------------------------
 */

enum peer { PEER_SILENT, PEER_WROTE, PEER_SHUT, PEER_WROTE_AND_SHUT };

static const struct ready_row {
    const char *name;
    unsigned wanted;
    enum peer peer;
    unsigned reported;
} ready_rows[] = {
    {"nothing came", WF_READABLE, PEER_SILENT, 0},
    {"bytes came", WF_READABLE, PEER_WROTE, WF_READABLE},
    {"room to write", WF_WRITABLE, PEER_SILENT, WF_WRITABLE},
    {"both", WF_READABLE | WF_WRITABLE, PEER_WROTE, WF_READABLE | WF_WRITABLE},
    {"only the wanted one of both", WF_WRITABLE, PEER_WROTE, WF_WRITABLE},
    {"silent although bytes came", 0, PEER_WROTE, 0},
    {"silent although the peer ended", 0, PEER_SHUT, 0},
    {"the peer ended", WF_READABLE, PEER_SHUT, WF_READABLE | WF_HANGUP},
    {"bytes and the end", WF_READABLE, PEER_WROTE_AND_SHUT, WF_READABLE | WF_HANGUP},
    {"the end does not matter to a writer", WF_WRITABLE, PEER_SHUT, WF_WRITABLE},
};

static void act(struct fixture *f, enum peer peer)
{
    if (peer == PEER_WROTE || peer == PEER_WROTE_AND_SHUT) {
        cr_assert_eq(write(f->ends[1], "x", 1), 1);
    }
    if (peer == PEER_SHUT || peer == PEER_WROTE_AND_SHUT) {
        shutdown(f->ends[1], SHUT_WR);
    }
}

Test(poller, reports_what_is_ready_as_long_as_it_is)
{
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        for (size_t r = 0; r < sizeof ready_rows / sizeof ready_rows[0]; r++) {
            struct fixture f;
            open_fixture(&f, &implementations[i]);
            watch(&f, ready_rows[r].wanted);
            act(&f, ready_rows[r].peer);
            for (int look_number = 0; look_number < 3; look_number++) {
                unsigned events = look(&f);
                cr_assert_eq(events, ready_rows[r].reported, "%s, %s: look %d gave %u", f.name,
                             ready_rows[r].name, look_number, events);
            }
            f.poller->ops->remove(f.poller, &f.watch);
            cr_assert_eq(look(&f), 0, "%s, %s: removed", f.name, ready_rows[r].name);
            close_fixture(&f);
        }
    }
}

static void check_read_clears(struct fixture *f)
{
    char byte;
    watch(f, WF_READABLE);
    act(f, PEER_WROTE);
    cr_assert_eq(look(f), WF_READABLE, "%s", f->name);
    cr_assert_eq(read(f->ends[0], &byte, 1), 1);
    cr_assert_eq(look(f), 0, "%s", f->name);
    f->poller->ops->remove(f->poller, &f->watch);
}

Test(poller, what_was_read_is_not_reported_again)
{
    on_each(check_read_clears);
}

static void check_pipe_ends(struct fixture *f)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    f->watch.fd = ends[0];
    watch(f, WF_READABLE);
    close(ends[1]);
    cr_assert(look(f) & WF_READABLE, "%s: the writer of a pipe went", f->name);
    f->poller->ops->remove(f->poller, &f->watch);
    close(ends[0]);

    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    f->watch.fd = ends[1];
    watch(f, WF_WRITABLE);
    close(ends[0]);
    cr_assert(look(f) & WF_WRITABLE, "%s: the reader of a pipe went", f->name);
    f->poller->ops->remove(f->poller, &f->watch);
    close(ends[1]);
}

Test(poller, an_error_is_reported_as_what_is_wanted)
{
    on_each(check_pipe_ends);
}

static void check_many(struct fixture *f)
{
    static struct wf_watch watches[MANY];
    int fds[MANY][2];
    bool seen[MANY] = {false};
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(pipe(fds[i]), 0);
        cr_assert_eq(write(fds[i][1], "x", 1), 1);
        watches[i] = (struct wf_watch){.fd = fds[i][0], .events = WF_READABLE};
        cr_assert_eq(f->poller->ops->add(f->poller, &watches[i]), WF_OK);
    }
    unsigned reported = 0, events;
    for (int looks = 0; looks < MANY && reported < MANY; looks++) {
        f->poller->ops->wait(f->poller, 0, 0);
        for (struct wf_watch *w; (w = wf_poller_take(f->poller, &events)) != NULL;) {
            reported += !seen[w - watches];
            seen[w - watches] = true;
        }
    }
    cr_assert_eq(reported, MANY, "%s: %u of %d", f->name, reported, MANY);
    for (int i = 0; i < MANY; i++) {
        f->poller->ops->remove(f->poller, &watches[i]);
        close(fds[i][0]);
        close(fds[i][1]);
    }
}

Test(poller, nobody_starves_among_many)
{
    on_each(check_many);
}

/* --- changing watches --------------------------------------------------------------------------
 */

static void check_modify(struct fixture *f)
{
    const struct wf_poller_ops *ops = f->poller->ops;
    watch(f, 0);
    act(f, PEER_WROTE);
    static const struct {
        unsigned wanted, reported;
    } rows[] = {{WF_READABLE, WF_READABLE},
                {WF_WRITABLE, WF_WRITABLE},
                {0, 0},
                {0, 0},
                {WF_READABLE | WF_WRITABLE, WF_READABLE | WF_WRITABLE},
                {WF_READABLE, WF_READABLE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_eq(ops->modify(f->poller, &f->watch, rows[i].wanted), WF_OK);
        cr_assert_eq(f->watch.events, rows[i].wanted);
        cr_assert_eq(look(f), rows[i].reported, "%s: step %zu", f->name, i);
    }
    ops->remove(f->poller, &f->watch);
    watch(f, WF_READABLE);
    cr_assert_eq(look(f), WF_READABLE, "%s: added again", f->name);
    ops->remove(f->poller, &f->watch);
}

Test(poller, a_watch_can_be_changed)
{
    on_each(check_modify);
}

static void check_recorded(struct fixture *f)
{
    const struct wf_poller_ops *ops = f->poller->ops;
    unsigned events;
    watch(f, WF_READABLE | WF_WRITABLE);
    act(f, PEER_WROTE);
    ops->wait(f->poller, 0, 0);
    cr_assert_eq(ops->modify(f->poller, &f->watch, WF_WRITABLE), WF_OK);
    cr_assert_eq(wf_poller_take(f->poller, &events), &f->watch);
    cr_assert_eq(events, WF_WRITABLE, "%s: recorded, then no longer wanted", f->name);

    ops->wait(f->poller, 0, 0);
    cr_assert_eq(ops->modify(f->poller, &f->watch, 0), WF_OK);
    cr_assert_null(wf_poller_take(f->poller, &events), "%s: recorded, then silenced", f->name);

    cr_assert_eq(ops->modify(f->poller, &f->watch, WF_WRITABLE), WF_OK);
    ops->wait(f->poller, 0, 0);
    ops->remove(f->poller, &f->watch);
    cr_assert_null(wf_poller_take(f->poller, &events), "%s: recorded, then removed", f->name);
}

Test(poller, what_was_recorded_before_a_change_is_checked_again)
{
    on_each(check_recorded);
}

static const struct removal_row {
    const char *name, *removed, *left;
} removal_rows[] = {
    {"first", "0", "12"},
    {"middle", "1", "02"},
    {"last", "2", "01"},
    {"all", "210", ""},
};

static void check_removal(struct fixture *f, const struct removal_row *row)
{
    struct wf_watch watches[3];
    int fds[3][2];
    unsigned events;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pipe(fds[i]), 0);
        watches[i] = (struct wf_watch){.fd = fds[i][1], .events = WF_WRITABLE};
        cr_assert_eq(f->poller->ops->add(f->poller, &watches[i]), WF_OK);
    }
    f->poller->ops->wait(f->poller, 0, 0);
    for (const char *c = row->removed; *c != '\0'; c++) {
        f->poller->ops->remove(f->poller, &watches[*c - '0']);
    }
    char left[4] = "";
    for (struct wf_watch *w; (w = wf_poller_take(f->poller, &events)) != NULL;) {
        left[(w - watches)] = (char)('0' + (w - watches));
    }
    char packed[4] = "";
    for (int i = 0; i < 3; i++) {
        packed[strlen(packed)] = left[i];
        if (strchr(row->removed, '0' + i) == NULL) {
            f->poller->ops->remove(f->poller, &watches[i]);
        }
        close(fds[i][0]);
        close(fds[i][1]);
    }
    cr_assert_str_eq(packed, row->left, "%s, %s: left %s", f->name, row->name, packed);
}

Test(poller, removing_one_of_several_that_are_ready)
{
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        for (size_t r = 0; r < sizeof removal_rows / sizeof removal_rows[0]; r++) {
            struct fixture f;
            open_fixture(&f, &implementations[i]);
            check_removal(&f, &removal_rows[r]);
            close_fixture(&f);
        }
    }
}

static void check_refusals(struct fixture *f)
{
    int file = open("meson.build", O_RDONLY);
    f->watch = (struct wf_watch){.fd = file, .events = WF_READABLE};
    cr_assert_geq(file, 0);
    cr_assert_eq(f->poller->ops->add(f->poller, &f->watch), WF_UNSUPPORTED, "%s: file", f->name);
    close(file);
    cr_assert_eq(f->poller->ops->add(f->poller, &f->watch), WF_INVALID, "%s: closed", f->name);
}

Test(poller, descriptors_that_cannot_be_watched_are_refused)
{
    on_each(check_refusals);
}

/* --- time and wakes ----------------------------------------------------------------------------
 */

/* Waits until the time is there; how many waits that took. */
static unsigned wait_until(struct fixture *f, uint64_t until_ns)
{
    unsigned waits = 0;
    for (uint64_t now; (now = now_ns()) < until_ns; waits++) {
        f->poller->ops->wait(f->poller, now, until_ns);
    }
    return waits;
}

static void check_time(struct fixture *f)
{
    static const unsigned delays_ms[] = {5, 1, 10, 10, 3};
    for (size_t i = 0; i < sizeof delays_ms / sizeof delays_ms[0]; i++) {
        unsigned waits = wait_until(f, now_ns() + (uint64_t)delays_ms[i] * MS);
        cr_assert_leq(waits, 3, "%s: %u waits for %u ms", f->name, waits, delays_ms[i]);
    }
    /* A far time set before and not reached must not hold a near one up, nor the other way round.
     */
    f->poller->ops->wake(f->poller);
    f->poller->ops->wait(f->poller, now_ns(), now_ns() + UINT64_C(3600000) * MS);
    cr_assert_leq(wait_until(f, now_ns() + 2 * MS), 3, "%s: near after far", f->name);
}

Test(poller, waits_for_a_time_without_waking_in_between, .init = within_minutes)
{
    on_each(check_time);
}

static void check_wake_before(struct fixture *f)
{
    f->poller->ops->wake(f->poller);
    f->poller->ops->wake(f->poller);
    f->poller->ops->wait(f->poller, now_ns(), WF_NEVER_NS); /* would hang */
    unsigned waits = wait_until(f, now_ns() + 5 * MS);
    cr_assert_leq(waits, 3, "%s: a wake must not go on ringing", f->name);
    f->poller->ops->wake(f->poller);
    f->poller->ops->wait(f->poller, now_ns(), WF_NEVER_NS);
}

Test(poller, a_wake_ends_the_next_wait, .init = within_minutes)
{
    on_each(check_wake_before);
}

static void *wake_it(void *argument)
{
    struct wf_poller *poller = argument;
    poller->ops->wake(poller);
    return NULL;
}

static void check_wake_from_thread(struct fixture *f)
{
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, wake_it, f->poller), 0);
        f->poller->ops->wait(f->poller, now_ns(), WF_NEVER_NS);
        pthread_join(thread, NULL);
        f->poller->ops->wait(f->poller, 0, 0);
    }
}

Test(poller, another_thread_ends_a_wait, .init = within_minutes)
{
    on_each(check_wake_from_thread);
}

static void check_ready_ends_wait(struct fixture *f)
{
    watch(f, WF_READABLE);
    act(f, PEER_WROTE);
    f->poller->ops->wait(f->poller, now_ns(), WF_NEVER_NS);
    cr_assert_eq(look(f), WF_READABLE, "%s", f->name);
    f->poller->ops->remove(f->poller, &f->watch);
}

Test(poller, a_ready_descriptor_ends_a_wait, .init = within_minutes)
{
    on_each(check_ready_ends_wait);
}

/* --- resources ---------------------------------------------------------------------------------
 */

Test(poller, leaves_no_descriptor_behind)
{
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        unsigned before = open_descriptors();
        struct fixture f;
        open_fixture(&f, &implementations[i]);
        watch(&f, WF_READABLE);
        f.poller->ops->wait(f.poller, now_ns(), now_ns() + 1);
        f.poller->ops->remove(f.poller, &f.watch);
        close_fixture(&f);
        cr_assert_eq(open_descriptors(), before, "%s", f.name);
    }
}
