/* validator.c - digests what was written and compares it with what the origins say they sent. */
#include "actors/validator.h"

#include <stdlib.h>

#include "actors/batch.h"

struct wf_validator {
    struct wf_rank *rank;
    struct wf_actor actor;
    struct wf_validation *current;
    struct wf_batch batch;
};

/* Pool thread. */
static void compute(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_validator *validator = WF_CONTAINER(batch, struct wf_validator, batch);
    (void)lane;
    const struct wf_validation *validation = validator->current;
    for (uint32_t i = 0; i < validation->edge_count && count > 0; i++) {
        struct wf_validation_edge *edge = &validation->edges[i];
        uint64_t end = edge->first_item + wf_digests_count(edge->digests);
        if (first >= end) {
            continue;
        }
        uint64_t here = end - first < count ? end - first : count;
        wf_digests_compute(edge->digests, true, validation->tensors, first - edge->first_item,
                           here);
        first += here;
        count -= here;
    }
}

static void start(struct wf_validator *validator, struct wf_validation *validation)
{
    WF_ASSERT(validator->current == NULL);
    validator->current = validation;
    uint64_t items = 0;
    for (uint32_t i = 0; i < validation->edge_count; i++) {
        validation->edges[i].first_item = items;
        validation->edges[i].matches = false;
        items += wf_digests_count(validation->edges[i].digests);
    }
    wf_batch_start(&validator->batch, items, WF_DIGEST_GRAIN);
}

static void finish(struct wf_validator *validator)
{
    struct wf_validation *validation = validator->current;
    validator->current = NULL;
    for (uint32_t i = 0; i < validation->edge_count && !validation->cancelled; i++) {
        struct wf_validation_edge *edge = &validation->edges[i];
        edge->matches = edge->origin_chunks == wf_digests_count(edge->digests) &&
                        wf_hash_equal(edge->origin_sum, wf_digests_sum(edge->digests));
    }
    validation->msg.kind = WF_VALIDATED;
    wf_send(validation->reply_to, &validation->msg);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_validator *validator = WF_CONTAINER(self, struct wf_validator, actor);
    if (msg->kind == WF_VALIDATE && !msg->returned) {
        start(validator, (struct wf_validation *)msg);
        return WF_KEEP;
    }
    if (msg->kind != WF_BATCH_STEP) {
        return WF_FREE;
    }
    if (validator->current->cancelled) {
        validator->batch.items = validator->batch.next; /* issue nothing more at this step */
    }
    if (wf_batch_step(msg) != NULL) {
        finish(validator);
    }
    return WF_KEEP;
}

uint64_t wf_validator_compare(const struct wf_digests *digests, uint64_t first,
                              const struct wf_el_chunk *origin, uint32_t count,
                              uint64_t *different_out)
{
    uint64_t total = wf_digests_count(digests), found = UINT64_MAX, different = 0;
    for (uint32_t i = 0; i < count && first + i < total; i++) {
        uint64_t chunk;
        uint32_t op = wf_digests_op(digests, first + i, &chunk);
        if (origin[i].op != op || origin[i].chunk != chunk ||
            origin[i].digest != digests->chunks[first + i]) {
            found = found == UINT64_MAX ? first + i : found;
            different++;
        }
    }
    *different_out = different;
    return found;
}

enum wf_status wf_validator_new(struct wf_rank *rank, struct wf_validator **part_out,
                                struct wf_error *error)
{
    struct wf_validator *validator = calloc(1, sizeof *validator);
    if (validator == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the validator");
    }
    validator->rank = rank;
    wf_actor_init(&validator->actor, rank->loop, "validator", handle);
    wf_batch_init(&validator->batch, rank->loop, &validator->actor, rank->options.capacity_jobs,
                  "verify", compute);
    *part_out = validator;
    return WF_OK;
}

struct wf_actor *wf_validator_actor(struct wf_validator *validator)
{
    return &validator->actor;
}

void wf_validator_close(struct wf_validator *validator)
{
    if (validator->current != NULL) {
        validator->current->cancelled = true;
    }
}

void wf_validator_free(struct wf_validator *validator)
{
    while (validator->current != NULL) {
        wf_loop_turn(validator->rank->loop); /* jobs that run still point here */
    }
    wf_actor_close(&validator->actor);
    wf_actor_fini(&validator->actor);
    free(validator);
}
