/* plan_atoms.c - what the train side holds of each parameter, as disjoint atoms.
 *
 * Pieces that show the same elements (copies of a norm on every rank, the embedding's shadow on the
 * last stage) are one set with several holders. Where sets overlap in part, they are cut, so that
 * every element belongs to one atom and each atom has one list of holders. Atoms with the same
 * train classes share a group: what the balance is computed over.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"

/* The different sets of one parameter, and who shows each. */
struct shown {
    struct wf_nest *sets;
    struct holder_list {
        struct wf_plan_holder *holders;
        uint32_t count, capacity;
    } * lists;
    uint32_t count, capacity, list_capacity;
};

static bool add_shown(struct wf_plan_arena *arena, struct shown *shown, const struct wf_nest *set,
                      struct wf_plan_holder holder)
{
    uint32_t at = 0;
    while (at < shown->count && !wf_plan_set_equal(&shown->sets[at], set)) {
        at++;
    }
    if (at == shown->count) {
        shown->sets =
            wf_plan_grow(arena, shown->sets, &shown->capacity, at + 1ull, sizeof *shown->sets);
        shown->lists = wf_plan_grow(arena, shown->lists, &shown->list_capacity, at + 1ull,
                                    sizeof *shown->lists);
        if (shown->sets == NULL || shown->lists == NULL) {
            return false;
        }
        shown->sets[at] = *set;
        shown->lists[at] = (struct holder_list){0};
        shown->count++;
    }
    struct holder_list *list = &shown->lists[at];
    if (list->count > 0 && list->holders[list->count - 1].src_class == holder.src_class) {
        return true; /* a second copy within one rank: the first is read */
    }
    list->holders = wf_plan_grow(arena, list->holders, &list->capacity, list->count + 1ull,
                                 sizeof *list->holders);
    if (list->holders == NULL) {
        return false;
    }
    list->holders[list->count++] = holder;
    return true;
}

static enum wf_status gather_shown(struct wf_plan_build *build, uint32_t param, struct shown *shown,
                                   struct wf_error *error)
{
    const struct wf_plan_index *index = &build->src_index;
    for (uint32_t i = index->first[param]; i < index->first[param + 1]; i++) {
        struct wf_plan_holder holder = {index->shown[i].class, index->shown[i].piece};
        struct wf_nest nest = wf_layout_nest(build->src[holder.src_class].layout, holder.piece);
        struct wf_nest set = wf_plan_set_of(&nest);
        if (!add_shown(&build->scratch, shown, &set, holder)) {
            return wf_plan_no_memory(error);
        }
    }
    return WF_OK;
}

/* Out of the scratch. */
static enum wf_status keep_holders(struct wf_plan_build *build, struct wf_plan_atom *atom,
                                   const struct wf_plan_holder *holders, uint32_t count,
                                   struct wf_error *error)
{
    struct wf_plan_holder *kept = wf_plan_alloc(&build->arena, count, sizeof *kept);
    if (kept == NULL) {
        return wf_plan_no_memory(error);
    }
    memcpy(kept, holders, count * sizeof *kept);
    atom->holders = kept;
    atom->holder_count = count;
    return WF_OK;
}

/* One holder a class, classes ascending, of all sets that cover an atom. */
static enum wf_status join_holders(struct wf_plan_build *build, const struct shown *shown,
                                   const struct wf_plan_cover *cover, struct wf_plan_atom *atom,
                                   struct wf_error *error)
{
    if (cover->input_count == 1) {
        const struct holder_list *list = &shown->lists[cover->inputs[0]];
        return keep_holders(build, atom, list->holders, list->count, error);
    }
    struct wf_plan_holder *joined = NULL;
    uint32_t count = 0, capacity = 0;
    for (uint32_t c = 0; c < build->src_count; c++) {
        bool found = false;
        for (uint32_t i = 0; i < cover->input_count && !found; i++) {
            const struct holder_list *list = &shown->lists[cover->inputs[i]];
            for (uint32_t h = 0; h < list->count && !found; h++) {
                if (list->holders[h].src_class != c) {
                    continue;
                }
                joined =
                    wf_plan_grow(&build->scratch, joined, &capacity, count + 1ull, sizeof *joined);
                if (joined == NULL) {
                    return wf_plan_no_memory(error);
                }
                joined[count++] = list->holders[h];
                found = true;
            }
        }
    }
    return keep_holders(build, atom, joined, count, error);
}

static uint16_t holder_value(const struct wf_plan_build *build, const struct wf_plan_holder *holder)
{
    return build->src[holder->src_class].layout->pieces[holder->piece].value_rule;
}

static const struct wf_tensor *holder_tensor(const struct wf_plan_build *build,
                                             const struct wf_plan_holder *holder)
{
    const struct wf_layout *layout = build->src[holder->src_class].layout;
    return &layout->tensors[layout->pieces[holder->piece].tensor];
}

/* Copies must be of one type and hold the same values, or which copy is read would change what
 * arrives. */
static enum wf_status check_types(const struct wf_plan_build *build, uint32_t param,
                                  const struct wf_plan_atom *atom, struct wf_error *error)
{
    const struct wf_tensor *first = holder_tensor(build, &atom->holders[0]);
    for (uint32_t h = 1; h < atom->holder_count; h++) {
        const struct wf_tensor *other = holder_tensor(build, &atom->holders[h]);
        if (other->dtype != first->dtype ||
            holder_value(build, &atom->holders[h]) != holder_value(build, &atom->holders[0])) {
            const struct wf_param *named = &build->input->model->params[param];
            char box[WF_PLAN_SET_TEXT];
            wf_plan_set_format(&atom->set, named, box);
            return wf_error_set(
                error, WF_INVALID,
                "parameter %s, %s: train rank %" PRIu32
                " holds it as %s (%s) and train rank %" PRIu32
                " as %s (%s); copies of one parameter must have one type and one rule of values",
                named->name, box, build->src[atom->holders[0].src_class].ranks[0],
                wf_dtype_name(first->dtype), first->name,
                build->src[atom->holders[h].src_class].ranks[0], wf_dtype_name(other->dtype),
                other->name);
        }
    }
    return WF_OK;
}

static bool group_has_classes(const struct wf_plan_group *group, const struct wf_plan_atom *atom)
{
    if (group->class_count != atom->holder_count) {
        return false;
    }
    for (uint32_t i = 0; i < atom->holder_count; i++) {
        if (group->classes[i] != atom->holders[i].src_class) {
            return false;
        }
    }
    return true;
}

/* Consecutive parameters mostly have the groups that were met last: the search begins there. */
static enum wf_status find_group(struct wf_plan_build *build, struct wf_plan_atom *atom,
                                 struct wf_error *error)
{
    for (uint32_t g = build->group_count; g > 0; g--) {
        if (group_has_classes(&build->groups[g - 1], atom)) {
            atom->group = g - 1;
            return WF_OK;
        }
    }
    build->groups = wf_plan_grow(&build->arena, build->groups, &build->group_capacity,
                                 build->group_count + 1ull, sizeof *build->groups);
    uint32_t *classes = wf_plan_alloc(&build->arena, atom->holder_count, sizeof *classes);
    uint64_t *quota = wf_plan_alloc(&build->arena, atom->holder_count, sizeof *quota);
    if (build->groups == NULL || classes == NULL || quota == NULL) {
        return wf_plan_no_memory(error);
    }
    struct wf_plan_group group = {
        .classes = classes, .class_count = atom->holder_count, .quota = quota};
    for (uint32_t i = 0; i < atom->holder_count; i++) {
        classes[i] = atom->holders[i].src_class;
        group.rank_count += build->src[classes[i]].rank_count;
    }
    atom->group = build->group_count;
    build->groups[build->group_count++] = group;
    return WF_OK;
}

static enum wf_status add_atom(struct wf_plan_build *build, uint32_t param,
                               struct wf_plan_atom *atom, struct wf_error *error)
{
    enum wf_status status = check_types(build, param, atom, error);
    if (status == WF_OK) {
        status = find_group(build, atom, error);
    }
    if (status != WF_OK) {
        return status;
    }
    build->atoms = wf_plan_grow(&build->arena, build->atoms, &build->atom_capacity,
                                build->atom_count + 1ull, sizeof *build->atoms);
    if (build->atoms == NULL) {
        return wf_plan_no_memory(error);
    }
    build->atoms[build->atom_count++] = *atom;
    return WF_OK;
}

static bool same_type(const struct wf_plan_build *build, const struct wf_plan_holder *a,
                      const struct wf_plan_holder *b)
{
    return holder_tensor(build, a)->dtype == holder_tensor(build, b)->dtype &&
           holder_value(build, a) == holder_value(build, b);
}

/* An atom for each type in which ranks hold it: those of one are the same bytes. */
static enum wf_status add_atoms_by_type(struct wf_plan_build *build, uint32_t param,
                                        const struct wf_plan_atom *atom, struct wf_error *error)
{
    uint32_t left = atom->holder_count;
    struct wf_plan_holder *same = wf_plan_alloc(&build->scratch, left, sizeof *same);
    struct wf_plan_holder *rest = wf_plan_alloc(&build->scratch, left, sizeof *rest);
    enum wf_status status = same != NULL && rest != NULL ? WF_OK : wf_plan_no_memory(error);
    if (status == WF_OK) {
        memcpy(rest, atom->holders, left * sizeof *rest);
    }
    while (left > 0 && status == WF_OK) {
        struct wf_plan_atom one = *atom;
        struct wf_plan_holder type = rest[0];
        uint32_t count = 0, kept = 0;
        for (uint32_t i = 0; i < left; i++) {
            if (same_type(build, &rest[i], &type)) {
                same[count++] = rest[i];
            } else {
                rest[kept++] = rest[i];
            }
        }
        left = kept;
        status = keep_holders(build, &one, same, count, error);
        status = status == WF_OK ? add_atom(build, param, &one, error) : status;
    }
    return status;
}

static enum wf_status param_atoms(struct wf_plan_build *build, uint32_t param,
                                  struct wf_error *error)
{
    const struct wf_param *named = &build->input->model->params[param];
    struct shown shown = {0};
    enum wf_status status = gather_shown(build, param, &shown, error);
    struct wf_plan_sets sets = {.arena = &build->scratch};
    struct wf_plan_cover *covers = NULL;
    if (status == WF_OK) {
        status = wf_plan_partition(&build->scratch, shown.sets, shown.count, named->elements, &sets,
                                   &covers, error);
        if (status == WF_UNSUPPORTED) {
            wf_error_prefix(error, "parameter %s on the train ranks", named->name);
        }
    }
    for (uint32_t i = 0; i < sets.count && status == WF_OK; i++) {
        struct wf_plan_atom atom = {.set = sets.nests[i],
                                    .elements = wf_nest_elements(&sets.nests[i])};
        status = join_holders(build, &shown, &covers[i], &atom, error);
        if (status == WF_OK) {
            status = build->lists_only ? add_atoms_by_type(build, param, &atom, error)
                                       : add_atom(build, param, &atom, error);
        }
    }
    wf_plan_arena_reset(&build->scratch);
    return status;
}

enum wf_status wf_plan_atoms(struct wf_plan_build *build, struct wf_error *error)
{
    uint32_t param_count = build->input->model->param_count;
    build->atom_first = wf_plan_alloc(&build->arena, param_count + 1ull, sizeof(uint32_t));
    if (build->atom_first == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t p = 0; p < param_count; p++) {
        build->atom_first[p] = build->atom_count;
        enum wf_status status = param_atoms(build, p, error);
        if (status != WF_OK) {
            return status;
        }
    }
    build->atom_first[param_count] = build->atom_count;
    return WF_OK;
}
