/* env_sim.h - the simulated outside: many ranks, one thread, virtual time, drawn decisions.
 *
 * A world (struct wf_sim) holds simulated processes, here called ranks. Each has its own wf_loop
 * without a poller and an env whose clock, choices, wire and jobs are the world's. The world moves
 * by events: a loop's turn, a frame that arrives, a job that ends. Events are ordered by (virtual
 * time, a drawn tie-break, creation number), so everything that reality leaves open is drawn from
 * one seeded source: latencies, who turns first, how late a timer fires, turns without a reason,
 * connections that break. Nothing is ordered by an address and nothing reads a real clock: the
 * same seed and options give the same trace hash.
 *
 *   sim = wf_sim_new(seed, &options);
 *   loop = wf_sim_rank_new(sim, "infer 3", teardown, user);   make actors on it
 *   wf_sim_run(sim, done, user, deadline_ns);
 *   wf_sim_crash(sim, loop);                                  teardown(user, loop) frees its actors
 *   hash = wf_sim_trace_hash(sim);
 *   wf_sim_free(sim);                                         tears down what is left
 *
 * Each rank's monotonic clock has its own drawn offset, as clocks of different hosts have; so has
 * its wall clock. Addresses are names in the world: any string; "tcp:HOST:0" and a trailing '*'
 * are completed to something unique. Descriptors cannot be passed (INVALID).
 *
 * A host that touches a rank from outside its turns (wf_send, a timer) needs nothing more if it
 * does so between calls of wf_sim_run or inside a wf_sim_call of WF_SIM_HOST; from another rank's
 * turn it is noticed at that rank's next event.
 *
 * Everything here is for the one thread that made the world. What cannot be allocated aborts.
 */
#ifndef WEFT_RUNTIME_ENV_SIM_H
#define WEFT_RUNTIME_ENV_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/env.h"
#include "runtime/loop.h"

struct wf_sim;

/* All delays are drawn evenly from [min, max]; a zero max takes the default beside it. */
struct wf_sim_options {
    uint64_t latency_min_ns, latency_max_ns; /* one frame, one connect, one close; 2 ms */
    uint64_t job_min_ns, job_max_ns;         /* 1 ms */
    uint64_t turn_max_ns;                    /* from having work to the turn; 5 us */
    uint64_t timer_late_max_ns;              /* 20 us */
    uint32_t spurious_per_million;           /* turns for no reason, per turn */
    uint32_t break_per_million;              /* connections that break, per frame sent */
    FILE *trace;                             /* one line an event, for people; NULL: none */
};

/* Options drawn from the seed: different seeds then explore different kinds of worlds. Breaks stay
 * at 0 for the caller to decide. */
struct wf_sim_options wf_sim_options_swarm(uint64_t seed);

struct wf_sim *wf_sim_new(uint64_t seed, const struct wf_sim_options *options);
/* Tears down every rank that is left, newest first. */
void wf_sim_free(struct wf_sim *sim);

/* Frees what lives on the loop; the loop itself is freed after it. Called once for each rank: by
 * wf_sim_crash or wf_sim_free. The rank is dead by then: its timers, jobs and calls never end, its
 * env does nothing and nothing that its actors do reaches anybody. */
typedef void wf_sim_teardown_t(void *user, struct wf_loop *loop);
/* Makes a process with its loop and env. `name` is copied. */
struct wf_loop *wf_sim_rank_new(struct wf_sim *sim, const char *name, wf_sim_teardown_t *teardown,
                                void *user);

/* The process dies now: its names are free, its connections close at the peers after a drawn
 * delay (frames in flight from it arrive or not), its memory can no longer be read. Teardown is
 * called before this returns, or, from inside a turn, after that turn. */
void wf_sim_crash(struct wf_sim *sim, struct wf_loop *loop);
/* For teardown: answers what the dead rank's actors wait for (jobs come back without having run,
 * calls are told `lost`, open connections give CLOSED) and turns the loop until it has no work. */
void wf_sim_drain(struct wf_sim *sim, struct wf_loop *loop);

/* SIGSTOP and SIGCONT: no turns, no jobs, no calls; connections stay open and fill; its memory can
 * be read. What came meanwhile is delivered in its order after the thaw. */
void wf_sim_freeze(struct wf_sim *sim, struct wf_loop *loop);
void wf_sim_thaw(struct wf_sim *sim, struct wf_loop *loop);
/* No frame or connect from or to this rank that is sent from now on arrives before now + ns. */
void wf_sim_stall(struct wf_sim *sim, struct wf_loop *loop, uint64_t ns);
/* The names it listens under are free again, as when an address moves to another host; it does not
 * notice. What is connected to it stays so. */
void wf_sim_move_names(struct wf_sim *sim, struct wf_loop *loop);
/* Faults off or on again (they start on): connections no longer break by themselves. */
void wf_sim_set_faults(struct wf_sim *sim, bool on);
bool wf_sim_faults(const struct wf_sim *sim);
/* Breaks one open connection, drawn; false if there is none. */
bool wf_sim_break_one(struct wf_sim *sim);

/* --- the disk: folders outlive the processes that use them -------------------------------------
 */
enum wf_sim_write {
    WF_SIM_WRITE_DONE,
    WF_SIM_WRITE_FAILS,     /* the device is full; nothing was written */
    WF_SIM_WRITE_DIES,      /* the process dies before anything was */
    WF_SIM_WRITE_TORN,      /* in the middle: a part was written, or the right length with holes */
    WF_SIM_WRITE_THEN_DIES, /* when all is on the disk, before anybody hears of it */
};
/* Asked about each append and replace of a living rank. Deaths only from a turn of that rank. */
typedef enum wf_sim_write wf_sim_write_t(void *user, struct wf_loop *loop, const char *name,
                                         const void *bytes, size_t len_bytes);
void wf_sim_on_write(struct wf_sim *sim, wf_sim_write_t *hook, void *user);
/* All files of a folder are lost. */
void wf_sim_folder_erase(struct wf_sim *sim, const char *path);

/* One event. False: nothing is left that could ever happen. */
bool wf_sim_step(struct wf_sim *sim);
/* Events until done(user) holds (asked after each event; NULL: never), the virtual time would pass
 * deadline_ns, or nothing is left. True if done held. */
bool wf_sim_run(struct wf_sim *sim, bool (*done)(void *user), void *user, uint64_t deadline_ns);

uint64_t wf_sim_now_ns(const struct wf_sim *sim);       /* the world's clock, starts at 0 */
uint64_t wf_sim_choose(struct wf_sim *sim, uint64_t n); /* 0..n-1; for the test's own decisions */
uint64_t wf_sim_range(struct wf_sim *sim, uint64_t min, uint64_t max); /* min..max */
bool wf_sim_chance(struct wf_sim *sim, uint32_t per_million);
/* Over every event that was delivered, frames' bytes included, and the number of draws. */
uint64_t wf_sim_trace_hash(const struct wf_sim *sim);
uint64_t wf_sim_events(const struct wf_sim *sim); /* delivered so far */

/* --- for transports/sim.c and for tests that act at a virtual time -----------------------------
 */
#define WF_SIM_HOST UINT32_MAX /* the "rank" of calls that belong to no rank */

struct wf_sim_event;
/* Caller-owned; zeroed is not pending. */
struct wf_sim_call {
    void (*run)(struct wf_sim_call *call);
    void (*lost)(struct wf_sim_call *call); /* by wf_sim_drain only; NULL: nothing */
    struct wf_sim_event *event;             /* the world's */
};
/* Runs `call` once after delay_ns on behalf of `rank`, unless it is cancelled or the rank dies. */
void wf_sim_call_after(struct wf_sim *sim, uint32_t rank, uint64_t delay_ns,
                       struct wf_sim_call *call);
void wf_sim_call_cancel(struct wf_sim *sim, struct wf_sim_call *call); /* not pending is fine */

struct wf_sim *wf_sim_of(struct wf_loop *loop); /* NULL: not a simulated loop */
uint32_t wf_sim_rank_id(struct wf_loop *loop);  /* never used twice in a world */
bool wf_sim_rank_is_alive(const struct wf_sim *sim, uint32_t rank);

/* Memory of a rank that others may read: valid until removed or its rank is dead. */
uint64_t wf_sim_region_add(struct wf_sim *sim, uint32_t rank, const void *address,
                           uint64_t len_bytes); /* an id, never 0 */
void wf_sim_region_remove(struct wf_sim *sim, uint64_t region);
/* False: no such region (any more). */
bool wf_sim_region_find(const struct wf_sim *sim, uint64_t region, const void **address_out,
                        uint64_t *len_bytes_out);

#endif
