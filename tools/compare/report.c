/* report.c - a comparison as a table and as JSON. */
#include "tools/compare/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/files/hf_folder.h"

static const char side_letter[WF_SIDES] = {'A', 'B'};

static double mean_of(const struct wf_values *values)
{
    return values->elements > 0 ? values->sum_abs / (double)values->elements : 0;
}

static uint64_t nan_of(const struct wf_values *values)
{
    return values->nan_a > values->nan_b ? values->nan_a : values->nan_b;
}

/* Elements that are NaN in A and in B; in how many parameters, and the first of those. */
static uint64_t nan_on_both(const struct wf_compare *compare, uint32_t *parameters_out,
                            const char **first_out)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        if (pair->result.values.nan_both > 0) {
            *first_out = elements == 0 ? pair->name : *first_out;
            elements += pair->result.values.nan_both;
            *parameters_out += 1;
        }
    }
    return elements;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void put(struct json_object *to, const char *key, struct json_object *value)
{
    json_object_object_add(to, key, value);
}

static struct json_object *text(const char *value)
{
    return value != NULL ? json_object_new_string(value) : NULL;
}

/* JSON knows neither infinities nor NaN. */
static struct json_object *number(double value)
{
    return isfinite(value) ? json_object_new_double(value) : NULL;
}

static struct json_object *texts(const struct wf_texts *list)
{
    struct json_object *array = json_object_new_array();
    for (uint32_t i = 0; i < list->count; i++) {
        json_object_array_add(array, text(list->items[i]));
    }
    return array;
}

static struct json_object *shape(uint32_t ndim, const uint64_t *sizes)
{
    struct json_object *array = json_object_new_array();
    for (uint32_t i = 0; i < ndim; i++) {
        json_object_array_add(array, json_object_new_uint64(sizes[i]));
    }
    return array;
}

static void put_values(struct json_object *to, const struct wf_values *values)
{
    put(to, "first_index", json_object_new_uint64(values->first));
    put(to, "first_a", number(values->first_a));
    put(to, "first_b", number(values->first_b));
    put(to, "different", json_object_new_uint64(values->different));
    put(to, "elements", json_object_new_uint64(values->elements));
    put(to, "max_abs", number(values->max_abs));
    put(to, "mean_abs", number(mean_of(values)));
    put(to, "nan", json_object_new_uint64(nan_of(values)));
}

static struct json_object *value_entry(const struct wf_compare_pair *pair)
{
    struct json_object *entry = json_object_new_object();
    put(entry, "name", text(pair->name));
    put_values(entry, &pair->result.values);
    put(entry, "compared_as", text(wf_dtype_name(pair->result.as)));
    return entry;
}

static struct json_object *dtype_entry(const struct wf_compare *compare,
                                       const struct wf_compare_pair *pair)
{
    struct json_object *entry = json_object_new_object();
    put(entry, "name", text(pair->name));
    put(entry, "a", text(wf_dtype_name(compare->side[WF_A].params[pair->param[WF_A]].dtype)));
    put(entry, "b", text(wf_dtype_name(compare->side[WF_B].params[pair->param[WF_B]].dtype)));
    put(entry, "compared_as",
        pair->kind == WF_PAIR_COMPARED ? text(wf_dtype_name(pair->result.as)) : NULL);
    return entry;
}

/* Both sides' models say other shapes, or a side's file says another than its model. */
static struct json_object *shapes_to_json(const struct wf_compare *compare)
{
    struct json_object *array = json_object_new_array();
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        if (pair->kind == WF_PAIR_SHAPE && !pair->skipped) {
            const struct wf_side_param *a = &compare->side[WF_A].params[pair->param[WF_A]];
            const struct wf_side_param *b = &compare->side[WF_B].params[pair->param[WF_B]];
            struct json_object *entry = json_object_new_object();
            put(entry, "name", text(pair->name));
            put(entry, "a", shape(a->ndim, a->shape));
            put(entry, "b", shape(b->ndim, b->shape));
            json_object_array_add(array, entry);
        }
    }
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        for (uint32_t i = 0; i < compare->side[s].shape_count; i++) {
            const struct wf_side_shape *found = &compare->side[s].shapes[i];
            struct json_object *entry = json_object_new_object();
            put(entry, "name", text(found->name));
            put(entry, "side", text(s == WF_A ? "a" : "b"));
            put(entry, "rank", json_object_new_uint64(found->rank));
            put(entry, "expected", shape(found->expected_ndim, found->expected));
            put(entry, "found", shape(found->found_ndim, found->found));
            json_object_array_add(array, entry);
        }
    }
    return array;
}

bool wf_compare_is_missing(const struct wf_compare_pair *pair, uint32_t side)
{
    enum wf_compare_kind kind = side == WF_A ? WF_PAIR_MISSING_A : WF_PAIR_MISSING_B;
    return !pair->skipped && (pair->kind == kind || pair->kind == WF_PAIR_MISSING_BOTH ||
                              pair->result.missing[side] > 0);
}

static bool dtypes_differ(const struct wf_compare *compare, const struct wf_compare_pair *pair)
{
    return !pair->skipped && (pair->kind == WF_PAIR_COMPARED || pair->kind == WF_PAIR_REFUSED) &&
           compare->side[WF_A].params[pair->param[WF_A]].dtype !=
               compare->side[WF_B].params[pair->param[WF_B]].dtype;
}

static struct json_object *copies_to_json(const struct wf_compare *compare)
{
    struct json_object *array = json_object_new_array();
    for (uint32_t i = 0; i < compare->copy_count; i++) {
        const struct wf_compare_copy *copy = &compare->copies[i];
        const struct wf_compare_side *side = &compare->side[copy->side];
        const struct wf_side_source *first = &side->sources[copy->first_source];
        const struct wf_side_source *second = &side->sources[copy->source];
        struct json_object *entry = json_object_new_object();
        put(entry, "side", text(copy->side == WF_A ? "a" : "b"));
        put(entry, "name", text(side->params[copy->param].name));
        put(entry, "rank", json_object_new_uint64(second->rank));
        put(entry, "tensor", text(wf_side_tensor(side, second)->name));
        put(entry, "first_rank", json_object_new_uint64(first->rank));
        put(entry, "first_tensor", text(wf_side_tensor(side, first)->name));
        put_values(entry, &copy->values);
        json_object_array_add(array, entry);
    }
    return array;
}

static struct json_object *paddings_to_json(const struct wf_compare *compare)
{
    struct json_object *array = json_object_new_array();
    for (uint32_t i = 0; i < compare->padding_count; i++) {
        const struct wf_compare_padding *found = &compare->paddings[i];
        struct json_object *entry = json_object_new_object();
        put(entry, "side", text(found->side == WF_A ? "a" : "b"));
        put(entry, "rank", json_object_new_uint64(found->padding.rank));
        put(entry, "tensor", text(found->padding.tensor));
        put(entry, "expected_byte", json_object_new_uint64(found->padding.expected));
        put(entry, "wrong_bytes", json_object_new_uint64(found->padding.wrong));
        put(entry, "first_index", json_object_new_uint64(found->padding.first));
        json_object_array_add(array, entry);
    }
    return array;
}

struct json_object *wf_compare_to_json(const struct wf_compare *compare)
{
    struct json_object *root = json_object_new_object();
    struct json_object *missing[WF_SIDES] = {json_object_new_array(), json_object_new_array()};
    struct json_object *dtype = json_object_new_array(), *value = json_object_new_array();
    struct json_object *left_out = json_object_new_array(), *refused = texts(&compare->refused);
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        for (uint32_t s = 0; s < WF_SIDES; s++) {
            if (wf_compare_is_missing(pair, s)) {
                json_object_array_add(missing[s], text(pair->name));
            }
        }
        if (dtypes_differ(compare, pair)) {
            json_object_array_add(dtype, dtype_entry(compare, pair));
        }
        if (pair->result.values.different > 0) {
            json_object_array_add(value, value_entry(pair));
        }
        if (pair->kind == WF_PAIR_LEFT_OUT && !pair->skipped) {
            json_object_array_add(left_out, text(pair->name));
        }
    }
    put(root, "ok", json_object_new_boolean(compare->ok));
    put(root, "tensors", json_object_new_uint64(compare->tensors));
    put(root, "elements", json_object_new_uint64(compare->elements));
    put(root, "nan_both",
        json_object_new_uint64(nan_on_both(compare, &(uint32_t){0}, &(const char *){NULL})));
    put(root, "missing_a", missing[WF_A]);
    put(root, "missing_b", missing[WF_B]);
    put(root, "shape", shapes_to_json(compare));
    put(root, "dtype", dtype);
    put(root, "value", value);
    put(root, "diagnosis", texts(&compare->diagnosis));
    put(root, "replicas", copies_to_json(compare));
    put(root, "padding", paddings_to_json(compare));
    put(root, "left_out", left_out);
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        const struct wf_compare_side *side = &compare->side[s];
        struct json_object *about = json_object_new_object();
        char version[WF_VERSION_TEXT];
        put(about, "path", text(side->path));
        put(about, "spec", side->spec[0] != '\0' ? text(side->spec) : NULL);
        wf_version_format(side->version, version);
        put(about, "version", wf_version_is_none(side->version) ? NULL : text(version));
        put(about, "by_names", json_object_new_boolean(side->by_names));
        put(about, "refused", texts(&side->refused));
        put(about, "unknown", texts(&side->unknown));
        put(about, "notes", texts(&side->notes));
        put(about, "bytes_read", json_object_new_uint64(side->bytes_read));
        put(root, s == WF_A ? "a" : "b", about);
    }
    put(root, "refused", refused);
    return root;
}

/* --- the table ------------------------------------------------------------------------------- */

/* Prints at most WF_REPORT_LINES_MAX lines of a kind; true: print this one. */
static bool may_print(uint32_t *count)
{
    return (*count)++ < WF_REPORT_LINES_MAX;
}

static void print_rest(FILE *out, uint32_t count)
{
    if (count > WF_REPORT_LINES_MAX) {
        fprintf(out, "  and %" PRIu32 " more (--json has all)\n", count - WF_REPORT_LINES_MAX);
    }
}

static void print_texts(FILE *out, const char *title, char side, const struct wf_texts *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (may_print(&count)) {
            fprintf(out, "%s%c%s  %s\n", title, side, side == ' ' ? "" : ":", list->items[i]);
        }
    }
    print_rest(out, count);
}

static void print_side(FILE *out, const struct wf_compare *compare, uint32_t s)
{
    const struct wf_compare_side *side = &compare->side[s];
    fprintf(out, "%c  %s: %s, %" PRIu32 " %s, %" PRIu32 " parameters%s\n", side_letter[s],
            side->path, side->spec[0] != '\0' ? side->spec : "nobody knows of what",
            side->rank_count, side->rank_count == 1 ? "rank" : "ranks", side->param_count,
            side->by_names ? ", by the tensors' own names" : "");
}

static void print_missing(FILE *out, const struct wf_compare *compare, uint32_t s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        if (!wf_compare_is_missing(pair, s) || !may_print(&count)) {
            continue;
        }
        fprintf(out, "missing in %c  %s", side_letter[s], pair->name);
        if (pair->kind == WF_PAIR_COMPARED) {
            fprintf(out, ": %" PRIu64 " of its elements", pair->result.missing[s]);
        }
        fprintf(out, "\n");
    }
    print_rest(out, count);
}

static void print_shapes(FILE *out, const struct wf_compare *compare)
{
    char one[WF_SHAPE_TEXT], other[WF_SHAPE_TEXT];
    uint32_t count = 0;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        if (pair->kind == WF_PAIR_SHAPE && !pair->skipped && may_print(&count)) {
            const struct wf_side_param *a = &compare->side[WF_A].params[pair->param[WF_A]];
            const struct wf_side_param *b = &compare->side[WF_B].params[pair->param[WF_B]];
            wf_shape_format(a->ndim, a->shape, one);
            wf_shape_format(b->ndim, b->shape, other);
            fprintf(out, "shape         %s: A has %s, B %s\n", pair->name, one, other);
        }
    }
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        for (uint32_t i = 0; i < compare->side[s].shape_count; i++) {
            const struct wf_side_shape *found = &compare->side[s].shapes[i];
            wf_shape_format(found->expected_ndim, found->expected, one);
            wf_shape_format(found->found_ndim, found->found, other);
            if (may_print(&count)) {
                fprintf(out, "shape         %s: %c's rank %" PRIu32 " has %s, its model says %s\n",
                        found->name, side_letter[s], found->rank, other, one);
            }
        }
    }
    print_rest(out, count);
}

static void print_dtypes(FILE *out, const struct wf_compare *compare)
{
    uint64_t counts[WF_DTYPE_COUNT][WF_DTYPE_COUNT] = {{0}};
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        if (dtypes_differ(compare, pair)) {
            counts[compare->side[WF_A].params[pair->param[WF_A]].dtype]
                  [compare->side[WF_B].params[pair->param[WF_B]].dtype]++;
        }
    }
    for (unsigned a = 0; a < WF_DTYPE_COUNT; a++) {
        for (unsigned b = 0; b < WF_DTYPE_COUNT; b++) {
            if (counts[a][b] > 0) {
                fprintf(out, "dtype         %" PRIu64 " parameters are %s in A and %s in B\n",
                        counts[a][b], wf_dtype_name(a), wf_dtype_name(b));
            }
        }
    }
}

static void print_values(FILE *out, const struct wf_compare *compare)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        const struct wf_values *v = &pair->result.values;
        if (v->different == 0) {
            continue;
        }
        if (count == 0) {
            fprintf(out, "\n  %12s %12s %12s %12s %12s %8s  %s\n", "different", "first", "A there",
                    "B there", "max |A-B|", "NaN", "value of");
        }
        if (may_print(&count)) {
            fprintf(out, "  %12" PRIu64 " %12" PRIu64 " %12.6g %12.6g %12.6g %8" PRIu64 "  %s\n",
                    v->different, v->first, v->first_a, v->first_b, v->max_abs, nan_of(v),
                    pair->name);
        }
    }
    print_rest(out, count);
}

/* Equal, and yet hardly what was trained. */
static void print_nan(FILE *out, const struct wf_compare *compare)
{
    uint32_t parameters = 0;
    const char *first = NULL;
    uint64_t elements = nan_on_both(compare, &parameters, &first);
    if (elements > 0) {
        fprintf(out,
                "NaN           %" PRIu64 " %s of %" PRIu32
                " %s NaN on both sides, which counts as equal; first %s\n",
                elements, elements == 1 ? "element" : "elements", parameters,
                elements == 1     ? "parameter is"
                : parameters == 1 ? "parameter are"
                                  : "parameters are",
                first);
    }
}

static void print_copies(FILE *out, const struct wf_compare *compare)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < compare->copy_count; i++) {
        const struct wf_compare_copy *copy = &compare->copies[i];
        const struct wf_compare_side *side = &compare->side[copy->side];
        const struct wf_side_source *first = &side->sources[copy->first_source];
        const struct wf_side_source *second = &side->sources[copy->source];
        if (may_print(&count)) {
            fprintf(out,
                    "replica       %c's rank %" PRIu32 " %s differs from rank %" PRIu32
                    " %s in %" PRIu64 " elements of %s\n",
                    side_letter[copy->side], second->rank, wf_side_tensor(side, second)->name,
                    first->rank, wf_side_tensor(side, first)->name, copy->values.different,
                    side->params[copy->param].name);
        }
    }
    print_rest(out, count);
    count = 0;
    for (uint32_t i = 0; i < compare->padding_count; i++) {
        const struct wf_compare_padding *found = &compare->paddings[i];
        if (may_print(&count)) {
            fprintf(out,
                    "padding       %c's rank %" PRIu32 " %s: %" PRIu64
                    " bytes are not %u, the first of element %" PRIu64 "\n",
                    side_letter[found->side], found->padding.rank, found->padding.tensor,
                    found->padding.wrong, found->padding.expected, found->padding.first);
        }
    }
    print_rest(out, count);
}

static void print_verdict(FILE *out, const struct wf_compare *compare)
{
    uint64_t left_out = 0, skipped = 0, different = 0, all = compare->tensors;
    for (uint32_t i = 0; i < compare->pair_count; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        bool differs = wf_compare_pair_differs(pair);
        skipped += pair->skipped;
        left_out += pair->kind == WF_PAIR_LEFT_OUT;
        different += differs;
        all += differs && pair->kind != WF_PAIR_COMPARED; /* absent, of another shape, refused */
    }
    if (compare->ok) {
        fprintf(out, "\nequal: %" PRIu64 " parameters", all);
    } else if (different > 0) {
        fprintf(out, "\ndifferent: %" PRIu64 " of %" PRIu64 " parameters", different, all);
    } else if (all == 0) {
        fprintf(out, "\nnothing could be compared: 0 parameters");
    } else {
        fprintf(out, "\ndifferent, as said above, though %" PRIu64 " parameters are equal", all);
    }
    fprintf(out, "; %" PRIu64 " elements compared", compare->elements);
    if (skipped > 0) {
        fprintf(out, "; %" PRIu64 " behind --max-layers", skipped);
    }
    if (left_out > 0) {
        fprintf(out, "; %" PRIu64 " that one side has no place for", left_out);
    }
    fprintf(out, "\n");
}

void wf_compare_print(FILE *out, const struct wf_compare *compare)
{
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        print_side(out, compare, s);
    }
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        print_texts(out, "refused in ", side_letter[s], &compare->side[s].refused);
        print_texts(out, "unknown in ", side_letter[s], &compare->side[s].unknown);
    }
    print_texts(out, "refused       ", ' ', &compare->refused);
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        print_missing(out, compare, s);
    }
    print_shapes(out, compare);
    print_dtypes(out, compare);
    print_nan(out, compare);
    print_copies(out, compare);
    print_values(out, compare);
    if (compare->diagnosis.count > 0) {
        fprintf(out, "\n");
    }
    for (uint32_t i = 0; i < compare->diagnosis.count; i++) {
        fprintf(out, "diagnosis     %s\n", compare->diagnosis.items[i]);
    }
    print_verdict(out, compare);
}
