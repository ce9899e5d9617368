/* golden.h - reads fixtures of tests/golden, for tests of this folder. */
#ifndef WEFT_TESTS_MODELS_GOLDEN_H
#define WEFT_TESTS_MODELS_GOLDEN_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/config.h"
#include "models/json.h"

enum { GOLDEN_BYTES_MAX = 1 << 20 };

/* The whole file, NUL-terminated; free it. */
static inline char *golden_text(const char *path, size_t *len_out)
{
    FILE *file = fopen(path, "rb");
    cr_assert(file, "cannot open %s", path);
    char *text = malloc(GOLDEN_BYTES_MAX + 1);
    *len_out = fread(text, 1, GOLDEN_BYTES_MAX, file);
    text[*len_out] = '\0';
    fclose(file);
    return text;
}

static inline struct json_object *golden_json(const char *path)
{
    size_t len = 0;
    char *text = golden_text(path, &len);
    struct json_object *value = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_json_parse(text, len, 0, &value, &error), WF_OK, "%s: %s", path, error.text);
    free(text);
    return value;
}

static inline struct wf_model *golden_model(const char *path)
{
    size_t len = 0;
    char *text = golden_text(path, &len);
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(text, len, NULL, &model, &error), WF_OK, "%s: %s", path,
                 error.text);
    free(text);
    return model;
}

static inline struct json_object *golden_get(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

static inline uint32_t golden_number(struct json_object *object, const char *key)
{
    return (uint32_t)json_object_get_int64(golden_get(object, key));
}

static inline uint32_t golden_at(struct json_object *array, size_t index)
{
    return (uint32_t)json_object_get_int64(json_object_array_get_idx(array, index));
}

#endif
