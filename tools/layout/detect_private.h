/* detect_private.h - what detect.c and its solver share: what is seen of a dump, and a guess. */
#ifndef WEFT_TOOLS_LAYOUT_DETECT_PRIVATE_H
#define WEFT_TOOLS_LAYOUT_DETECT_PRIVATE_H

#include "models/layout.h"
#include "tools/layout/detect.h"

enum {
    /* How many tensors; then of each dimension the largest on a rank, summed over the ranks: what
     * is cut unevenly is whole again. */
    WF_SEEN_PARTS = 1 + WF_SHAPE_MAX,
};

/* All tensors whose names differ in numbers only. */
struct wf_seen_slot {
    uint64_t pattern; /* hash of the name without its numbers */
    uint64_t parts[WF_SEEN_PARTS];
    const char *name; /* one of them; borrows */
};

struct wf_seen {
    struct wf_seen_slot *slots; /* by pattern; owned */
    uint32_t count;
};

/* Add a rank; *seen is zeroed memory before the first. False without memory. */
bool wf_seen_add_dump(struct wf_seen *seen, const struct wf_dump_rank *dump);
bool wf_seen_add_layout(struct wf_seen *seen, const struct wf_layout *layout);
const struct wf_seen_slot *wf_seen_find(const struct wf_seen *seen, uint64_t pattern);
/* 1 if both have the same patterns, 0 if none in common. */
double wf_seen_alike(const struct wf_seen *a, const struct wf_seen *b);
void wf_seen_fini(struct wf_seen *seen);

/* Values of a family's sizes that may make the dumps. */
struct wf_guess {
    const struct wf_family *family;
    const struct wf_family *const *families; /* for the parser */
    char spec[WF_SPEC_MAX];
    uint32_t ranks; /* 0 .. ranks - 1 are compared */
    uint64_t *work; /* tensors that trial layouts may have yet; borrows */
    uint64_t value[WF_FAMILY_SIZES_MAX];
    bool given[WF_FAMILY_SIZES_MAX]; /* in the config; else the family's own rule holds */
    bool solved[WF_FAMILY_SIZES_MAX];
    bool moves[WF_FAMILY_SIZES_MAX]; /* some shape or name depends on it */
    bool still[WF_FAMILY_SIZES_MAX]; /* nothing does */
    bool free[WF_FAMILY_SIZES_MAX];  /* chosen where only a product shows */
};

/* True for a size that a config gives as true or false. */
bool wf_guess_is_flag(const struct wf_family_size *size);
/* The model of a guess, or NULL where the family refuses these sizes. */
struct wf_model *wf_guess_model(const struct wf_guess *guess);
/* What its ranks have by a guess; false where anything refuses it, or no work is left. */
bool wf_guess_seen(const struct wf_guess *guess, struct wf_seen *out);
/* Small sizes of the family that every recipe of one rank takes. Gives how near the names come to
 * those of `seen` at best (wf_seen_alike), below 0 if the family takes no such sizes. */
double wf_guess_start(struct wf_guess *guess, const struct wf_seen *seen);
/* Takes out of the config what has a rule of its own, where names come nearer by the rule: 16 dense
 * layers of 4 hide the experts.
 * Gives how near. */
double wf_guess_trim(struct wf_guess *guess, const struct wf_seen *seen);
/* Sets flags and counts so that they come as near as they can; gives how near that is. */
double wf_guess_improve(struct wf_guess *guess, const struct wf_seen *seen, double near);
/* Says in the config what follows from other sizes (a head size of H / nq), where that changes
 * nothing: then each can be solved for by itself. */
void wf_guess_spell_out(struct wf_guess *guess);
/* Solves for the sizes from what the ranks show; true if `check` says so of the result. */
typedef bool wf_guess_check_t(void *user, const struct wf_guess *guess);
bool wf_guess_solve(struct wf_guess *guess, const struct wf_seen *seen, wf_guess_check_t *check,
                    void *user);

#endif
