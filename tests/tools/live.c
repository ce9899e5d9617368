/* live.c - a rank's memory as a correct engine would have it. */
#include "tests/tools/live.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "tests/tools/folder.h"
#include "tools/check/step.h"
#include "tools/files/known_values.h"

struct wf_checkpoint *live_checkpoint(const struct fixture *fixture, const char *folder)
{
    const struct wf_checkpoint_options options = {.extras_refuse = true};
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_error error = {0};
    folder_write_weights(folder, "model.safetensors", fixture->model, 0,
                         fixture->model->param_count, NULL, 0);
    cr_assert_eq(wf_checkpoint_open(folder, fixture->model, &options, &checkpoint, &error), WF_OK,
                 "%s", error.text);
    return checkpoint;
}

void live_rank_step(struct live_rank *live, const struct fixture *fixture, uint32_t t,
                    uint64_t steps)
{
    const struct fixture_tensor *tensor = &live->described.tensors[t];
    size_t bytes = wf_dtype_bytes(live->dtype);
    for (uint64_t i = 0; i < tensor->elements; i++) {
        const struct fixture_element *from = &tensor->from[i];
        uint32_t value = 0, cast = 0;
        if (from->param != FIXTURE_ZERO) {
            const struct wf_param *param = &fixture->model->params[from->param];
            wf_known_values_fill(param->name, from->flat, 1, param->dtype, &value);
            wf_step_apply(&value, param->dtype, 1, steps);
            wf_cast_for(param->dtype, live->dtype, true)(&cast, &value, 1);
        }
        memcpy(live->memory[t] + i * bytes, &cast, bytes);
    }
}

void live_rank_open(struct live_rank *live, const struct fixture *fixture, uint32_t rank,
                    enum wf_dtype dtype, uint64_t steps)
{
    memset(live, 0, sizeof *live);
    live->dtype = dtype;
    fixture_rank_open(fixture, rank, &live->described);
    for (uint32_t t = 0; t < live->described.count; t++) {
        live->memory[t] = calloc(live->described.tensors[t].elements, wf_dtype_bytes(dtype));
        live_rank_step(live, fixture, t, steps);
    }
}

void live_rank_close(struct live_rank *live)
{
    for (uint32_t t = 0; t < live->described.count; t++) {
        free(live->memory[t]);
    }
    for (uint32_t i = 0; i < live->derived_count; i++) {
        free(live->derived[i]);
    }
    fixture_rank_close(&live->described);
}

uint8_t *live_memory(struct live_rank *live, const char *name, uint64_t *bytes_out)
{
    struct fixture_tensor *tensor = fixture_find(&live->described, name);
    if (tensor == NULL) {
        return NULL;
    }
    *bytes_out = tensor->elements * wf_dtype_bytes(live->dtype);
    return live->memory[tensor - live->described.tensors];
}

/* "buffer:model.norm.gemma_weight" is model.norm.weight, plus 1. */
static uint8_t *plus_one(struct live_rank *live, const char *name, uint64_t *bytes_out)
{
    char weight[WF_NAME_MAX];
    size_t stem = strlen(name) - strlen("buffer:") - strlen("gemma_weight");
    snprintf(weight, sizeof weight, "%.*sweight", (int)stem, name + strlen("buffer:"));
    const uint8_t *from = live_memory(live, weight, bytes_out);
    if (from == NULL) {
        return NULL;
    }
    size_t each = wf_dtype_bytes(live->dtype);
    uint8_t *made = live->derived[live->derived_count++] = malloc(*bytes_out);
    for (uint64_t at = 0; at < *bytes_out; at += each) {
        float value;
        wf_cast_for(live->dtype, WF_DTYPE_F32, true)(&value, from + at, 1);
        value += 1;
        wf_cast_for(WF_DTYPE_F32, live->dtype, true)(made + at, &value, 1);
    }
    return made;
}

bool live_lookup(void *user, const char *name, struct wf_verify_live *live_out)
{
    struct live_rank *live = user;
    uint64_t bytes = 0;
    bool gemma = strncmp(name, "buffer:", strlen("buffer:")) == 0;
    uint8_t *address = gemma ? plus_one(live, name, &bytes) : live_memory(live, name, &bytes);
    *live_out = (struct wf_verify_live){.address = address, .dtype = live->dtype, .bytes = bytes};
    return address != NULL;
}

struct wf_verify_place live_place(const struct fixture *fixture, uint32_t rank)
{
    return (struct wf_verify_place){.tp = fixture->tp,
                                    .tp_rank = rank % fixture->tp,
                                    .pp = fixture->pp,
                                    .pp_rank = rank / fixture->tp,
                                    .ep = fixture->ep,
                                    .ep_rank = fixture->ep > 1 ? rank % fixture->tp : 0,
                                    .round_robin = fixture->round_robin,
                                    .vision_whole = fixture->vision_whole,
                                    .shared = fixture->shared_apart ? WF_VERIFY_SHARED_SEPARATE
                                                                    : WF_VERIFY_SHARED_AUTO,
                                    .sglang = fixture->sglang};
}
