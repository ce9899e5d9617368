/* planner.c - runs the pure planner as a job and tells the rank's parts what it found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/local.h"
#include "actors/planned.h"

enum { PLANNER_DONE = 0x331 };

struct wf_planner {
    struct wf_actor actor; /* first: actors/local.h */
    struct wf_rank *rank;
    struct wf_job job;
    bool busy, closing, fill;  /* fill: of what is planned now */
    struct wf_local_msg *next; /* newest that came while busy */
    struct wf_agreed *agreed;
    struct wf_plan *base; /* the newest plan by rule, proven: the next one may be made from it */
    struct wf_cast_memory *cast_memory; /* the newest: the next plan may do with it */
    uint64_t started_ns;
    enum wf_status status;
    struct wf_error error;
};

void wf_peer_who(const struct wf_el_peer *peer, char text_out[WF_WHO_MAX])
{
    char engine[32] = "";
    if (peer->side == WF_INFER) {
        snprintf(engine, sizeof engine, ", engine %llu", (unsigned long long)peer->engine);
    }
    snprintf(text_out, WF_WHO_MAX, "%s rank %llu (host %s%s)", wf_side_name(peer->side),
             (unsigned long long)peer->rank, peer->host, engine);
}

void wf_planned_tell(struct wf_rank *rank, struct wf_actor *from, struct wf_agreed *agreed,
                     const struct wf_error *error)
{
    /* The data parts first: the MetaClient's answer may bring their first round. */
    struct wf_actor *parts[3] = {
        rank->options.side == WF_TRAIN ? wf_sender_actor(rank->sender) : NULL,
        rank->receiver != NULL ? wf_receiver_actor(rank->receiver) : NULL,
        wf_meta_client_actor(rank->client),
    };
    for (int i = 0; i < 3; i++) {
        if (parts[i] == NULL) {
            continue;
        }
        struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_PLANNED, from);
        out->agreed = wf_agreed_hold(agreed);
        out->round.term = agreed->members.members.term;
        out->round.epoch = agreed->members.members.epoch;
        out->status = error != NULL ? error->status : WF_OK;
        if (error != NULL) {
            out->error = *error;
        }
        wf_send(parts[i], &out->msg);
    }
}

/* --- the job ------------------------------------------------------------------------------------
 */

/* Equal names are one host; numbers by first appearance. */
static uint32_t host_number(const struct wf_frame_members *members, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(members->peers[i].host, members->peers[index].host) == 0) {
            return i;
        }
    }
    return index;
}

/* A store has no rank that told its layout; it has that of a Hugging Face folder. */
static enum wf_status add_store_layout(struct wf_agreed *agreed, const struct wf_model *model,
                                       struct wf_error *error)
{
    agreed->owned = calloc(1, sizeof(struct wf_layout *));
    if (agreed->owned == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    struct wf_recipe folder;
    enum wf_status status = wf_recipe_parse("hf:", model, &folder, error);
    if (status == WF_OK) {
        status = wf_layout_derive(model, &folder, 0, &agreed->owned[0], error);
    }
    if (status == WF_OK) {
        agreed->owned_count = 1;
        agreed->layouts[0] = agreed->owned[0];
    }
    return status;
}

/* A wrong plan would show on the infer side only, as wrong weights: it is proven there. */
static enum wf_status prove(struct wf_planner *planner, enum wf_status status,
                            enum wf_status (*proof)(const struct wf_plan_input *,
                                                    const struct wf_plan *, struct wf_error *),
                            const struct wf_plan_input *input, const struct wf_plan *made)
{
    if (status != WF_OK || planner->rank->options.side != WF_INFER) {
        return status;
    }
    status = proof(input, made, &planner->error);
    if (status != WF_OK) {
        wf_error_prefix(&planner->error, "the plan's own proof fails");
    }
    return status;
}

/* The plan by rule, unless it is known, and from it the one by the engines' tables. */
static enum wf_status plan_job(struct wf_planner *planner, const struct wf_plan_input *input)
{
    enum wf_status status = WF_OK;
    if (planner->base == NULL ||
        !wf_hash_equal(planner->base->input_hash, wf_plan_base_hash(input))) {
        struct wf_plan_member *members = calloc(input->member_count + 1ull, sizeof *members);
        struct wf_plan_input rule = *input;
        rule.members = members;
        WF_ASSERT(members != NULL);
        for (uint32_t i = 0; i < input->member_count; i++) {
            members[i] = input->members[i];
            members[i].layout = members[i].base != NULL ? members[i].base : members[i].layout;
            members[i].base = NULL;
        }
        wf_plan_free(planner->base);
        planner->base = NULL;
        status = wf_plan_build(&rule, &planner->base, &planner->error);
        status = prove(planner, status, wf_plan_prove, &rule, planner->base);
        free(members);
        if (status != WF_OK) { /* or the next plan of these members would pass for proven */
            wf_plan_free(planner->base);
            planner->base = NULL;
        }
    }
    if (status == WF_OK) {
        status = wf_plan_update(input, planner->base, &planner->agreed->plan, &planner->error);
    }
    bool placed = status == WF_OK && planner->agreed->plan != planner->base;
    return placed ? prove(planner, status, wf_plan_prove_update, input, planner->agreed->plan)
                  : status;
}

/* Memory is claimed here, where it holds nobody up, and so that the lack of it is told as any other
 * failure to plan. */
static enum wf_status claim_casts(struct wf_planner *planner)
{
    const struct wf_rank *rank = planner->rank;
    bool snapshots = rank->options.publish == WF_PUBLISH_SNAPSHOT;
    return wf_cast_memory_claim(wf_loop_env(rank->loop), planner->agreed->plan, rank->options.rank,
                                wf_rank_source(rank)->tensor_count, snapshots ? WF_CAST_SLOTS : 1,
                                &planner->cast_memory, &planner->agreed->cast_memory,
                                &planner->error);
}

static enum wf_status plan_fill(struct wf_planner *planner, const struct wf_plan_input *input)
{
    struct wf_agreed *agreed = planner->agreed;
    enum wf_status status = wf_plan_build(input, &agreed->plan, &planner->error);
    status = prove(planner, status, wf_plan_prove, input, agreed->plan);
    return status == WF_OK ? wf_fill_plan_check(agreed, input->model, &planner->error) : status;
}

static enum wf_status plan(struct wf_planner *planner)
{
    struct wf_agreed *agreed = planner->agreed;
    enum wf_status status =
        agreed->of_store ? add_store_layout(agreed, planner->rank->options.model, &planner->error)
                         : WF_OK;
    if (status == WF_OK && planner->fill) {
        status = wf_agreed_plan_targets(agreed, planner->rank, &planner->error);
    }
    if (status != WF_OK) {
        return status;
    }
    const struct wf_frame_members *list = &agreed->members.members;
    struct wf_plan_member *members = calloc(list->peers_count, sizeof *members);
    if (members == NULL) {
        return wf_error_set(&planner->error, WF_NO_MEMORY, "no memory for %u members",
                            list->peers_count);
    }
    for (uint32_t i = 0; i < list->peers_count; i++) {
        const struct wf_el_peer *peer = &list->peers[i];
        bool source = i < agreed->train_ranks; /* by place: a fill's are infer ranks too */
        members[i] = (struct wf_plan_member){.side = source ? WF_TRAIN : WF_INFER,
                                             .rank = source ? i : i - agreed->train_ranks,
                                             .engine = (uint32_t)peer->engine,
                                             .layout = agreed->layouts[i],
                                             .base = agreed->bases ? agreed->bases[i] : NULL,
                                             .host = host_number(list, i)};
    }
    struct wf_plan_input input = {.model = planner->rank->options.model,
                                  .members = members,
                                  .member_count = list->peers_count};
    if (!planner->fill) { /* whoever fills holds what engines want already */
        input.policy = planner->rank->options.policy;
    }
    status = planner->fill ? plan_fill(planner, &input) : plan_job(planner, &input);
    if (status == WF_OK && !planner->fill && planner->rank->options.side == WF_TRAIN) {
        status = claim_casts(planner);
    }
    free(members);
    return status;
}

static void run_job(struct wf_job *job)
{
    struct wf_planner *planner = WF_CONTAINER(job, struct wf_planner, job);
    planner->status = plan(planner);
}

/* --- the actor ----------------------------------------------------------------------------------
 */

static uint64_t now_ns(const struct wf_planner *planner)
{
    struct wf_env *env = wf_loop_env(planner->rank->loop);
    return env->ops->now_ns(env);
}

static void start(struct wf_planner *planner, struct wf_local_msg *msg)
{
    planner->busy = true;
    planner->fill = msg->msg.kind == WF_LOCAL_PLAN_FILL;
    planner->agreed = wf_agreed_hold(msg->agreed);
    msg->msg.release(&msg->msg);
    planner->started_ns = now_ns(planner);
    struct wf_env *env = wf_loop_env(planner->rank->loop);
    env->ops->job(env, &planner->job);
}

static void tell_fill(struct wf_planner *planner, struct wf_agreed *agreed)
{
    struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_FILL_PLANNED, NULL);
    out->agreed = wf_agreed_hold(agreed);
    out->status = planner->status;
    out->error = planner->error;
    wf_send(wf_meta_client_actor(planner->rank->client), &out->msg);
}

static void finish(struct wf_planner *planner)
{
    struct wf_agreed *agreed = planner->agreed;
    planner->agreed = NULL;
    planner->busy = false;
    agreed->build_ns = now_ns(planner) - planner->started_ns;
    if (planner->fill && !planner->closing) {
        tell_fill(planner, agreed);
    } else if (!planner->closing && planner->next == NULL) {
        wf_planned_tell(planner->rank, &planner->actor, agreed,
                        planner->status == WF_OK ? NULL : &planner->error);
    }
    wf_agreed_release(agreed);
    if (planner->next != NULL) {
        struct wf_local_msg *next = planner->next;
        planner->next = NULL;
        start(planner, next);
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_planner *planner = WF_CONTAINER(self, struct wf_planner, actor);
    if (msg->kind == PLANNER_DONE) {
        finish(planner);
        return WF_KEEP;
    }
    bool known = msg->kind == WF_LOCAL_PLAN || msg->kind == WF_LOCAL_PLAN_FILL;
    if (!known || msg->returned || planner->closing) {
        return WF_FREE;
    }
    struct wf_local_msg *request = (struct wf_local_msg *)msg;
    if (!planner->busy) {
        start(planner, request);
    } else {
        if (planner->next != NULL) {
            planner->next->msg.release(&planner->next->msg);
        }
        planner->next = request;
    }
    return WF_KEEP;
}

enum wf_status wf_planner_new(struct wf_rank *rank, struct wf_planner **part_out,
                              struct wf_error *error)
{
    struct wf_planner *planner = calloc(1, sizeof *planner);
    if (planner == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the planner");
    }
    planner->rank = rank;
    wf_actor_init(&planner->actor, rank->loop, "planner", handle);
    planner->job = (struct wf_job){
        .done = {.kind = PLANNER_DONE}, .owner = &planner->actor, .work = run_job, .name = "plan"};
    *part_out = planner;
    return WF_OK;
}

_Static_assert(offsetof(struct wf_planner, actor) == 0, "a puppet may stand for it");
struct wf_actor *wf_planner_actor(struct wf_planner *planner)
{
    return &planner->actor;
}

void wf_planner_close(struct wf_planner *planner)
{
    planner->closing = true;
    if (planner->next != NULL) {
        planner->next->msg.release(&planner->next->msg);
        planner->next = NULL;
    }
}

void wf_planner_free(struct wf_planner *planner)
{
    while (planner->busy) { /* a job that runs still points here */
        wf_loop_turn(planner->rank->loop);
    }
    wf_actor_close(&planner->actor);
    wf_actor_fini(&planner->actor);
    wf_plan_free(planner->base);
    wf_cast_memory_release(planner->cast_memory);
    free(planner);
}
