/* test_verify.c - the element check against layouts that vLLM produced, and against every fault. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/fixture.h"
#include "tests/tools/folder.h"
#include "tests/tools/live.h"
#include "tools/check/step.h"
#include "tools/check/verify.h"

static const char *const cases[] = {
    "vllm-llama-tp1",
    "vllm-llama-tp2pp2-tied",
    "vllm-qwen2-tp2-bias",
    "vllm-qwen3-tp2",
    "vllm-qwen3-tp8-tied-kvrep",
    "vllm-qwen3moe-tp4",
    "vllm-qwen3next-tp2",
    "vllm-deepseekv3-tp2",
    "vllm-deepseekv3-tp2ep2-roundrobin",
    "vllm-qwen3moe-ep4-uneven",
    "vllm-glm4moe-tp4",
    "sglang-qwen3-tp2",
    "sglang-qwen3moe-tp4",
    "sglang-qwen3moe-tp4ep4",
    "sglang-qwen3next-tp2",
    "vllm-gemma3-tp2-tied",
    "sglang-gemma3-tp2-tied",
    "sglang-deepseekv3-tp2",
    "sglang-llama-tp2pp2-tied",
    "sglang-qwen3-tp2pp2-tied",
    "vllm-qwen3vl-tp2-tied",
    "vllm-qwen3vl-tp2-visiondata",
    "vllm-qwen3vlmoe-tp4",
    "sglang-qwen3vlmoe-tp4",
    "vllm-gptoss-bf16-tp2",
    "sglang-gptoss-bf16-tp2",
    "sglang-gptoss-bf16-tp4-kvrep",
    "vllm-mixtral-tp2",
    "vllm-qwen35-tp2",
    "vllm-qwen35moe-tp2-perexpert",
    "sglang-qwen35-tp2",
    "sglang-qwen35moe-tp2",
    "vllm-deepseekv32-tp2",
    "sglang-deepseekv32-tp2",
    "sglang-glm4moe-tp2",
    "sglang-deepseekv3-tp2-fusedshared",
    "vllm-glm4moelite-tp2",
    "sglang-glm4moelite-tp2",
};
#define CASES (sizeof cases / sizeof cases[0])

static struct wf_verify *open_rank(const struct fixture *fixture,
                                   const struct wf_checkpoint *checkpoint, uint32_t rank)
{
    struct wf_verify *verify = NULL;
    struct wf_error error = {0};
    struct wf_verify_place place = live_place(fixture, rank);
    cr_assert_eq(wf_verify_open(checkpoint, fixture->model, &place, &verify, &error), WF_OK, "%s",
                 error.text);
    return verify;
}

Test(verify, expects_what_vllm_held)
{
    for (size_t c = 0; c < CASES; c++) {
        char folder[FOLDER_PATH_MAX];
        struct fixture fixture;
        fixture_open(&fixture, cases[c]);
        folder_make(folder);
        struct wf_checkpoint *checkpoint = live_checkpoint(&fixture, folder);
        for (uint32_t rank = 0; rank < fixture.tp * fixture.pp; rank++) {
            struct fixture_rank held;
            struct wf_verify *verify = open_rank(&fixture, checkpoint, rank);
            fixture_rank_open(&fixture, rank, &held);
            uint32_t derived = 0;
            for (uint32_t t = 0; t < wf_verify_tensor_count(verify); t++) {
                const char *name = wf_verify_tensor_name(verify, t);
                if (wf_verify_is_made(verify, t)) { /* the fixture does not say what it holds */
                    derived++;
                    continue;
                }
                struct fixture_tensor *tensor = fixture_find(&held, name);
                cr_assert_not_null(tensor, "%s rank %u: %s", cases[c], rank, name);
                cr_assert_eq(wf_verify_tensor_elements(verify, t), tensor->elements, "%s", name);
                for (uint64_t i = 0; i < tensor->elements; i++) {
                    struct fixture_element at = {FIXTURE_ZERO, tensor->from[i].flat};
                    if (wf_verify_locate(verify, t, i, &at.param, &at.flat)) {
                        cr_assert_eq(at.flat, tensor->from[i].flat, "%s %s", cases[c], name);
                    }
                    cr_assert_eq(at.param, tensor->from[i].param, "%s %s", cases[c], name);
                }
            }
            cr_assert_eq(wf_verify_tensor_count(verify), held.count + derived, "%s rank %u",
                         cases[c], rank);
            fixture_rank_close(&held);
            wf_verify_free(verify);
        }
        wf_checkpoint_free(checkpoint);
        folder_remove(folder);
        fixture_close(&fixture);
    }
}

Test(verify, finds_nothing_wrong_in_a_correct_rank_of_any_version_and_dtype)
{
    static const enum wf_dtype dtypes[] = {WF_DTYPE_F32, WF_DTYPE_BF16, WF_DTYPE_F16};
    for (size_t c = 0; c < CASES; c++) {
        char folder[FOLDER_PATH_MAX];
        struct fixture fixture;
        fixture_open(&fixture, cases[c]);
        folder_make(folder);
        struct wf_checkpoint *checkpoint = live_checkpoint(&fixture, folder);
        for (uint32_t rank = 0; rank < fixture.tp * fixture.pp; rank++) {
            struct live_rank live;
            struct wf_verify_result result = {0};
            struct wf_error error = {0};
            uint64_t elements = 0, steps = c + rank;
            struct wf_verify *verify = open_rank(&fixture, checkpoint, rank);
            live_rank_open(&live, &fixture, rank, dtypes[(c + rank) % 3], steps);
            for (uint32_t t = 0; t < wf_verify_tensor_count(verify); t++) {
                elements += wf_verify_tensor_elements(verify, t);
            }
            cr_assert_eq(wf_verify_rank(verify, steps, live_lookup, &live, &result, &error), WF_OK,
                         "%s: %s", cases[c], error.text);
            cr_assert_eq(result.elements_wrong, 0, "%s rank %u: %s [%d]", cases[c], rank,
                         result.first_wrong.tensor, (int)result.first_wrong.index);
            cr_assert_eq(result.elements_checked, elements);
            live_rank_close(&live);
            wf_verify_free(verify);
        }
        wf_checkpoint_free(checkpoint);
        folder_remove(folder);
        fixture_close(&fixture);
    }
}

/* --- faults planted in one rank of vllm-qwen3-tp2 ------------------------------------------------
 */

#define LAYER "model.layers.1."
enum { BYTES = 4 }; /* of an element of the fixture */

static void flip_bit(uint8_t *memory, uint64_t bytes)
{
    memory[bytes / 2] ^= 1;
}

static void swap_halves(uint8_t *memory, uint64_t bytes)
{
    uint8_t *half = malloc(bytes / 2);
    memcpy(half, memory, bytes / 2);
    memmove(memory, memory + bytes / 2, bytes / 2);
    memcpy(memory + bytes / 2, half, bytes / 2);
    free(half);
}

static void shift_row(uint8_t *memory, uint64_t bytes)
{
    memmove(memory, memory + 64 * BYTES, bytes - 64 * BYTES);
}

static void swap_two(uint8_t *memory, uint64_t bytes)
{
    uint32_t *at = (uint32_t *)(void *)memory, first = at[0];
    (void)bytes;
    at[0] = at[1];
    at[1] = first;
}

static void write_last(uint8_t *memory, uint64_t bytes)
{
    memory[bytes - 1] = 1;
}

static void clear(uint8_t *memory, uint64_t bytes)
{
    memset(memory, 0, bytes);
}

Test(verify, every_fault_is_found_and_named)
{
    static const struct {
        const char *name, *tensor;
        void (*plant)(uint8_t *memory, uint64_t bytes);
        uint64_t least_wrong;
        int64_t first; /* index of the first wrong element; -1: any */
    } faults[] = {
        {"one bit", LAYER "mlp.down_proj.weight", flip_bit, 1, -1},
        {"gate and up swapped", LAYER "mlp.gate_up_proj.weight", swap_halves, 6000, 0},
        {"off by one row", LAYER "self_attn.qkv_proj.weight", shift_row, 10000, 0},
        {"two elements swapped", LAYER "self_attn.o_proj.weight", swap_two, 2, 0},
        {"padding not zero", "lm_head.weight", write_last, 1, 64 * 64 - 1},
        {"never written", "model.norm.weight", clear, 64, 0},
        {"small tensor", LAYER "self_attn.q_norm.weight", flip_bit, 1, -1},
    };
    char folder[FOLDER_PATH_MAX];
    struct fixture fixture;
    fixture_open(&fixture, "vllm-qwen3-tp2");
    folder_make(folder);
    struct wf_checkpoint *checkpoint = live_checkpoint(&fixture, folder);
    struct wf_verify *verify = open_rank(&fixture, checkpoint, 1);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct live_rank live;
        struct wf_verify_result result = {0};
        uint64_t bytes = 0;
        live_rank_open(&live, &fixture, 1, WF_DTYPE_F32, 3);
        uint8_t *memory = live_memory(&live, faults[i].tensor, &bytes);
        cr_assert_not_null(memory, "%s", faults[i].name);
        faults[i].plant(memory, bytes);
        cr_assert_eq(wf_verify_rank(verify, 3, live_lookup, &live, &result, NULL), WF_OK);
        cr_assert_geq(result.elements_wrong, faults[i].least_wrong, "%s: %d", faults[i].name,
                      (int)result.elements_wrong);
        cr_assert_str_eq(result.first_wrong.tensor, faults[i].tensor, "%s", faults[i].name);
        if (faults[i].first >= 0) {
            cr_assert_eq(result.first_wrong.index, (uint64_t)faults[i].first, "%s", faults[i].name);
        }
        cr_assert_neq(result.first_wrong.expected, result.first_wrong.found);
        live_rank_close(&live);
    }
    wf_verify_free(verify);
    wf_checkpoint_free(checkpoint);
    folder_remove(folder);
    fixture_close(&fixture);
}

Test(verify, an_older_version_differs_everywhere_but_in_padding)
{
    char folder[FOLDER_PATH_MAX];
    struct fixture fixture;
    struct live_rank live;
    struct wf_verify_result result = {0};
    fixture_open(&fixture, "vllm-qwen3-tp2");
    folder_make(folder);
    struct wf_checkpoint *checkpoint = live_checkpoint(&fixture, folder);
    struct wf_verify *verify = open_rank(&fixture, checkpoint, 0);
    live_rank_open(&live, &fixture, 0, WF_DTYPE_F32, 4);
    cr_assert_eq(wf_verify_rank(verify, 5, live_lookup, &live, &result, NULL), WF_OK);
    cr_assert_eq(result.elements_wrong, result.elements_checked); /* rank 0 has no padding */
    live_rank_close(&live);
    wf_verify_free(verify);
    wf_checkpoint_free(checkpoint);
    folder_remove(folder);
    fixture_close(&fixture);
}

Test(verify, refusals)
{
    static const struct {
        const char *name;
        struct wf_verify_place place;
        const char *expected;
    } places[] = {
        {"heads do not divide",
         {.tp = 3, .tp_rank = 0, .pp = 1, .pp_rank = 0},
         "tp=3 does not divide"},
        {"rank out of range", {.tp = 2, .tp_rank = 2, .pp = 1, .pp_rank = 0}, "no such place"},
        {"no ranks", {.tp = 0, .tp_rank = 0, .pp = 1, .pp_rank = 0}, "no such place"},
        {"more stages than layers",
         {.tp = 1, .tp_rank = 0, .pp = 3, .pp_rank = 0},
         "no such place"},
    };
    char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX];
    struct fixture fixture;
    struct live_rank live;
    struct wf_error error = {0};
    struct wf_verify_result result = {0};
    struct wf_verify *verify = NULL;
    fixture_open(&fixture, "vllm-qwen3-tp2");
    folder_make(folder);
    struct wf_checkpoint *checkpoint = live_checkpoint(&fixture, folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        cr_assert_neq(wf_verify_open(checkpoint, fixture.model, &places[i].place, &verify, &error),
                      WF_OK, "%s", places[i].name);
        cr_assert_not_null(strstr(error.text, places[i].expected), "%s: %s", places[i].name,
                           error.text);
    }
    verify = open_rank(&fixture, checkpoint, 0);
    live_rank_open(&live, &fixture, 0, WF_DTYPE_F32, 0);
    live.described.tensors[3].elements--; /* another size */
    cr_assert_eq(wf_verify_rank(verify, 0, live_lookup, &live, &result, &error), WF_MISMATCH);
    live.described.tensors[3].elements++;
    live.described.tensors[2].name[0] = 'x'; /* a tensor that the rank has not */
    cr_assert_eq(wf_verify_rank(verify, 0, live_lookup, &live, &result, &error), WF_MISMATCH);
    cr_assert_not_null(strstr(error.text, "no tensor"), "%s", error.text);
    live.described.tensors[2].name[0] = 'm';
    cr_assert_eq(truncate(folder_join(path, folder, "model.safetensors"), 9000), 0);
    cr_assert_eq(wf_verify_rank(verify, 0, live_lookup, &live, &result, &error), WF_IO);
    live_rank_close(&live);
    wf_verify_free(verify);
    wf_checkpoint_free(checkpoint);
    folder_remove(folder);
    fixture_close(&fixture);
}

Test(verify, stages_split_as_the_engines_split_them)
{
    /* Layers of each stage, from functions of vLLM and SGLang that were run. */
    static const struct {
        bool sglang;
        uint32_t pp;
        uint64_t layers, expected[8];
    } splits[] = {
        {false, 2, 61, {31, 30}},         {false, 3, 61, {20, 21, 20}},
        {false, 4, 61, {15, 15, 16, 15}}, {false, 8, 61, {7, 7, 8, 8, 8, 8, 8, 7}},
        {false, 5, 36, {7, 7, 7, 8, 7}},  {false, 7, 48, {7, 7, 7, 7, 7, 7, 6}},
        {false, 3, 80, {27, 27, 26}},     {false, 3, 28, {9, 10, 9}},
        {true, 4, 61, {15, 15, 15, 16}},  {true, 2, 3, {1, 2}},
    };
    struct wf_model *tiny = folder_model("tiny-qwen3.json");
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        struct wf_model *model = NULL;
        cr_assert_eq(wf_model_with_layers(tiny, splits[i].layers, &model, NULL), WF_OK);
        struct wf_checkpoint nothing = {.entry_count = model->param_count};
        nothing.entries = calloc(model->param_count, sizeof *nothing.entries);
        for (uint32_t p = 0; p < model->param_count; p++) {
            nothing.entries[p].dtype = WF_DTYPE_BF16;
        }
        for (uint32_t stage = 0; stage < splits[i].pp; stage++) {
            struct wf_verify *verify = NULL;
            struct wf_verify_place place = {
                .tp = 1, .pp = splits[i].pp, .pp_rank = stage, .sglang = splits[i].sglang};
            uint64_t layers = 0;
            cr_assert_eq(wf_verify_open(&nothing, model, &place, &verify, NULL), WF_OK);
            for (uint32_t t = 0; t < wf_verify_tensor_count(verify); t++) {
                layers += strstr(wf_verify_tensor_name(verify, t), "input_layernorm") != NULL;
            }
            cr_assert_eq(layers, splits[i].expected[stage], "%d layers, stage %u of %u",
                         (int)splits[i].layers, stage, splits[i].pp);
            wf_verify_free(verify);
        }
        free(nothing.entries);
        wf_model_free(model);
    }
    wf_model_free(tiny);
}
