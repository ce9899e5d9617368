/* test_reader.c - the reader sees one version as one, and any mixture as torn. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/folder.h"
#include "tests/tools/live.h"
#include "tools/check/reader.h"

enum { RANKS = 2, TENSORS_MAX = 128 };

struct engine {
    char folder[FOLDER_PATH_MAX];
    struct fixture fixture;
    struct wf_checkpoint *checkpoint;
    struct live_rank live[RANKS];
    struct wf_verify *verify[RANKS];
    struct wf_verify_live tensors[RANKS][TENSORS_MAX];
    struct wf_reader_rank ranks[RANKS];
    struct wf_reader *reader;
    uint32_t tensor_count; /* over all ranks */
};

static struct engine *engine_open(const char *name, enum wf_dtype dtype, uint64_t steps)
{
    struct engine *engine = calloc(1, sizeof *engine);
    struct wf_error error = {0};
    fixture_open(&engine->fixture, name);
    folder_make(engine->folder);
    engine->checkpoint = live_checkpoint(&engine->fixture, engine->folder);
    for (uint32_t r = 0; r < RANKS; r++) {
        struct wf_verify_place place = live_place(&engine->fixture, r);
        live_rank_open(&engine->live[r], &engine->fixture, r, dtype, steps);
        cr_assert_eq(wf_verify_open(engine->checkpoint, engine->fixture.model, &place,
                                    &engine->verify[r], &error),
                     WF_OK, "%s", error.text);
        for (uint32_t t = 0; t < wf_verify_tensor_count(engine->verify[r]); t++) {
            cr_assert(live_lookup(&engine->live[r], wf_verify_tensor_name(engine->verify[r], t),
                                  &engine->tensors[r][t]));
            engine->tensor_count++;
        }
        engine->ranks[r] =
            (struct wf_reader_rank){engine->verify[r], engine->checkpoint, engine->tensors[r]};
    }
    cr_assert_eq(wf_reader_new(engine->ranks, RANKS, 7, &engine->reader, &error), WF_OK, "%s",
                 error.text);
    return engine;
}

static void engine_close(struct engine *engine)
{
    wf_reader_free(engine->reader);
    for (uint32_t r = 0; r < RANKS; r++) {
        wf_verify_free(engine->verify[r]);
        live_rank_close(&engine->live[r]);
    }
    wf_checkpoint_free(engine->checkpoint);
    folder_remove(engine->folder);
    fixture_close(&engine->fixture);
    free(engine);
}

/* A forward step that looks at every tensor of every rank. */
static struct wf_reader_seen forward(struct engine *engine)
{
    struct wf_reader_seen seen;
    wf_reader_begin(engine->reader);
    cr_assert_eq(wf_reader_sample(engine->reader, engine->tensor_count, NULL), WF_OK);
    wf_reader_end(engine->reader, &seen);
    return seen;
}

Test(reader, one_version_is_read_as_that_version)
{
    static const struct {
        enum wf_dtype dtype;
        uint64_t steps;
    } rows[] = {{WF_DTYPE_F32, 0},  {WF_DTYPE_F32, 5},   {WF_DTYPE_BF16, 1},
                {WF_DTYPE_F16, 63}, {WF_DTYPE_F32, 127}, {WF_DTYPE_F32, 130}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct engine *engine = engine_open("vllm-qwen3-tp2", rows[i].dtype, rows[i].steps);
        struct wf_reader_seen seen = forward(engine);
        uint64_t v = rows[i].steps % 128;
        cr_assert_not(seen.torn, "row %zu: rank %u %s", i, seen.rank, seen.tensor);
        cr_assert_eq(seen.positions, engine->tensor_count);
        cr_assert_eq(seen.versions[v / 64], 1ULL << (v % 64), "row %zu: %lx %lx", i,
                     (unsigned long)seen.versions[0], (unsigned long)seen.versions[1]);
        cr_assert_eq(seen.versions[1 - v / 64], 0);
        engine_close(engine);
    }
}

Test(reader, one_tensor_of_another_version_is_torn)
{
    struct engine *engine = engine_open("vllm-qwen3-tp2", WF_DTYPE_F32, 3);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t t = 0; t < engine->live[r].described.count; t++) {
            live_rank_step(&engine->live[r], &engine->fixture, t, 4);
            const char *name = engine->live[r].described.tensors[t].name;
            /* Padding tells nothing: a few steps until a draw hits a weight. */
            bool torn = false;
            for (int i = 0; i < 20 && !torn; i++) {
                torn = forward(engine).torn;
            }
            cr_assert(torn, "rank %u %s", r, name);
            live_rank_step(&engine->live[r], &engine->fixture, t, 3);
            cr_assert_not(forward(engine).torn, "rank %u %s, healed", r, name);
        }
    }
    cr_assert_geq(wf_reader_stats(engine->reader).torn_steps, engine->tensor_count);
    engine_close(engine);
}

Test(reader, one_rank_of_another_version_is_torn)
{
    struct engine *engine = engine_open("vllm-qwen3-tp8-tied-kvrep", WF_DTYPE_F32, 9);
    for (uint32_t t = 0; t < engine->live[1].described.count; t++) {
        live_rank_step(&engine->live[1], &engine->fixture, t, 10);
    }
    struct wf_reader_seen seen = forward(engine);
    cr_assert(seen.torn);
    cr_assert_eq(seen.rank, 1);
    engine_close(engine);
}

Test(reader, a_flip_in_the_middle_of_a_step_is_torn_and_between_steps_is_not)
{
    struct engine *engine = engine_open("vllm-qwen2-tp2-bias", WF_DTYPE_F32, 1);
    struct wf_reader_seen seen;
    cr_assert_not(forward(engine).torn);
    wf_reader_begin(engine->reader);
    cr_assert_eq(wf_reader_sample(engine->reader, 10, NULL), WF_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t t = 0; t < engine->live[r].described.count; t++) {
            live_rank_step(&engine->live[r], &engine->fixture, t, 2);
        }
    }
    cr_assert_eq(wf_reader_sample(engine->reader, 10, NULL), WF_OK);
    wf_reader_end(engine->reader, &seen);
    cr_assert(seen.torn);
    cr_assert_neq(seen.tensor[0], '\0');
    cr_assert_not(forward(engine).torn, "all of version 2 now");
    engine_close(engine);
}

Test(reader, a_value_of_no_version_is_torn)
{
    struct engine *engine = engine_open("vllm-qwen3-tp2", WF_DTYPE_F32, 0);
    uint64_t bytes;
    uint8_t *norm = live_memory(&engine->live[0], "model.norm.weight", &bytes);
    memset(norm, 0x7f, bytes);
    cr_assert(forward(engine).torn);
    engine_close(engine);
}

Test(reader, refuses_a_tensor_of_another_size)
{
    struct engine *engine = engine_open("vllm-qwen3-tp2", WF_DTYPE_F32, 0);
    struct wf_reader *reader = NULL;
    struct wf_error error;
    engine->tensors[1][2].bytes -= 4;
    cr_assert_eq(wf_reader_new(engine->ranks, RANKS, 1, &reader, &error), WF_MISMATCH);
    cr_assert_not_null(strstr(error.text, "rank 1"), "%s", error.text);
    engine_close(engine);
}
