/* check_tensor.c - one rank's file against its derived layout, line by line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "tools/layout/check_private.h"

static int shown(const struct wf_run *run)
{
    return (int)(run->len < 60 ? run->len : 60);
}

/* --- runs ------------------------------------------------------------------------------------ */

static enum wf_status differ(struct wf_checker *c, const struct wf_case_line *line,
                             const struct wf_run *run, uint64_t index, const struct wf_look *look,
                             bool covered)
{
    char derived[WF_NAME_MAX + 64];
    if (!covered) {
        snprintf(derived, sizeof derived, "nothing");
    } else if (look->fill && look->byte == 0) {
        snprintf(derived, sizeof derived, "zero");
    } else if (look->fill) {
        snprintf(derived, sizeof derived, "bytes %u", look->byte);
    } else {
        snprintf(derived, sizeof derived, "element %" PRIu64 " of %s", look->element,
                 c->it.model->params[look->param].name);
    }
    return wf_error_set(c->error, WF_MISMATCH,
                        "tensor %s run \"%.*s\": at element %" PRIu64
                        " of the tensor the derived layout has %s",
                        line->name, shown(run), run->text, index, derived);
}

/* What the run says of its element `element`, which is the derived `look`: the same? *same_out is
 * for how many elements from here on. */
static bool agrees(const struct wf_checker *c, const struct wf_run *run, uint64_t element,
                   const struct wf_look *look, uint64_t *same_out)
{
    struct wf_look source;
    *same_out = look->run;
    if (run->kind != WF_RUN_PARAM) {
        return look->fill && (look->byte == 0) == (run->kind == WF_RUN_ZERO);
    }
    if (look->fill || !wf_check_source_at(c, run->param, element, &source)) {
        return false;
    }
    *same_out = source.run < look->run ? source.run : look->run;
    return source.param == look->param && source.element == look->element;
}

/* Calls `check` for each stretch of neighbouring elements that the line's runs list: element
 * `start` of the run's parameter stands at place `index` of the tensor, and so on for `count`. */
typedef enum wf_status stretch_t(struct wf_checker *c, const struct wf_case_line *line,
                                 const struct wf_run *run, uint64_t start, uint64_t index,
                                 void *user);
static enum wf_status each_stretch(struct wf_checker *c, const struct wf_case_line *line,
                                   stretch_t *check, void *user)
{
    uint64_t index = 0;
    const char *text = line->runs;
    struct wf_run run;
    enum wf_status status;
    while ((status = wf_run_next(&text, &run, c->error)) == WF_OK) {
        uint64_t total = 0;
        if (__builtin_mul_overflow(run.count, run.times, &total) ||
            total > line->elements - index) {
            return wf_error_set(c->error, WF_INVALID,
                                "tensor %s run \"%.*s\" passes the end of the tensor", line->name,
                                shown(&run), run.text);
        }
        if (run.kind == WF_RUN_PARAM && run.param >= c->params.count) {
            return wf_error_set(c->error, WF_INVALID,
                                "tensor %s names parameter %" PRIu64 " of %zu", line->name,
                                run.param, c->params.count);
        }
        for (uint64_t i = 0; i < run.times && status == WF_OK; i++) {
            status = check(c, line, &run, run.start + i * run.step, index, user);
            index += run.count;
        }
        if (status != WF_OK) {
            return status;
        }
    }
    if (status != WF_NOT_FOUND) {
        wf_error_prefix(c->error, "tensor %s", line->name);
        return status;
    }
    if (index != line->elements) {
        return wf_error_set(c->error, WF_INVALID,
                            "tensor %s: its runs have %" PRIu64 " elements, its shape %" PRIu64,
                            line->name, index, line->elements);
    }
    return WF_OK;
}

static enum wf_status count_step(struct wf_checker *c)
{
    return ++c->steps <= WF_CHECK_STEPS_MAX
               ? WF_OK
               : wf_error_set(c->error, WF_NO_RESOURCE, "the case has more than %d runs",
                              WF_CHECK_STEPS_MAX);
}

/* --- kinds of tensors ------------------------------------------------------------------------ */

/* Places of a tensor's memory follow each other; `user` is its index. */
static enum wf_status check_weights(struct wf_checker *c, const struct wf_case_line *line,
                                    const struct wf_run *run, uint64_t start, uint64_t index,
                                    void *user)
{
    uint32_t tensor = *(const uint32_t *)user;
    enum wf_status status = WF_OK;
    for (uint64_t done = 0; done < run->count && status == WF_OK;) {
        struct wf_look look;
        uint64_t same = 0;
        bool covered = wf_layout_look(c->layout, tensor, index + done, &look);
        if (!covered || !agrees(c, run, start + done, &look, &same)) {
            return differ(c, line, run, index + done, &look, covered);
        }
        status = count_step(c);
        done += same;
    }
    return status;
}

/* What no parameter gives and nobody writes: constants, or what the engine computes. */
static enum wf_status check_kept(struct wf_checker *c, const struct wf_case_line *line,
                                 const struct wf_run *run, uint64_t start, uint64_t index,
                                 void *user)
{
    (void)start, (void)user;
    return run->kind == WF_RUN_UNKNOWN
               ? WF_OK
               : wf_error_set(c->error, WF_MISMATCH,
                              "tensor %s run \"%.*s\": at element %" PRIu64
                              " of the tensor the derived layout has nothing: it is never written",
                              line->name, shown(run), run->text, index);
}

/* A view's elements by rising address inside the tensor that it looks into. */
struct view {
    uint64_t *places;
    uint32_t tensor;
};

static enum wf_status check_view_stretch(struct wf_checker *c, const struct wf_case_line *line,
                                         const struct wf_run *run, uint64_t start, uint64_t index,
                                         void *user)
{
    const struct view *view = user;
    enum wf_status status = WF_OK;
    for (uint64_t done = 0; done < run->count && status == WF_OK; done++) {
        struct wf_look look;
        uint64_t same = 0;
        bool covered = wf_layout_look(c->layout, view->tensor, view->places[index + done], &look);
        if (!covered || !agrees(c, run, start + done, &look, &same)) {
            return differ(c, line, run, index + done, &look, covered);
        }
        status = count_step(c);
    }
    return status;
}

static int compare_places(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Fills in where each element stands, and that all stand inside the other tensor. */
static bool find_places(const struct wf_case_line *line, uint64_t size, uint64_t *places)
{
    for (uint64_t i = 0; i < line->elements; i++) {
        uint64_t place = line->shares_at, rest = i;
        for (uint32_t axis = line->ndim; axis-- > 0;) {
            uint64_t digit = rest % line->shape[axis], move = 0;
            rest /= line->shape[axis];
            if (line->strides[axis] < 0 ||
                __builtin_mul_overflow(digit, (uint64_t)line->strides[axis], &move) ||
                __builtin_add_overflow(place, move, &place)) {
                return false;
            }
        }
        if (place >= size) {
            return false;
        }
        places[i] = place;
    }
    qsort(places, line->elements, sizeof *places, compare_places);
    return true;
}

static enum wf_status check_view(struct wf_checker *c, const struct wf_case_line *line)
{
    const char *target = line->shares;
    struct view view = {.tensor = wf_layout_find(c->layout, target, strlen(target))};
    if (view.tensor == UINT32_MAX || c->layout->tensors[view.tensor].kind != WF_TENSOR_WEIGHTS) {
        return wf_error_set(c->error, WF_MISMATCH,
                            "tensor %s looks into %.200s, which is no derived tensor of weights",
                            line->name, line->shares);
    }
    const struct wf_tensor *tensor = &c->layout->tensors[view.tensor];
    uint64_t size = tensor->bytes / wf_dtype_bytes(tensor->dtype);
    view.places = line->elements <= size ? calloc(line->elements + 1, sizeof *view.places) : NULL;
    enum wf_status status = WF_OK;
    if (!view.places || !find_places(line, size, view.places)) {
        status = wf_error_set(c->error, WF_MISMATCH, "tensor %s reaches outside %.200s", line->name,
                              line->shares);
    } else {
        status = each_stretch(c, line, check_view_stretch, &view);
    }
    free(view.places);
    return status;
}

/* --- one line -------------------------------------------------------------------------------- */

static enum wf_status check_strides(struct wf_checker *c, const struct wf_case_line *line,
                                    const struct wf_tensor *tensor)
{
    for (uint32_t axis = 0; axis < line->ndim; axis++) {
        if (line->shape[axis] > 1 && line->elements > 0 &&
            line->strides[axis] != tensor->strides[axis]) {
            return wf_error_set(c->error, WF_MISMATCH,
                                "tensor %s: stride derived %" PRId64 ", found %" PRId64
                                " on axis %" PRIu32,
                                line->name, tensor->strides[axis], line->strides[axis], axis);
        }
    }
    return WF_OK;
}

static enum wf_status check_header(struct wf_checker *c, const struct wf_case_line *line,
                                   const struct wf_tensor *tensor)
{
    if (strcmp(line->dtype, wf_dtype_torch(tensor->dtype)) != 0) {
        return wf_error_set(c->error, WF_MISMATCH, "tensor %s: dtype derived %s, found %.40s",
                            line->name, wf_dtype_torch(tensor->dtype), line->dtype);
    }
    if (!wf_check_same_shape(line, tensor->ndim, tensor->shape)) {
        return wf_error_set(c->error, WF_MISMATCH,
                            "tensor %s: the shape differs (derived %" PRIu32
                            " dimensions, first %" PRIu64 "; found %" PRIu32 ", first %" PRIu64 ")",
                            line->name, tensor->ndim, tensor->shape[0], line->ndim, line->shape[0]);
    }
    if (*line->more != '\0') {
        return wf_error_set(c->error, WF_UNSUPPORTED, "tensor %s: the field \"%.40s\" is not known",
                            line->name, line->more);
    }
    if ((line->shares != NULL) != (tensor->kind == WF_TENSOR_VIEW)) {
        return wf_error_set(
            c->error, WF_MISMATCH, "tensor %s is %s view into another tensor; derived is %s",
            line->name, line->shares ? "a" : "no", line->shares ? "a tensor of its own" : "a view");
    }
    return WF_OK;
}

static enum wf_status check_tensor(struct wf_checker *c, const struct wf_case_line *line,
                                   uint32_t index)
{
    const struct wf_tensor *tensor = &c->layout->tensors[index];
    enum wf_status status = check_header(c, line, tensor);
    if (status != WF_OK || tensor->kind == WF_TENSOR_VIEW) {
        return status == WF_OK ? check_view(c, line) : status;
    }
    if (tensor->kind != WF_TENSOR_WEIGHTS) {
        return each_stretch(c, line, check_kept, NULL);
    }
    status = check_strides(c, line, tensor);
    if (status == WF_OK && wf_layout_covered(c->layout, index) != line->elements) {
        status = wf_error_set(c->error, WF_MISMATCH,
                              "tensor %s: the derived pieces overlap or leave gaps", line->name);
    }
    if (status == WF_OK) {
        status = each_stretch(c, line, check_weights, &index);
        c->result->elements += status == WF_OK ? line->elements : 0;
    }
    return status;
}

/* --- one rank -------------------------------------------------------------------------------- */

/* The derived alias of that name, counted on behind the tensors; UINT32_MAX if there is none. */
static uint32_t find_alias(const struct wf_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        if (strcmp(layout->aliases[i].name, name) == 0) {
            return layout->tensor_count + i;
        }
    }
    return UINT32_MAX;
}

static enum wf_status check_alias(struct wf_checker *c, const struct wf_case_line *line, bool *seen)
{
    const char *target = line->target;
    uint32_t alias = find_alias(c->layout, line->name);
    if (alias == UINT32_MAX || seen[alias] ||
        strcmp(c->layout->tensors[c->layout->aliases[alias - c->layout->tensor_count].tensor].name,
               target) != 0) {
        return wf_error_set(c->error, WF_MISMATCH, "alias %.200s of %.200s is %s", line->name,
                            line->target,
                            alias != UINT32_MAX && seen[alias] ? "listed twice" : "not derived");
    }
    seen[alias] = true;
    return WF_OK;
}

/* A tensor under its own name, or once more in full under a second one. */
static enum wf_status check_named(struct wf_checker *c, const struct wf_case_line *line, bool *seen)
{
    const char *name = line->name;
    uint32_t index = wf_layout_find(c->layout, name, strlen(name)), mark = index;
    if (index != UINT32_MAX && strcmp(c->layout->tensors[index].name, name) != 0) {
        mark = find_alias(c->layout, name);
    }
    if (index == UINT32_MAX || seen[mark]) {
        return wf_error_set(c->error, WF_MISMATCH, "tensor %.200s is %s", line->name,
                            index == UINT32_MAX ? "not derived" : "listed twice");
    }
    seen[mark] = true;
    c->result->tensors++;
    return check_tensor(c, line, index);
}

static enum wf_status check_whole(const struct wf_checker *c, const bool *seen)
{
    const struct wf_layout *layout = c->layout;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        if (!seen[i]) {
            return wf_error_set(c->error, WF_MISMATCH, "tensor %s is derived and not there",
                                layout->tensors[i].name);
        }
    }
    /* torch's named_parameters() leaves second names out, its state dict does not. */
    bool all_names = strcmp(c->it.recipe.engine->name, "fsdp") != 0;
    for (uint32_t i = 0; i < layout->alias_count && all_names; i++) {
        if (!seen[layout->tensor_count + i]) {
            return wf_error_set(c->error, WF_MISMATCH,
                                "alias %s of %s is derived and not there (of %" PRIu32 " aliases)",
                                layout->aliases[i].name,
                                layout->tensors[layout->aliases[i].tensor].name,
                                layout->alias_count);
        }
    }
    return WF_OK;
}

enum wf_status wf_check_lines(struct wf_checker *c, const struct wf_case_lines *lines, bool *seen)
{
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < lines->count && status == WF_OK; i++) {
        const struct wf_case_line *line = &lines->lines[i];
        status = line->target ? check_alias(c, line, seen) : check_named(c, line, seen);
    }
    return status == WF_OK ? check_whole(c, seen) : status;
}
