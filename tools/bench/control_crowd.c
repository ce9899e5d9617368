/* control_crowd.c - a MetaServer and a crowd of MetaClients in threads of this process.
 *
 * The server, the clients, their wire and their frames are the real ones. Behind each client stands
 * a puppet in place of Converter, Planner, Sender and Receiver: it finds every plan equal and every
 * read good, so that what is measured is the control plane.
 */
#include "tools/bench/control_crowd.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/journal_file.h"
#include "actors/local.h"
#include "actors/meta_client_internal.h"
#include "actors/meta_server.h"
#include "tools/bench/bench.h"
#include "tools/files/io.h"

enum { STEPS_MAX = 16, QUIESCED = 0x3f0 };
#define GIVE_UP_NS UINT64_C(300000000000)
#define SECOND UINT64_C(1000000000)

static const struct wf_token crowd_token = {.is_set = true, .bytes = "as every job has one"};
static const char crowd_model[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 1, \"vocab_size\": 8, "
    "\"num_attention_heads\": 1, \"intermediate_size\": 8, \"torch_dtype\": \"bfloat16\"}";

struct crowd;

/* One rank: a real MetaClient, and one actor that plays all its other parts. */
struct crowd_rank {
    struct wf_actor parts; /* first: stands for Converter, Sender and Receiver */
    struct crowd_thread *thread;
    struct wf_rank rank;
    struct wf_msg quiesced;
    bool quiesced_out;
};

struct crowd_thread {
    struct crowd *crowd;
    pthread_t thread;
    struct wf_loop *loop;
    struct wf_env *env;
    struct crowd_rank *ranks;
    uint32_t rank_count, made, ended;
    struct wf_agreed *agreed;
    struct wf_timer watchdog;
};

struct crowd {
    uint32_t ranks, per_side;
    unsigned rounds;
    char address[WF_ADDRESS_MAX];
    struct wf_model *model;
    struct wf_layout layout;
    struct wf_recipe recipe;
    struct wf_timeouts timeouts;
    struct crowd_thread threads[CONTROL_THREADS];
    /* --- the server's thread */
    pthread_t server_thread;
    pthread_mutex_t loop_lock; /* `loop` changes at the restart, and clients' threads stop it */
    struct wf_loop *loop;      /* NULL: between two servers */
    struct wf_env *env;
    struct wf_meta_server *server;
    struct wf_journal_file *journal;
    char folder[64]; /* the journal's */
    uint64_t restart_ns;
    double server_cpu_s;
    uint64_t messages;
    /* --- what the ranks' hooks saw, in ns since start_ns; 0: not yet */
    uint64_t start_ns;
    _Atomic(uint64_t) registered_ns, agreed_ns;
    _Atomic(uint64_t) over_ns[STEPS_MAX]; /* by step: all serve it, all have it back */
    atomic_uint served[STEPS_MAX], released[STEPS_MAX]; /* ranks that have heard so */
    atomic_uint broken; /* a rank ended before its time, or all took too long */
    struct wf_error why;
};

/* --- hooks and parts: what the rest of a rank would do -----------------------------------------
 */
static uint64_t since_start(const struct crowd *crowd)
{
    return wf_bench_now_ns() - crowd->start_ns;
}

static bool note_first(_Atomic(uint64_t) *at, uint64_t now)
{
    uint64_t none = 0;
    return atomic_compare_exchange_strong(at, &none, now);
}

static void set_loop(struct crowd *crowd, struct wf_loop *loop)
{
    pthread_mutex_lock(&crowd->loop_lock);
    crowd->loop = loop;
    pthread_mutex_unlock(&crowd->loop_lock);
}

static void stop_server(struct crowd *crowd)
{
    pthread_mutex_lock(&crowd->loop_lock);
    if (crowd->loop != NULL) {
        wf_loop_stop(crowd->loop);
    }
    pthread_mutex_unlock(&crowd->loop_lock);
}

/* A rank has seen the end of a step; the last of all notes the time. The server's thread goes on
 * when the last step before its restart is over, and the one after it. */
static void step_seen(struct crowd *crowd, uint64_t step, bool is_train)
{
    WF_ASSERT(step < STEPS_MAX);
    atomic_fetch_add(is_train ? &crowd->released[step] : &crowd->served[step], 1);
    if (atomic_load(&crowd->served[step]) >= crowd->per_side &&
        atomic_load(&crowd->released[step]) >= crowd->per_side) {
        /* Of two threads that see it one stops the server: the other might stop the next one. */
        if (note_first(&crowd->over_ns[step], since_start(crowd)) && step > crowd->rounds) {
            stop_server(crowd);
        }
    }
}

static void publish(struct wf_rank *rank, uint64_t step)
{
    struct wf_error error = {0};
    enum wf_status status = wf_client_publish(rank->client, step, "", 0, &error);
    WF_ASSERT(status == WF_OK);
}

static void on_ready(void *host, struct wf_rank *rank, bool restarted, uint64_t step)
{
    struct crowd *crowd = ((struct crowd_rank *)host)->thread->crowd;
    (void)restarted;
    note_first(&crowd->agreed_ns, since_start(crowd));
    publish(rank, step + 1);
}

static void on_released(void *host, struct wf_rank *rank, struct wf_version version,
                        uint32_t engines)
{
    struct crowd *crowd = ((struct crowd_rank *)host)->thread->crowd;
    (void)engines;
    if (version.step < crowd->rounds + 2) { /* the newest is there when the server comes back */
        publish(rank, version.step + 1);
    }
    step_seen(crowd, version.step, true);
}

static void on_quiesce(void *host, struct wf_rank *rank)
{
    struct crowd_rank *own = host;
    (void)rank;
    if (!own->quiesced_out) {
        own->quiesced_out = true;
        own->quiesced = (struct wf_msg){.kind = QUIESCED};
        wf_send(&own->parts, &own->quiesced);
    }
}

static void on_resume(void *host, struct wf_rank *rank, struct wf_version version)
{
    struct crowd *crowd = ((struct crowd_rank *)host)->thread->crowd;
    (void)rank;
    step_seen(crowd, version.step, false);
}

static void on_ended(void *host, struct wf_rank *rank, const struct wf_error *why)
{
    struct crowd_thread *thread = ((struct crowd_rank *)host)->thread;
    (void)rank;
    if (atomic_load(&thread->crowd->over_ns[thread->crowd->rounds + 2]) == 0 &&
        atomic_fetch_add(&thread->crowd->broken, 1) == 0) {
        thread->crowd->why = *why;
        stop_server(thread->crowd);
    }
    if (++thread->ended == thread->rank_count) {
        wf_loop_stop(thread->loop);
    }
}

static void answer(struct crowd_rank *own, enum wf_local_kind kind, const struct wf_round_key *key)
{
    struct wf_local_msg *out = wf_local_msg_new(kind, &own->parts);
    out->round = *key;
    if (kind == WF_LOCAL_PLANNED) {
        out->agreed = wf_agreed_hold(own->thread->agreed);
    }
    wf_send(wf_meta_client_actor(own->rank.client), &out->msg);
}

static enum wf_verdict parts_handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct crowd_rank *own = (struct crowd_rank *)self;
    const struct wf_local_msg *local = (const struct wf_local_msg *)msg;
    if (msg->kind == QUIESCED) {
        own->quiesced_out = false;
        wf_client_quiesced(own->rank.client);
        return WF_KEEP;
    }
    switch (msg->kind) {
    case WF_LOCAL_PLAN:
        note_first(&own->thread->crowd->registered_ns, since_start(own->thread->crowd));
        WF_ASSERT(local->members.members.peers_count == own->thread->crowd->ranks);
        answer(own, WF_LOCAL_PLANNED, &local->round);
        break;
    case WF_LOCAL_READ:
        answer(own, WF_LOCAL_READ_DONE, &local->round);
        break;
    case WF_LOCAL_STOP:
        answer(own, WF_LOCAL_STOPPED, &local->round);
        break;
    case WF_LOCAL_FLIP:
        answer(own, WF_LOCAL_FLIPPED, &local->round);
        break;
    case WF_LOCAL_REVOKE:
        answer(own, WF_LOCAL_REVOKED, &local->round);
        break;
    default:
        break; /* GRANT */
    }
    return WF_FREE;
}

/* --- ranks --------------------------------------------------------------------------------------
 */
static enum wf_status rank_start(struct crowd_thread *thread, struct crowd_rank *own,
                                 uint32_t number, struct wf_error *error)
{
    struct crowd *crowd = thread->crowd;
    bool is_train = number < crowd->per_side;
    uint32_t rank = is_train ? number : number - crowd->per_side;
    own->thread = thread;
    wf_actor_init(&own->parts, thread->loop, "crowd parts", parts_handle);
    own->rank = (struct wf_rank){.loop = thread->loop,
                                 .layout = &crowd->layout,
                                 .recipe = crowd->recipe,
                                 .incarnation = number + 1,
                                 .pid = 1000 + number,
                                 .token = crowd_token,
                                 .converter = (struct wf_converter *)own,
                                 .sender = (struct wf_sender *)own,
                                 .receiver = (struct wf_receiver *)own,
                                 .options = {.job = "crowd",
                                             .server = crowd->address,
                                             .listen = "",
                                             .host_name = "node-0017",
                                             .side = is_train ? WF_TRAIN : WF_INFER,
                                             .rank = rank,
                                             .engine = is_train ? 0 : rank / CONTROL_ENGINE_RANKS,
                                             .group = is_train ? "trainers" : "engines",
                                             .group_rank = rank,
                                             .model = crowd->model,
                                             .timeouts = crowd->timeouts,
                                             .hooks = {.quiesce = on_quiesce,
                                                       .resume = on_resume,
                                                       .ready = on_ready,
                                                       .released = on_released,
                                                       .ended = on_ended},
                                             .host = own}};
    snprintf(own->rank.address, sizeof own->rank.address, "tcp:10.20.%u.%u:%u", number / 256,
             number % 256, 40000 + number % 8);
    return wf_meta_client_new(&own->rank, &own->rank.client, error);
}

static void rank_stop(struct crowd_rank *own)
{
    if (own->rank.client != NULL) {
        wf_meta_client_close(own->rank.client);
        wf_actor_close(&own->parts);
        wf_actor_fini(&own->parts);
        wf_meta_client_free(own->rank.client);
    }
}

static void give_up(struct wf_timer *timer)
{
    struct crowd_thread *thread = WF_CONTAINER(timer, struct crowd_thread, watchdog);
    atomic_fetch_add(&thread->crowd->broken, 1);
    stop_server(thread->crowd);
    wf_loop_stop(thread->loop);
}

static void *run_clients(void *argument)
{
    struct crowd_thread *thread = argument;
    wf_loop_run(thread->loop);
    wf_timer_cancel(thread->loop, &thread->watchdog);
    for (uint32_t i = 0; i < thread->made; i++) {
        rank_stop(&thread->ranks[i]);
    }
    return NULL;
}

static enum wf_status make_loop(enum wf_poller_kind poller, struct wf_loop **loop,
                                struct wf_env **env, struct wf_error *error)
{
    const struct wf_loop_options options = {.poller = poller, .spin_ns = 0};
    enum wf_status status = wf_loop_new(&options, loop, error);
    if (status == WF_OK) {
        status = wf_env_real_new(*loop, NULL, env, error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(*loop, *env);
    }
    return status;
}

/* Every CONTROL_THREADS-th rank is this thread's. */
static enum wf_status thread_make(struct crowd *crowd, uint32_t index, struct wf_error *error)
{
    struct crowd_thread *thread = &crowd->threads[index];
    thread->crowd = crowd;
    thread->rank_count = (crowd->ranks + CONTROL_THREADS - 1 - index) / CONTROL_THREADS;
    thread->ranks = calloc(thread->rank_count, sizeof thread->ranks[0]);
    thread->agreed = wf_agreed_new();
    thread->agreed->plan = calloc(1, sizeof *thread->agreed->plan);
    WF_ASSERT(thread->ranks != NULL && thread->agreed->plan != NULL);
    enum wf_status status = make_loop(WF_POLLER_EPOLL, &thread->loop, &thread->env, error);
    for (uint32_t i = 0; i < thread->rank_count && status == WF_OK; i++, thread->made++) {
        status = rank_start(thread, &thread->ranks[i], i * CONTROL_THREADS + index, error);
    }
    if (status == WF_OK) {
        thread->watchdog = (struct wf_timer){.fire = give_up, .name = "the benchmark"};
        wf_timer_arm(thread->loop, &thread->watchdog, wf_loop_now_ns(thread->loop) + GIVE_UP_NS);
    }
    return status;
}

static void thread_free(struct crowd_thread *thread)
{
    wf_env_real_free(thread->env);
    wf_loop_free(thread->loop);
    wf_agreed_release(thread->agreed);
    free(thread->ranks);
}

/* --- the server ---------------------------------------------------------------------------------
 */
static void on_server_ended(void *user, const struct wf_error *why)
{
    struct crowd *crowd = user;
    if (why->status != WF_CLOSED && atomic_fetch_add(&crowd->broken, 1) == 0) {
        crowd->why = *why;
    }
    wf_loop_stop(crowd->loop);
}

static enum wf_status append(void *user, const struct wf_journal_record *record,
                             struct wf_error *error)
{
    return wf_journal_file_append(((struct crowd *)user)->journal, record, error);
}

/* A server on `listen`, and on what the journal says. */
static enum wf_status make_server(struct crowd *crowd, const char *listen, struct wf_error *error)
{
    uint32_t *engine_of = calloc(crowd->per_side, sizeof *engine_of);
    WF_ASSERT(engine_of != NULL);
    for (uint32_t i = 0; i < crowd->per_side; i++) {
        engine_of[i] = i / CONTROL_ENGINE_RANKS;
    }
    struct wf_server_options options = {.job = "crowd",
                                        .token = &crowd_token,
                                        .listen = listen,
                                        .train_ranks = crowd->per_side,
                                        .infer_ranks = crowd->per_side,
                                        .engines = (crowd->per_side + CONTROL_ENGINE_RANKS - 1) /
                                                   CONTROL_ENGINE_RANKS,
                                        .engine_of = engine_of,
                                        .timeouts = crowd->timeouts,
                                        .journal = append,
                                        .ended = on_server_ended,
                                        .user = crowd};
    struct wf_loop *loop = NULL;
    enum wf_status status = make_loop(WF_POLLER_LIBEVENT, &loop, &crowd->env, error);
    set_loop(crowd, loop);
    if (status == WF_OK) {
        status = wf_journal_file_open(crowd->env, crowd->folder, options.job, false,
                                      &crowd->journal, error);
    }
    if (status == WF_OK) {
        options.found = wf_journal_file_state(crowd->journal);
        status = wf_meta_server_new(crowd->loop, &options, crowd->address, &crowd->server, error);
    }
    free(engine_of);
    return status;
}

/* As when its process is killed: no word to anybody. */
static void free_server(struct crowd *crowd)
{
    struct wf_loop *loop = crowd->loop;
    set_loop(crowd, NULL);
    wf_meta_server_free(crowd->server);
    wf_journal_file_close(crowd->journal);
    wf_env_real_free(crowd->env);
    wf_loop_free(loop);
    crowd->server = NULL;
    crowd->journal = NULL;
    crowd->env = NULL;
}

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Runs a server through the first steps, another one on its journal and address through the last.
 */
static void *run_server(void *argument)
{
    struct crowd *crowd = argument;
    char address[WF_ADDRESS_MAX];
    double before_s = cpu_s();
    wf_loop_run(crowd->loop);
    crowd->server_cpu_s = cpu_s() - before_s;
    crowd->messages = wf_loop_stats(crowd->loop).messages;
    snprintf(address, sizeof address, "%s", crowd->address);
    if (atomic_load(&crowd->broken) == 0) {
        free_server(crowd);
        crowd->restart_ns = since_start(crowd);
        if (make_server(crowd, address, &crowd->why) != WF_OK) {
            atomic_fetch_add(&crowd->broken, 1);
        } else if (atomic_load(&crowd->broken) == 0) { /* not while there was no loop to stop */
            wf_loop_run(crowd->loop);
        }
    }
    if (atomic_load(&crowd->broken) == 0) {
        wf_meta_server_close(crowd->server, "the benchmark is over");
        wf_loop_run(crowd->loop); /* until everybody has said goodbye */
    }
    return NULL;
}

/* --- one run ------------------------------------------------------------------------------------
 */
static enum wf_status make_crowd(struct crowd *crowd, struct wf_error *error)
{
    enum wf_status status =
        wf_model_parse(crowd_model, strlen(crowd_model), NULL, &crowd->model, error);
    if (status == WF_OK) {
        status = wf_recipe_parse("vllm:tp=1", crowd->model, &crowd->recipe, error);
    }
    if (status == WF_OK) {
        status = make_server(crowd, "tcp:127.0.0.1:0", error);
    }
    crowd->start_ns = wf_bench_now_ns(); /* connecting is a part of what is measured */
    for (uint32_t i = 0; i < CONTROL_THREADS && status == WF_OK; i++) {
        status = thread_make(crowd, i, error);
    }
    return status;
}

static enum wf_status run_threads(struct crowd *crowd, struct wf_error *error)
{
    if (pthread_create(&crowd->server_thread, NULL, run_server, crowd) != 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make a thread");
    }
    uint32_t started = 0;
    while (started < CONTROL_THREADS &&
           pthread_create(&crowd->threads[started].thread, NULL, run_clients,
                          &crowd->threads[started]) == 0) {
        started++;
    }
    if (started < CONTROL_THREADS) {
        atomic_fetch_add(&crowd->broken, 1);
        stop_server(crowd);
    }
    pthread_join(crowd->server_thread, NULL);
    for (uint32_t i = 0; i < started; i++) {
        if (atomic_load(&crowd->broken) > 0) {
            wf_loop_stop(crowd->threads[i].loop);
        }
        pthread_join(crowd->threads[i].thread, NULL);
    }
    if (atomic_load(&crowd->broken) > 0) {
        return wf_error_set(error, WF_TIMED_OUT,
                            "the crowd of %u ranks did not get through: %.300s", crowd->ranks,
                            crowd->why.text[0] != '\0' ? crowd->why.text : "it took too long");
    }
    return WF_OK;
}

enum wf_status control_crowd_run(uint32_t ranks, unsigned rounds, struct control_run *out,
                                 struct wf_error *error)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    WF_ASSERT(crowd != NULL);
    pthread_mutex_init(&crowd->loop_lock, NULL);
    crowd->ranks = ranks;
    crowd->per_side = ranks / 2;
    crowd->rounds = rounds;
    crowd->timeouts = wf_timeouts_default;
    crowd->timeouts.connect_ns = crowd->timeouts.reconnect_ns = crowd->timeouts.join_ns =
        crowd->timeouts.plan_ns = 300 * SECOND;
    WF_ASSERT(rounds > 0 && rounds + 2 < STEPS_MAX);
    snprintf(crowd->folder, sizeof crowd->folder, "/tmp/weft-bench-XXXXXX");
    enum wf_status status = mkdtemp(crowd->folder) != NULL
                                ? make_crowd(crowd, error)
                                : wf_error_set(error, WF_IO, "cannot make a folder in /tmp");
    if (status == WF_OK) {
        status = run_threads(crowd, error);
    } else {
        for (uint32_t i = 0; i < CONTROL_THREADS; i++) {
            for (uint32_t r = 0; r < crowd->threads[i].made; r++) {
                rank_stop(&crowd->threads[i].ranks[r]);
            }
        }
    }
    if (status == WF_OK) {
        *out = (struct control_run){
            .registered_s = (double)crowd->registered_ns / 1e9,
            .agreed_s = (double)crowd->agreed_ns / 1e9,
            .committed_s = (double)crowd->over_ns[1] / 1e9,
            .round_s = (double)(crowd->over_ns[rounds + 1] - crowd->over_ns[1]) / 1e9 / rounds,
            .restarted_s = (double)(crowd->over_ns[rounds + 2] - crowd->restart_ns) / 1e9,
            .server_cpu_s = crowd->server_cpu_s,
            .messages = crowd->messages};
    }
    for (uint32_t i = 0; i < CONTROL_THREADS; i++) {
        thread_free(&crowd->threads[i]);
    }
    if (crowd->loop != NULL) {
        free_server(crowd);
    }
    wf_folder_remove(crowd->folder);
    wf_model_free(crowd->model);
    pthread_mutex_destroy(&crowd->loop_lock);
    free(crowd);
    return status;
}
