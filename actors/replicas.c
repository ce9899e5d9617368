/* replicas.c - groups of what several ranks hold alike, from layouts, and digests of them. */
#include "actors/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"
#include "models/copy.h"
#include "models/variant.h"

enum { ALONE = UINT32_MAX }; /* group of what is held by this rank only, but twice */

struct found {
    struct wf_box box; /* its target side is the parameter, in elements */
    uint32_t group, param, tensor;
    enum wf_dtype dtype, as_dtype;
    uint32_t order; /* in which it was found */
    uint32_t again; /* of a second copy: `order` of the first, else UINT32_MAX */
};

struct wf_replicas {
    struct found *firsts, *seconds; /* by box of the digests; they own the boxes */
    struct wf_digests *first, *second;
    uint32_t *first_of; /* by box of `second`: that of `first` */
    struct wf_replicas_group *groups;
    uint32_t *group_box; /* each group's first box in `first` */
    uint32_t group_count;
    uint64_t unseen;
};

/* --- what is held alike
 * -------------------------------------------------------------------------- */
struct maker {
    const struct wf_replicas_input *input;
    struct wf_plan_build build; /* the side's ranks as sources */
    struct wf_replicas *out;
    struct found *found;
    uint32_t found_count, found_room;
    uint32_t *ranks; /* by group, of found: how many ranks hold it */
};

struct one_box {
    struct wf_box box;
    uint32_t count;
};

static bool take_box(void *user, const struct wf_box *box)
{
    struct one_box *one = user;
    one->box = *box;
    return ++one->count < 2;
}

/* How a piece shows a set: in no, one or several boxes, as far as that. */
static uint32_t show(const struct wf_nest *piece, const struct wf_nest *set, struct one_box *one)
{
    one->count = 0;
    if (wf_nest_intersect(piece, set, take_box, one, NULL) != WF_OK) {
        one->count = 2;
    }
    return one->count;
}

static const struct wf_layout *class_layout(const struct maker *maker, uint32_t class)
{
    return maker->build.src[class].layout;
}

static bool holds_copy(const struct maker *maker, const struct wf_plan_holder *holder)
{
    return class_layout(maker, holder->src_class)->pieces[holder->piece].value_rule ==
           WF_VALUE_COPY;
}

/* Ranks that hold the atom; 0: one of them shows it in several boxes, so that no order of its
 * elements is common to all. */
static uint32_t count_ranks(const struct maker *maker, const struct wf_plan_atom *atom)
{
    uint32_t ranks = 0;
    for (uint32_t h = 0; h < atom->holder_count; h++) {
        const struct wf_plan_holder *holder = &atom->holders[h];
        struct wf_nest nest = wf_layout_nest(class_layout(maker, holder->src_class), holder->piece);
        struct one_box one;
        if (show(&nest, &atom->set, &one) != 1) {
            return 0;
        }
        ranks += maker->build.src[holder->src_class].rank_count;
    }
    return ranks;
}

static bool add_found(struct maker *maker, struct found found)
{
    if (maker->found_count == maker->found_room) {
        uint32_t room = maker->found_room > 0 ? 2 * maker->found_room : 256;
        struct found *grown = reallocarray(maker->found, room, sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        maker->found = grown;
        maker->found_room = room;
    }
    found.order = maker->found_count;
    maker->found[maker->found_count++] = found;
    return true;
}

/* Where the own tensors show the atom: the piece that readers get, or, where that is prepared with
 * 1 added, the tensor that it is made of. */
static bool find_own(const struct maker *maker, uint32_t param, const struct wf_plan_atom *atom,
                     uint32_t piece, struct found *out)
{
    const struct wf_layout *own = maker->input->own;
    uint32_t class = maker->build.src_class_of[maker->input->rank];
    const struct wf_layout *source = class_layout(maker, class);
    struct one_box one;
    *out = (struct found){.param = param, .again = UINT32_MAX};
    if (source->pieces[piece].tensor < own->tensor_count) {
        struct wf_nest nest = wf_layout_nest(source, piece);
        out->tensor = source->pieces[piece].tensor;
        out->dtype = out->as_dtype = own->tensors[out->tensor].dtype;
        bool shown = show(&nest, &atom->set, &one) == 1;
        out->box = one.box;
        return shown;
    }
    for (uint32_t i = 0; i < own->piece_count; i++) {
        const struct wf_piece *less = &own->pieces[i];
        if (less->kind == WF_PIECE_DATA && less->param == param &&
            less->value_rule == WF_VALUE_LESS_ONE) {
            struct wf_nest nest = wf_layout_nest(own, i);
            out->tensor = less->tensor;
            out->dtype = own->tensors[less->tensor].dtype;
            out->as_dtype = WF_DTYPE_F32;
            if (show(&nest, &atom->set, &one) == 1) {
                out->box = one.box;
                return true;
            }
        }
    }
    return false;
}

/* Other places on this rank where the atom stands. */
static bool add_seconds(struct maker *maker, uint32_t param, const struct wf_plan_atom *atom,
                        uint32_t piece, const struct found *first)
{
    const struct wf_plan_index *index = &maker->build.src_index;
    uint32_t class = maker->build.src_class_of[maker->input->rank];
    const struct wf_layout *layout = class_layout(maker, class);
    bool listed = first->group != ALONE;
    for (uint32_t i = index->first[param]; i < index->first[param + 1]; i++) {
        uint32_t other = index->shown[i].piece;
        if (index->shown[i].class != class || other == piece ||
            layout->pieces[other].value_rule != WF_VALUE_COPY ||
            layout->pieces[other].tensor >= maker->input->own->tensor_count ||
            layout->tensors[layout->pieces[other].tensor].dtype != first->as_dtype) {
            continue;
        }
        struct wf_nest nest = wf_layout_nest(layout, other);
        struct one_box one;
        if (show(&nest, &atom->set, &one) != 1 || one.box.elements != first->box.elements) {
            continue;
        }
        if (!listed && !add_found(maker, *first)) {
            return false;
        }
        listed = true;
        struct found second = {.box = one.box,
                               .group = first->group,
                               .param = param,
                               .tensor = layout->pieces[other].tensor,
                               .dtype = first->as_dtype,
                               .as_dtype = first->as_dtype};
        for (second.again = maker->found_count - 1;
             maker->found[second.again].again != UINT32_MAX;) {
            second.again--;
        }
        if (!add_found(maker, second)) {
            return false;
        }
    }
    return true;
}

static bool add_atom(struct maker *maker, uint32_t param, const struct wf_plan_atom *atom)
{
    uint32_t class = maker->build.src_class_of[maker->input->rank];
    const struct wf_plan_holder *own = NULL;
    for (uint32_t h = 0; h < atom->holder_count && own == NULL; h++) {
        own = atom->holders[h].src_class == class ? &atom->holders[h] : NULL;
    }
    if (own == NULL || !holds_copy(maker, own)) {
        return true;
    }
    struct found first;
    uint32_t ranks = count_ranks(maker, atom);
    if (ranks == 0 || !find_own(maker, param, atom, own->piece, &first)) {
        maker->out->unseen += atom->elements;
        return true;
    }
    first.group = ALONE;
    if (ranks > 1) {
        first.group = atom->group;
        maker->ranks[first.group] = ranks;
        if (!add_found(maker, first)) {
            return false;
        }
    }
    return add_seconds(maker, param, atom, own->piece, &first);
}

/* Codes and scales of a train rank are made, and only where somebody reads them. */
static bool is_made(const struct wf_replicas_input *input, uint32_t param)
{
    const struct wf_variant_pair *pair =
        input->side == WF_TRAIN ? wf_model_pair(input->model, param) : NULL;
    return pair != NULL && param != pair->matrix;
}

static enum wf_status find_all(struct maker *maker, struct wf_error *error)
{
    struct wf_plan_build *build = &maker->build;
    enum wf_status status = wf_plan_class_sources(build, error);
    if (status == WF_OK) {
        status = wf_plan_atoms(build, error);
    }
    if (status != WF_OK) {
        return status;
    }
    maker->ranks = calloc((size_t)build->group_count + 1, sizeof *maker->ranks);
    bool good = maker->ranks != NULL;
    for (uint32_t p = 0; p < maker->input->model->param_count && good; p++) {
        for (uint32_t a = build->atom_first[p]; a < build->atom_first[p + 1] && good; a++) {
            good = is_made(maker->input, p) || add_atom(maker, p, &build->atoms[a]);
        }
    }
    return good ? WF_OK : wf_plan_no_memory(error);
}

/* --- digests of it
 * -------------------------------------------------------------------------------- */
/* And in it by parameter and element: what is found first is the first. */
static int by_group(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    if (x->param != y->param) {
        return x->param < y->param ? -1 : 1;
    }
    if (x->box.dst_offset != y->box.dst_offset) {
        return x->box.dst_offset < y->box.dst_offset ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Parts the found into first and second copies, each by group. False: no memory. */
static bool part_found(struct maker *maker, uint32_t *firsts_out, uint32_t *seconds_out)
{
    struct wf_replicas *out = maker->out;
    uint32_t firsts = 0, seconds = 0;
    out->firsts = calloc((size_t)maker->found_count + 1, sizeof *out->firsts);
    out->seconds = calloc((size_t)maker->found_count + 1, sizeof *out->seconds);
    out->first_of = calloc((size_t)maker->found_count + 1, sizeof *out->first_of);
    out->groups = calloc((size_t)maker->found_count + 1, sizeof *out->groups);
    out->group_box = calloc((size_t)maker->found_count + 1, sizeof *out->group_box);
    uint32_t *place = calloc((size_t)maker->found_count + 1, sizeof *place);
    bool good = out->firsts != NULL && out->seconds != NULL && out->first_of != NULL &&
                out->groups != NULL && out->group_box != NULL && place != NULL;
    if (good && maker->found_count > 0) {
        qsort(maker->found, maker->found_count, sizeof *maker->found, by_group);
    }
    for (uint32_t i = 0; good && i < maker->found_count; i++) {
        const struct found *found = &maker->found[i];
        if (found->again == UINT32_MAX) {
            place[found->order] = firsts;
            out->firsts[firsts++] = *found;
        } else { /* behind its first */
            out->first_of[seconds] = place[found->again];
            out->seconds[seconds++] = *found;
        }
    }
    free(place);
    *firsts_out = firsts;
    *seconds_out = seconds;
    return good;
}

static enum wf_status make_digests(const struct found *found, uint32_t count,
                                   struct wf_digests **out, struct wf_error *error)
{
    struct wf_digest_box *boxes = calloc((size_t)count + 1, sizeof *boxes);
    for (uint32_t i = 0; i < count && boxes != NULL; i++) {
        boxes[i] = (struct wf_digest_box){.box = &found[i].box,
                                          .src_tensor = found[i].tensor,
                                          .src_dtype = found[i].dtype,
                                          .dst_dtype = found[i].as_dtype};
    }
    return wf_digests_new_boxes(boxes, count, out, error);
}

static void list_groups(const struct maker *maker)
{
    struct wf_replicas *out = maker->out;
    for (uint32_t b = 0; b < out->first->op_count && out->firsts[b].group != ALONE; b++) {
        const uint64_t *first_chunk = out->first->first_chunk;
        if (b == 0 || out->firsts[b].group != out->firsts[b - 1].group) {
            out->group_box[out->group_count] = b;
            out->groups[out->group_count++] = (struct wf_replicas_group){
                .id = out->firsts[b].group, .ranks = maker->ranks[out->firsts[b].group]};
        }
        out->groups[out->group_count - 1].chunks += (uint32_t)(first_chunk[b + 1] - first_chunk[b]);
    }
}

static enum wf_status make_all(struct maker *maker, struct wf_error *error)
{
    struct wf_replicas *out = maker->out;
    uint32_t firsts, seconds;
    enum wf_status status = find_all(maker, error);
    if (status != WF_OK) {
        return status;
    }
    if (!part_found(maker, &firsts, &seconds)) {
        return wf_plan_no_memory(error);
    }
    status = make_digests(out->firsts, firsts, &out->first, error);
    if (status == WF_OK) {
        status = make_digests(out->seconds, seconds, &out->second, error);
    }
    if (status == WF_OK) {
        list_groups(maker);
    }
    return status;
}

enum wf_status wf_replicas_new(const struct wf_replicas_input *input, struct wf_replicas **out,
                               struct wf_error *error)
{
    struct wf_plan_member *members = calloc((size_t)input->rank_count + 1, sizeof *members);
    struct wf_replicas *replicas = calloc(1, sizeof *replicas);
    if (members == NULL || replicas == NULL) {
        free(members);
        free(replicas);
        return wf_plan_no_memory(error);
    }
    for (uint32_t i = 0; i < input->rank_count; i++) {
        members[i] =
            (struct wf_plan_member){.side = WF_TRAIN, .rank = i, .layout = input->layouts[i]};
    }
    const struct wf_plan_input plan = {
        .model = input->model, .members = members, .member_count = input->rank_count};
    struct maker maker = {
        .input = input, .build = {.input = &plan, .lists_only = true}, .out = replicas};
    enum wf_status status = make_all(&maker, error);
    wf_plan_arena_free(&maker.build.arena);
    wf_plan_arena_free(&maker.build.scratch);
    free(maker.found);
    free(maker.ranks);
    free(members);
    if (status != WF_OK) {
        wf_replicas_free(replicas);
        return status;
    }
    *out = replicas;
    return WF_OK;
}

void wf_replicas_free(struct wf_replicas *replicas)
{
    if (replicas != NULL) {
        wf_digests_free(replicas->first);
        wf_digests_free(replicas->second);
        free(replicas->firsts);
        free(replicas->seconds);
        free(replicas->first_of);
        free(replicas->groups);
        free(replicas->group_box);
        free(replicas);
    }
}

const struct wf_replicas_group *wf_replicas_groups(const struct wf_replicas *replicas,
                                                   uint32_t *count_out)
{
    *count_out = replicas->group_count;
    return replicas->groups;
}

uint64_t wf_replicas_unseen(const struct wf_replicas *replicas)
{
    return replicas->unseen;
}

uint64_t wf_replicas_chunks(const struct wf_replicas *replicas)
{
    return wf_digests_count(replicas->first) + wf_digests_count(replicas->second);
}

void wf_replicas_compute(struct wf_replicas *replicas, void *const *tensors, uint64_t first,
                         uint64_t count)
{
    uint64_t firsts = wf_digests_count(replicas->first), end = first + count;
    if (first < firsts) {
        uint64_t upto = end < firsts ? end : firsts;
        wf_digests_compute(replicas->first, false, tensors, first, upto - first);
        first = upto;
    }
    if (first < end) {
        wf_digests_compute(replicas->second, false, tensors, first - firsts, end - first);
    }
}

/* --- questions
 * ------------------------------------------------------------------------------------ */
/* The group's index, or UINT32_MAX. */
static uint32_t find_group(const struct wf_replicas *replicas, uint32_t id)
{
    uint32_t low = 0, high = replicas->group_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (replicas->groups[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < replicas->group_count && replicas->groups[low].id == id ? low : UINT32_MAX;
}

bool wf_replicas_sum(const struct wf_replicas *replicas, uint32_t group, uint64_t first,
                     uint64_t count, struct wf_hash *sum_out)
{
    uint32_t at = find_group(replicas, group);
    if (at == UINT32_MAX || first > replicas->groups[at].chunks) {
        return false;
    }
    uint64_t left = replicas->groups[at].chunks - first;
    const uint64_t *chunks =
        &replicas->first->chunks[replicas->first->first_chunk[replicas->group_box[at]] + first];
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    for (uint64_t i = 0; i < count && i < left; i++) {
        wf_hasher_u64(&hasher, chunks[i]);
    }
    *sum_out = wf_hasher_end(&hasher);
    return true;
}

/* The parameter's element that is the `index`-th of a box. */
static uint64_t element_at(const struct wf_box *box, uint64_t index)
{
    uint64_t element = box->dst_offset;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        element += index % box->axes[a].count * (uint64_t)box->axes[a].dst_step;
        index /= box->axes[a].count;
    }
    return element;
}

static uint64_t chunk_elements(const struct found *found, uint64_t chunk)
{
    uint64_t each = WF_DIGEST_CHUNK_BYTES / wf_dtype_bytes(found->as_dtype);
    uint64_t left = found->box.elements - chunk * each;
    return left < each ? left : each;
}

/* "NAME, elements A..B": of a chunk, or of `count` elements of it. */
static void describe(const struct wf_model *model, const struct found *found, uint64_t chunk,
                     struct wf_copy_part part, char *text, size_t bytes)
{
    uint64_t begin = chunk * (WF_DIGEST_CHUNK_BYTES / wf_dtype_bytes(found->as_dtype));
    uint64_t first = element_at(&found->box, begin + part.first);
    char elements[64];
    if (part.count == 1) {
        snprintf(elements, sizeof elements, "element %" PRIu64, first);
    } else {
        snprintf(elements, sizeof elements, "elements %" PRIu64 "..%" PRIu64, first,
                 element_at(&found->box, begin + part.first + part.count - 1));
    }
    snprintf(text, bytes, "%s, %s", model->params[found->param].name, elements);
}

/* The box of a chunk of a group, and its number within the box; NULL: there is none. */
static const struct found *find_chunk(const struct wf_replicas *replicas, uint32_t group,
                                      uint64_t chunk, uint64_t *within_out)
{
    uint32_t at = find_group(replicas, group);
    if (at == UINT32_MAX || chunk >= replicas->groups[at].chunks) {
        return NULL;
    }
    uint64_t index = replicas->first->first_chunk[replicas->group_box[at]] + chunk;
    return &replicas->firsts[wf_digests_op(replicas->first, index, within_out)];
}

uint64_t wf_replicas_elements(const struct wf_replicas *replicas, uint32_t group, uint64_t chunk)
{
    uint64_t within;
    const struct found *found = find_chunk(replicas, group, chunk, &within);
    return found != NULL ? chunk_elements(found, within) : 0;
}

/* Cuts the part at the chunk's end; NULL: nothing is left. */
static const struct found *find_part(const struct wf_replicas *replicas,
                                     const struct wf_replicas_part *part, uint64_t *chunk_out,
                                     struct wf_copy_part *out)
{
    const struct found *found = find_chunk(replicas, part->group, part->chunk, chunk_out);
    uint64_t elements = found != NULL ? chunk_elements(found, *chunk_out) : 0;
    if (part->first >= elements) {
        return NULL;
    }
    uint64_t left = elements - part->first;
    *out = (struct wf_copy_part){part->first,
                                 part->count == 0 || part->count > left ? left : part->count};
    return found;
}

bool wf_replicas_part_sum(const struct wf_replicas *replicas, void *const *tensors,
                          struct wf_replicas_part part, struct wf_hash *sum_out)
{
    uint64_t chunk;
    struct wf_copy_part elements;
    const struct found *found = find_part(replicas, &part, &chunk, &elements);
    if (found == NULL) {
        return false;
    }
    elements.first += chunk * (WF_DIGEST_CHUNK_BYTES / wf_dtype_bytes(found->as_dtype));
    *sum_out = (struct wf_hash){0, wf_box_digest(&found->box, false, tensors[found->tensor],
                                                 found->dtype, found->as_dtype, elements)};
    return true;
}

void wf_replicas_describe(const struct wf_replicas *replicas, const struct wf_model *model,
                          const struct wf_layout *own, struct wf_replicas_part part, char *text,
                          size_t bytes)
{
    uint64_t chunk;
    struct wf_copy_part elements;
    const struct found *found = find_part(replicas, &part, &chunk, &elements);
    text[0] = '\0';
    if (found != NULL) {
        const char *tensor = own->tensors[found->tensor].name;
        describe(model, found, chunk, elements, text, bytes);
        size_t used = strlen(text);
        if (strcmp(tensor, model->params[found->param].name) != 0) {
            snprintf(text + used, bytes - used, ", in %s", tensor);
        }
    }
}

bool wf_replicas_own_differ(const struct wf_replicas *replicas, const struct wf_model *model,
                            const struct wf_layout *own, char *text, size_t bytes)
{
    const struct wf_digests *first = replicas->first, *second = replicas->second;
    for (uint64_t i = 0; i < wf_digests_count(second); i++) {
        uint64_t chunk;
        uint32_t box = wf_digests_op(second, i, &chunk);
        uint32_t of = replicas->first_of[box];
        if (second->chunks[i] != first->chunks[first->first_chunk[of] + chunk]) {
            const struct found *found = &replicas->firsts[of];
            const struct wf_copy_part all = {0, chunk_elements(found, chunk)};
            describe(model, found, chunk, all, text, bytes);
            size_t used = strlen(text);
            snprintf(text + used, bytes - used, ", in %s and in %s",
                     own->tensors[found->tensor].name,
                     own->tensors[replicas->seconds[box].tensor].name);
            return true;
        }
    }
    return false;
}
