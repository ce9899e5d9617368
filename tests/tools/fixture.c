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
    fixture->vision_whole = strstr(fixture->folder, "-visiondata") != NULL;
    fixture->round_robin = strstr(fixture->folder, "-roundrobin") != NULL;
    fixture->sglang = strstr(fixture->folder, "/sglang-") != NULL;
    fixture->ep = 1;
    for (const char *ep = fixture->folder; (ep = strstr(ep, "ep")) != NULL; ep += 2) {
        unsigned size = 0; /* of "tp4ep4"; not that of "deepseek" */
        fixture->ep = sscanf(ep, "ep%u", &size) == 1 ? size : fixture->ep;
    }
    fixture->shared_apart = strstr(text, "disable_shared_experts_fusion") != NULL;
    json_object_put(root);
    free(text);
}

/* Which parameters are in a tensor that holds all experts ("...mlp.experts.gate_up_proj_bias",
 * "4x64x128"). */
static void read_fused(const struct fixture *fixture, const char *name, const char *shape,
                       struct fixture_source *source)
{
    static const char *const matrices[] = {"gate_proj", "up_proj", "down_proj"};
    const char *leaf = strrchr(name, '.') + 1;
    bool bias = strstr(leaf, "_bias") != NULL,
         oss = strcmp(fixture->model->model_type, "gpt_oss") == 0;
    source->param = FIXTURE_FUSED;
    source->down = strncmp(leaf, "down_proj", strlen("down_proj")) == 0;
    source->alternates = oss && !source->down;
    source->transposed = !bias && (oss || strcmp(fixture->model->model_type, "qwen3_vl_moe") == 0);
    source->shape[2] = 1;
    cr_assert_geq(sscanf(shape, "%" SCNu64 "x%" SCNu64 "x%" SCNu64, &source->shape[0],
                         &source->shape[1], &source->shape[2]),
                  2);
    cr_assert_leq(source->shape[0], 8);
    for (uint64_t i = 0; i < 3 * source->shape[0]; i++) {
        char param[2 * WF_NAME_MAX];
        snprintf(param, sizeof param, "%.*s%" PRIu64 ".%s.%s", (int)(leaf - name), name, i / 3,
                 matrices[i % 3], bias ? "bias" : "weight");
        source->experts[i % 3][i / 3] = wf_model_find(fixture->model, param, strlen(param));
        cr_assert_neq(source->experts[i % 3][i / 3], UINT32_MAX, "%s: %s", fixture->folder, param);
    }
}

static void read_params(struct fixture *fixture)
{
    char *text = read_text(fixture, "params.tsv"), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        unsigned number;
        char name[WF_NAME_MAX], shape[64] = "";
        if (sscanf(line, "%u\t%255s\t%63s", &number, name, shape) >= 2) {
            cr_assert_lt(number, 1024);
            struct fixture_source *source = &fixture->sources[number];
            source->param = wf_model_find(fixture->model, name, strlen(name));
            if (source->param == UINT32_MAX) {
                read_fused(fixture, name, shape, source);
            }
        }
    }
    free(text);
}

/* An element of a tensor that holds all experts: [E, 2I, H] and [E, H, I], or each transposed. */
static struct fixture_element take_apart(const struct fixture_source *source, uint64_t flat)
{
    uint64_t rows = source->shape[1], columns = source->shape[2];
    uint64_t expert = flat / (rows * columns), row = flat / columns % rows, column = flat % columns;
    if (source->transposed) {
        uint64_t swap = row;
        row = column;
        column = swap;
        rows = source->shape[2];
        columns = source->shape[1];
    }
    uint64_t which = source->down ? 2 : source->alternates ? row % 2 : row / (rows / 2);
    row = source->down ? row : source->alternates ? row / 2 : row % (rows / 2);
    return (struct fixture_element){source->experts[which][expert], row * columns + column};
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
                const struct fixture_source *source = &fixture->sources[zero ? 0 : param];
                uint64_t flat = first + k * stride + i;
                tensor->from[at++] = zero ? (struct fixture_element){FIXTURE_ZERO, flat}
                                     : source->param == FIXTURE_FUSED
                                         ? take_apart(source, flat)
                                         : (struct fixture_element){source->param, flat};
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
