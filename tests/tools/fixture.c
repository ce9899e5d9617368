/* fixture.c - reads the executed layouts of tests/golden/real. */
#include "tests/tools/fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/json.h"
#include "tools/files/io.h"

enum { FILE_MAX = 1 << 20 };

static char *read_text(const struct fixture *fixture, const char *name)
{
    char path[256], *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    cr_assert_eq(wf_file_read_all(AT_FDCWD, path, FILE_MAX, &text, &len, NULL), WF_OK, "%s", path);
    return text;
}

static void read_case(struct fixture *fixture)
{
    char *text = read_text(fixture, "case.json");
    struct json_object *root, *config, *parallel;
    cr_assert_eq(wf_json_parse(text, strlen(text), WF_JSON_PYTHON, &root, NULL), WF_OK);
    cr_assert(json_object_object_get_ex(root, "hf_config", &config));
    cr_assert(json_object_object_get_ex(root, "parallel", &parallel));
    const char *config_text = json_object_to_json_string(config);
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config_text, strlen(config_text), NULL, &fixture->model, &error),
                 WF_OK, "%s: %s", fixture->folder, error.text);
    uint64_t tp, pp;
    cr_assert_eq(wf_json_get_u64(parallel, "tp", 1, 64, &tp, NULL), WF_OK);
    cr_assert_eq(wf_json_get_u64(parallel, "pp", 1, 64, &pp, NULL), WF_OK);
    fixture->tp = (uint32_t)tp;
    fixture->pp = (uint32_t)pp;
    fixture->sglang = strstr(fixture->folder, "/sglang-") != NULL;
    fixture->ep = 1;
    for (const char *ep = fixture->folder; (ep = strstr(ep, "ep")) != NULL; ep += 2) {
        unsigned size = 0; /* of "tp4ep4"; not that of "deepseek" */
        fixture->ep = sscanf(ep, "ep%u", &size) == 1 ? size : fixture->ep;
    }
    json_object_put(root);
    free(text);
}

static void read_params(struct fixture *fixture)
{
    char *text = read_text(fixture, "params.tsv"), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        unsigned number;
        char name[WF_NAME_MAX];
        if (sscanf(line, "%u\t%255s", &number, name) == 2) {
            cr_assert_lt(number, 256);
            fixture->params[number] = wf_model_find(fixture->model, name, strlen(name));
            cr_assert_neq(fixture->params[number], UINT32_MAX, "%s: %s", fixture->folder, name);
        }
    }
    free(text);
}

void fixture_open(struct fixture *fixture, const char *name)
{
    memset(fixture, 0, sizeof *fixture);
    snprintf(fixture->folder, sizeof fixture->folder, "tests/golden/real/%s", name);
    read_case(fixture);
    read_params(fixture);
}

void fixture_close(struct fixture *fixture)
{
    wf_model_free(fixture->model);
}

static uint64_t count_elements(const char *shape)
{
    uint64_t elements = 1;
    for (char *end; *shape != '\0'; shape = *end == 'x' ? end + 1 : end) {
        elements *= strtoull(shape, &end, 10);
    }
    return elements;
}

/* p:s+n or p:s+n*k/st or z+n, parted by commas. */
static void read_runs(const struct fixture *fixture, char *runs, struct fixture_tensor *tensor)
{
    uint64_t at = 0;
    char *save = NULL;
    for (char *run = strtok_r(runs, ",", &save); run != NULL; run = strtok_r(NULL, ",", &save)) {
        uint64_t param = 0, first = 0, count = 0, times = 1, stride = 0;
        bool zero = sscanf(run, "z+%" SCNu64, &count) == 1;
        cr_assert(zero || sscanf(run, "%" SCNu64 ":%" SCNu64 "+%" SCNu64 "*%" SCNu64 "/%" SCNu64,
                                 &param, &first, &count, &times, &stride) >= 3,
                  "%s", run);
        for (uint64_t k = 0; k < times; k++) {
            for (uint64_t i = 0; i < count; i++) {
                cr_assert_lt(at, tensor->elements);
                tensor->from[at++] = (struct fixture_element){
                    zero ? FIXTURE_ZERO : fixture->params[param], first + k * stride + i};
            }
        }
    }
    cr_assert_eq(at, tensor->elements, "%s", tensor->name);
}

void fixture_rank_open(const struct fixture *fixture, uint32_t rank, struct fixture_rank *out)
{
    char name[32], *save = NULL;
    snprintf(name, sizeof name, "rank_%02u.tsv", rank);
    char *text = read_text(fixture, name);
    memset(out, 0, sizeof *out);
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *fields = NULL;
        if (line[0] == '#' || strncmp(line, "alias\t", 6) == 0 ||
            strncmp(line, "buffer:", 7) == 0) { /* derived, and not read from a checkpoint */
            continue;
        }
        struct fixture_tensor *tensor = &out->tensors[out->count++];
        snprintf(tensor->name, sizeof tensor->name, "%s", strtok_r(line, "\t", &fields));
        strtok_r(NULL, "\t", &fields);
        tensor->elements = count_elements(strtok_r(NULL, "\t", &fields));
        tensor->from = calloc(tensor->elements, sizeof *tensor->from);
        read_runs(fixture, strtok_r(NULL, "\t", &fields), tensor);
    }
    free(text);
}

void fixture_rank_close(struct fixture_rank *rank)
{
    for (uint32_t i = 0; i < rank->count; i++) {
        free(rank->tensors[i].from);
    }
}

struct fixture_tensor *fixture_find(struct fixture_rank *rank, const char *name)
{
    for (uint32_t i = 0; i < rank->count; i++) {
        if (strcmp(rank->tensors[i].name, name) == 0) {
            return &rank->tensors[i];
        }
    }
    return NULL;
}
