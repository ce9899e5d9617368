/* sim_internal.h - the simulated world as its own files see it: env_sim.c (events, ranks, time) and
 * sim_wire.c (connections). Nobody else includes this. */
#ifndef WEFT_RUNTIME_SIM_INTERNAL_H
#define WEFT_RUNTIME_SIM_INTERNAL_H

#include "runtime/env_sim.h"

enum sim_kind {
    SIM_NONE, /* cancelled: skipped when its time comes */
    SIM_TURN,
    SIM_FRAME,
    SIM_OPENED,
    SIM_CLOSED,
    SIM_CONNECT, /* a connect reaches the listener; belongs to the network, not to a rank */
    SIM_JOB,
    SIM_CALL,
};

/* Something that will happen. JOB and CALL hang in their rank's list as well, so that a crash finds
 * them. */
struct wf_sim_event {
    uint64_t time_ns, tie, id; /* the order; tie is drawn, id is the number of creation */
    enum sim_kind kind;
    uint32_t rank; /* whose; WF_SIM_HOST for the world's own */
    uint64_t port; /* FRAME, OPENED, CLOSED, CONNECT: the end that it reaches or comes from */
    uint64_t turn; /* TURN: stale unless equal to the rank's */
    bool is_held;  /* in the rank's held list, not in the heap */
    struct wf_wire_msg *wire;
    struct wf_job *job;
    struct wf_sim_call *call;
    struct wf_sim_event *prev, *next; /* the rank's list, the held list, or the free list */
};

struct sim_event_list {
    struct wf_sim_event *first, *last;
};

/* One process. Stays until the world goes: ids are never used again. */
struct sim_rank {
    struct wf_env env; /* first: what its actors call */
    struct wf_sim *sim;
    struct wf_loop *loop; /* NULL after its teardown */
    char *name;
    wf_sim_teardown_t *teardown;
    void *user;
    uint64_t clock_offset_ns, wall_offset_s, stalled_until_ns, turn_time_ns, turn;
    struct sim_event_list pending; /* jobs and calls */
    struct sim_event_list held;    /* what came while it was frozen, or is lost since it died */
    uint64_t newest_port;          /* list by next_of_rank */
    uint32_t id;
    bool alive, frozen, turn_pending, in_turn;
};

/* One end of a connection, or a listener. Slot number is its id. */
struct sim_port {
    uint32_t rank;
    bool is_listener;
    bool open;      /* the owner wants messages */
    bool connected; /* OPENED was delivered */
    bool broken;    /* nothing sent from here arrives any more */
    bool guarded;   /* listener: whom it accepts is a stranger at first */
    bool stranger, stranger_spoke;
    struct wf_actor *owner;
    char *address;         /* listener: its name; connecting end: what it connects to */
    uint64_t peer;         /* the other end; 0 before it exists and when it is gone */
    uint64_t last_ns;      /* arrival of the newest thing on its way to this end: keeps the order */
    uint64_t bytes_away;   /* sent to this end and not delivered yet */
    uint64_t next_of_rank; /* 0: none */
};

/* An open listener's name, found by its hash. */
struct sim_name {
    uint64_t hash, port;
};

struct sim_region {
    const void *address;
    uint64_t len_bytes;
    uint32_t rank;
};

struct wf_sim {
    struct wf_sim_options options;
    uint64_t random[4], draws;
    uint64_t now_ns, event_count, delivered, trace;
    struct wf_sim_event **heap;
    uint32_t heap_len, heap_cap;
    struct wf_sim_event *free_events;
    struct sim_rank **ranks;
    uint32_t rank_count, rank_cap;
    struct sim_port **ports; /* [0] is never used */
    uint64_t port_count, port_cap;
    struct sim_name *names; /* of open listeners, in no order that matters: names are unique */
    uint64_t name_count, name_cap;
    struct sim_region *regions; /* [0] is never used */
    uint64_t region_count, region_cap;
    uint64_t next_number; /* completes "*" and port 0 */
    bool faults_off;
    struct wf_folder *folders;
    wf_sim_write_t *write_hook;
    void *write_user;
};

/* --- sim_events.c ---------------------------------------------------------------------------- */
void *sim_alloc(size_t len_bytes); /* zeroed; aborts when there is none */
/* Makes room for one more element of `size` in *array. */
void sim_grow(void *array_of_pointer, uint64_t count, uint64_t *cap, size_t size);
char *sim_copy_text(const char *text);

uint64_t sim_draw(struct wf_sim *sim);
void sim_trace_mix(struct wf_sim *sim, uint64_t value);
void sim_trace_event(struct wf_sim *sim, const struct wf_sim_event *event);

struct wf_sim_event *sim_event_new(struct wf_sim *sim, enum sim_kind kind, uint32_t rank);
void sim_event_push(struct wf_sim *sim, struct wf_sim_event *event, uint64_t time_ns);
struct wf_sim_event *sim_event_pop(struct wf_sim *sim); /* the earliest; there is one */
void sim_event_free(struct wf_sim *sim, struct wf_sim_event *event); /* releases its message */
void sim_list_append(struct sim_event_list *list, struct wf_sim_event *event);
void sim_list_remove(struct sim_event_list *list, struct wf_sim_event *event);

/* --- env_sim.c ------------------------------------------------------------------------------- */
struct sim_rank *sim_rank_of_env(struct wf_env *env);
/* Something was given to one of its actors: sees to it that it turns. */
void sim_rank_wake(struct wf_sim *sim, struct sim_rank *rank);

/* --- sim_wire.c ------------------------------------------------------------------------------ */
enum wf_status sim_wire_listen(struct wf_env *env, struct wf_actor *owner, const char *address,
                               char bound_out[WF_ADDRESS_MAX], uint64_t *listener_out,
                               struct wf_error *error);
enum wf_status sim_wire_connect(struct wf_env *env, struct wf_actor *owner, const char *address,
                                uint64_t *conn_out, struct wf_error *error);
void sim_wire_guard(struct wf_env *env, uint64_t listener, struct wf_actor *foreign);
void sim_wire_trust(struct wf_env *env, uint64_t conn);
enum wf_status sim_wire_send_shared(struct wf_env *env, uint64_t conn, struct wf_payload *payload);
enum wf_status sim_wire_send(struct wf_env *env, uint64_t conn, const void *bytes, size_t len_bytes,
                             int fd);
void sim_wire_close(struct wf_env *env, uint64_t conn_or_listener);
/* FRAME, OPENED and CLOSED, whose rank is alive and not frozen; CONNECT. Takes event->wire. */
void sim_wire_deliver(struct wf_sim *sim, struct wf_sim_event *event);
/* All ends and listeners of a rank that died; the other ends learn it later. */
void sim_wire_crash(struct wf_sim *sim, uint32_t rank);
/* Tells the actors of a dead rank that their connections are closed. */
void sim_wire_drain(struct wf_sim *sim, uint32_t rank);
void sim_wire_fini(struct wf_sim *sim);

/* --- sim_files.c: entries of the env's table -------------------------------------------------- */
enum wf_status sim_files_open(struct wf_env *env, const char *path, struct wf_folder **folder_out,
                              struct wf_error *error);
enum wf_status sim_files_read(struct wf_env *env, struct wf_folder *folder, const char *name,
                              uint8_t **bytes_out, size_t *len_out, struct wf_error *error);
enum wf_status sim_files_append(struct wf_env *env, struct wf_folder *folder, const char *name,
                                const void *bytes, size_t len_bytes, struct wf_error *error);
enum wf_status sim_files_replace(struct wf_env *env, struct wf_folder *folder, const char *name,
                                 const void *bytes, size_t len_bytes, struct wf_error *error);
void sim_files_close(struct wf_env *env, struct wf_folder *folder);
void sim_files_fini(struct wf_sim *sim);

#endif
