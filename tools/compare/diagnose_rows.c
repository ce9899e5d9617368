/* diagnose_rows.c - where a parameter's rows of B stand in A.
 *
 * Rows of a trained matrix are all different, so a row is known by its digest. Every fault that
 * only puts rows in wrong places (another matrix, another order, another expert or layer) shows as
 * a map from rows to rows, whatever the fused tensors and cuts were in which it happened.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/families/family.h"
#include "models/hash.h"
#include "tools/compare/diagnose_private.h"

enum { CANDIDATES_MAX = 32 };

/* A parameter of A in which rows are looked for. */
struct candidate {
    uint32_t param;
    uint64_t rows;
    uint64_t found, in_place; /* of B's rows: in it, and at the same row */
};

struct entry {
    uint64_t digest;
    uint32_t candidate; /* 1 + index; 0: free */
    uint64_t row;
};

struct map {
    const struct wf_patient *patient;
    struct candidate candidates[CANDIDATES_MAX]; /* the parameter itself first */
    uint32_t count;
    struct entry *table; /* a power of two, half full at most */
    uint64_t mask;
    void *row_bytes;        /* a row in the dtype of the comparison */
    uint64_t lost;          /* of B's rows: nowhere in A */
    uint64_t run, shortest; /* of rows that stand one after the other in both */
};

static const char *skip_number(const char *name, const char *text)
{
    static const char *const behind[] = {"layers.", "experts."};
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        size_t len = strlen(behind[i]);
        if ((size_t)(text - name) >= len && memcmp(text - len, behind[i], len) == 0) {
            return text + strspn(text, "0123456789");
        }
    }
    return text;
}

static bool same_place_of(const char *a, const char *b)
{
    const char *x = a, *y = b;
    for (; *x != '\0' && *y != '\0'; x++, y++) {
        x = skip_number(a, x);
        y = skip_number(b, y);
        if (*x != *y) {
            return false;
        }
        if (*x == '\0') {
            return true;
        }
    }
    return *x == *y;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
    return a == WF_NONE || b == WF_NONE ? (a == b ? 0 : WF_NONE) : a > b ? a - b : b - a;
}

/* Whether B's rows may come from this parameter of A: of the same module and expert, or the same
 * thing in a neighbouring expert or layer. */
static bool is_candidate(const struct wf_side_param *own, const struct wf_side_param *other,
                         uint64_t columns)
{
    bool matrix = other->ndim == own->ndim && other->dtype != WF_DTYPE_NONE &&
                  other->scales == WF_NONE &&
                  (other->ndim < 2 || other->shape[other->ndim - 1] == columns);
    if (!matrix || (own->ndim < 2 && other->elements != own->elements)) {
        return false;
    }
    uint32_t layers = distance(own->layer, other->layer);
    uint32_t experts = distance(own->expert, other->expert);
    if (same_place_of(own->name, other->name)) {
        return (layers == 0 && experts <= WF_DIAGNOSE_NEIGHBOURS) ||
               (experts == 0 && layers <= WF_DIAGNOSE_NEIGHBOURS);
    }
    return layers == 0 && experts == 0;
}

static void find_candidates(struct map *map)
{
    const struct wf_patient *p = map->patient;
    const struct wf_compare_side *side = &p->compare->side[WF_A];
    uint32_t own = p->pair->param[WF_A];
    map->candidates[map->count++] = (struct candidate){.param = own, .rows = p->rows};
    for (uint32_t i = 0; i < side->param_count && map->count < CANDIDATES_MAX; i++) {
        const struct wf_side_param *other = &side->params[i];
        if (i != own && other->elements <= WF_DIAGNOSE_ELEMENTS_MAX &&
            is_candidate(&side->params[own], other, p->columns)) {
            map->candidates[map->count++] =
                (struct candidate){.param = i, .rows = other->elements / p->columns};
        }
    }
}

/* Of a row as it was compared: both sides in the narrower dtype. */
static uint64_t digest_of(struct map *map, const float *row)
{
    const struct wf_patient *p = map->patient;
    enum wf_dtype as = p->pair->result.as;
    wf_cast_t *cast = wf_cast_for(WF_DTYPE_F32, as, false);
    if (cast == NULL) {
        return wf_hash_bytes(row, p->columns * sizeof *row);
    }
    cast(map->row_bytes, row, p->columns);
    return wf_hash_bytes(map->row_bytes, p->columns * wf_dtype_bytes(as));
}

static struct entry *slot_of(struct map *map, uint64_t digest)
{
    uint64_t at = digest & map->mask;
    while (map->table[at].candidate != 0 && map->table[at].digest != digest) {
        at = (at + 1) & map->mask;
    }
    return &map->table[at];
}

static enum wf_status fill_table(struct map *map, struct wf_error *error)
{
    const struct wf_patient *p = map->patient;
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < map->count && status == WF_OK; i++) {
        const struct candidate *c = &map->candidates[i];
        float *values = i == 0 ? p->values[WF_A] : malloc(c->rows * p->columns * sizeof *values);
        if (values == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for a diagnosis");
        }
        if (i > 0) {
            const struct wf_compare_operand operand = {WF_A, c->param};
            status =
                wf_compare_read_f32(p->compare, operand, 0, c->rows * p->columns, values, error);
        }
        for (uint64_t r = 0; r < c->rows && status == WF_OK; r++) {
            uint64_t digest = digest_of(map, values + r * p->columns);
            struct entry *entry = slot_of(map, digest);
            if (entry->candidate == 0) {
                *entry = (struct entry){digest, i + 1, r};
            }
        }
        if (i > 0) {
            free(values);
        }
    }
    return status;
}

static void look_up(struct map *map)
{
    const struct wf_patient *p = map->patient;
    const struct entry *before = NULL;
    map->shortest = p->rows;
    for (uint64_t r = 0; r < p->rows; r++) {
        const float *row = p->values[WF_B] + r * p->columns;
        const struct entry *entry = slot_of(map, digest_of(map, row));
        if (entry->candidate == 0) {
            map->lost++;
            before = NULL;
            continue;
        }
        struct candidate *c = &map->candidates[entry->candidate - 1];
        c->found++;
        c->in_place += entry->row == r;
        bool goes_on = before != NULL && before->candidate == entry->candidate &&
                       before->row + 1 == entry->row;
        if (!goes_on && r > 0 && map->run < map->shortest) {
            map->shortest = map->run;
        }
        map->run = goes_on ? map->run + 1 : 1;
        before = entry;
    }
    if (map->run < map->shortest) {
        map->shortest = map->run;
    }
}

/* --- what the map says -------------------------------------------------------------------------
 */

static bool has(const char *name, const char *word)
{
    return strstr(name, word) != NULL;
}

static bool is_predicting(const struct wf_compare_side *side, uint32_t param)
{
    const struct wf_model *model = side->model;
    uint32_t in_model = side->params[param].in_model;
    if (model == NULL || in_model == WF_NONE || model->params[in_model].stack == WF_NONE) {
        return false;
    }
    return strcmp(model->family->stacks[model->params[in_model].stack].name, "mtp") == 0;
}

/* All rows from one other parameter, in their places. */
static void judge_other(const struct map *map, uint32_t other, struct wf_finding *finding)
{
    const struct wf_compare_side *side = &map->patient->compare->side[WF_A];
    uint32_t own = map->patient->pair->param[WF_A];
    const char *name = side->params[own].name, *from = side->params[other].name;
    bool same_layer = side->params[own].layer == side->params[other].layer;
    bool same_place = same_place_of(name, from);
    finding->cause = !same_place                                              ? WF_CAUSE_SWAPPED
                     : same_layer                                             ? WF_CAUSE_EXPERT
                     : is_predicting(side, own) || is_predicting(side, other) ? WF_CAUSE_MTP
                                                                              : WF_CAUSE_LAYER;
    snprintf(finding->text, sizeof finding->text, "B holds what A has as %.180s", from);
}

static void judge(const struct map *map, struct wf_finding *finding)
{
    const struct wf_patient *p = map->patient;
    const struct wf_compare_side *side = &p->compare->side[WF_A];
    const struct candidate *own = &map->candidates[0];
    uint32_t used = 0, other = 0;
    if (map->lost > 0) {
        return;
    }
    for (uint32_t i = 1; i < map->count; i++) {
        used += map->candidates[i].found > 0;
        other = map->candidates[i].found > 0 ? i : other;
    }
    if (used == 0 && own->in_place < own->found) {
        const struct wf_compare_side *sides = p->compare->side;
        uint64_t ranks = sides[WF_A].rank_count > sides[WF_B].rank_count ? sides[WF_A].rank_count
                                                                         : sides[WF_B].rank_count;
        finding->cause =
            ranks > 1 && map->shortest >= p->rows / ranks ? WF_CAUSE_RANKS : WF_CAUSE_HEADS;
        snprintf(finding->text, sizeof finding->text,
                 "B holds A's rows in another order, in runs of %" PRIu64 " or more",
                 map->shortest);
        return;
    }
    if (used == 1 && own->found == 0 && map->candidates[other].in_place == p->rows) {
        judge_other(map, map->candidates[other].param, finding);
        return;
    }
    bool attention = used > 0;
    for (uint32_t i = 0; i < map->count; i++) {
        const char *name = side->params[map->candidates[i].param].name;
        attention = attention && (map->candidates[i].found == 0 || has(name, "q_proj") ||
                                  has(name, "k_proj") || has(name, "v_proj"));
    }
    if (used > 0) {
        finding->cause = attention ? WF_CAUSE_QK_ORDER : WF_CAUSE_SWAPPED;
        snprintf(finding->text, sizeof finding->text,
                 "of B's %" PRIu64 " rows A has %" PRIu64 " in this matrix and %" PRIu64
                 " elsewhere, some in %.120s",
                 p->rows, own->found, p->rows - own->found,
                 side->params[map->candidates[other].param].name);
    }
}

enum wf_status wf_diagnose_rows(const struct wf_patient *patient, struct wf_finding *finding,
                                struct wf_error *error)
{
    struct map map = {.patient = patient};
    uint64_t rows = 0, room = 16;
    find_candidates(&map);
    for (uint32_t i = 0; i < map.count; i++) {
        rows += map.candidates[i].rows;
    }
    while (room < 2 * rows) {
        room *= 2;
    }
    map.mask = room - 1;
    map.table = calloc(room, sizeof *map.table);
    map.row_bytes = malloc(patient->columns * sizeof(float) + 1);
    enum wf_status status = map.table != NULL && map.row_bytes != NULL
                                ? fill_table(&map, error)
                                : wf_error_set(error, WF_NO_MEMORY, "no memory for a diagnosis");
    if (status == WF_OK) {
        look_up(&map);
        judge(&map, finding);
    }
    free(map.table);
    free(map.row_bytes);
    return status == WF_UNSUPPORTED ? WF_OK : status; /* a candidate that cannot be read */
}
