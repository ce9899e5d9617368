/* diagnose.c - turns what a comparison found into sentences: one for each cause, with an example.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare/diagnose_private.h"

enum { TEXT_MAX = 320 };

static const char *const causes[WF_CAUSE_COUNT] = {
    [WF_CAUSE_NAN] = "NaN: a step that diverged, or memory that was never written",
    [WF_CAUSE_ROUNDING] = "rounded twice: a value went through a dtype that it need not go through "
                          "(bf16 of a value that was rounded before), or through another rounding",
    [WF_CAUSE_TRUNCATED] = "vocabulary truncated: rows of the padded vocabulary were cut off, or "
                           "another vocabulary size (for Megatron: vocab_div) was used",
    [WF_CAUSE_SWAPPED] = "matrices swapped: parts of a fused tensor in the wrong order (gate and "
                         "up: some engines store up first)",
    [WF_CAUSE_QK_ORDER] = "q and k order: parts of a fused qkv in the wrong order, or cut for "
                          "another tensor-parallel size",
    [WF_CAUSE_RANKS] = "ranks in each other's places: the files of a dump are numbered in another "
                       "order than its recipe says",
    [WF_CAUSE_HEADS] = "head interleave: heads, or the halves of rotary dimensions, in another "
                       "order",
    [WF_CAUSE_EXPERT] = "wrong expert: experts are shifted or placed by another table",
    [WF_CAUSE_LAYER] = "wrong layer: layers are shifted, by a pipeline stage that counts otherwise",
    [WF_CAUSE_MTP] = "MTP shift: a layer that predicts further tokens stands where another layer "
                     "belongs",
    [WF_CAUSE_TRANSPOSED] = "transposed: [in, out] where [out, in] was expected (experts of fused "
                            "checkpoints)",
    [WF_CAUSE_SCALE] = "wrong scale: scales of other blocks or of another version beside the codes",
    [WF_CAUSE_TIED] = "stale tied head: a second copy of a tied tensor was not updated",
    [WF_CAUSE_BIAS] = "bias missing: one side was made without biases",
};

struct tally {
    struct wf_compare *compare;
    uint32_t odd[WF_SIDES]; /* tensors whose shape nothing explains */
    uint32_t counts[WF_CAUSE_COUNT];
    char examples[WF_CAUSE_COUNT][WF_NAME_MAX + TEXT_MAX + 4];
};

static void note(struct tally *tally, enum wf_cause cause, const char *name, const char *text)
{
    if (tally->counts[cause]++ == 0) {
        snprintf(tally->examples[cause], sizeof tally->examples[cause], "%.*s: %.*s", WF_NAME_MAX,
                 name, TEXT_MAX, text);
    }
}

static const struct wf_side_param *param_of(const struct wf_compare *compare,
                                            const struct wf_compare_pair *pair, uint32_t side)
{
    return &compare->side[side].params[pair->param[side]];
}

/* --- one pair ----------------------------------------------------------------------------------
 */

static enum wf_status examine(struct tally *tally, const struct wf_compare_pair *pair,
                              struct wf_error *error)
{
    const struct wf_side_param *p = param_of(tally->compare, pair, WF_A);
    struct wf_patient patient = {.compare = tally->compare, .pair = pair};
    struct wf_finding finding = {0};
    enum wf_status status = WF_OK;
    patient.columns = p->ndim < 2 ? p->elements : p->shape[p->ndim - 1];
    patient.rows = p->elements / patient.columns;
    for (uint32_t s = 0; s < WF_SIDES && status == WF_OK; s++) {
        const struct wf_compare_operand operand = {s, pair->param[s]};
        patient.values[s] = malloc(p->elements * sizeof(float));
        status = patient.values[s] != NULL
                     ? wf_compare_read_f32(tally->compare, operand, 0, p->elements,
                                           patient.values[s], error)
                     : wf_error_set(error, WF_NO_MEMORY, "no memory for a diagnosis");
    }
    if (status == WF_OK) {
        finding = wf_diagnose_values(&patient);
    }
    if (status == WF_OK && finding.cause == WF_CAUSE_NONE) {
        status = wf_diagnose_rows(&patient, &finding, error);
    }
    free(patient.values[WF_A]);
    free(patient.values[WF_B]);
    if (status == WF_OK && finding.cause != WF_CAUSE_NONE) {
        note(tally, finding.cause, pair->name, finding.text);
    }
    return status == WF_UNSUPPORTED ? WF_OK : status; /* integers, packed types */
}

/* Fewer rows, or the dimensions the other way about. */
static void examine_shape(struct tally *tally, const struct wf_compare_pair *pair)
{
    const struct wf_side_param *a = param_of(tally->compare, pair, WF_A);
    const struct wf_side_param *b = param_of(tally->compare, pair, WF_B);
    char text[TEXT_MAX];
    if (a->ndim != 2 || b->ndim != 2) {
        return;
    }
    snprintf(text, sizeof text, "A has [%" PRIu64 ", %" PRIu64 "], B [%" PRIu64 ", %" PRIu64 "]",
             a->shape[0], a->shape[1], b->shape[0], b->shape[1]);
    if (a->shape[0] == b->shape[1] && a->shape[1] == b->shape[0]) {
        note(tally, WF_CAUSE_TRANSPOSED, pair->name, text);
    } else if (a->shape[1] == b->shape[1] && a->layer == WF_NONE) {
        note(tally, WF_CAUSE_TRUNCATED, pair->name, text);
    }
}

/* Scales beside scales: whatever differs is a wrong one. */
static void examine_scales(struct tally *tally, const struct wf_compare_pair *pair)
{
    const struct wf_values *v = &pair->result.values;
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " scales differ, first %.4g beside %.4g",
             v->different, v->elements, v->first_a, v->first_b);
    note(tally, WF_CAUSE_SCALE, pair->name, text);
}

static enum wf_status examine_pairs(struct tally *tally, struct wf_error *error)
{
    const struct wf_compare *compare = tally->compare;
    enum wf_status status = WF_OK;
    uint32_t looked = 0;
    for (uint32_t i = 0; i < compare->pair_count && status == WF_OK; i++) {
        const struct wf_compare_pair *pair = &compare->pairs[i];
        if (pair->skipped) {
            continue;
        }
        bool missing = wf_compare_is_missing(pair, WF_A) || wf_compare_is_missing(pair, WF_B);
        if (missing && wf_side_ends_with(pair->name, ".bias")) {
            note(tally, WF_CAUSE_BIAS, pair->name,
                 wf_compare_is_missing(pair, WF_A) ? "A has none" : "B has none");
        } else if (pair->kind == WF_PAIR_SHAPE) {
            examine_shape(tally, pair);
        } else if (pair->kind == WF_PAIR_COMPARED && pair->result.values.different > 0 &&
                   wf_side_scales_stem(pair->name) > 0) {
            examine_scales(tally, pair);
        } else if (pair->kind == WF_PAIR_COMPARED && pair->result.values.different > 0 &&
                   param_of(compare, pair, WF_A)->elements <= WF_DIAGNOSE_ELEMENTS_MAX &&
                   looked++ < WF_DIAGNOSE_PARAMS_MAX) {
            status = examine(tally, pair, error);
        }
    }
    return status;
}

/* Shapes that a rank's tensor or a file's has, against what its own model says. Those that nothing
 * explains are counted by side. */
static void examine_shapes(struct tally *tally)
{
    for (uint32_t s = 0; s < WF_SIDES; s++) {
        const struct wf_compare_side *side = &tally->compare->side[s];
        for (uint32_t i = 0; i < side->shape_count; i++) {
            const struct wf_side_shape *shape = &side->shapes[i];
            const uint64_t *want = shape->expected, *found = shape->found;
            char text[TEXT_MAX];
            uint32_t n = shape->expected_ndim;
            tally->odd[s]++;
            if (n != shape->found_ndim || n < 2) {
                continue;
            }
            snprintf(text, sizeof text,
                     "%s has [%" PRIu64 ", %" PRIu64 "] where its model says [%" PRIu64 ", %" PRIu64
                     "]",
                     s == WF_A ? "A" : "B", found[n - 2], found[n - 1], want[n - 2], want[n - 1]);
            if (want[n - 2] == found[n - 1] && want[n - 1] == found[n - 2]) {
                note(tally, WF_CAUSE_TRANSPOSED, shape->name, text);
                tally->odd[s]--;
            } else if (n == 2 && want[1] == found[1] && strstr(shape->name, "layers.") == NULL) {
                note(tally, WF_CAUSE_TRUNCATED, shape->name, text);
                tally->odd[s]--;
            }
        }
    }
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static void examine_copies(struct tally *tally)
{
    const struct wf_compare *compare = tally->compare;
    for (uint32_t i = 0; i < compare->copy_count; i++) {
        const struct wf_compare_copy *copy = &compare->copies[i];
        const struct wf_compare_side *side = &compare->side[copy->side];
        const struct wf_side_param *p = &side->params[copy->param];
        const struct wf_side_source *one = &side->sources[copy->source];
        const struct wf_side_source *other = &side->sources[copy->first_source];
        char text[TEXT_MAX];
        if (one->rank != other->rank) {
            continue; /* replicas: the report says which ranks */
        }
        snprintf(text, sizeof text, "%s has it twice, as %.100s and as %.100s, and they differ",
                 copy->side == WF_A ? "A" : "B", wf_side_tensor(side, other)->name,
                 wf_side_tensor(side, one)->name);
        note(tally, WF_CAUSE_TIED, p->name, text);
    }
}

/* A recipe that is not the dump's makes everything else look wrong, so this is said first. A tensor
 * too many alone may be a model's that is new. */
static enum wf_status tell_recipes(const struct tally *tally, struct wf_error *error)
{
    const struct wf_compare *compare = tally->compare;
    enum wf_status status = WF_OK;
    for (uint32_t s = 0; s < WF_SIDES && status == WF_OK; s++) {
        const struct wf_compare_side *side = &compare->side[s];
        uint32_t missing = 0;
        for (uint32_t i = 0; i < compare->pair_count; i++) {
            const struct wf_compare_pair *pair = &compare->pairs[i];
            missing += wf_compare_is_missing(pair, s);
        }
        if (tally->odd[s] == 0 && (side->unknown.count == 0 || missing == 0)) {
            continue;
        }
        if (s == WF_B && compare->options.live != NULL) {
            continue; /* what it should hold is its job's to say: there is no file to put right */
        }
        const char *from = strcmp(side->spec, "hf") == 0 ? "config.json" : "recipe.json";
        status = wf_texts_add(
            &tally->compare->diagnosis, error,
            "%s is not what its %s says (%s): %" PRIu32 " tensors of another shape, %" PRIu32
            " that do not belong there, %" PRIu32
            " parameters not there or not whole. What else differs may follow from that; weft "
            "layout detect %s says what its names and shapes fit",
            s == WF_A ? "A" : "B", from, side->spec, tally->odd[s], side->unknown.count, missing,
            side->path);
    }
    return status;
}

/* Everything behind the shorter one is missing there. */
static enum wf_status tell_layers(const struct tally *tally, struct wf_error *error)
{
    const struct wf_model *a = tally->compare->side[WF_A].model;
    const struct wf_model *b = tally->compare->side[WF_B].model;
    uint64_t most = tally->compare->options.max_layers;
    if (a == NULL || b == NULL || a->layers == b->layers ||
        (most <= a->layers && most <= b->layers)) {
        return WF_OK;
    }
    uint64_t both = a->layers < b->layers ? a->layers : b->layers;
    return wf_texts_add(&tally->compare->diagnosis, error,
                        "A has %" PRIu64 " layers and B %" PRIu64
                        ": not the same model, or a part of it; --max-layers %" PRIu64
                        " compares those that both have",
                        a->layers, b->layers, both);
}

static enum wf_status tell(const struct tally *tally, struct wf_error *error)
{
    enum wf_status status = tell_recipes(tally, error);
    status = status == WF_OK ? tell_layers(tally, error) : status;
    for (unsigned cause = 1; cause < WF_CAUSE_COUNT && status == WF_OK; cause++) {
        if (tally->counts[cause] > 0) {
            status = wf_texts_add(&tally->compare->diagnosis, error, "%s. %u %s; first %s",
                                  causes[cause], tally->counts[cause],
                                  tally->counts[cause] == 1 ? "parameter" : "parameters",
                                  tally->examples[cause]);
        }
    }
    return status;
}

enum wf_status wf_diagnose(struct wf_compare *compare, struct wf_error *error)
{
    struct tally *tally = calloc(1, sizeof *tally);
    if (tally == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a diagnosis");
    }
    tally->compare = compare;
    enum wf_status status = examine_pairs(tally, error);
    examine_shapes(tally);
    examine_copies(tally);
    status = status == WF_OK ? tell(tally, error) : status;
    free(tally);
    for (uint32_t s = 0; s < WF_SIDES && status == WF_OK; s++) {
        const struct wf_compare_side *side = &compare->side[s];
        for (uint32_t i = 0; i < side->refused.count && status == WF_OK; i++) {
            const char *letter = s == WF_A ? "A" : "B";
            status = side->recipe_wrong
                         ? wf_texts_add(&compare->diagnosis, error,
                                        "%s's recipe.json has to be put right: %s", letter,
                                        side->refused.items[i])
                         : wf_texts_add(&compare->diagnosis, error, "Weft does not support %s: %s",
                                        letter, side->refused.items[i]);
        }
    }
    return status;
}
