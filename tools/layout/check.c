/* check.c - compares every rank's derived layout with what really ran. */
#include "tools/layout/check.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/layout.h"
#include "tools/files/io.h"
#include "tools/layout/case.h"
#include "tools/layout/look.h"
#include "tools/layout/runs.h"

enum {
    FILE_BYTES_MAX = 256 << 20,
    STEPS_MAX = 1 << 26, /* comparisons of one case: a fixture with more is no fixture */
};

struct checker {
    const struct wf_case_tables *tables;
    int folder;
    struct wf_case it;
    char *params_text;
    struct wf_case_lines params;
    uint32_t *param_of; /* our index of each parameter number of the files */
    struct wf_layout *layout;
    const char *file; /* at hand, for messages */
    uint64_t steps;
    struct wf_case_result *result;
    struct wf_error *error;
};

/* --- params.tsv ------------------------------------------------------------------------------ */

static bool same_shape(const struct wf_case_line *line, uint32_t ndim, const uint64_t *shape)
{
    return line->ndim == ndim && memcmp(line->shape, shape, ndim * sizeof *shape) == 0;
}

/* Numbers of the files are those of params.tsv, counted from 0 without gaps; ours may differ. */
static enum wf_status check_params(struct checker *c)
{
    const struct wf_model *model = c->it.model;
    c->param_of = calloc(c->params.count + 1, sizeof *c->param_of);
    if (!c->param_of) {
        return wf_error_set(c->error, WF_NO_MEMORY, "no memory for a case");
    }
    for (size_t i = 0; i < c->params.count; i++) {
        const struct wf_case_line *line = &c->params.lines[i];
        uint32_t index = wf_model_find(model, line->name, strlen(line->name));
        if (line->index != i) {
            return wf_error_set(c->error, WF_INVALID, "line %u: expected index %zu", line->number,
                                i);
        }
        if (index == UINT32_MAX) {
            return wf_error_set(c->error, WF_MISMATCH,
                                "parameter \"%.200s\" is not in the derived inventory", line->name);
        }
        if (!same_shape(line, model->params[index].ndim, model->params[index].shape)) {
            return wf_error_set(c->error, WF_MISMATCH,
                                "parameter %s has another shape than the derived inventory",
                                line->name);
        }
        c->param_of[i] = index;
    }
    if (c->params.count != model->param_count) {
        return wf_error_set(c->error, WF_MISMATCH, "expected %" PRIu32 " parameters, found %zu",
                            model->param_count, c->params.count);
    }
    return WF_OK;
}

/* --- one tensor ------------------------------------------------------------------------------ */

static enum wf_status differ(struct checker *c, const struct wf_case_line *line,
                             const struct wf_run *run, uint64_t index, const struct wf_look *look,
                             bool covered)
{
    char derived[WF_NAME_MAX + 64];
    if (!covered) {
        snprintf(derived, sizeof derived, "nothing");
    } else if (look->fill) {
        snprintf(derived, sizeof derived, "zero");
    } else {
        snprintf(derived, sizeof derived, "element %" PRIu64 " of %s", look->element,
                 c->it.model->params[look->param].name);
    }
    return wf_error_set(
        c->error, WF_MISMATCH,
        "tensor %s run \"%.*s\": at element %" PRIu64 " of the tensor the derived layout has %s",
        line->name, (int)(run->len < 60 ? run->len : 60), run->text, index, derived);
}

/* `count` elements of the run from parameter element `start` on, at element `index`. */
static enum wf_status check_stretch(struct checker *c, const struct wf_case_line *line,
                                    uint32_t tensor, const struct wf_run *run, uint64_t start,
                                    uint64_t index)
{
    for (uint64_t done = 0; done < run->count;) {
        struct wf_look look;
        bool covered = wf_layout_look(c->layout, tensor, index + done, &look);
        bool same =
            covered && (run->kind == WF_RUN_ZERO ? look.fill
                                                 : run->kind == WF_RUN_PARAM && !look.fill &&
                                                       look.param == c->param_of[run->param] &&
                                                       look.element == start + done);
        if (!same) {
            return differ(c, line, run, index + done, &look, covered);
        }
        if (++c->steps > STEPS_MAX) {
            return wf_error_set(c->error, WF_NO_RESOURCE, "the case has more than %d runs",
                                STEPS_MAX);
        }
        done += look.run;
    }
    return WF_OK;
}

static enum wf_status check_runs(struct checker *c, const struct wf_case_line *line,
                                 uint32_t tensor)
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
                                (int)(run.len < 60 ? run.len : 60), run.text);
        }
        if (run.kind == WF_RUN_PARAM && run.param >= c->params.count) {
            return wf_error_set(c->error, WF_INVALID,
                                "tensor %s names parameter %" PRIu64 " of %zu", line->name,
                                run.param, c->params.count);
        }
        for (uint64_t i = 0; i < run.times && status == WF_OK; i++) {
            status = check_stretch(c, line, tensor, &run, run.start + i * run.step, index);
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

static enum wf_status check_tensor(struct checker *c, const struct wf_case_line *line,
                                   uint32_t index)
{
    const struct wf_tensor *tensor = &c->layout->tensors[index];
    if (strcmp(line->dtype, wf_dtype_torch(tensor->dtype)) != 0) {
        return wf_error_set(c->error, WF_MISMATCH, "tensor %s: dtype derived %s, found %.40s",
                            line->name, wf_dtype_torch(tensor->dtype), line->dtype);
    }
    if (!same_shape(line, tensor->ndim, tensor->shape)) {
        return wf_error_set(c->error, WF_MISMATCH,
                            "tensor %s: the shape differs (derived %" PRIu32
                            " dimensions, first %" PRIu64 "; found %" PRIu32 ", first %" PRIu64 ")",
                            line->name, tensor->ndim, tensor->shape[0], line->ndim, line->shape[0]);
    }
    if (*line->more != '\0') {
        return wf_error_set(c->error, WF_UNSUPPORTED,
                            "tensor %s: a view or strided tensor (%.40s) is not supported yet",
                            line->name, line->more);
    }
    if (wf_layout_covered(c->layout, index) != line->elements) {
        return wf_error_set(c->error, WF_MISMATCH,
                            "tensor %s: the derived pieces overlap or leave gaps", line->name);
    }
    return check_runs(c, line, index);
}

/* --- one rank -------------------------------------------------------------------------------- */

static enum wf_status check_alias(struct checker *c, const struct wf_case_line *line,
                                  uint32_t *aliases)
{
    for (uint32_t i = 0; i < c->layout->alias_count; i++) {
        const struct wf_alias *alias = &c->layout->aliases[i];
        if (strcmp(alias->name, line->name) == 0 &&
            strcmp(c->layout->tensors[alias->tensor].name, line->target) == 0) {
            (*aliases)++;
            return WF_OK;
        }
    }
    return wf_error_set(c->error, WF_MISMATCH, "alias %.200s of %.200s is not derived", line->name,
                        line->target);
}

static enum wf_status check_lines(struct checker *c, const struct wf_case_lines *lines, bool *seen)
{
    uint32_t aliases = 0, tensors = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const struct wf_case_line *line = &lines->lines[i];
        enum wf_status status = WF_OK;
        uint32_t index = wf_layout_find(c->layout, line->name, strlen(line->name));
        if (line->target) {
            status = check_alias(c, line, &aliases);
        } else if (index == UINT32_MAX || seen[index] ||
                   strcmp(c->layout->tensors[index].name, line->name) != 0) {
            status = wf_error_set(c->error, WF_MISMATCH, "tensor %.200s is %s", line->name,
                                  index == UINT32_MAX ? "not derived" : "listed twice");
        } else {
            seen[index] = true;
            tensors++;
            status = check_tensor(c, line, index);
            c->result->elements += status == WF_OK ? line->elements : 0;
        }
        if (status != WF_OK) {
            return status;
        }
    }
    c->result->tensors += tensors;
    for (uint32_t i = 0; i < c->layout->tensor_count; i++) {
        if (!seen[i]) {
            return wf_error_set(c->error, WF_MISMATCH, "tensor %s is derived and not there",
                                c->layout->tensors[i].name);
        }
    }
    if (aliases != c->layout->alias_count) {
        return wf_error_set(c->error, WF_MISMATCH, "expected %" PRIu32 " aliases, found %" PRIu32,
                            c->layout->alias_count, aliases);
    }
    return WF_OK;
}

static enum wf_status check_rank(struct checker *c, uint32_t rank)
{
    char name[32], *text = NULL;
    size_t len = 0;
    struct wf_case_lines lines = {0};
    bool *seen = NULL;
    snprintf(name, sizeof name, "rank_%02" PRIu32 ".tsv", rank);
    c->file = NULL; /* the reader's own sentence names the file */
    enum wf_status status =
        wf_file_read_all(c->folder, name, FILE_BYTES_MAX, &text, &len, c->error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_layout_derive(c->it.model, &c->it.recipe, rank, &c->layout, c->error);
    if (status == WF_OK) {
        status = wf_case_tensors(text, len, &lines, c->error);
    }
    if (status == WF_OK) {
        seen = calloc(c->layout->tensor_count + 1, sizeof *seen);
        status = seen ? check_lines(c, &lines, seen)
                      : wf_error_set(c->error, WF_NO_MEMORY, "no memory for a rank");
    }
    if (status != WF_OK) {
        wf_error_prefix(c->error, "%s", name);
    }
    free(seen);
    free(lines.lines);
    wf_layout_free(c->layout);
    c->layout = NULL;
    free(text);
    return status;
}

/* --- one folder ------------------------------------------------------------------------------ */

/* A file of a rank that the recipe does not have says that the sizes are wrong. */
static enum wf_status check_no_more_ranks(struct checker *c, uint32_t world)
{
    DIR *folder = fdopendir(dup(c->folder));
    if (!folder) {
        return wf_error_set(c->error, WF_IO, "cannot list the folder: %s", strerror(errno));
    }
    enum wf_status status = WF_OK;
    for (struct dirent *entry; (entry = readdir(folder)) && status == WF_OK;) {
        unsigned rank = 0;
        int used = 0;
        if (sscanf(entry->d_name, "rank_%6u.tsv%n", &rank, &used) == 1 && used > 0 &&
            entry->d_name[used] == '\0' && rank >= world) {
            status = wf_error_set(c->error, WF_MISMATCH,
                                  "%s: the derived group has only %" PRIu32 " ranks", entry->d_name,
                                  world);
        }
    }
    closedir(folder);
    return status;
}

static enum wf_status read_case(struct checker *c)
{
    char *text = NULL;
    size_t len = 0;
    enum wf_status status =
        wf_file_read_all(c->folder, "case.json", FILE_BYTES_MAX, &text, &len, c->error);
    if (status == WF_OK) {
        status = wf_case_parse(text, len, c->tables, &c->it, c->error);
    }
    free(text);
    return status;
}

static enum wf_status check_files(struct checker *c)
{
    size_t len = 0;
    enum wf_status status =
        wf_file_read_all(c->folder, "params.tsv", FILE_BYTES_MAX, &c->params_text, &len, c->error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_case_params(c->params_text, len, &c->params, c->error);
    if (status == WF_OK) {
        status = check_params(c);
    }
    if (status != WF_OK) {
        wf_error_prefix(c->error, "params.tsv");
        return status;
    }
    uint32_t world = wf_recipe_world(&c->it.recipe);
    for (uint32_t rank = 0; rank < world && status == WF_OK; rank++) {
        status = check_rank(c, rank);
        c->result->ranks += status == WF_OK;
    }
    return status == WF_OK ? check_no_more_ranks(c, world) : status;
}

/* The last part of a path, without the slashes behind it. */
static void name_case(const char *folder, char out[WF_CASE_NAME_MAX])
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && folder[start - 1] != '/') {
        start--;
    }
    size_t len = end - start < WF_CASE_NAME_MAX ? end - start : WF_CASE_NAME_MAX - 1;
    memcpy(out, folder + start, len);
    out[len] = '\0';
}

/* Folders beside the layout cases that hold something else. */
static enum wf_status refuse_by_name(const char *name, struct wf_error *error)
{
    static const struct {
        const char *begin, *what;
    } kinds[] = {
        {"hf-transformers", "an inventory of names and shapes"},
        {"torch-casts", "an oracle of values"},
        {"fp8-quant", "an oracle of values"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(name, kinds[i].begin, strlen(kinds[i].begin)) == 0) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "this is %s, not a layout case; checking it is not supported yet",
                                kinds[i].what);
        }
    }
    return WF_OK;
}

void wf_case_check(const char *folder, const struct wf_case_tables *tables,
                   struct wf_case_result *result_out)
{
    *result_out = (struct wf_case_result){0};
    struct checker c = {
        .folder = -1, .tables = tables, .result = result_out, .error = &result_out->difference};
    name_case(folder, result_out->name);
    enum wf_status status = refuse_by_name(result_out->name, c.error);
    if (status == WF_OK) {
        status = wf_folder_open(folder, &c.folder, c.error);
    }
    if (status == WF_OK) {
        status = read_case(&c);
    }
    result_out->refused = status != WF_OK;
    if (status == WF_OK) {
        status = check_files(&c);
    }
    result_out->ok = status == WF_OK;
    free(c.param_of);
    free(c.params.lines);
    free(c.params_text);
    wf_case_fini(&c.it);
    if (c.folder >= 0) {
        close(c.folder);
    }
}
