/* test_load.c - a trainer's weights out of a checkpoint: every element in its place, read once. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/piece.h"
#include "tests/tools/folder.h"
#include "tools/check/step.h"
#include "tools/files/known_values.h"
#include "tools/run/load.h"

/* Rows of 16 KiB that TP cuts by columns, and an embedding larger than a window. */
static const char wide[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"torch_dtype\": "
    "\"bfloat16\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 8192, \"vocab_size\": "
    "9000, \"tie_word_embeddings\": false, \"attention_bias\": false, \"rms_norm_eps\": 1e-06}";

static const struct {
    const char *config; /* NULL: the wide one */
    const char *spec;
    uint64_t step;
} rows[] = {
    {"tiny-qwen3.json", "megatron:tp=1", 0},
    {"tiny-qwen3.json", "megatron:tp=2,pp=2", 1},
    {"tiny-qwen3.json", "megatron:tp=4", 5},
    {"tiny-qwen3.json", "megatron:tp=2,vpp=2,pp=2", 3},
    {"tiny-qwen3.json", "megatron:tp=2,dtype=f32", 2},
    {"tiny-llama.json", "megatron:tp=3,pp=2", 130},
    {"tiny-qwen3.json", "vllm:tp=2", 4},
    {NULL, "megatron:tp=2", 1},
    {NULL, "megatron:tp=1,dtype=f32", 7},
};

struct loaded {
    char folder[FOLDER_PATH_MAX];
    struct wf_model *model;
    struct wf_recipe recipe;
    struct wf_checkpoint *checkpoint;
};

static void open_row(struct loaded *l, size_t row)
{
    struct wf_error error = {0};
    struct wf_checkpoint_options options = {.extras_refuse = true};
    char path[2 * FOLDER_PATH_MAX];
    folder_make(l->folder);
    if (rows[row].config != NULL) {
        l->model = folder_model(rows[row].config);
    } else {
        folder_write(l->folder, "config.json", wide, sizeof wide - 1);
        cr_assert_eq(wf_checkpoint_model(folder_join(path, l->folder, "config.json"), NULL,
                                         &l->model, &error),
                     WF_OK, "%s", error.text);
    }
    folder_write_weights(l->folder, "model.safetensors", l->model, 0, l->model->param_count, NULL,
                         0);
    cr_assert_eq(wf_checkpoint_open(l->folder, l->model, &options, &l->checkpoint, &error), WF_OK,
                 "%s", error.text);
    cr_assert_eq(wf_recipe_parse(rows[row].spec, l->model, &l->recipe, &error), WF_OK, "%s",
                 error.text);
}

static void close_row(struct loaded *l)
{
    wf_checkpoint_free(l->checkpoint);
    wf_model_free(l->model);
    folder_remove(l->folder);
}

/* Compares every element that the piece shows with the checkpoint's value, and clears it. */
static uint64_t check_piece(const struct loaded *l, const struct wf_layout *layout, uint32_t at,
                            uint8_t *tensor, uint64_t step)
{
    const struct wf_piece *piece = &layout->pieces[at];
    const struct wf_param *param = &l->model->params[piece->param];
    enum wf_dtype to = layout->tensors[piece->tensor].dtype;
    struct wf_nest nest = wf_layout_nest(layout, at);
    uint64_t total = wf_nest_elements(&nest), wrong = 0, bytes = wf_dtype_bytes(param->dtype);
    uint8_t *values = malloc(param->elements * bytes), *cast = calloc(param->elements, 4);
    wf_known_values_fill(param->name, 0, param->elements, param->dtype, values);
    wf_step_apply(values, param->dtype, param->elements, step);
    wf_cast_for(param->dtype, to, true)(cast, values, param->elements);
    for (uint64_t i = 0; i < total; i++) {
        uint64_t rest = i, flat = nest.param_first, offset = nest.tensor_offset;
        for (uint32_t a = nest.axis_count; a-- > 0; rest /= nest.axes[a].count) {
            uint64_t digit = rest % nest.axes[a].count;
            flat += digit * nest.axes[a].param_step;
            offset += digit * (uint64_t)nest.axes[a].tensor_step;
        }
        wrong += memcmp(tensor + offset, cast + flat * wf_dtype_bytes(to), wf_dtype_bytes(to)) != 0;
        memset(tensor + offset, 0, wf_dtype_bytes(to));
    }
    free(values);
    free(cast);
    return wrong;
}

static void check_rank(const struct loaded *l, size_t row, uint32_t rank)
{
    struct wf_layout *layout = NULL;
    struct wf_run_memory memory = {0};
    struct wf_error error = {0};
    cr_assert_eq(wf_layout_derive(l->model, &l->recipe, rank, &layout, &error), WF_OK);
    cr_assert_eq(wf_run_memory_new(layout, false, &memory, &error), WF_OK, "%s", error.text);
    memset(memory.region.address, 0xff, memory.region.len_bytes); /* a rank that loads again */
    cr_assert_eq(wf_run_load(l->checkpoint, l->model, layout, &memory, rows[row].step, &error),
                 WF_OK, "%s rank %u: %s", rows[row].spec, rank, error.text);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        if (layout->pieces[i].kind == WF_PIECE_DATA) {
            uint8_t *tensor = memory.tensors[layout->pieces[i].tensor].address;
            uint64_t wrong = check_piece(l, layout, i, tensor, rows[row].step);
            cr_expect_eq(wrong, 0, "%s rank %u: %llu elements of %s are wrong", rows[row].spec,
                         rank, (unsigned long long)wrong,
                         l->model->params[layout->pieces[i].param].name);
        }
    }
    uint64_t left = 0; /* all that was written is cleared again: the rest was to be zero */
    for (uint64_t i = 0; i < memory.region.len_bytes; i++) {
        left += ((uint8_t *)memory.region.address)[i] != 0;
    }
    cr_expect_eq(left, 0, "%s rank %u: padding is not zero", rows[row].spec, rank);
    wf_run_memory_fini(&memory);
    wf_layout_free(layout);
}

Test(load, places_every_element_of_every_rank)
{
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        struct loaded l;
        open_row(&l, row);
        for (uint32_t rank = 0; rank < wf_recipe_world(&l.recipe); rank++) {
            check_rank(&l, row, rank);
        }
        close_row(&l);
    }
}

/* Bytes that this process has read by system calls. */
static uint64_t bytes_read(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "rchar: %llu", &bytes), 1);
    fclose(file);
    return bytes;
}

Test(load, reads_what_it_needs_once)
{
    enum { ROW = 7, SLACK = 64 << 10 };
    struct loaded l;
    struct wf_layout *layout = NULL;
    struct wf_run_memory memory = {0};
    struct wf_error error = {0};
    open_row(&l, ROW);
    cr_assert_eq(wf_layout_derive(l.model, &l.recipe, 0, &layout, &error), WF_OK);
    cr_assert_eq(wf_run_memory_new(layout, false, &memory, &error), WF_OK, "%s", error.text);
    uint64_t before = bytes_read();
    cr_assert_eq(wf_run_load(l.checkpoint, l.model, layout, &memory, 1, &error), WF_OK);
    uint64_t read = bytes_read() - before;
    cr_expect_leq(read, memory.region.len_bytes + SLACK,
                  "read %llu bytes for %llu bytes of weights", (unsigned long long)read,
                  (unsigned long long)memory.region.len_bytes);
    cr_expect_geq(read, memory.region.len_bytes / 2);
    wf_run_memory_fini(&memory);
    wf_layout_free(layout);
    close_row(&l);
}
