/* placement.c - tables of experts: made, held, told. */
#include "actors/placement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"

enum wf_status wf_table_new(uint64_t engine, const struct wf_placement *placement,
                            struct wf_table **table_out, struct wf_error *error)
{
    uint64_t count = (uint64_t)placement->layers * placement->slots;
    if (count == 0 || placement->slots > WF_SLOTS_MAX || count > WF_PLACED_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "a table of experts has 1 to %d slots and at most %d in all layers, "
                            "not %" PRIu32 " in %" PRIu32 " layers",
                            WF_SLOTS_MAX, WF_PLACED_MAX, placement->slots, placement->layers);
    }
    struct wf_table *table = malloc(sizeof *table + count * sizeof table->experts[0]);
    WF_ASSERT(table != NULL);
    *table = (struct wf_table){.references = 1, .engine = engine, .placement = *placement};
    memcpy(table->experts, placement->experts, count * sizeof table->experts[0]);
    table->placement.experts = table->experts;
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, placement->layers);
    wf_hasher_u64(&hasher, placement->slots);
    for (uint64_t i = 0; i < count; i++) {
        wf_hasher_u64(&hasher, table->experts[i]);
    }
    table->hash = wf_hasher_end(&hasher);
    *table_out = table;
    return WF_OK;
}

enum wf_status wf_table_of_frame(const struct wf_frame_placement *frame,
                                 struct wf_table **table_out, struct wf_error *error)
{
    *table_out = NULL;
    if (frame->layers == 0) {
        return WF_OK;
    }
    if (frame->layers * frame->slots != frame->experts_count) {
        return wf_error_set(error, WF_PROTOCOL,
                            "a placement of %" PRIu64 " layers and %" PRIu64 " slots lists %" PRIu32
                            " experts",
                            frame->layers, frame->slots, frame->experts_count);
    }
    uint32_t *experts = malloc((frame->experts_count + 1ull) * sizeof *experts);
    WF_ASSERT(experts != NULL);
    for (uint32_t i = 0; i < frame->experts_count; i++) {
        experts[i] = (uint32_t)frame->experts[i].expert;
    }
    const struct wf_placement placement = {
        .layers = (uint32_t)frame->layers, .slots = (uint32_t)frame->slots, .experts = experts};
    enum wf_status status = wf_table_new(frame->engine, &placement, table_out, error);
    free(experts);
    return status;
}

void wf_table_to_frame(const struct wf_table *table, uint64_t engine,
                       struct wf_frame_placement *frame_out)
{
    *frame_out = (struct wf_frame_placement){.engine = engine};
    if (table == NULL) {
        return;
    }
    uint32_t count = table->placement.layers * table->placement.slots;
    frame_out->layers = table->placement.layers;
    frame_out->slots = table->placement.slots;
    frame_out->experts_count = count;
    frame_out->experts = calloc(count, sizeof frame_out->experts[0]);
    WF_ASSERT(frame_out->experts != NULL);
    for (uint32_t i = 0; i < count; i++) {
        frame_out->experts[i].expert = table->experts[i];
    }
}

struct wf_table *wf_table_hold(struct wf_table *table)
{
    if (table != NULL) {
        __atomic_fetch_add(&table->references, 1, __ATOMIC_RELAXED);
    }
    return table;
}

void wf_table_release(struct wf_table *table)
{
    if (table != NULL && __atomic_fetch_sub(&table->references, 1, __ATOMIC_ACQ_REL) == 1) {
        free(table);
    }
}

struct wf_hash wf_table_hash(const struct wf_table *table)
{
    return table != NULL ? table->hash : (struct wf_hash){0, 0};
}

/* --- of several engines ------------------------------------------------------------------------
 */
static uint32_t index_of(const struct wf_tables *tables, uint64_t engine)
{
    uint32_t i = 0;
    while (i < tables->count && tables->list[i]->engine != engine) {
        i++;
    }
    return i;
}

struct wf_table *wf_tables_find(const struct wf_tables *tables, uint64_t engine)
{
    uint32_t i = index_of(tables, engine);
    return i < tables->count ? tables->list[i] : NULL;
}

void wf_tables_put(struct wf_tables *tables, uint64_t engine, struct wf_table *table)
{
    uint32_t i = index_of(tables, engine);
    if (i < tables->count) {
        wf_table_release(tables->list[i]);
        tables->list[i] = table != NULL ? table : tables->list[--tables->count];
    } else if (table != NULL) {
        tables->list = realloc(tables->list, (i + 1ull) * sizeof tables->list[0]);
        WF_ASSERT(tables->list != NULL);
        tables->list[tables->count++] = table;
    }
}

struct wf_tables wf_tables_copy(const struct wf_tables *tables)
{
    struct wf_tables copy = {.list = calloc(tables->count + 1ull, sizeof copy.list[0])};
    WF_ASSERT(copy.list != NULL);
    for (uint32_t i = 0; i < tables->count; i++) {
        copy.list[copy.count++] = wf_table_hold(tables->list[i]);
    }
    return copy;
}

void wf_tables_fini(struct wf_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++) {
        wf_table_release(tables->list[i]);
    }
    free(tables->list);
    *tables = (struct wf_tables){0};
}
