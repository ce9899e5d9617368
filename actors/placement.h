/* placement.h - tables of experts (EPLB): which expert each physical slot of an engine holds.
 *
 * A table is made once, held by reference by whoever uses it (any thread), and never changes. An
 * engine without one places its experts by the rule of its recipe. Private to actors/.
 *
 * How a new table comes into force:
 *   host --wf_rank_place--> each rank of the engine; refused (AGAIN) while a round is under way
 *   rank --PLACEMENT--> server, with the layout that its tensors have by it. From now on the rank
 *     votes no in every round whose plan knows another table of its engine
 *   server: when all ranks of the engine that are here say the same table, a new epoch:
 *     --PLACEMENT--> everybody, for every engine that has a table, then --MEMBERS-->
 *   every rank plans anew, from its plan by rule (actors/plan.h), and the plans are compared.
 * A rank that is started again begins with the table that its host knows, which may be an old one:
 *   server: ranks that hold a version (or, if none does, that have planned) and are of one mind
 *     speak for their engine; the others are told --PLACEMENT(take)-->
 *   such a rank, unless its host has placed experts since the start, asks the host by the hook
 *     `take_table` and goes on as if the host had called wf_rank_place; or it ends, saying why
 */
#ifndef WEFT_ACTORS_PLACEMENT_H
#define WEFT_ACTORS_PLACEMENT_H

#include "actors/messages.h"
#include "models/recipe.h"

struct wf_table {
    uint32_t references;
    uint64_t engine; /* over all groups */
    struct wf_hash hash;
    struct wf_placement placement; /* its experts are behind it */
    uint32_t experts[];
};

/* With one reference. INVALID: no table, or one that is too large. */
enum wf_status wf_table_new(uint64_t engine, const struct wf_placement *placement,
                            struct wf_table **table_out, struct wf_error *error);
/* Of what came in a frame; a frame without layers takes the table back: *table_out is NULL. */
enum wf_status wf_table_of_frame(const struct wf_frame_placement *frame,
                                 struct wf_table **table_out, struct wf_error *error);
/* `frame`'s list is malloc'd: free frame->experts. NULL: the frame that takes it back. */
void wf_table_to_frame(const struct wf_table *table, uint64_t engine,
                       struct wf_frame_placement *frame_out);
struct wf_table *wf_table_hold(struct wf_table *table); /* NULL stays NULL */
void wf_table_release(struct wf_table *table);
/* {0, 0} for NULL: by rule. */
struct wf_hash wf_table_hash(const struct wf_table *table);

/* Tables of several engines. */
struct wf_tables {
    struct wf_table **list;
    uint32_t count;
};
struct wf_table *wf_tables_find(const struct wf_tables *tables, uint64_t engine);
/* Takes the reference; NULL removes the engine's. */
void wf_tables_put(struct wf_tables *tables, uint64_t engine, struct wf_table *table);
struct wf_tables wf_tables_copy(const struct wf_tables *tables);
void wf_tables_fini(struct wf_tables *tables);

#endif
