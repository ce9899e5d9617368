/* converter.c - from the members' recipes to their layouts, checked against what each announced.
 *
 * One derivation for each class: ranks of one group with equal stages and places in all groups of
 * ranks have equal layouts, unless their engines have different tables of experts. A layout by a
 * table is derived by rule too: the plan is made from both. Of train ranks the layouts are those of
 * sources (models/prepare.h), of infer ranks those of targets (models/assemble.h). The work is a
 * job; the Planner gets the result as WF_LOCAL_PLAN with `agreed` set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/local.h"
#include "actors/planned.h"

enum { CONVERTED = 0x330 };

struct wf_converter {
    struct wf_actor actor; /* first: actors/local.h */
    struct wf_rank *rank;
    struct wf_job job;
    bool busy, closing;
    struct wf_local_msg *next; /* newest PLAN that came while busy; an older one is dropped */
    /* what the job works on */
    struct wf_agreed *agreed;
    enum wf_status status;
    struct wf_error error;
};

/* --- the job: touches the converter's own fields and read-only parts of the rank ----------------
 */

struct class_key {
    uint64_t group;
    struct wf_coordinates at; /* without the engine */
    const struct wf_table *table;
};

struct work {
    const struct wf_rank *rank;
    struct wf_agreed *agreed;
    struct wf_recipe *recipes; /* by group */
    struct class_key *keys;    /* of agreed->owned */
    struct wf_error *error;
};

static int compare_peers(const void *left, const void *right)
{
    const struct wf_el_peer *a = left, *b = right;
    if (a->side != b->side) {
        return a->side < b->side ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Member order: train ranks 0..T-1, then infer ranks 0..I-1, none missing, none twice. */
static enum wf_status order_peers(struct wf_agreed *agreed, struct wf_error *error)
{
    struct wf_frame_members *members = &agreed->members.members;
    if (members->peers_count > 0) {
        qsort(members->peers, members->peers_count, sizeof *members->peers, compare_peers);
    }
    for (uint32_t i = 0; i < members->peers_count; i++) {
        const struct wf_el_peer *peer = &members->peers[i];
        uint32_t *count = peer->side == WF_TRAIN ? &agreed->train_ranks : &agreed->infer_ranks;
        if (peer->rank != *count) {
            return wf_error_set(error, WF_PROTOCOL,
                                "the member list has %s rank %llu where rank %u was expected: "
                                "use one version of weft everywhere",
                                wf_side_name(peer->side), (unsigned long long)peer->rank, *count);
        }
        (*count)++;
    }
    if (agreed->train_ranks == 0 || agreed->infer_ranks == 0) {
        return wf_error_set(error, WF_PROTOCOL, "the member list has %u train and %u infer ranks",
                            agreed->train_ranks, agreed->infer_ranks);
    }
    return WF_OK;
}

static enum wf_status parse_groups(struct work *work)
{
    const struct wf_frame_members *members = &work->agreed->members.members;
    const struct wf_model *model = work->rank->options.model;
    for (uint32_t i = 0; i < members->groups_count; i++) {
        const struct wf_el_group *group = &members->groups[i];
        if (!wf_hash_equal(group->model, model->hash)) {
            char theirs[WF_HASH_TEXT], ours[WF_HASH_TEXT];
            wf_hash_format(group->model, theirs);
            wf_hash_format(model->hash, ours);
            return wf_error_set(work->error, WF_DISAGREE,
                                "group %s has model %s, this rank has %s: start all ranks with "
                                "the same config.json",
                                group->name, theirs, ours);
        }
        enum wf_status status = wf_recipe_parse(group->spec, model, &work->recipes[i], work->error);
        if (status != WF_OK) {
            wf_error_prefix(work->error, "group %s", group->name);
            return status;
        }
    }
    return WF_OK;
}

static bool same_class(const struct class_key *a, const struct class_key *b)
{
    bool same = a->group == b->group && a->table == b->table && a->at.tp == b->at.tp &&
                a->at.pp == b->at.pp && a->at.dp == b->at.dp && a->at.cp == b->at.cp;
    for (unsigned group = 0; same && group < WF_GROUP_COUNT; group++) {
        same = a->at.group[group].rank == b->at.group[group].rank;
    }
    return same;
}

static enum wf_status derive(struct work *work, const struct wf_el_peer *peer,
                             const struct wf_table *table, struct wf_layout **layout_out)
{
    struct wf_agreed *agreed = work->agreed;
    struct wf_recipe recipe = work->recipes[peer->group];
    struct class_key key = {peer->group, wf_recipe_coordinates(&recipe, (uint32_t)peer->group_rank),
                            table};
    for (uint32_t i = 0; i < agreed->owned_count; i++) {
        if (same_class(&work->keys[i], &key)) {
            *layout_out = agreed->owned[i];
            return WF_OK;
        }
    }
    struct wf_layout *layout;
    recipe.placement = table != NULL ? &table->placement : NULL;
    const struct wf_model *model = work->rank->options.model;
    enum wf_status status =
        wf_layout_derive(model, &recipe, (uint32_t)peer->group_rank, &layout, work->error);
    if (status == WF_OK && peer->side == WF_TRAIN) {
        struct wf_layout *own = layout;
        status = wf_prepare_derive(model, own, &layout, NULL, work->error);
        wf_layout_free(own);
    }
    if (status == WF_OK) {
        work->keys[agreed->owned_count] = key;
        agreed->owned[agreed->owned_count++] = layout;
        *layout_out = layout;
    }
    return status;
}

static enum wf_status convert_peer(struct work *work, uint32_t index)
{
    const struct wf_frame_members *members = &work->agreed->members.members;
    const struct wf_el_peer *peer = &members->peers[index];
    char who[WF_WHO_MAX];
    wf_peer_who(peer, who);
    if (peer->group >= members->groups_count || members->groups[peer->group].side != peer->side) {
        return wf_error_set(work->error, WF_PROTOCOL,
                            "%s belongs to group %llu, which is none of its side: use "
                            "one version of weft everywhere",
                            who, (unsigned long long)peer->group);
    }
    uint32_t world = wf_recipe_world(&work->recipes[peer->group]);
    if (peer->group_rank >= world) {
        return wf_error_set(work->error, WF_DISAGREE,
                            "%s is number %llu of group %s, whose spec has %u ranks: "
                            "start it with the job file of the others",
                            who, (unsigned long long)peer->group_rank,
                            members->groups[peer->group].name, world);
    }
    struct wf_layout *layout;
    const struct wf_table *table =
        peer->side == WF_INFER ? wf_tables_find(&work->agreed->tables, peer->engine) : NULL;
    enum wf_status status = derive(work, peer, table, &layout);
    if (status == WF_OK && table != NULL) {
        status = derive(work, peer, NULL, &work->agreed->bases[index]);
    }
    if (status != WF_OK) {
        wf_error_prefix(work->error, "%s", who);
        return status;
    }
    bool unknown =
        wf_hash_equal(peer->layout, (struct wf_hash){0, 0}); /* not here: a table is new */
    if (!unknown && !wf_hash_equal(layout->hash, peer->layout)) {
        char theirs[WF_HASH_TEXT], ours[WF_HASH_TEXT];
        wf_hash_format(peer->layout, theirs);
        wf_hash_format(layout->hash, ours);
        return wf_error_set(
            work->error, WF_DISAGREE,
            "%s has another input hash: it announced layout %s, its group's spec "
            "gives %s; start it with the same config.json, spec, manifests and weft",
            who, theirs, ours);
    }
    work->agreed->layouts[index] = layout;
    return WF_OK;
}

static enum wf_status convert(struct work *work)
{
    struct wf_agreed *agreed = work->agreed;
    const struct wf_frame_members *members = &agreed->members.members;
    size_t peers = members->peers_count;
    enum wf_status status = order_peers(agreed, work->error);
    if (status != WF_OK) {
        return status;
    }
    work->recipes = calloc(members->groups_count + 1, sizeof *work->recipes);
    work->keys = calloc(2 * peers + 1, sizeof *work->keys);
    agreed->layouts = calloc(peers + 1, sizeof(struct wf_layout *));
    agreed->bases = calloc(peers + 1, sizeof(struct wf_layout *));
    agreed->owned = calloc(2 * peers + 1, sizeof(struct wf_layout *));
    if (work->recipes == NULL || work->keys == NULL || agreed->layouts == NULL ||
        agreed->bases == NULL || agreed->owned == NULL) {
        return wf_error_set(work->error, WF_NO_MEMORY, "no memory for the layouts of %zu ranks",
                            peers);
    }
    status = parse_groups(work);
    for (uint32_t i = 0; i < peers && status == WF_OK; i++) {
        status = convert_peer(work, i);
    }
    return status == WF_OK ? wf_agreed_plan_targets(agreed, work->rank, work->error) : status;
}

static void run_job(struct wf_job *job)
{
    struct wf_converter *converter = WF_CONTAINER(job, struct wf_converter, job);
    struct work work = {
        .rank = converter->rank, .agreed = converter->agreed, .error = &converter->error};
    converter->status = convert(&work);
    free(work.recipes);
    free(work.keys);
}

/* --- the actor ----------------------------------------------------------------------------------
 */

static void start(struct wf_converter *converter, struct wf_local_msg *plan)
{
    converter->busy = true;
    converter->agreed = wf_agreed_new();
    converter->agreed->members = plan->members;
    memset(&plan->members, 0, sizeof plan->members);
    converter->agreed->tables = plan->tables;
    plan->tables = (struct wf_tables){0};
    plan->msg.release(&plan->msg);
    struct wf_env *env = wf_loop_env(converter->rank->loop);
    env->ops->job(env, &converter->job);
}

static void finish(struct wf_converter *converter)
{
    struct wf_agreed *agreed = converter->agreed;
    converter->agreed = NULL;
    converter->busy = false;
    if (!converter->closing && converter->next == NULL) {
        if (converter->status == WF_OK) {
            struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_PLAN, &converter->actor);
            out->agreed = wf_agreed_hold(agreed);
            wf_send(wf_planner_actor(converter->rank->planner), &out->msg);
        } else {
            wf_planned_tell(converter->rank, &converter->actor, agreed, &converter->error);
        }
    }
    wf_agreed_release(agreed);
    if (converter->next != NULL) {
        struct wf_local_msg *next = converter->next;
        converter->next = NULL;
        start(converter, next);
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_converter *converter = WF_CONTAINER(self, struct wf_converter, actor);
    if (msg->kind == CONVERTED) {
        finish(converter);
        return WF_KEEP;
    }
    if (msg->kind != WF_LOCAL_PLAN || msg->returned || converter->closing) {
        return WF_FREE;
    }
    struct wf_local_msg *plan = (struct wf_local_msg *)msg;
    if (!converter->busy) {
        start(converter, plan);
    } else {
        if (converter->next != NULL) {
            converter->next->msg.release(&converter->next->msg);
        }
        converter->next = plan;
    }
    return WF_KEEP;
}

enum wf_status wf_converter_new(struct wf_rank *rank, struct wf_converter **part_out,
                                struct wf_error *error)
{
    struct wf_converter *converter = calloc(1, sizeof *converter);
    if (converter == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the converter");
    }
    converter->rank = rank;
    wf_actor_init(&converter->actor, rank->loop, "converter", handle);
    converter->job = (struct wf_job){.done = {.kind = CONVERTED},
                                     .owner = &converter->actor,
                                     .work = run_job,
                                     .name = "layouts"};
    *part_out = converter;
    return WF_OK;
}

_Static_assert(offsetof(struct wf_converter, actor) == 0, "a puppet may stand for it");
struct wf_actor *wf_converter_actor(struct wf_converter *converter)
{
    return &converter->actor;
}

void wf_converter_close(struct wf_converter *converter)
{
    converter->closing = true;
    if (converter->next != NULL) {
        converter->next->msg.release(&converter->next->msg);
        converter->next = NULL;
    }
}

void wf_converter_free(struct wf_converter *converter)
{
    while (converter->busy) { /* a job that runs still points here */
        wf_loop_turn(converter->rank->loop);
    }
    wf_actor_close(&converter->actor);
    wf_actor_fini(&converter->actor);
    free(converter);
}
