/* folder.c - temporary folders and checkpoints with planted faults. */
#include "tests/tools/folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/safetensors.h"
#include "tools/files/checkpoint.h"
#include "tools/files/io.h"
#include "tools/files/known_values.h"

enum { TENSORS_MAX = 1024 };

void folder_make(char path[FOLDER_PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    snprintf(path, FOLDER_PATH_MAX, "%s/weft-test-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert_not_null(mkdtemp(path), "cannot make %s", path);
}

void folder_remove(const char *path)
{
    wf_folder_remove(path);
}

const char *folder_join(char out[2 * FOLDER_PATH_MAX], const char *folder, const char *name)
{
    snprintf(out, 2 * FOLDER_PATH_MAX, "%s/%s", folder, name);
    return out;
}

void folder_write(const char *folder, const char *name, const void *bytes, size_t len)
{
    char path[2 * FOLDER_PATH_MAX];
    FILE *out = fopen(folder_join(path, folder, name), "wb");
    cr_assert_not_null(out, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, len, out), len);
    cr_assert_eq(fclose(out), 0);
}

struct wf_model *folder_model(const char *config)
{
    char path[FOLDER_PATH_MAX];
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", config);
    cr_assert_eq(wf_checkpoint_model(path, NULL, &model, &error), WF_OK, "%s", error.text);
    return model;
}

struct plan {
    struct wf_st_tensor tensors[TENSORS_MAX];
    const char *values_of[TENSORS_MAX];
    char names[TENSORS_MAX][WF_NAME_MAX];
    uint64_t vectors[TENSORS_MAX];
    uint32_t count;
};

static uint32_t find(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        if (strcmp(plan->tensors[i].name, name) == 0) {
            return i;
        }
    }
    cr_assert_fail("no tensor %s to edit", name);
    return 0;
}

static void apply(struct plan *plan, const struct edit *edit)
{
    uint32_t i;
    switch (edit->kind) {
    case EDIT_NONE:
        return;
    case EDIT_DROP:
        i = find(plan, edit->name);
        plan->count--;
        memmove(&plan->tensors[i], &plan->tensors[i + 1],
                (plan->count - i) * sizeof plan->tensors[0]);
        memmove(&plan->values_of[i], &plan->values_of[i + 1],
                (plan->count - i) * sizeof plan->values_of[0]);
        return;
    case EDIT_RETYPE:
        plan->tensors[find(plan, edit->name)].dtype = edit->dtype;
        return;
    case EDIT_ADD:
        i = plan->count++;
        plan->vectors[i] = edit->rows;
        plan->tensors[i] = (struct wf_st_tensor){
            .name = edit->name, .dtype = edit->dtype, .ndim = 1, .shape = &plan->vectors[i]};
        plan->values_of[i] = edit->values_of != NULL ? edit->values_of : edit->name;
        return;
    case EDIT_RESHAPE:
        i = find(plan, edit->name);
        plan->vectors[i] = edit->rows;
        plan->tensors[i].ndim = 1;
        plan->tensors[i].shape = &plan->vectors[i];
        return;
    case EDIT_PREFIX_ALL:
        for (i = 0; i < plan->count; i++) {
            snprintf(plan->names[i], WF_NAME_MAX, "%s%.200s", edit->name, plan->tensors[i].name);
            plan->tensors[i].name = plan->names[i];
        }
        return;
    }
}

static void write_values(FILE *out, const char *name, const struct wf_st_tensor *tensor)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        elements *= tensor->shape[d];
    }
    size_t bytes = elements * wf_dtype_bytes(tensor->dtype);
    void *buffer = calloc(1, bytes + 1);
    cr_assert_not_null(buffer);
    if (wf_known_values_supports(tensor->dtype)) {
        wf_known_values_fill(name, 0, elements, tensor->dtype, buffer);
    }
    cr_assert_eq(fwrite(buffer, 1, bytes, out), bytes);
    free(buffer);
}

void folder_write_weights(const char *folder, const char *file, const struct wf_model *model,
                          uint32_t first, uint32_t end, const struct edit *edits,
                          uint32_t edit_count)
{
    struct plan *plan = calloc(1, sizeof *plan);
    char path[2 * FOLDER_PATH_MAX];
    uint8_t *header;
    size_t len;
    cr_assert(plan != NULL && end - first + edit_count <= TENSORS_MAX);
    for (uint32_t i = first; i < end; i++) {
        const struct wf_param *param = &model->params[i];
        plan->values_of[plan->count] = param->name;
        plan->tensors[plan->count++] = (struct wf_st_tensor){
            .name = param->name, .dtype = param->dtype, .ndim = param->ndim, .shape = param->shape};
    }
    for (uint32_t i = 0; i < edit_count; i++) {
        apply(plan, &edits[i]);
    }
    cr_assert_eq(wf_st_format(plan->tensors, plan->count, NULL, &header, &len, NULL), WF_OK);
    FILE *out = fopen(folder_join(path, folder, file), "wb");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(header, 1, len, out), len);
    for (uint32_t i = 0; i < plan->count; i++) {
        write_values(out, plan->values_of[i], &plan->tensors[i]);
    }
    cr_assert_eq(fclose(out), 0);
    free(header);
    free(plan);
}
