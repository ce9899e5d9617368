/* Dumps of ranks: which folders are one, what is refused by name, and elements in any order. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "models/safetensors.h"
#include "runtime/splitmix.h"
#include "tools/files/dump.h"

enum { DATA = 1 << 15 };

static uint8_t data_at(uint64_t i)
{
    return (uint8_t)(i * 131 + (i >> 8) * 29);
}

/* A file with one tensor of DATA bytes, or of four. */
static void write_rank(const char *folder, const char *name, bool large)
{
    const uint64_t shape[] = {large ? DATA : 4};
    const struct wf_st_tensor tensor = {
        .name = "model.norm.weight", .dtype = WF_DTYPE_U8, .ndim = 1, .shape = shape};
    uint8_t *bytes = NULL;
    size_t len = 0;
    cr_assert_eq(wf_st_format(&tensor, 1, NULL, &bytes, &len, NULL), WF_OK);
    uint8_t *file = realloc(bytes, len + shape[0]);
    cr_assert_not_null(file);
    for (uint64_t i = 0; i < shape[0]; i++) {
        file[len + i] = data_at(i);
    }
    folder_write(folder, name, file, len + shape[0]);
    free(file);
}

#define CONFIG                                                                     \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"      \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":1," \
    "\"vocab_size\":256,\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":true}"

static const struct {
    const char *name, *recipe;
    const char *files[4];
    enum wf_status status;
    const char *says; /* of the refusal, else the SPEC */
} rows[] = {
    {"two ranks",
     "{\"engine\":\"vllm\",\"tp\":2,\"model\":" CONFIG "}",
     {"rank_00.safetensors", "rank_01.safetensors"},
     WF_OK,
     "vllm:tp=2"},
    {"other widths and files",
     "{\"model\":" CONFIG ",\"engine\":\"megatron\",\"tp\":2,\"names\":\"local\"}",
     {"rank_000.safetensors", "rank_01.safetensors", "rank_1.safetensors", "notes.txt"},
     WF_OK,
     "megatron:tp=2,names=local"},
    {"a path",
     "{\"engine\":\"hf\",\"model\":\"config.json\"}",
     {"rank_00.safetensors"},
     WF_OK,
     "hf"},
    {"no recipe", NULL, {"rank_00.safetensors"}, WF_NOT_FOUND, "recipe.json"},
    {"no engine", "{\"tp\":2,\"model\":" CONFIG "}", {0}, WF_INVALID, "engine"},
    {"no model", "{\"engine\":\"vllm\"}", {"rank_00.safetensors"}, WF_INVALID, "model"},
    {"a model that is not there",
     "{\"engine\":\"vllm\",\"model\":\"nowhere\"}",
     {"rank_00.safetensors"},
     WF_NOT_FOUND,
     "nowhere"},
    {"a key in a word",
     "{\"engine\":\"megatron\",\"order\":\"tp,pp=4\",\"model\":" CONFIG "}",
     {0},
     WF_INVALID,
     "order"},
    {"a fraction", "{\"engine\":\"vllm\",\"tp\":2.5,\"model\":" CONFIG "}", {0}, WF_INVALID, "2.5"},
    {"an unknown key",
     "{\"engine\":\"vllm\",\"pt\":2,\"model\":" CONFIG "}",
     {0},
     WF_INVALID,
     "pt"},
    {"a key twice",
     "{\"engine\":\"hf\",\"engine\":\"vllm\",\"model\":" CONFIG "}",
     {0},
     WF_INVALID,
     "same object"},
    {"a rank that is absent",
     "{\"engine\":\"vllm\",\"tp\":4,\"model\":" CONFIG "}",
     {"rank_00.safetensors", "rank_01.safetensors"},
     WF_NOT_FOUND,
     "rank_03"},
    {"a gap",
     "{\"engine\":\"vllm\",\"tp\":2,\"model\":" CONFIG "}",
     {"rank_00.safetensors", "rank_02.safetensors"},
     WF_NOT_FOUND,
     "rank_01"},
    {"a rank twice",
     "{\"engine\":\"vllm\",\"tp\":2,\"model\":" CONFIG "}",
     {"rank_00.safetensors", "rank_001.safetensors", "rank_01.safetensors"},
     WF_INVALID,
     "stale"},
};

Test(dump, folders)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char folder[FOLDER_PATH_MAX];
        struct wf_dump dump = {0};
        struct wf_error error = {0};
        folder_make(folder);
        folder_write(folder, "config.json", CONFIG, strlen(CONFIG));
        if (rows[i].recipe != NULL) {
            folder_write(folder, "recipe.json", rows[i].recipe, strlen(rows[i].recipe));
        }
        for (size_t f = 0; f < 4 && rows[i].files[f] != NULL; f++) {
            write_rank(folder, rows[i].files[f], false);
        }
        cr_expect_eq(wf_dump_open(folder, NULL, &dump, &error), rows[i].status, "%s: %s",
                     rows[i].name, error.text);
        const char *text = rows[i].status == WF_OK ? dump.spec : error.text;
        cr_expect_not_null(strstr(text, rows[i].says), "%s: %s", rows[i].name, text);
        if (rows[i].status == WF_OK) {
            cr_expect_eq(dump.rank_count, wf_recipe_world(&dump.recipe), "%s", rows[i].name);
            cr_expect_not_null(wf_dump_rank_find(&dump.ranks[0], "model.norm.weight"), "%s",
                               rows[i].name);
            cr_expect_null(wf_dump_rank_find(&dump.ranks[0], "model.norm"), "%s", rows[i].name);
        }
        wf_dump_close(&dump);
        folder_remove(folder);
    }
}

/* Strides of the shape whose dimension order[0] is the innermost, with `gap` elements behind it. */
static void strides_of(const uint64_t *shape, const uint32_t *order, uint32_t ndim, uint64_t gap,
                       int64_t *strides_out)
{
    int64_t step = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        strides_out[order[i]] = step;
        step = step * (int64_t)shape[order[i]] + (int64_t)gap;
    }
}

static void shuffle(uint32_t *order, uint32_t ndim, uint64_t *seed)
{
    for (uint32_t i = 0; i < ndim; i++) {
        order[i] = i;
    }
    for (uint32_t i = ndim; i-- > 1;) {
        uint32_t j = (uint32_t)(wf_splitmix64(seed) % (i + 1)), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* Byte of the data at which element `index`, counted in the order of `inner` (innermost first),
 * begins. */
static uint64_t byte_of(const struct wf_dump_tensor *tensor, const uint32_t *inner, uint64_t index,
                        uint64_t elem)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        at += index % tensor->shape[inner[i]] * (uint64_t)tensor->strides[inner[i]];
        index /= tensor->shape[inner[i]];
    }
    return at * elem;
}

static void check_read(const struct wf_dump_rank *rank, uint64_t seed)
{
    static const enum wf_dtype dtypes[] = {WF_DTYPE_U8, WF_DTYPE_BF16, WF_DTYPE_F32};
    uint64_t number = seed;
    struct wf_dump_tensor view = rank->tensors[0];
    uint64_t base = view.offset;
    view.dtype = dtypes[wf_splitmix64(&seed) % 3];
    view.ndim = (uint32_t)(wf_splitmix64(&seed) % 5);
    view.elements = 1;
    for (uint32_t d = 0; d < view.ndim; d++) {
        view.shape[d] = 1 + wf_splitmix64(&seed) % 7;
        view.elements *= view.shape[d];
    }
    uint32_t own[WF_SHAPE_MAX], asked[WF_SHAPE_MAX];
    int64_t order[WF_SHAPE_MAX];
    shuffle(own, view.ndim, &seed);
    shuffle(asked, view.ndim, &seed);
    strides_of(view.shape, own, view.ndim, wf_splitmix64(&seed) % 3 == 0 ? 3 : 0, view.strides);
    strides_of(view.shape, asked, view.ndim, 0, order);
    if (view.ndim > 0 && wf_splitmix64(&seed) % 8 == 0) {
        view.strides[0] = 0; /* one element, shown again and again */
    }
    view.offset = base + 4 * (wf_splitmix64(&seed) % 16);
    uint64_t first = wf_splitmix64(&seed) % (view.elements + 1), elem = wf_dtype_bytes(view.dtype),
             count = wf_splitmix64(&seed) % (view.elements - first + 1);
    uint8_t *got = malloc(count * elem + 1);
    struct wf_error error = {0};
    cr_assert_eq(wf_dump_rank_read(rank, &view, order, first, count, got, &error), WF_OK,
                 "seed %llu: %s", (unsigned long long)number, error.text);
    for (uint64_t i = 0; i < count * elem; i++) {
        uint64_t at = byte_of(&view, asked, first + i / elem, elem) + i % elem + view.offset - base;
        cr_assert_eq(got[i], data_at(at), "seed %llu: byte %llu of element %llu",
                     (unsigned long long)number, (unsigned long long)(i % elem),
                     (unsigned long long)(first + i / elem));
    }
    free(got);
}

Test(dump, reads_in_any_order)
{
    enum { SEEDS = 4000 };
    char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX];
    struct wf_dump_rank rank = {0};
    struct wf_error error = {0};
    folder_make(folder);
    write_rank(folder, "rank_00.safetensors", true);
    folder_join(path, folder, "rank_00.safetensors");
    cr_assert_eq(wf_dump_rank_add(&rank, path, NULL, &error), WF_OK, "%s", error.text);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        check_read(&rank, seed);
    }
    /* 128 x 256 bytes turned: runs of columns far apart and near. */
    struct wf_dump_tensor turned = rank.tensors[0];
    turned.ndim = 2;
    turned.shape[0] = 256;
    turned.shape[1] = 128;
    turned.strides[0] = 1;
    turned.strides[1] = 256;
    uint8_t *got = malloc(DATA);
    cr_assert_eq(wf_dump_rank_read(&rank, &turned, NULL, 0, DATA, got, &error), WF_OK);
    for (uint64_t i = 0; i < DATA; i++) {
        cr_assert_eq(got[i], data_at(i / 128 + i % 128 * 256), "element %llu",
                     (unsigned long long)i);
    }
    const int64_t gaps[] = {129, 1};
    cr_expect_eq(wf_dump_rank_read(&rank, &turned, gaps, 0, DATA, got, &error), WF_INVALID);
    cr_assert_eq(truncate(path, 1024), 0); /* while it is open */
    cr_expect_eq(wf_dump_rank_read(&rank, &turned, NULL, 0, DATA, got, &error), WF_IO);
    cr_expect_not_null(strstr(error.text, "rank_00.safetensors"), "%s", error.text);
    free(got);
    wf_dump_rank_fini(&rank);
    folder_remove(folder);
}
