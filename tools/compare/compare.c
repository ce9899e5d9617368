/* compare.c - pairs up the parameters of two sides and compares pair by pair. */
#include "tools/compare/compare.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/families/family.h"
#include "tools/compare/diagnose.h"

static bool grow_list(void *list, size_t item_bytes, uint32_t count, uint32_t *capacity)
{
    void **items = list;
    if (count < *capacity) {
        return true;
    }
    uint32_t wanted = *capacity == 0 ? 16 : 2 * *capacity;
    void *grown = realloc(*items, wanted * item_bytes);
    if (grown != NULL) {
        *items = grown;
        *capacity = wanted;
    }
    return grown != NULL;
}

/* --- pairs ----------------------------------------------------------------------------------- */

static uint32_t by_role(const struct wf_compare_side *side, const char *role)
{
    if (side->model == NULL || side->by_names) {
        return WF_NONE;
    }
    uint32_t row = wf_family_find_row(side->model->family, WF_NONE, role, strlen(role));
    return row != WF_NONE ? wf_model_param(side->model, WF_NONE, WF_NONE, row, 0) : WF_NONE;
}

/* What the other side has under this name; of a tied head that is the embedding. */
static uint32_t find_other(const struct wf_compare_side *own, uint32_t param,
                           const struct wf_compare_side *other)
{
    uint32_t found = wf_side_find(other, own->params[param].name);
    if (found == WF_NONE && other->model != NULL && other->model->tied &&
        param == by_role(own, "head")) {
        found = by_role(other, "embedding");
    }
    return found;
}

static bool same_shape(const struct wf_side_param *a, const struct wf_side_param *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

/* Scales of codes beside values are used where the codes are read. Those of other packings, and of
 * codes that are codes on both sides, are tensors as any. */
static bool scales_codes_alone(const struct wf_compare *compare, const struct wf_compare_pair *pair)
{
    char name[WF_NAME_MAX];
    size_t stem = wf_side_scales_stem(pair->name);
    bool in_a = pair->param[WF_A] != WF_NONE, in_b = pair->param[WF_B] != WF_NONE;
    if (stem == 0 || in_a == in_b) {
        return false;
    }
    const struct wf_compare_side *own = &compare->side[in_a ? WF_A : WF_B];
    const struct wf_compare_side *other = &compare->side[in_a ? WF_B : WF_A];
    snprintf(name, sizeof name, "%.*s", (int)stem, pair->name);
    uint32_t codes = wf_side_find(own, name), matrix = wf_side_find(other, name);
    return codes != WF_NONE && own->params[codes].dtype == WF_DTYPE_F8_E4M3 &&
           (matrix == WF_NONE || other->params[matrix].dtype != WF_DTYPE_F8_E4M3);
}

static enum wf_compare_kind kind_of(const struct wf_compare *compare,
                                    const struct wf_compare_pair *pair)
{
    const struct wf_side_param *p[WF_SIDES];
    for (int s = 0; s < WF_SIDES; s++) {
        p[s] = pair->param[s] != WF_NONE ? &compare->side[s].params[pair->param[s]] : NULL;
    }
    if (scales_codes_alone(compare, pair)) {
        return WF_PAIR_LEFT_OUT;
    }
    if ((p[WF_A] != NULL && !p[WF_A]->planned) || (p[WF_B] != NULL && !p[WF_B]->planned)) {
        return WF_PAIR_LEFT_OUT;
    }
    bool has_a = p[WF_A] != NULL && p[WF_A]->held > 0, has_b = p[WF_B] != NULL && p[WF_B]->held > 0;
    if (p[WF_A] != NULL && p[WF_B] != NULL && !same_shape(p[WF_A], p[WF_B])) {
        return WF_PAIR_SHAPE;
    }
    if (p[WF_A] != NULL && p[WF_A]->elements == 0) {
        return WF_PAIR_LEFT_OUT;
    }
    if ((!has_a && compare->side[WF_A].partial) || (!has_b && compare->side[WF_B].partial)) {
        return WF_PAIR_LEFT_OUT;
    }
    return !has_a && !has_b ? WF_PAIR_MISSING_BOTH
           : !has_a         ? WF_PAIR_MISSING_A
           : !has_b         ? WF_PAIR_MISSING_B
                            : WF_PAIR_COMPARED;
}

static void add_pair(struct wf_compare *compare, uint32_t a, uint32_t b)
{
    struct wf_compare_pair *pair = &compare->pairs[compare->pair_count++];
    const struct wf_side_param *p =
        a != WF_NONE ? &compare->side[WF_A].params[a] : &compare->side[WF_B].params[b];
    *pair = (struct wf_compare_pair){.name = p->name, .param = {a, b}};
    pair->skipped = p->layer != WF_NONE && compare->options.max_layers != WF_NONE &&
                    p->layer >= compare->options.max_layers;
    pair->kind = kind_of(compare, pair);
}

static enum wf_status make_pairs(struct wf_compare *compare, struct wf_error *error)
{
    const struct wf_compare_side *a = &compare->side[WF_A], *b = &compare->side[WF_B];
    size_t most = (size_t)a->param_count + b->param_count;
    compare->pairs = calloc(most + 1, sizeof *compare->pairs);
    if (compare->pairs == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %zu parameters", most);
    }
    if (a->by_names != b->by_names && a->rank_count + b->rank_count > 2) {
        return wf_texts_add(&compare->refused, error,
                            "%s can be read by its own tensors' names only, and %s has others: "
                            "nothing can be compared",
                            a->by_names ? a->path : b->path, a->by_names ? b->path : a->path);
    }
    for (uint32_t i = 0; i < a->param_count; i++) {
        add_pair(compare, i, find_other(a, i, b));
    }
    for (uint32_t i = 0; i < b->param_count; i++) {
        uint32_t other = find_other(b, i, a);
        /* What is there under another name on the other side is paired with it. */
        if (other == WF_NONE || strcmp(a->params[other].name, b->params[i].name) != 0) {
            add_pair(compare, other, i);
        }
    }
    return WF_OK;
}

/* --- comparing ------------------------------------------------------------------------------- */

static bool stops(enum wf_status status)
{
    return status == WF_IO || status == WF_NO_MEMORY || status == WF_STALE;
}

static enum wf_status compare_pair(struct wf_compare *compare, struct wf_compare_pair *pair,
                                   struct wf_error *error)
{
    struct wf_error why;
    struct wf_compare_operand a = {WF_A, pair->param[WF_A]}, b = {WF_B, pair->param[WF_B]};
    uint64_t elements = compare->side[WF_A].params[a.param].elements;
    enum wf_status status = wf_compare_range(compare, a, b, 0, elements, &pair->result, &why);
    if (status == WF_OK) {
        for (uint32_t s = 0; s < WF_SIDES; s++) {
            bool partial = compare->side[s].partial;
            pair->result.missing[s] = partial ? 0 : pair->result.missing[s];
        }
        compare->tensors++;
        compare->elements += pair->result.values.elements;
        return WF_OK;
    }
    if (stops(status)) {
        return wf_error_set(error, status, "%s", why.text);
    }
    pair->kind = WF_PAIR_REFUSED;
    return wf_texts_add(&compare->refused, error, "%s", why.text);
}

static uint32_t first_source_at(const struct wf_compare_side *side, uint32_t param, uint32_t copy,
                                uint64_t index)
{
    const struct wf_side_param *p = &side->params[param];
    for (uint32_t s = p->first_source; s < copy; s++) {
        if (side->sources[s].part != WF_SOURCE_COPY &&
            wf_side_source_in(side, param, s, index, 1)) {
            return s;
        }
    }
    return p->first_source;
}

/* Ranks that hold the same must hold the same values. */
static enum wf_status compare_copies(struct wf_compare *compare, uint32_t side, uint32_t param,
                                     struct wf_error *error)
{
    const struct wf_compare_side *of = &compare->side[side];
    const struct wf_side_param *p = &of->params[param];
    for (uint32_t s = p->first_source; s < p->first_source + p->source_count && !p->dtypes_differ;
         s++) {
        struct wf_values values = {0};
        struct wf_error why;
        if (of->sources[s].part == WF_SOURCE_NEW) {
            continue;
        }
        enum wf_status status = wf_compare_copy_range(
            compare, (struct wf_compare_operand){side, param}, s, &values, &why);
        if (stops(status)) {
            return wf_error_set(error, status, "%s", why.text);
        }
        if (status != WF_OK) {
            wf_texts_add(&compare->refused, error, "%s", why.text);
        } else if (values.different > 0) {
            if (!grow_list(&compare->copies, sizeof *compare->copies, compare->copy_count,
                           &compare->copy_capacity)) {
                return wf_error_set(error, WF_NO_MEMORY, "no memory for a list");
            }
            compare->copies[compare->copy_count++] = (struct wf_compare_copy){
                side, param, s, first_source_at(of, param, s, values.first), values};
        }
    }
    return WF_OK;
}

struct padding_found {
    struct wf_compare *compare;
    uint32_t side;
};

static void take_padding(void *user, const struct wf_side_padding *padding)
{
    struct padding_found *found = user;
    struct wf_compare *compare = found->compare;
    if (grow_list(&compare->paddings, sizeof *compare->paddings, compare->padding_count,
                  &compare->padding_capacity)) {
        compare->paddings[compare->padding_count++] =
            (struct wf_compare_padding){found->side, *padding};
    }
}

static enum wf_status compare_all(struct wf_compare *compare, struct wf_error *error)
{
    uint64_t total = 0, done = 0;
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        uint32_t a = compare->pairs[i].param[WF_A];
        total += a != WF_NONE ? compare->side[WF_A].params[a].elements : 0;
    }
    for (uint32_t i = 0; i < compare->pair_count && status == WF_OK; i++) {
        struct wf_compare_pair *pair = &compare->pairs[i];
        if (pair->skipped) {
            continue;
        }
        if (pair->kind == WF_PAIR_COMPARED) {
            status = compare_pair(compare, pair, error);
        }
        for (uint32_t s = 0; s < WF_SIDES && status == WF_OK; s++) {
            if (pair->param[s] != WF_NONE) {
                status = compare_copies(compare, s, pair->param[s], error);
            }
        }
        uint32_t a = pair->param[WF_A];
        done += a != WF_NONE ? compare->side[WF_A].params[a].elements : 0;
        if (compare->options.progress != NULL && status == WF_OK) {
            compare->options.progress(compare->options.user, done, total);
        }
    }
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        struct padding_found found = {compare, s};
        for (uint32_t r = 0; r < compare->side[s].rank_count && status == WF_OK; r++) {
            status = wf_side_check_fills(&compare->side[s], r, take_padding, &found, error);
        }
    }
    return status;
}

/* --- the verdict ----------------------------------------------------------------------------- */

/* A checkpoint may hold more than the model needs; a rank's memory may not, and a bias or a scale
 * that nobody knows of makes it another model. */
static bool unknown_matters(const struct wf_compare_side *side)
{
    bool matters = strcmp(side->spec, "hf") != 0 && side->unknown.count > 0;
    for (uint32_t i = 0; i < side->unknown.count; i++) {
        matters = matters || wf_side_ends_with(side->unknown.items[i], ".bias");
    }
    return matters;
}

bool wf_compare_pair_differs(const struct wf_compare_pair *pair)
{
    return !pair->skipped && (pair->kind == WF_PAIR_MISSING_A || pair->kind == WF_PAIR_MISSING_B ||
                              pair->kind == WF_PAIR_MISSING_BOTH || pair->kind == WF_PAIR_SHAPE ||
                              pair->kind == WF_PAIR_REFUSED || pair->result.values.different > 0 ||
                              pair->result.missing[WF_A] > 0 || pair->result.missing[WF_B] > 0);
}

static bool is_ok(const struct wf_compare *compare)
{
    bool ok = compare->tensors > 0 && compare->refused.count == 0 && compare->copy_count == 0;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        ok = ok && !wf_compare_pair_differs(&compare->pairs[i]);
    }
    for (uint32_t i = 0; i < compare->padding_count; i++) {
        ok = ok && !compare->side[compare->paddings[i].side].serves;
    }
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        ok = ok && compare->side[s].shape_count == 0 && !unknown_matters(&compare->side[s]);
    }
    return ok;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Versions of one job differ because it trains. */
static enum wf_status tell_versions(struct wf_compare *compare, struct wf_error *error)
{
    const struct wf_side_live *live = compare->options.live;
    struct wf_version a = compare->side[WF_A].version, b = compare->side[WF_B].version;
    char text_a[WF_VERSION_TEXT], text_b[WF_VERSION_TEXT];
    if (wf_version_is_none(a) && live != NULL && live->model != NULL &&
        is_same_file(compare->side[WF_A].path, live->model)) {
        wf_version_format(b, text_b);
        return wf_texts_add(&compare->diagnosis, error,
                            "another version: A is the checkpoint that the job began with and B "
                            "version %s; what training has changed since is no fault",
                            text_b);
    }
    if (wf_version_is_none(a) || wf_version_is_none(b) || wf_version_compare(a, b) == 0) {
        return WF_OK;
    }
    wf_version_format(a, text_a);
    wf_version_format(b, text_b);
    return wf_texts_add(&compare->diagnosis, error,
                        "another version: A is version %s and B version %s; what training has "
                        "changed in between is no fault",
                        text_a, text_b);
}

static enum wf_status open_b(struct wf_compare *compare, const char *b, struct wf_error *error)
{
    const struct wf_compare_options *options = &compare->options;
    if (options->live == NULL) {
        return wf_side_open(b, options->families, &compare->side[WF_B], error);
    }
    struct wf_side_live live = *options->live;
    live.config = live.config != NULL ? live.config : compare->side[WF_A].config;
    return wf_side_open_live(&live, &compare->side[WF_B], error);
}

enum wf_status wf_compare_run(const char *a, const char *b,
                              const struct wf_compare_options *options, struct wf_compare *compare,
                              struct wf_error *error)
{
    *compare = (struct wf_compare){.options = *options};
    enum wf_status status = wf_side_open(a, options->families, &compare->side[WF_A], error);
    status = status == WF_OK ? open_b(compare, b, error) : status;
    status = status == WF_OK ? make_pairs(compare, error) : status;
    status = status == WF_OK ? compare_all(compare, error) : status;
    if (status == WF_OK) {
        compare->ok = is_ok(compare);
        status = compare->ok ? WF_OK : tell_versions(compare, error);
    }
    status = status == WF_OK ? wf_diagnose(compare, error) : status;
    return status == WF_OK && options->live != NULL ? wf_live_check(options->live->live, error)
                                                    : status;
}

void wf_compare_fini(struct wf_compare *compare)
{
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        wf_side_close(&compare->side[s]);
        free(compare->buffer[s]);
        free(compare->seen[s]);
        free(compare->scales[s].values);
    }
    free(compare->codes_slack);
    free(compare->pairs);
    free(compare->copies);
    free(compare->paddings);
    wf_texts_fini(&compare->refused);
    wf_texts_fini(&compare->diagnosis);
    *compare = (struct wf_compare){0};
}
