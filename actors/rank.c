/* rank.c - the facade over a rank's actors: makes them, checks the tensors, passes calls on. */
#include "actors/rank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/local.h"
#include "actors/meta_client_internal.h"

#define SECOND UINT64_C(1000000000)
const struct wf_timeouts wf_timeouts_default = {.connect_ns = 30 * SECOND,
                                                .reconnect_ns = 600 * SECOND,
                                                .lease_ns = 3 * SECOND,
                                                .heartbeat_ns = SECOND / 2,
                                                .join_ns = 120 * SECOND,
                                                .plan_ns = 60 * SECOND,
                                                .publish_ns = 600 * SECOND,
                                                .round_ns = 60 * SECOND,
                                                .quiesce_ns = 30 * SECOND,
                                                .flip_ns = 30 * SECOND,
                                                .repeat_ns = SECOND};

/* --- own copies of what the caller may forget ------------------------------------------------- */
static const char *keep_text(char **at, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = memcpy(*at, text, bytes);
    *at += bytes;
    return copy;
}

static void copy_options(struct wf_rank *rank, const struct wf_rank_options *options)
{
    struct wf_rank_options *o = &rank->options;
    const char **texts[] = {&o->job, &o->server, &o->listen, &o->host_name, &o->group};
    *o = *options;
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (*texts[i] == NULL) {
            *texts[i] = "";
        }
        bytes += strlen(*texts[i]) + 1;
    }
    for (uint32_t i = 0; i < o->tensor_count; i++) {
        bytes += strlen(o->tensors[i].live.name) + 1;
    }
    struct wf_rank_tensor *tensors = calloc(o->tensor_count + 1, sizeof tensors[0]);
    char *at = rank->strings = malloc(bytes + 1);
    WF_ASSERT(at != NULL && tensors != NULL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        *texts[i] = keep_text(&at, *texts[i]);
    }
    for (uint32_t i = 0; i < o->tensor_count; i++) {
        tensors[i] = o->tensors[i];
        tensors[i].live.name = keep_text(&at, o->tensors[i].live.name);
    }
    o->tensors = tensors;
    rank->recipe = *options->recipe;
    rank->recipe.placement = NULL; /* kept as a table */
    o->recipe = &rank->recipe;
    o->ignore = NULL; /* used while it is made */
    o->ignore_count = 0;
}

/* --- registration ------------------------------------------------------------------------------
 */
static enum wf_status check_names(const struct wf_rank_options *o, struct wf_error *error)
{
    if (strlen(o->job) == 0 || strlen(o->job) >= WF_JOB_NAME_MAX ||
        strlen(o->host_name) >= WF_HOST_MAX || strlen(o->group) >= WF_LABEL_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "a job's name has 1 to %d bytes, a host's and a group's up to %d",
                            WF_JOB_NAME_MAX - 1, WF_HOST_MAX - 1);
    }
    if (o->rank >= WF_RANKS_MAX || o->group_rank >= WF_RANKS_MAX || o->engine >= WF_ENGINES_MAX) {
        return wf_error_set(error, WF_INVALID, "rank %" PRIu32 " or engine %" PRIu32 " too large",
                            o->rank, o->engine);
    }
    bool hooks = o->hooks.quiesce != NULL && o->hooks.resume != NULL;
    if (o->side == WF_INFER && !hooks) {
        return wf_error_set(error, WF_INVALID, "an infer rank needs the hooks quiesce and resume");
    }
    return WF_OK;
}

static enum wf_status check_regions(const struct wf_rank *rank, struct wf_error *error)
{
    const struct wf_rank_options *o = &rank->options;
    for (uint32_t i = 0; i < rank->layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &rank->layout->tensors[i];
        if (rank->order[i] == UINT32_MAX) {
            continue; /* never written, and not listed */
        }
        const struct wf_rank_tensor *live = &o->tensors[rank->order[i]];
        bool inside = live->region < o->region_count;
        if (inside) {
            const struct wf_region *region = &o->regions[live->region];
            inside = live->offset <= region->len_bytes &&
                     tensor->bytes <= region->len_bytes - live->offset &&
                     (uint8_t *)region->address + live->offset == (uint8_t *)live->address;
        }
        if (!inside) {
            return wf_error_set(error, WF_INVALID,
                                "tensor %s (%" PRIu64 " bytes) does not lie at offset %" PRIu64
                                " of region %" PRIu32,
                                tensor->name, tensor->bytes, live->offset, live->region);
        }
    }
    return WF_OK;
}

static enum wf_status keep_table(struct wf_rank *rank, const struct wf_placement *placement,
                                 struct wf_error *error)
{
    if (placement == NULL || rank->options.side != WF_INFER) {
        return WF_OK;
    }
    enum wf_status status = wf_table_new(rank->options.engine, placement, &rank->table, error);
    rank->recipe.placement = status == WF_OK ? &rank->table->placement : NULL;
    return status;
}

static enum wf_status match_tensors(struct wf_rank *rank, const struct wf_rank_options *options,
                                    struct wf_error *error)
{
    const struct wf_rank_options *o = &rank->options;
    enum wf_status status =
        wf_layout_derive(o->model, &rank->recipe, o->group_rank, &rank->layout, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_live_tensor *live = calloc(o->tensor_count + 1, sizeof live[0]);
    rank->order = calloc(rank->layout->tensor_count + 1, sizeof rank->order[0]);
    WF_ASSERT(live != NULL && rank->order != NULL);
    for (uint32_t i = 0; i < o->tensor_count; i++) {
        live[i] = o->tensors[i].live;
    }
    status = wf_layout_match_recipe(o->model, &rank->recipe, o->group_rank, rank->layout, live,
                                    o->tensor_count, options->ignore, options->ignore_count,
                                    rank->order, error);
    free(live);
    if (status == WF_OK) {
        status = check_regions(rank, error);
    }
    if (status == WF_OK && o->side == WF_TRAIN) {
        status = wf_prepare_derive(o->model, rank->layout, &rank->source, &rank->prepare, error);
    }
    return status;
}

static enum wf_status make_parts(struct wf_rank *rank, struct wf_error *error)
{
    enum wf_status status = wf_converter_new(rank, &rank->converter, error);
    if (status == WF_OK) {
        status = wf_planner_new(rank, &rank->planner, error);
    }
    if (status == WF_OK) {
        status = wf_sender_new(rank, &rank->sender, error);
    }
    if (status == WF_OK && rank->options.side == WF_INFER) {
        status = wf_validator_new(rank, &rank->validator, error);
    }
    if (status == WF_OK && rank->options.side == WF_INFER) {
        status = wf_receiver_new(rank, &rank->receiver, error);
    }
    return status == WF_OK ? wf_meta_client_new(rank, &rank->client, error) : status;
}

static uint64_t new_incarnation(struct wf_env *env)
{
    uint64_t chance = 0;
    (env->ops->random)(env, &chance, sizeof chance);
    return (env->ops->wall_s(env) << 24) | (chance & 0xffffff) | 1;
}

enum wf_status wf_rank_new(struct wf_loop *loop, const struct wf_rank_options *options,
                           struct wf_rank **rank_out, struct wf_error *error)
{
    struct wf_rank *rank = calloc(1, sizeof *rank);
    WF_ASSERT(rank != NULL);
    rank->loop = loop;
    copy_options(rank, options);
    rank->incarnation = new_incarnation(wf_loop_env(loop));
    rank->pid = (uint64_t)getpid();
    if (options->token != NULL) {
        rank->token = *options->token;
    }
    rank->options.token = NULL;
    enum wf_status status = check_names(&rank->options, error);
    if (status == WF_OK) {
        status = keep_table(rank, options->recipe->placement, error);
    }
    if (status == WF_OK) {
        status = match_tensors(rank, options, error);
    }
    if (status == WF_OK) {
        status = make_parts(rank, error);
    }
    if (status != WF_OK) {
        wf_rank_free(rank);
        return status;
    }
    *rank_out = rank;
    return WF_OK;
}

/* --- calls --------------------------------------------------------------------------------------
 */
enum wf_status wf_rank_publish(struct wf_rank *rank, uint64_t step, const char *label,
                               struct wf_error *error)
{
    return wf_client_publish(rank->client, step, label, 0, error);
}

enum wf_status wf_rank_publish_within(struct wf_rank *rank, uint64_t step, const char *label,
                                      uint64_t within_ns, struct wf_error *error)
{
    return wf_client_publish(rank->client, step, label, within_ns, error);
}

void wf_rank_idle(struct wf_rank *rank)
{
    wf_client_idle(rank->client);
}

void wf_rank_quiesced(struct wf_rank *rank)
{
    wf_client_quiesced(rank->client);
}

enum wf_status wf_rank_place(struct wf_rank *rank, const struct wf_placement *placement,
                             struct wf_error *error)
{
    return wf_client_place(rank->client, placement, error);
}

void wf_rank_note(struct wf_rank *rank, const struct wf_frame_note *note)
{
    wf_client_note(rank->client, note);
}

void wf_rank_stored(struct wf_rank *rank, struct wf_version version, bool writing)
{
    wf_client_stored(rank->client, version, writing);
}

const char *wf_rank_label(const struct wf_rank *rank)
{
    return rank->client->round_label;
}

struct wf_version wf_rank_live(const struct wf_rank *rank)
{
    return wf_client_live(rank->client);
}

void wf_rank_close(struct wf_rank *rank)
{
    wf_client_close_host(rank->client);
}

void wf_rank_free(struct wf_rank *rank)
{
    if (rank == NULL) {
        return;
    }
    if (rank->client != NULL) {
        wf_meta_client_close(rank->client);
    }
#define CLOSE_PART(part)               \
    if (rank->part != NULL) {          \
        wf_##part##_close(rank->part); \
    }
#define FREE_PART(part)               \
    if (rank->part != NULL) {         \
        wf_##part##_free(rank->part); \
    }
#define ALL_PARTS(X) X(converter) X(planner) X(receiver) X(validator) X(sender)
    ALL_PARTS(CLOSE_PART)
    ALL_PARTS(FREE_PART)
#undef ALL_PARTS
#undef FREE_PART
#undef CLOSE_PART
    wf_meta_client_free(rank->client);
    wf_layout_free(rank->layout);
    wf_layout_free(rank->source);
    wf_prepare_free(rank->prepare);
    for (uint32_t i = 0; i < rank->layouts_before_count; i++) {
        wf_layout_free(rank->layouts_before[i]);
    }
    free(rank->layouts_before);
    wf_table_release(rank->table);
    free(rank->order);
    free((void *)rank->options.tensors);
    free(rank->strings);
    wf_token_wipe(&rank->token);
    free(rank);
}
