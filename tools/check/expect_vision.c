/* expect_vision.c - Qwen's vision tower as the engines' loaders fill it.
 *
 * Sources of the rules (vLLM 0.33.0 models/qwen3_vl.py; SGLang 0.5.23 models/qwen3_vl.py,
 * layers/attention/vision.py): linears are cut as the text model's; qkv is a rank's rows of q, of k
 * and of v, which the checkpoint has one below the other; SGLang's table of positions is a
 * VocabParallelEmbedding. With the tower whole on every rank (data parallel) nothing is cut, and
 * that table is padded all the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/check/expect.h"

#define TOWER "model.visual."

/* A linear with a bias: a rank's rows of both. */
static enum wf_status add_rows(struct wf_expect_builder *b, const char *dir, const char *module)
{
    static const char *const whats[] = {"weight", "bias"};
    char name[WF_NAME_MAX];
    enum wf_status status = WF_OK;
    for (int i = 0; i < 2 && status == WF_OK; i++) {
        snprintf(name, sizeof name, "%s.%s", module, whats[i]);
        status = wf_expect_add_rows(b, dir, (const char *const[]){name, NULL}, name);
    }
    return status;
}

static enum wf_status add_whole(struct wf_expect_builder *b, const char *dir, const char *module)
{
    static const char *const whats[] = {"weight", "bias"};
    char name[WF_NAME_MAX];
    enum wf_status status = WF_OK;
    for (int i = 0; i < 2 && status == WF_OK; i++) {
        snprintf(name, sizeof name, "%s.%s", module, whats[i]);
        status = wf_expect_add_whole(b, dir, name, name);
    }
    return status;
}

/* A rank's heads of q, of k and of v. */
static enum wf_status add_qkv(struct wf_expect_builder *b, const char *dir, const char *what)
{
    char name[WF_NAME_MAX], live[WF_NAME_MAX];
    uint64_t heads = 0, all = wf_model_size(b->model, "vn");
    uint32_t param = 0, tensor = 0;
    snprintf(name, sizeof name, "attn.qkv.%s", what);
    snprintf(live, sizeof live, "attn.%s.%s", b->place.sglang ? "qkv_proj" : "qkv", what);
    enum wf_status status = wf_expect_need(b, dir, name, &param);
    if (status == WF_OK) {
        status = wf_expect_divide(b, all, "the vision tower's number of heads", &heads);
    }
    if (status == WF_OK) {
        status = wf_expect_add(b, dir, live, wf_expect_columns(b, param), &tensor);
    }
    for (uint64_t part = 0; part < 3 && status == WF_OK; part++) {
        uint64_t size = wf_expect_rows(b, param) / 3 / all; /* of a head */
        status = wf_expect_put(b, tensor, param, (part * all + b->place.tp_rank * heads) * size,
                               heads * size, 0);
    }
    return status;
}

static enum wf_status add_block(struct wf_expect_builder *b, const char *dir)
{
    enum wf_status status = add_whole(b, dir, "norm1");
    status = status == WF_OK ? add_whole(b, dir, "norm2") : status;
    status = status == WF_OK ? add_qkv(b, dir, "weight") : status;
    status = status == WF_OK ? add_qkv(b, dir, "bias") : status;
    status = status == WF_OK ? wf_expect_add_columns(b, dir, "attn.proj", "attn.proj") : status;
    status = status == WF_OK ? add_rows(b, dir, "mlp.linear_fc1") : status;
    return status == WF_OK ? wf_expect_add_columns(b, dir, "mlp.linear_fc2", "mlp.linear_fc2")
                           : status;
}

/* What merges patches, behind the tower and inside it. */
static enum wf_status add_merger(struct wf_expect_builder *b, const char *dir)
{
    enum wf_status status = add_whole(b, dir, "norm");
    status = status == WF_OK ? add_rows(b, dir, "linear_fc1") : status;
    return status == WF_OK ? wf_expect_add_columns(b, dir, "linear_fc2", "linear_fc2") : status;
}

static enum wf_status add_positions(struct wf_expect_builder *b)
{
    static const char name[] = "pos_embed.weight";
    uint32_t param = 0;
    if (!b->place.sglang) {
        return wf_expect_add_whole(b, TOWER, name, name);
    }
    enum wf_status status = wf_expect_need(b, TOWER, name, &param);
    return status == WF_OK
               ? wf_expect_add_vocabulary(b, param, TOWER, name, b->place.tp, b->place.tp_rank)
               : status;
}

enum wf_status wf_expect_vision(struct wf_expect_builder *b)
{
    const struct wf_verify_place place = b->place;
    char dir[WF_NAME_MAX];
    if (b->class->live_visual == NULL || wf_model_size(b->model, "vl") == 0) {
        return WF_OK;
    }
    if (place.vision_whole) {
        b->place.tp = 1;
        b->place.tp_rank = 0;
    }
    enum wf_status status = add_whole(b, TOWER, "patch_embed.proj");
    status = status == WF_OK ? add_positions(b) : status;
    for (uint64_t i = 0; i < wf_model_size(b->model, "vl") && status == WF_OK; i++) {
        snprintf(dir, sizeof dir, TOWER "blocks.%" PRIu64 ".", i);
        status = add_block(b, dir);
    }
    for (uint64_t i = 0; i < wf_model_size(b->model, "vd") && status == WF_OK; i++) {
        snprintf(dir, sizeof dir, TOWER "deepstack_merger_list.%" PRIu64 ".", i);
        status = add_merger(b, dir);
    }
    status = status == WF_OK ? add_merger(b, TOWER "merger.") : status;
    b->place = place;
    return status;
}
