/* tsan_loop.c - actors of two loops and a plain thread send to each other while one actor closes,
 * over each poller, watched by the thread sanitizer: every message is handled, comes back, or is
 * released, exactly once.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "runtime/loop.h"
#include "tests/tsan/check.h"

enum { LETTERS = 20000, BALLS = 4, ROUNDS = 5000 };

static uint64_t now_ns(struct wf_env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static const struct wf_env_ops ops = {.now_ns = now_ns};

struct letter {
    struct wf_msg msg;
    unsigned number;
    atomic_uint *ends; /* released ones */
};

/* Handles letters and passes balls on; a receiver closes itself after some letters. */
struct player {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct player *other;
    pthread_t thread;
    unsigned rounds, letters, close_after, came_back;
};

enum kind { LETTER, BALL };

static void release_letter(struct wf_msg *msg)
{
    struct letter *letter = (struct letter *)msg;
    atomic_fetch_add(letter->ends, 1);
    free(letter);
}

static enum wf_verdict play(struct wf_actor *self, struct wf_msg *msg)
{
    struct player *player = (struct player *)self;
    if (msg->kind == BALL) {
        player->rounds++;
        if (player->rounds < ROUNDS && !msg->returned) {
            wf_send(&player->other->actor, msg);
        }
        return WF_KEEP;
    }
    if (msg->returned) {
        player->came_back++;
        return WF_FREE;
    }
    CHECK(((struct letter *)msg)->number == player->letters);
    if (++player->letters == player->close_after) {
        wf_actor_close(self);
    }
    return WF_FREE;
}

static void *run_loop(void *argument)
{
    wf_loop_run(((struct player *)argument)->loop);
    return NULL;
}

static void start(struct player *player, struct player *other, enum wf_poller_kind kind,
                  uint64_t spin_ns, struct wf_env *env)
{
    struct wf_loop_options options = {.poller = kind, .spin_ns = spin_ns};
    player->other = other;
    CHECK(wf_loop_new(&options, &player->loop, NULL) == WF_OK);
    wf_loop_set_env(player->loop, env);
    wf_actor_init(&player->actor, player->loop, "player", play);
}

static void run(enum wf_poller_kind kind, uint64_t spin_ns, unsigned close_after)
{
    struct wf_env env = {.ops = &ops};
    struct player a = {0}, b = {.close_after = close_after};
    atomic_uint ends = 0;
    struct wf_msg balls[BALLS] = {0};
    start(&a, &b, kind, spin_ns, &env);
    start(&b, &a, kind, spin_ns, &env);
    CHECK(pthread_create(&a.thread, NULL, run_loop, &a) == 0);
    CHECK(pthread_create(&b.thread, NULL, run_loop, &b) == 0);
    for (unsigned i = 0; i < BALLS; i++) {
        balls[i] = (struct wf_msg){.kind = BALL, .lane = i % 2, .from = &a.actor};
        wf_send(&b.actor, &balls[i]);
    }
    for (unsigned i = 0; i < LETTERS; i++) {
        struct letter *letter = malloc(sizeof *letter);
        CHECK(letter != NULL);
        *letter = (struct letter){.msg = {.kind = LETTER,
                                          .lane = WF_LANE_DATA,
                                          .release = release_letter,
                                          .from = i % 2 ? &a.actor : NULL},
                                  .number = i,
                                  .ends = &ends};
        wf_send(&b.actor, &letter->msg);
    }
    while (atomic_load(&ends) < LETTERS) {
        sched_yield();
    }
    wf_loop_stop(a.loop);
    wf_loop_stop(b.loop);
    pthread_join(a.thread, NULL);
    pthread_join(b.thread, NULL);
    CHECK(atomic_load(&ends) == LETTERS);
    CHECK(b.letters == (close_after != 0 ? close_after : LETTERS));
    printf("letters handled %u, came back %u, rounds %u\n", b.letters, a.came_back, a.rounds);
    struct player *players[] = {&a, &b};
    for (unsigned i = 0; i < 2; i++) {
        wf_actor_close(&players[i]->actor);
    }
    for (unsigned i = 0; i < 2; i++) {
        wf_actor_fini(&players[i]->actor);
        wf_loop_free(players[i]->loop);
    }
}

int main(void)
{
    static const enum wf_poller_kind kinds[] = {WF_POLLER_EPOLL, WF_POLLER_LIBEVENT};
    for (unsigned i = 0; i < 2; i++) {
        run(kinds[i], 0, 0);
        run(kinds[i], WF_SPIN_DEFAULT_NS, 0);
        run(kinds[i], 0, 100);
    }
    return 0;
}
