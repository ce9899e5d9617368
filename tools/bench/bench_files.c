/* bench_files.c - a version as a folder: written durably, and read with proof, each beside the same
 * bytes as one plain file in the same folder. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/config.h"
#include "tools/bench/bench.h"
#include "tools/files/io.h"
#include "tools/files/stored.h"
#include "tools/files/version_folder.h"

enum { BLOCK_BYTES = 8 << 20, READ_BYTES = 1 << 20, PATH_BYTES = 400 };

/* 347 MB in bf16. */
static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_hidden_layers\": 8, "
    "\"vocab_size\": 32000, \"num_attention_heads\": 16, \"num_key_value_heads\": 8, "
    "\"head_dim\": 64, \"intermediate_size\": 3072, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

struct files {
    char place[PATH_BYTES / 2];
    struct wf_model *model;
    struct wf_layout *layout;
    struct wf_store *store;
    uint8_t *weights, *target;
    void **tensors;
    uint64_t step;
};

static double rate(const struct files *f, uint64_t start_ns)
{
    return (double)f->layout->bytes / (double)(wf_bench_now_ns() - start_ns);
}

static double measure_write(void *context)
{
    struct files *f = context;
    const struct wf_version_save save = {.place = f->place,
                                         .job = "bench",
                                         .version = {1, 1, ++f->step},
                                         .label = "",
                                         .config = config,
                                         .config_len = sizeof config - 1,
                                         .layout = f->layout,
                                         .tensors = f->tensors,
                                         .keep = 1};
    uint64_t start_ns = wf_bench_now_ns();
    return wf_version_write(&save, NULL) == WF_OK ? rate(f, start_ns) : -1;
}

static bool write_file(const struct files *f, int fd)
{
    for (uint64_t at = 0; at < f->layout->bytes;) {
        uint64_t left = f->layout->bytes - at;
        ssize_t put = write(fd, f->weights + at, left < BLOCK_BYTES ? left : BLOCK_BYTES);
        if (put <= 0) {
            return false;
        }
        at += (uint64_t)put;
    }
    return fsync(fd) == 0;
}

static void plain_path(const struct files *f, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/plain", f->place);
}

static double write_plain(void *context)
{
    struct files *f = context;
    char path[PATH_BYTES];
    plain_path(f, path);
    uint64_t start_ns = wf_bench_now_ns();
    unlink(path); /* as the version before is removed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write_file(f, fd);
    double result = rate(f, start_ns);
    if (fd >= 0) {
        close(fd);
    }
    return good ? result : -1;
}

/* One thread, as one reading job of a rank does it: to where the weights belong. */
static bool read_version(struct files *f, struct wf_stored *stored)
{
    struct wf_store_window window = {0};
    bool good = true;
    uint8_t *to = f->target;
    for (uint32_t i = 0; good && i < f->layout->tensor_count; i++) {
        for (uint64_t at = 0; good && at < f->layout->tensors[i].bytes;) {
            uint64_t left = f->layout->tensors[i].bytes - at;
            uint64_t len = left < READ_BYTES ? left : READ_BYTES;
            const uint8_t *bytes = NULL;
            good = f->store->ops->read(stored, &window, i, at, len, &bytes, NULL) == WF_OK;
            memcpy(to, good ? bytes : to, len);
            to += len;
            at += len;
        }
    }
    free(window.memory);
    return good;
}

static double measure_read(void *context)
{
    struct files *f = context;
    struct wf_stored *stored = NULL;
    const struct wf_store_wanted wanted = {
        .job = "bench", .version = {1, 1, f->step}, .layout = f->layout};
    uint64_t start_ns = wf_bench_now_ns();
    if (f->store->ops->open(f->store, &wanted, &stored, NULL) != WF_OK) {
        return -1;
    }
    bool good = read_version(f, stored);
    double result = rate(f, start_ns);
    f->store->ops->close(stored);
    return good ? result : -1;
}

static double read_plain(void *context)
{
    struct files *f = context;
    char path[PATH_BYTES];
    plain_path(f, path);
    uint64_t start_ns = wf_bench_now_ns();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && wf_file_pread(fd, f->target, f->layout->bytes, 0, NULL) == WF_OK;
    double result = rate(f, start_ns);
    if (fd >= 0) {
        close(fd);
    }
    return good ? result : -1;
}

static enum wf_status prepare(struct files *f, struct wf_error *error)
{
    const char *base = getenv("TMPDIR");
    struct wf_recipe recipe;
    enum wf_status status = wf_model_parse(config, sizeof config - 1, NULL, &f->model, error);
    status = status != WF_OK ? status : wf_recipe_parse("hf:", f->model, &recipe, error);
    status = status != WF_OK ? status : wf_layout_derive(f->model, &recipe, 0, &f->layout, error);
    if (status != WF_OK) {
        return status;
    }
    f->weights = malloc(f->layout->bytes);
    f->target = malloc(f->layout->bytes);
    f->tensors = calloc(f->layout->tensor_count, sizeof *f->tensors);
    if (f->weights == NULL || f->target == NULL || f->tensors == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "the benchmark needs 700 MB of memory");
    }
    memset(f->weights, 0x3c, f->layout->bytes);
    memset(f->target, 0x3c, f->layout->bytes);
    uint64_t at = 0;
    for (uint32_t i = 0; i < f->layout->tensor_count; i++) {
        f->tensors[i] = f->weights + at;
        at += f->layout->tensors[i].bytes;
    }
    snprintf(f->place, sizeof f->place, "%s/weft-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(f->place) == NULL) {
        f->place[0] = '\0';
        return wf_error_set(error, WF_IO, "no folder can be made in %s; set TMPDIR",
                            base != NULL ? base : "/tmp");
    }
    return wf_version_store_new(f->place, &f->store, error);
}

enum wf_status wf_bench_files(struct wf_bench *bench, struct wf_error *error)
{
    static const struct wf_bench_case cases[] = {
        {.name = "files/write",
         .params = "bytes=347M",
         .unit = "GB/s",
         .measure = measure_write,
         .limit_how = "write and fsync of one file of as many bytes",
         .limit = write_plain},
        {.name = "files/read",
         .params = "bytes=347M,cache=warm",
         .unit = "GB/s",
         .measure = measure_read,
         .limit_how = "pread of one file of as many bytes",
         .limit = read_plain},
    };
    struct files files = {0};
    enum wf_status status = prepare(&files, error);
    for (size_t i = 0; status == WF_OK && i < sizeof cases / sizeof cases[0]; i++) {
        status = wf_bench_case(bench, &cases[i], &files, error);
    }
    if (files.place[0] != '\0') {
        wf_folder_remove(files.place);
    }
    wf_version_store_free(files.store);
    free(files.tensors);
    free(files.weights);
    free(files.target);
    wf_layout_free(files.layout);
    wf_model_free(files.model);
    return status;
}
