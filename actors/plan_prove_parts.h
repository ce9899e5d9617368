/* plan_prove_parts.h - what the files of the coverage proof share; nobody else includes it. They
 * share nothing with the planner but models/piece.h.
 *
 * The trick of all of it: anything that maps numbers to numbers by axes is a nest, whatever the
 * numbers are. Here they are bytes of a tensor, elements of a parameter, and ordinals (an element's
 * number within an op's box).
 */
#ifndef WEFT_ACTORS_PLAN_PROVE_PARTS_H
#define WEFT_ACTORS_PLAN_PROVE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/plan.h"

/* A growing list of nests; zeroed memory is an empty one. `failed`: memory ran out. */
struct wf_proof_list {
    struct wf_nest *nests;
    uint32_t *owners; /* a number that the caller gave with each */
    size_t count, capacity;
    bool failed;
};
void wf_proof_list_fini(struct wf_proof_list *list);

/* A map from numbers to numbers whose steps come in any order and sign. */
struct wf_proof_map {
    uint64_t from, to;
    uint32_t axis_count;
    struct {
        uint64_t count;
        int64_t from_step, to_step;
    } axes[WF_AXES_MAX + 1];
};
/* Appends the map as nests (from: parameter side) whose steps are chains, writing axes out where
 * they are not. False: it needs too many nests or axes. */
bool wf_proof_add_map(struct wf_proof_list *list, const struct wf_proof_map *map, uint32_t owner);
/* Appends a set of bytes: elements of `elem_bytes` that stand where the map's `from` side says.
 * False as above, or if it names a byte twice by an axis that does not move. */
bool wf_proof_add_bytes(struct wf_proof_list *list, const struct wf_proof_map *map,
                        uint32_t elem_bytes, uint32_t owner);

struct wf_proof_clash {
    bool found;
    uint32_t a, b; /* owners */
    uint64_t at;
};
/* Finds two nests of the list that share a number of their parameter side. */
enum wf_status wf_proof_clash(const struct wf_proof_list *list, struct wf_proof_clash *clash_out,
                              struct wf_error *error);

/* A layout with its pieces by tensor: order[first[t]] .. order[first[t + 1] - 1]. */
struct wf_proof_side {
    const struct wf_layout *layout;
    uint32_t *first, *order;
    bool covers; /* proven: its pieces fill its tensors */
};

/* Scratch space of wf_proof_op. */
struct wf_proof_scratch {
    struct wf_proof_list box, src, dst;
};
/* One op between two layouts: writes only what data pieces of its parameter show in its target
 * tensor, reads the same elements of the parameter, casts what can be cast. MISMATCH says what is
 * wrong, without naming ranks. */
enum wf_status wf_proof_op(const struct wf_model *model, const struct wf_op *op,
                           const struct wf_proof_side *src, const struct wf_proof_side *dst,
                           struct wf_proof_scratch *scratch, struct wf_error *error);
enum wf_status wf_proof_no_memory(struct wf_error *error);

#endif
