/* detect_case.c - see detect_case.h. */
#include "tests/tools/detect_case.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "models/layout.h"
#include "tools/files/io.h"
#include "tools/layout/case.h"
#include "tools/layout/detect_files.h"

enum { CASE_BYTES_MAX = 1 << 24 };

const char *const detect_class_names[] = {"right", "ambiguous", "false",
                                          "wrong", "nothing",   "unread"};

static bool read_case(const char *folder, struct wf_case *it, struct wf_error *error)
{
    char *text = NULL;
    size_t len = 0;
    int fd = -1;
    bool good = wf_folder_open(folder, &fd, error) == WF_OK &&
                wf_file_read_all(fd, "case.json", CASE_BYTES_MAX, &text, &len, error) == WF_OK &&
                wf_case_parse(text, len, NULL, it, error) == WF_OK;
    free(text);
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool same_layouts(const struct wf_model *model, const struct wf_recipe *a,
                         const struct wf_recipe *b)
{
    bool same = wf_recipe_world(a) == wf_recipe_world(b);
    for (uint32_t rank = 0; rank < wf_recipe_world(a) && same; rank++) {
        struct wf_layout *x = NULL, *y = NULL;
        same = wf_layout_derive(model, a, rank, &x, NULL) == WF_OK &&
               wf_layout_derive(model, b, rank, &y, NULL) == WF_OK &&
               memcmp(&x->hash, &y->hash, sizeof x->hash) == 0;
        wf_layout_free(x);
        wf_layout_free(y);
    }
    return same;
}

/* The fit's own SPEC, or one of those that it names beside it. */
static bool is_true(const struct wf_detect_fit *fit, const struct wf_case *it)
{
    char specs[sizeof fit->spec + sizeof fit->also];
    snprintf(specs, sizeof specs, "%s %s", fit->spec, fit->also);
    char *rest = NULL;
    bool found = false;
    for (char *spec = strtok_r(specs, " ", &rest); spec != NULL && !found;
         spec = strtok_r(NULL, " ", &rest)) {
        struct wf_recipe recipe;
        found = fit->family == it->model->family &&
                wf_recipe_parse(spec, it->model, &recipe, NULL) == WF_OK &&
                same_layouts(it->model, &recipe, &it->recipe);
    }
    return found;
}

/* Every tensor that a fit's own config and recipe derive is the dump's, on every rank. */
static bool holds(const struct wf_detect_fit *fit, const struct wf_detect_files *files)
{
    struct wf_model *model = NULL;
    struct wf_recipe recipe;
    bool good = wf_model_parse(fit->config, strlen(fit->config), NULL, &model, NULL) == WF_OK &&
                wf_recipe_parse(fit->spec, model, &recipe, NULL) == WF_OK;
    for (uint32_t rank = 0; good && rank < files->count; rank++) {
        struct wf_layout *layout = NULL;
        good = wf_layout_derive(model, &recipe, rank, &layout, NULL) == WF_OK;
        for (uint32_t t = 0; good && t < layout->tensor_count; t++) {
            const struct wf_tensor *tensor = &layout->tensors[t];
            const struct wf_dump_tensor *live =
                wf_dump_rank_find(&files->dumps[rank], tensor->name);
            good = live != NULL ? live->ndim == tensor->ndim && live->dtype == tensor->dtype &&
                                      memcmp(live->shape, tensor->shape,
                                             sizeof live->shape[0] * live->ndim) == 0
                                : tensor->kind != WF_TENSOR_WEIGHTS;
        }
        for (uint32_t i = 0; good && i < files->dumps[rank].count; i++) {
            const char *name = files->dumps[rank].tensors[i].name;
            good = wf_layout_find(layout, name, strlen(name)) != UINT32_MAX;
        }
        wf_layout_free(layout);
    }
    wf_model_free(model);
    return good;
}

static void judge(const struct wf_detected *detected, const struct wf_detect_files *files,
                  const struct wf_case *it, struct detect_case *out)
{
    out->fits = detected->fit_count;
    out->more = detected->more;
    out->gave_up = detected->gave_up;
    out->class = detected->fit_count > 0 ? DETECT_WRONG : DETECT_NOTHING;
    for (uint32_t i = 0; i < detected->fit_count && out->class == DETECT_WRONG; i++) {
        if (is_true(&detected->fits[i], it)) {
            bool alone = detected->fit_count == 1 && detected->fits[i].also[0] == '\0';
            out->class = alone ? DETECT_RIGHT : DETECT_AMBIGUOUS;
            out->place = i;
        }
    }
    for (uint32_t i = 0; i < detected->fit_count; i++) {
        out->class = holds(&detected->fits[i], files) ? out->class : DETECT_FALSE;
    }
}

void detect_case_run(const char *folder, struct detect_case *out)
{
    struct wf_detect_files files = {0};
    struct wf_detected detected = {0};
    struct wf_case it = {0};
    struct wf_error error = {0};
    char *paths[] = {(char *)folder};
    struct timespec from, to;
    *out = (struct detect_case){.class = DETECT_UNREAD};
    if (!read_case(folder, &it, &error) || wf_detect_read(paths, 1, &files, &error) != WF_OK) {
        snprintf(out->text, sizeof out->text, "%s", error.text);
        goto end;
    }
    snprintf(out->family, sizeof out->family, "%s", it.model->family->name);
    wf_recipe_format(&it.recipe, out->truth);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    enum wf_status status = wf_detect(files.dumps, files.count, NULL, &detected, &error);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    out->seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (status == WF_OK) {
        judge(&detected, &files, &it, out);
    }
    FILE *text = fmemopen(out->text, sizeof out->text, "w");
    if (text != NULL) {
        wf_detected_print(text, &detected);
        fclose(text);
    }
end:
    wf_detected_fini(&detected);
    wf_detect_files_fini(&files);
    wf_case_fini(&it);
}
