/* bench_compare.c - two dumps compared, beside reading the same files; and the memory that it
 * takes.
 *
 * The dumps are sparse files of a 14 B model, 29.5 GB a side: reading them costs the processor what
 * reading cached files does, without a disk of that size. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/safetensors.h"
#include "tools/bench/bench.h"
#include "tools/compare/compare.h"
#include "tools/files/io.h"

enum { READ_BYTES = 1 << 20, PATH_BYTES = 400, FILES_MAX = 8, PAIRS = 3 };

/* Qwen3-14B. */
static const char config[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 5120, \"num_hidden_layers\": 40, "
    "\"vocab_size\": 151936, \"num_attention_heads\": 40, \"num_key_value_heads\": 8, "
    "\"head_dim\": 128, \"intermediate_size\": 17408, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

/* One side of the comparison. */
static const struct {
    const char *engine;
    uint32_t tp;
} sides[WF_SIDES] = {{"megatron", 4}, {"vllm", 2}};

struct dumps {
    char place[PATH_BYTES / 4];
    char paths[WF_SIDES][PATH_BYTES / 2];
    uint64_t bytes; /* of both sides' tensors */
    struct wf_model *model;
    uint8_t *block;
};

static enum wf_status write_rank(struct dumps *d, const char *path, const struct wf_layout *layout,
                                 struct wf_error *error)
{
    struct wf_st_tensor *tensors = calloc((size_t)layout->tensor_count + 1, sizeof *tensors);
    uint8_t *header = NULL;
    size_t len = 0;
    uint32_t count = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; tensors != NULL && i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        if (tensor->kind == WF_TENSOR_WEIGHTS && tensor->bytes > 0) {
            tensors[count++] = (struct wf_st_tensor){.name = tensor->name,
                                                     .dtype = tensor->dtype,
                                                     .ndim = tensor->ndim,
                                                     .shape = tensor->shape};
            bytes += tensor->bytes;
        }
    }
    enum wf_status status = tensors != NULL
                                ? wf_st_format(tensors, count, NULL, &header, &len, error)
                                : wf_error_set(error, WF_NO_MEMORY, "no memory for a header");
    if (status == WF_OK) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        bool good = fd >= 0 && write(fd, header, len) == (ssize_t)len &&
                    ftruncate(fd, (off_t)(len + bytes)) == 0;
        status = good ? WF_OK : wf_error_set(error, WF_IO, "%s cannot be written", path);
        d->bytes += bytes;
        if (fd >= 0) {
            close(fd);
        }
    }
    free(header);
    free(tensors);
    return status;
}

static enum wf_status write_side(struct dumps *d, int side, struct wf_error *error)
{
    char spec[64], path[PATH_BYTES];
    struct wf_recipe recipe;
    char place[sizeof d->place]; /* gcc 12 takes two arrays of one object for one that overlaps */
    memcpy(place, d->place, sizeof place);
    snprintf(d->paths[side], sizeof d->paths[side], "%s/%s", place, sides[side].engine);
    snprintf(spec, sizeof spec, "%s:tp=%u", sides[side].engine, sides[side].tp);
    enum wf_status status = wf_folder_make(d->paths[side], 0700, error);
    status = status == WF_OK ? wf_recipe_parse(spec, d->model, &recipe, error) : status;
    for (uint32_t r = 0; r < sides[side].tp && status == WF_OK; r++) {
        struct wf_layout *layout = NULL;
        snprintf(path, sizeof path, "%s/rank_%02u.safetensors", d->paths[side], r);
        status = wf_layout_derive(d->model, &recipe, r, &layout, error);
        status = status == WF_OK ? write_rank(d, path, layout, error) : status;
        wf_layout_free(layout);
    }
    if (status == WF_OK) {
        snprintf(path, sizeof path, "%s/recipe.json", d->paths[side]);
        FILE *out = fopen(path, "we");
        bool good = out != NULL && fprintf(out, "{\"engine\": \"%s\", \"tp\": %u, \"model\": %s}\n",
                                           sides[side].engine, sides[side].tp, config) > 0;
        good = out != NULL && fclose(out) == 0 && good;
        status = good ? WF_OK : wf_error_set(error, WF_IO, "%s cannot be written", path);
    }
    return status;
}

static double measure_compare(void *context)
{
    struct dumps *d = context;
    const struct wf_compare_options options = {.max_layers = WF_NONE};
    struct wf_compare compare;
    uint64_t start_ns = wf_bench_now_ns();
    enum wf_status status =
        wf_compare_run(d->paths[WF_A], d->paths[WF_B], &options, &compare, NULL);
    double rate = (double)d->bytes / (double)(wf_bench_now_ns() - start_ns);
    bool good =
        status == WF_OK && compare.ok && compare.elements * 2 * WF_SIDES >= d->bytes / 100 * 99;
    wf_compare_fini(&compare);
    return good ? rate : -1;
}

static bool read_file(struct dumps *d, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? 1 : -1;
    while (got > 0) {
        got = read(fd, d->block, READ_BYTES);
    }
    if (fd >= 0) {
        close(fd);
    }
    return got == 0;
}

static double read_both(void *context)
{
    struct dumps *d = context;
    char path[PATH_BYTES];
    bool good = true;
    uint64_t start_ns = wf_bench_now_ns();
    for (int s = 0; s < WF_SIDES; s++) {
        for (uint32_t r = 0; r < sides[s].tp && good; r++) {
            snprintf(path, sizeof path, "%s/rank_%02u.safetensors", d->paths[s], r);
            good = read_file(d, path);
        }
    }
    double rate = (double)d->bytes / (double)(wf_bench_now_ns() - start_ns);
    return good ? rate : -1;
}

/* The most that this process ever had in memory, in MB. */
static double peak_memory(void *context)
{
    (void)context;
    char line[256];
    long kilobytes = -1;
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kilobytes = strtol(line + 6, NULL, 10);
        }
    }
    if (status != NULL) {
        fclose(status);
    }
    return kilobytes < 0 ? -1 : (double)kilobytes * 1024e-6;
}

static enum wf_status prepare(struct dumps *d, struct wf_error *error)
{
    const char *base = getenv("TMPDIR");
    enum wf_status status = wf_model_parse(config, sizeof config - 1, NULL, &d->model, error);
    d->block = malloc(READ_BYTES);
    if (status == WF_OK && d->block == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a window");
    }
    if (status != WF_OK) {
        return status;
    }
    snprintf(d->place, sizeof d->place, "%.80s/weft-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(d->place) == NULL) {
        d->place[0] = '\0';
        return wf_error_set(error, WF_IO, "no folder can be made in %s; set TMPDIR",
                            base != NULL ? base : "/tmp");
    }
    for (int s = 0; s < WF_SIDES && status == WF_OK; s++) {
        status = write_side(d, s, error);
    }
    return status;
}

enum wf_status wf_bench_compare(struct wf_bench *bench, struct wf_error *error)
{
    static const struct wf_bench_case cases[] = {
        {.name = "compare/dumps",
         .params = "bytes=59G,files=sparse,a=megatron:tp=4,b=vllm:tp=2,threads=1",
         .unit = "GB/s",
         .pairs = PAIRS,
         .measure = measure_compare,
         .limit_how = "read of the same files, 1 MiB at a time",
         .limit = read_both},
        {.name = "compare/memory",
         .params = "bytes=59G",
         .unit = "MB",
         .lower_is_better = true,
         .pairs = 1,
         .measure = peak_memory},
    };
    struct dumps dumps = {0};
    enum wf_status status = prepare(&dumps, error);
    for (size_t i = 0; status == WF_OK && i < sizeof cases / sizeof cases[0]; i++) {
        status = wf_bench_case(bench, &cases[i], &dumps, error);
    }
    if (dumps.place[0] != '\0') {
        wf_folder_remove(dumps.place);
    }
    free(dumps.block);
    wf_model_free(dumps.model);
    return status;
}
