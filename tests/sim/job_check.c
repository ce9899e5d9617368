/* job_check.c - what must hold after every event, and at the end. */
#include <string.h>

#include "actors/planned.h"
#include "tests/sim/job_internal.h"

enum { ELEMENTS_SAMPLED = 4 };

static uint32_t element_of(const struct job_rank *host, uint64_t tensor, uint64_t element)
{
    size_t bytes = wf_dtype_bytes(host->layout->tensors[tensor].dtype);
    uint32_t bits = 0;
    memcpy(&bits, (const uint8_t *)host->tensors[tensor].address + element * bytes, bytes);
    return bits;
}

static uint64_t elements_of(const struct job_rank *host, uint64_t tensor)
{
    const struct wf_tensor *at = &host->layout->tensors[tensor];
    return at->kind == WF_TENSOR_WEIGHTS ? at->bytes / wf_dtype_bytes(at->dtype) : 0;
}

/* An element is the version's, or zero where the layout fills. With experts it is its parameter's.
 */
static bool element_is_good(const struct job_rank *host, uint64_t tensor, uint64_t element,
                            uint32_t arrived)
{
    uint32_t bits = element_of(host, tensor, element);
    if (job_is_altered(host, tensor)) {
        return true;
    }
    if (host->job->options.experts) {
        uint32_t mark = host->marks[host->tensors[tensor].offset / sizeof(uint16_t) + element];
        return bits == (mark == 0 ? 0 : job_content(host->version, mark));
    }
    return bits == 0 || bits == arrived;
}

static bool sample(struct job *job, const struct job_rank *host, uint64_t salt)
{
    for (uint64_t i = 0; i < ELEMENTS_SAMPLED; i++) {
        /* Not drawn: the checker must not change the schedule that it checks. */
        uint64_t pick = (salt * 2654435761u + i * 40503u) >> 4;
        uint64_t tensor = pick % host->layout->tensor_count;
        uint64_t elements = elements_of(host, tensor);
        uint64_t element = elements > 0 ? (pick >> 8) % elements : 0;
        if (elements > 0 &&
            !element_is_good(host, tensor, element,
                             job_arrived(host, tensor, job_content(host->version, 0)))) {
            job_fail(
                job,
                "torn: infer rank %u serves or shows step %llu, element %llu of %s is another's",
                host->index, (unsigned long long)host->version.step, (unsigned long long)element,
                host->layout->tensors[tensor].name);
            return false;
        }
    }
    return true;
}

static bool scan(struct job *job, const struct job_rank *host)
{
    uint64_t zeros = 0, all = 0;
    for (uint64_t t = 0; t < host->layout->tensor_count; t++) {
        uint64_t elements = elements_of(host, t);
        uint32_t arrived = job_arrived(host, t, job_content(host->version, 0));
        for (uint64_t e = 0; e < elements; e++) {
            zeros +=
                element_of(host, t, e) == 0 && arrived != 0; /* codes of tiny values are zeros */
            if (!element_is_good(host, t, e, arrived)) {
                job_fail(job, "infer rank %u at the end: element %llu of %s is not of step %llu",
                         host->index, (unsigned long long)e, host->layout->tensors[t].name,
                         (unsigned long long)host->version.step);
                return false;
            }
        }
        all += elements;
    }
    if (zeros > all / 2) {
        job_fail(job, "infer rank %u at the end: %llu of %llu elements are zero", host->index,
                 (unsigned long long)zeros, (unsigned long long)all);
    }
    return true;
}

/* A rank that still computes, of whose engine another is written to for the same round. */
static bool is_overtaken(const struct job *job, const struct job_rank *host)
{
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
        const struct job_rank *other = &job->ranks[i];
        if (other->alive && other->rank != NULL && other->engine == host->engine &&
            other->rank->client->writing && other->rank->receiver->open_reads > 0 &&
            host->rank->client->state == WF_RANK_QUIET &&
            wf_round_key_equal(&host->rank->client->round, &other->rank->client->round)) {
            return true;
        }
    }
    return false;
}

/* A rank whose weights are no version serves none, and no engine is written to that computes. */
static bool check_dirty(struct job *job)
{
    if (!job_check_unwritten(job)) {
        return false;
    }
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
        const struct job_rank *host = &job->ranks[i];
        if (!host->alive || host->rank == NULL || !host->serving || job->options.skip_quiesce) {
            continue;
        }
        if (wf_version_is_none(host->rank->client->live) || is_overtaken(job, host)) {
            job_fail(job, "infer rank %u serves step %llu while its engine is written to",
                     host->index, (unsigned long long)host->version.step);
            return false;
        }
    }
    return true;
}

/* While all ranks of an engine may run, they have one version, and the bytes are that version's. */
static bool check_engine(struct job *job, uint32_t engine)
{
    const struct job_rank *first = NULL;
    uint32_t per_engine = JOB_INFER / JOB_ENGINES;
    for (uint32_t i = 0; i < per_engine; i++) {
        const struct job_rank *host = &job->ranks[JOB_TRAIN + engine * per_engine + i];
        if (!host->alive || host->rank == NULL || !host->serving) {
            return true;
        }
        first = first == NULL ? host : first;
        if (wf_version_compare(host->version, first->version) != 0) {
            job_fail(job, "mixed: infer rank %u serves step %llu while infer rank %u serves %llu",
                     host->index, (unsigned long long)host->version.step, first->index,
                     (unsigned long long)first->version.step);
            return false;
        }
        if (!sample(job, host, wf_sim_events(job->sim) + host->index)) {
            return false;
        }
    }
    return true;
}

static bool reads_from(const struct job_rank *host, const struct job_rank *writer)
{
    const struct wf_agreed *agreed = host->rank->receiver->agreed;
    return host->rank->receiver->open_reads > 0 && agreed != NULL &&
           host->rank->receiver->store.agreed == NULL && /* it reads files then, and no rank */
           wf_agreed_position(agreed, WF_TRAIN, writer->side, writer->index) != UINT32_MAX;
}

/* What observers are told: a rank that says it holds a version has its bytes, and none that does
 * not any more comes back to it unless it says that it was written to. */
static bool check_held(struct job *job, struct job_rank *host)
{
    struct wf_frame_held held, *last = &host->held;
    wf_meta_client_held(host->rank->client, &held);
    bool same = wf_version_compare(held.version, last->version) == 0;
    bool back = host->held_ended && same && held.writes == last->writes;
    if (wf_version_is_none(held.version)) {
        host->held_ended = true;
        return true;
    }
    if (back) {
        job_fail(job, "infer rank %u says that step %llu was never written to; it was", host->index,
                 (unsigned long long)held.version.step);
        return false;
    }
    host->held_ended = false;
    host->held = held;
    struct job_rank as_told = *host;
    as_told.version = held.version;
    return sample(job, &as_told, wf_sim_events(job->sim) + host->index);
}

void job_check_unread(const struct job_rank *writer)
{
    struct job *job = writer->job;
    struct wf_frame_held held = {.writes = 0};
    if (writer->rank != NULL &&
        (writer->side == WF_INFER || job->options.publish == WF_PUBLISH_HOLD)) {
        wf_meta_client_held(writer->rank->client, &held);
    }
    if (!wf_version_is_none(held.version)) {
        job_fail(job, "%s rank %u tells observers that it holds step %llu while it is written to",
                 wf_side_name(writer->side), writer->index, (unsigned long long)held.version.step);
    }
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
        const struct job_rank *host = &job->ranks[i];
        if (!host->alive || host->rank == NULL || !reads_from(host, writer)) {
            continue;
        }
        const struct wf_meta_client *client = host->rank->client;
        struct wf_env *env = wf_loop_env(host->loop);
        if (env->ops->now_ns(env) < client->lease_until_ns) {
            job_fail(job, "%s rank %u changes its weights while infer rank %u reads for step %llu",
                     wf_side_name(writer->side), writer->index, host->index,
                     (unsigned long long)client->round.version.step);
        }
    }
}

/* A replica does not change under those that are filled from it. */
static void check_replicas(struct job *job)
{
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
        const struct job_rank *host = &job->ranks[i];
        if (!host->alive || host->rank == NULL) {
            continue;
        }
        const struct wf_meta_client *client = host->rank->client;
        if (client->busy == WF_RECEIVER_FLIPPING ||
            (client->writing && host->rank->receiver->open_reads > 0)) {
            job_check_unread(host);
        }
    }
}

bool job_check(struct job *job)
{
    for (uint32_t e = 0; e < JOB_ENGINES; e++) {
        if (!check_engine(job, e)) {
            return false;
        }
    }
    if (!check_dirty(job)) {
        return false;
    }
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
        struct job_rank *host = &job->ranks[i];
        if (host->alive && host->rank != NULL && !check_held(job, host)) {
            return false;
        }
    }
    check_replicas(job);
    return job->result->failure[0] == '\0';
}

static bool is_in(const struct wf_version *list, uint32_t count, struct wf_version version)
{
    for (uint32_t i = 0; i < JOB_ABANDONED_MAX && i < count; i++) {
        if (wf_version_compare(list[i], version) == 0) {
            return true;
        }
    }
    return false;
}

void job_check_abandoned(struct job *job, struct wf_version version)
{
    if (is_in(job->flipped, job->flipped_count, version)) {
        job_fail(job, "a train rank is told that step %llu is given up; a rank had it",
                 (unsigned long long)version.step);
    }
    if (!is_in(job->abandoned, job->abandoned_count, version)) {
        job->abandoned[job->abandoned_count++ % JOB_ABANDONED_MAX] = version;
    }
}

void job_check_flipped(struct job *job, struct wf_version version)
{
    if (is_in(job->abandoned, job->abandoned_count, version)) {
        job_fail(job, "a rank flips to step %llu, which a train rank was told is given up",
                 (unsigned long long)version.step);
    }
    if (!job->options.unseen_flips && !is_in(job->flipped, job->flipped_count, version)) {
        job->flipped[job->flipped_count++ % JOB_ABANDONED_MAX] = version;
    }
}

static struct job_round *find_round(struct job *job, struct wf_version version)
{
    for (uint32_t i = 0; i < JOB_ABANDONED_MAX && i < job->round_count; i++) {
        if (wf_version_compare(job->rounds[i].version, version) == 0) {
            return &job->rounds[i];
        }
    }
    return NULL;
}

void job_check_opened(struct job *job, struct wf_version version)
{
    struct job_round *round = find_round(job, version);
    if (round == NULL) {
        round = &job->rounds[job->round_count++ % JOB_ABANDONED_MAX];
    }
    *round = (struct job_round){.version = version, .opened_ns = wf_sim_now_ns(job->sim)};
}

void job_check_decided(struct job *job, const struct wf_journal_record *record)
{
    struct job_round *round = find_round(job, record->round.version);
    for (uint32_t i = 0; round != NULL && i < record->engine_count; i++) {
        round->decided |= 1U << record->engines[i].engine;
    }
}

/* Each engine that was decided lost a rank before the flip, perhaps; or the server was lost, and
 * the next one decided without them. */
static bool may_be_unflipped(struct job *job, struct wf_version version)
{
    const struct job_round *round = find_round(job, version);
    if (round == NULL || job->hurt_ns >= round->opened_ns) {
        return round != NULL;
    }
    for (uint32_t e = 0; e < JOB_ENGINES; e++) {
        bool hurt = (round->decided & 1U << e) == 0;
        for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
            hurt = hurt || (job->ranks[i].engine == e && job->rank_hurt_ns[i] >= round->opened_ns);
        }
        if (!hurt) {
            return false;
        }
    }
    return round->decided != 0;
}

void job_check_released(struct job *job, struct wf_version version)
{
    if (!may_be_unflipped(job, version) && !is_in(job->flipped, job->flipped_count, version)) {
        job_fail(job, "a train rank is told that engines have step %llu; none ever had",
                 (unsigned long long)version.step);
    }
}

/* When the server has said that the job is over, before the ranks are gone. */
bool job_check_end(struct job *job)
{
    struct wf_version committed = wf_server_committed(job->server);
    if (job->server->end.status != WF_CLOSED) {
        job_fail(job, "the server stopped: %s", job->server->end.text);
        return false;
    }
    if (committed.step < job->final_step && job->options.every <= 1) {
        job_fail(job, "the job ended at step %llu, the last is %llu: %s",
                 (unsigned long long)committed.step, (unsigned long long)job->final_step,
                 job->server->end.text);
        return false;
    }
    job->result->last_step = committed.step;
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        struct job_rank *host = &job->ranks[i];
        if (host->rank == NULL) {
            continue; /* it has said goodbye already */
        }
        if (host->side == WF_TRAIN) {
            if (!host->finished) {
                job_fail(job, "train rank %u was not released", host->index);
            }
            continue;
        }
        bool last = host->serving && wf_version_compare(host->version, committed) == 0;
        if (!last && !job->options.no_fill) {
            job_fail(job, "infer rank %u serves step %llu (serving %d), the last is %llu",
                     host->index, (unsigned long long)host->version.step, host->serving,
                     (unsigned long long)committed.step);
        } else if (last) {
            scan(job, host);
        }
    }
    return job->result->failure[0] == '\0';
}
