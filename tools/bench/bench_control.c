/* bench_control.c - `weft bench control`: how long a crowd of ranks takes to register, to agree on
 * a plan and to commit versions, in one machine's cores.
 *
 * The MetaServer, the MetaClients, their sockets and frames are real; the plan is a puppet's
 * answer, because thousands of ranks in one process would measure the planner (`weft bench plan`
 * does). All seconds count from the first connect. The cores are shared by the server and all its
 * clients.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "actors/messages.h"
#include "actors/token.h"
#include "tools/bench/bench.h"
#include "tools/bench/control_crowd.h"

enum {
    ROUNDS = 3, /* after the first commit */
    MANY_RANKS = 1024,
    MANY_PAIRS = 3, /* of more than that: a run takes many seconds */
    RUNS_MAX = 1001,
    SPARE_DESCRIPTORS = 64,
};

/* The cases of one size report different times of the same runs. */
struct sized {
    uint32_t ranks;
    struct control_run runs[RUNS_MAX];
    size_t run_count, next;
    struct control_exchange exchanges[CONTROL_EXCHANGES_MAX];
    size_t exchange_count;
    struct wf_error error;
};

/* --- the bytes of the limit ---------------------------------------------------------------------
 */
static size_t payload(enum wf_frame_type type, const void *fields)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    enum wf_status status = wf_frame_encode(type, fields, &bytes, &len, NULL);
    WF_ASSERT(status == WF_OK);
    free(bytes);
    return len;
}

static size_t members_payload(uint32_t ranks)
{
    struct wf_frame_members members = {.term = UINT32_MAX, .epoch = ranks, .peers_count = ranks};
    members.peers = calloc(ranks, sizeof members.peers[0]);
    WF_ASSERT(members.peers != NULL);
    for (uint32_t i = 0; i < ranks; i++) {
        struct wf_el_peer *peer = &members.peers[i];
        peer->rank = peer->group_rank = i / 2;
        peer->incarnation = i + 1;
        strcpy(peer->host, "node-0017");
        strcpy(peer->address, "tcp:10.20.1.200:40000");
    }
    size_t len = payload(WF_FRAME_members, &members);
    free(members.peers);
    return len;
}

static size_t open_payload(uint32_t ranks)
{
    struct wf_frame_open open = {.members_count = ranks, .deadline_ns = UINT64_MAX};
    open.members = calloc(ranks, sizeof open.members[0]);
    WF_ASSERT(open.members != NULL);
    for (uint32_t i = 0; i < ranks; i++) {
        open.members[i] = (struct wf_el_member){.rank = i / 2, .incarnation = i + 1};
    }
    size_t len = payload(WF_FRAME_open, &open);
    free(open.members);
    return len;
}

size_t control_exchanges(uint32_t ranks, struct control_exchange out[CONTROL_EXCHANGES_MAX])
{
    const struct wf_round_key key = {UINT32_MAX, ranks, 1, {UINT32_MAX, 1, 1}, 1};
    struct wf_frame_hello hello = {.incarnation = ranks, .pid = 1000};
    strcpy(hello.address, "tcp:10.20.1.200:40000");
    strcpy(hello.spec, "vllm:tp=1");
    const struct wf_frame_prove prove = {
        .job = "crowd", .nonce_len = WF_NONCE_MAX, .proof_len = WF_TOKEN_BYTES};
    struct wf_frame_decide decide = {.round = key};
    const size_t only_key = payload(WF_FRAME_flip, &key);
    const struct control_exchange all[] = {
        {payload(WF_FRAME_challenge,
                 &(struct wf_frame_challenge){.term = UINT32_MAX, .nonce_len = WF_NONCE_MAX}),
         payload(WF_FRAME_prove, &prove)},
        {payload(WF_FRAME_proven, &(struct wf_frame_proven){.proof_len = WF_TOKEN_BYTES}),
         payload(WF_FRAME_hello, &hello)},
        {payload(WF_FRAME_welcome, &(struct wf_frame_welcome){.round = key}),
         payload(WF_FRAME_joined, &(struct wf_frame_joined){.round = key})},
        {members_payload(ranks), payload(WF_FRAME_planned, &(struct wf_frame_planned){0})},
        {open_payload(ranks), payload(WF_FRAME_vote, &(struct wf_frame_vote){.round = key})},
        {payload(WF_FRAME_decide, &decide), only_key},
        {only_key, payload(WF_FRAME_flipped, &(struct wf_frame_flipped){.round = key})},
        {payload(WF_FRAME_resume, &(struct wf_frame_resume){.round = key}), only_key},
    };
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof all[0];
}

/* --- cases ---------------------------------------------------------------------------------------
 */
static double measure_commit(void *context)
{
    struct sized *sized = context;
    struct control_run run;
    if (control_crowd_run(sized->ranks, ROUNDS, &run, &sized->error) != WF_OK) {
        fprintf(stderr, "%s\n", sized->error.text);
        return -1;
    }
    sized->runs[sized->run_count++] = run;
    return run.committed_s;
}

static double limit_commit(void *context)
{
    struct sized *sized = context;
    double seconds = -1;
    if (control_raw_run(sized->ranks, sized->exchanges, sized->exchange_count, &seconds,
                        &sized->error) != WF_OK) {
        fprintf(stderr, "%s\n", sized->error.text);
    }
    return seconds;
}

/* The same runs once more, in their order. */
static const struct control_run *replay(void *context)
{
    struct sized *sized = context;
    return &sized->runs[sized->next++ % sized->run_count];
}

static double replay_registered(void *context)
{
    return replay(context)->registered_s;
}
static double replay_agreed(void *context)
{
    return replay(context)->agreed_s;
}
static double replay_round(void *context)
{
    return replay(context)->round_s;
}
static double replay_restarted(void *context)
{
    return replay(context)->restarted_s;
}
static double replay_message(void *context)
{
    const struct control_run *run = replay(context);
    return run->server_cpu_s * 1e6 / (double)run->messages;
}

static enum wf_status run_size(struct wf_bench *bench, uint32_t ranks, struct wf_error *error)
{
    static const struct wf_bench_case cases[] = {
        {.name = "control/committed",
         .unit = "s",
         .measure = measure_commit,
         .limit = limit_commit,
         .limit_how = "the same bytes over bare sockets and epoll"},
        {.name = "control/registered", .unit = "s", .measure = replay_registered},
        {.name = "control/agreed", .unit = "s", .measure = replay_agreed},
        {.name = "control/next round", .unit = "s", .measure = replay_round},
        {.name = "control/restarted", .unit = "s", .measure = replay_restarted},
        {.name = "control/server per message", .unit = "us", .measure = replay_message},
    };
    struct sized *sized = calloc(1, sizeof *sized);
    WF_ASSERT(sized != NULL);
    sized->ranks = ranks;
    sized->exchange_count = control_exchanges(ranks, sized->exchanges);
    char params[32];
    snprintf(params, sizeof params, "ranks=%u", ranks);
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && status == WF_OK; i++) {
        struct wf_bench_case spec = cases[i];
        spec.params = params;
        spec.lower_is_better = true;
        spec.pairs = ranks > MANY_RANKS ? MANY_PAIRS : 0;
        sized->next = 0;
        status = wf_bench_case(bench, &spec, sized, error);
    }
    free(sized);
    return status;
}

/* Both ends of every connection are here. */
static uint32_t most_ranks(void)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > SPARE_DESCRIPTORS ? (uint32_t)(limit.rlim_cur - SPARE_DESCRIPTORS) / 2
                                              : 0;
}

enum wf_status wf_bench_control(struct wf_bench *bench, struct wf_error *error)
{
    static const uint32_t sizes[] = {256, 1024, 4096};
    uint32_t most = most_ranks();
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && status == WF_OK; i++) {
        if (sizes[i] <= most) {
            status = run_size(bench, sizes[i], error);
        } else {
            fprintf(stderr, "weft bench: left out %u ranks: the limit of open files allows %u\n",
                    sizes[i], most);
        }
    }
    return status;
}
