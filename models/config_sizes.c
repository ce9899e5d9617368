/* config_sizes.c - the values of a family's sizes: of the whole model, or of each place in it.
 *
 * In order: sizes that are the same everywhere, how many members each stack has, sizes that vary
 * with the place, the family's requirements. Every size is worked out once and kept, so that
 * expressions that refer to each other cost no more than their number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "models/expr.h"

/* Where an `otherwise` is read: sizes before `limit`, and `null`. */
struct reading {
    struct wf_model_at at;
    uint32_t limit;
    bool null;
    bool varies; /* out of a check: something that varies with the place was named */
};

static bool is_text(const char *text, const char *name, size_t len)
{
    return len > 0 && *text == *name && strncmp(text, name, len) == 0 && text[len] == '\0';
}

uint32_t wf_family_find_size(const struct wf_family *family, const char *name, size_t len)
{
    for (uint32_t i = 0; i < family->size_count; i++) {
        if (is_text(family->sizes[i].name, name, len)) {
            return i;
        }
    }
    return WF_NONE;
}

static uint32_t find_stack(const struct wf_family *family, const char *name, size_t len)
{
    for (uint32_t i = 0; i < family->stack_count; i++) {
        if (is_text(family->stacks[i].name, name, len)) {
            return i;
        }
    }
    return WF_NONE;
}

/* A size here; false where it varies and there is no place. */
static bool value_of(const struct wf_model_at *at, uint32_t size, uint64_t *value_out)
{
    const struct wf_model_memory *memory = wf_memory(at->model);
    const struct wf_size_value *value = &memory->sizes[size];
    if (!value->varies) {
        *value_out = value->value;
        return true;
    }
    if (at->stack == WF_NONE || !value->at) {
        return false;
    }
    *value_out = value->at[memory->stacks[at->stack].base + at->index];
    return true;
}

/* `layer`, `index`, and the other stacks' names. */
static bool place_of(const struct wf_model_at *at, const char *name, size_t len,
                     uint64_t *value_out)
{
    bool layer = is_text("layer", name, len);
    if (layer || is_text("index", name, len)) {
        *value_out = at->index;
        if (layer && at->stack != WF_NONE) {
            *value_out += wf_memory(at->model)->stacks[at->stack].first;
        }
        return at->stack != WF_NONE;
    }
    uint32_t stack = find_stack(at->model->family, name, len);
    *value_out = stack != WF_NONE && stack == at->stack;
    return stack != WF_NONE;
}

bool wf_model_lookup(void *user, const char *name, size_t len, uint64_t *value_out)
{
    const struct wf_model_at *at = user;
    uint32_t size = wf_family_find_size(at->model->family, name, len);
    return size != WF_NONE ? value_of(at, size, value_out) : place_of(at, name, len, value_out);
}

static bool lookup_above(void *user, const char *name, size_t len, uint64_t *value_out)
{
    struct reading *reading = user;
    if (is_text("null", name, len)) {
        *value_out = reading->null;
        return true;
    }
    uint32_t size = wf_family_find_size(reading->at.model->family, name, len);
    return size != WF_NONE ? size < reading->limit && value_of(&reading->at, size, value_out)
                           : place_of(&reading->at, name, len, value_out);
}

/* For wf_expr_check: does the expression name anything that varies? */
static bool lookup_varies(void *user, const char *name, size_t len, uint64_t *value_out)
{
    struct reading *reading = user;
    *value_out = 0;
    uint32_t size = wf_family_find_size(reading->at.model->family, name, len);
    reading->varies |= size != WF_NONE ? wf_memory(reading->at.model)->sizes[size].varies
                                       : !is_text("null", name, len);
    return true;
}

static enum wf_status blame(const struct wf_family_size *size, struct wf_error *error)
{
    if (size->key) {
        wf_error_prefix(error, "\"%s\" is not given", size->key);
    } else {
        wf_error_prefix(error, "size %s", size->name);
    }
    return WF_INVALID;
}

static enum wf_status work_out(struct wf_model *model, uint32_t number,
                               const struct wf_model_at *at, uint64_t *value_out,
                               struct wf_error *error)
{
    const struct wf_family_size *size = &model->family->sizes[number];
    struct reading reading = {
        .at = *at, .limit = number, .null = wf_memory(model)->sizes[number].null};
    enum wf_status status = wf_expr_eval(size->otherwise, strlen(size->otherwise), lookup_above,
                                         &reading, value_out, error);
    return status == WF_OK ? WF_OK : blame(size, error);
}

/* Sizes that are the same everywhere; marks the others. */
static enum wf_status resolve_constants(struct wf_model *model, struct wf_error *error)
{
    const struct wf_family *family = model->family;
    const struct wf_model_at nowhere = {model, WF_NONE, WF_NONE};
    for (uint32_t i = 0; i < family->size_count; i++) {
        struct wf_size_value *value = &wf_memory(model)->sizes[i];
        value->varies = value->kind == WF_SIZE_LIST || value->kind == WF_SIZE_SET;
        if (value->kind != WF_SIZE_RULE) {
            continue;
        }
        struct reading reading = {.at = nowhere};
        const char *rule = family->sizes[i].otherwise;
        enum wf_status status = wf_expr_check(rule, strlen(rule), lookup_varies, &reading, error);
        value->varies = reading.varies;
        if (status == WF_OK && !value->varies) {
            status = work_out(model, i, &nowhere, &value->value, error);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

/* What is asked for without a layer (wf_model_size) would be read as 0 if it varied. */
static enum wf_status refuse_varying(const struct wf_model *model, struct wf_error *error)
{
    static const char *const everywhere[] = {"H",      "V",   "E",        "tied",
                                             "packed", "fp8", "fp8_rows", "mxfp4"};
    for (size_t i = 0; i < sizeof everywhere / sizeof everywhere[0]; i++) {
        uint32_t size = wf_family_find_size(model->family, everywhere[i], strlen(everywhere[i]));
        if (size != WF_NONE && wf_memory(model)->sizes[size].varies) {
            return wf_error_set(error, WF_INVALID,
                                "size %s varies with the layer; it must be one for the whole "
                                "model (which layers have it, their rows' `when` says)",
                                everywhere[i]);
        }
    }
    return WF_OK;
}

static enum wf_status resolve_stacks(struct wf_model *model, struct wf_error *error)
{
    struct wf_model_memory *memory = wf_memory(model);
    struct wf_model_at nowhere = {model, WF_NONE, WF_NONE};
    memory->places = 0;
    for (uint32_t i = 0; i < model->family->stack_count; i++) {
        const struct wf_family_stack *stack = &model->family->stacks[i];
        struct wf_stack_value *value = &memory->stacks[i];
        uint64_t count = 0;
        value->first = 0;
        enum wf_status status = wf_expr_eval(stack->count, strlen(stack->count), wf_model_lookup,
                                             &nowhere, &count, error);
        if (status == WF_OK && stack->first) {
            status = wf_expr_eval(stack->first, strlen(stack->first), wf_model_lookup, &nowhere,
                                  &value->first, error);
        }
        if (status == WF_OK && (count > WF_LAYERS_MAX || value->first > WF_LAYERS_MAX)) {
            status = wf_error_set(error, WF_INVALID, "expected at most %d members, found %llu",
                                  WF_LAYERS_MAX, (unsigned long long)count);
        }
        if (status != WF_OK) {
            wf_error_prefix(error, "stack %s", stack->name);
            return status;
        }
        value->count = (uint32_t)count;
        value->base = memory->places;
        memory->places += value->count;
    }
    return WF_OK;
}

/* What the config lists, for the layers; 0 for members of other stacks. */
static enum wf_status resolve_list(const struct wf_model *model, uint32_t number,
                                   struct wf_error *error)
{
    struct wf_size_value *value = &wf_memory(model)->sizes[number];
    uint32_t layers = find_stack(model->family, "layer", 5);
    const struct wf_stack_value *stack = &wf_memory(model)->stacks[layers];
    if (value->kind == WF_SIZE_LIST && value->raw_count < stack->count) {
        return wf_error_set(error, WF_INVALID,
                            "\"%s\" has %u entries; one for each of %u layers is expected",
                            model->family->sizes[number].key, value->raw_count, stack->count);
    }
    for (uint32_t i = 0; value->kind == WF_SIZE_LIST && i < stack->count; i++) {
        value->at[stack->base + i] = value->raw[i];
    }
    for (uint32_t i = 0; value->kind == WF_SIZE_SET && i < value->raw_count; i++) {
        if (value->raw[i] < stack->count) {
            value->at[stack->base + value->raw[i]] = 1;
        }
    }
    return WF_OK;
}

static enum wf_status resolve_varying(struct wf_model *model, uint32_t number,
                                      struct wf_error *error)
{
    struct wf_model_memory *memory = wf_memory(model);
    struct wf_size_value *value = &memory->sizes[number];
    uint64_t *at = calloc(memory->places + 1, sizeof *at);
    free(value->at);
    value->at = at;
    if (!at) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for sizes of layers");
    }
    if (value->kind != WF_SIZE_RULE) {
        return resolve_list(model, number, error);
    }
    for (uint32_t stack = 0; stack < model->family->stack_count; stack++) {
        for (uint32_t i = 0; i < memory->stacks[stack].count; i++) {
            struct wf_model_at place = {model, stack, i};
            enum wf_status status =
                work_out(model, number, &place, &at[memory->stacks[stack].base + i], error);
            if (status != WF_OK) {
                return status;
            }
        }
    }
    return WF_OK;
}

/* The numbers that a requirement speaks of, behind its sentence. */
struct report {
    struct wf_model_at at;
    char text[256];
};

static bool report_value(void *user, const char *name, size_t len, uint64_t *value_out)
{
    struct report *report = user;
    if (wf_model_lookup(&report->at, name, len, value_out)) {
        size_t used = strlen(report->text);
        snprintf(report->text + used, sizeof report->text - used, "%s%.*s is %llu",
                 used ? ", " : "", (int)len, name, (unsigned long long)*value_out);
    }
    return true;
}

/* "EXPRESSION: sentence|EXPRESSION: sentence". */
static enum wf_status check_requirements(struct wf_model *model, struct wf_error *error)
{
    const char *list = model->family->requires, *item = NULL;
    size_t len = 0;
    while (list && wf_expr_next(&list, '|', &item, &len)) {
        const char *rest = item, *rule = NULL;
        size_t rule_len = 0;
        struct report report = {.at = {model, WF_NONE, WF_NONE}};
        uint64_t holds = 0;
        (void)wf_expr_next(&rest, ':', &rule, &rule_len);
        enum wf_status status =
            wf_expr_eval(rule, rule_len, wf_model_lookup, &report.at, &holds, error);
        if (status == WF_OK && !holds) {
            (void)wf_expr_check(rule, rule_len, report_value, &report, NULL);
            rest += strspn(rest, " ");
            status =
                wf_error_set(error, WF_INVALID, "%.*s (%s)",
                             rest < item + len ? (int)(item + len - rest) : 0, rest, report.text);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_model_resolve(struct wf_model *model, struct wf_error *error)
{
    enum wf_status status = resolve_constants(model, error);
    if (status == WF_OK) {
        status = refuse_varying(model, error);
    }
    if (status == WF_OK) {
        status = resolve_stacks(model, error);
    }
    for (uint32_t i = 0; status == WF_OK && i < model->family->size_count; i++) {
        if (wf_memory(model)->sizes[i].varies) {
            status = resolve_varying(model, i, error);
        }
    }
    if (status == WF_OK) {
        status = check_requirements(model, error);
    }
    model->layers = wf_model_size(model, "L");
    model->tied = wf_model_size(model, "tied") != 0;
    return status;
}

uint64_t wf_model_size(const struct wf_model *model, const char *name)
{
    struct wf_model_at nowhere = {model, WF_NONE, WF_NONE};
    uint64_t value = 0;
    return wf_model_lookup(&nowhere, name, strlen(name), &value) ? value : 0;
}

uint32_t wf_model_stack_count(const struct wf_model *model, uint32_t stack)
{
    return stack < model->family->stack_count ? wf_memory(model)->stacks[stack].count : 0;
}
