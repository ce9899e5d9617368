/* fuzz_manifest.c - throws bytes at the reader of manifests: it must refuse with a sentence, or
 * give a layout whose pieces lie inside the model's parameters and their tensors, and that comes
 * back from its own manifest. With the model and without. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "models/manifest.h"

static const struct {
    const char *config, *spec;
} rows[] = {
    {"{\"model_type\": \"llama\", \"hidden_size\": 72, \"num_hidden_layers\": 2, \"vocab_size\": "
     "384, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"intermediate_size\": 96, "
     "\"tie_word_embeddings\": true}",
     "megatron:tp=3,pp=2"},
    {"{\"model_type\": \"deepseek_v3\", \"hidden_size\": 32, \"num_hidden_layers\": 2, "
     "\"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
     "\"intermediate_size\": 48, \"n_routed_experts\": 4, \"moe_intermediate_size\": 16, "
     "\"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"q_lora_rank\": 12, "
     "\"kv_lora_rank\": 12, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, "
     "\"v_head_dim\": 8, \"topk_method\": \"noaux_tc\", \"scoring_func\": \"sigmoid\"}",
     "sglang:tp=2"},
    {"{\"model_type\": \"qwen3_next\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"vocab_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"head_dim\": 8, \"intermediate_size\": 24, \"num_experts\": 4, "
     "\"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 8, "
     "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 4, "
     "\"linear_value_head_dim\": 4, \"full_attention_interval\": 2}",
     "megatron:tp=2,vocab_div=1"},
};
enum { ROWS = sizeof rows / sizeof rows[0], HASH_AT = 16, HASH_BYTES = 18 };

/* Made once, and kept until the end. */
static const struct wf_model *model_of(uint32_t row)
{
    static struct wf_model *models[ROWS];
    struct wf_error error = {0};
    if (models[row] == NULL) {
        const char *config = rows[row].config;
        WF_ASSERT(wf_model_parse(config, strlen(config), NULL, &models[row], &error) == WF_OK);
    }
    return models[row];
}

static void check_layout(const struct wf_model *model, const struct wf_manifest *manifest)
{
    const struct wf_layout *layout = manifest->layout;
    const struct wf_param *params = model != NULL ? model->params : manifest->params;
    uint32_t count = model != NULL ? model->param_count : manifest->param_count;
    struct wf_error error = {0};
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        struct wf_nest nest = wf_layout_nest(layout, i);
        bool data = piece->kind == WF_PIECE_DATA;
        WF_ASSERT(piece->tensor < layout->tensor_count && (!data || piece->param < count));
        uint64_t elements = data && model != NULL ? params[piece->param].elements : INT64_MAX;
        WF_ASSERT(wf_nest_check(&nest, elements, layout->tensors[piece->tensor].bytes, &error) ==
                  WF_OK);
        WF_ASSERT(!data || (params[piece->param].name[0] != '\0' &&
                            strlen(params[piece->param].name) < WF_NAME_MAX));
    }
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        WF_ASSERT(layout->aliases[i].tensor < layout->tensor_count);
    }
}

static void read_back(const struct wf_model *model, const struct wf_layout *layout)
{
    struct wf_manifest again;
    struct wf_error error = {0};
    uint8_t *bytes = NULL;
    size_t len = 0;
    enum wf_status status = wf_manifest_write(model, layout, &bytes, &len, &error);
    if (status == WF_OK) {
        status = wf_manifest_read(bytes, len, model, &again, &error);
        WF_ASSERT(status == WF_OK && wf_hash_equal(again.layout->hash, layout->hash));
        wf_manifest_fini(&again);
    }
    WF_ASSERT(status == WF_OK || (status == WF_UNSUPPORTED && error.text[0] != '\0'));
    free(bytes);
}

static bool read_once(const uint8_t *bytes, size_t size, const struct wf_model *model)
{
    struct wf_manifest manifest;
    struct wf_error error = {0};
    bool good = wf_manifest_read(bytes, size, model, &manifest, &error) == WF_OK;
    WF_ASSERT(good || error.text[0] != '\0');
    if (good) {
        check_layout(model, &manifest);
    }
    if (good && model != NULL) {
        read_back(model, manifest.layout);
    }
    wf_manifest_fini(&manifest);
    return good;
}

/* What is refused without a model is refused with any. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1); /* of its own, so that a step beyond its end is seen */
    WF_ASSERT(bytes != NULL);
    memcpy(bytes, data, size);
    bool looks_good = read_once(bytes, size, NULL);
    for (uint32_t i = 0; i < ROWS && looks_good; i++) {
        read_once(bytes, size, model_of(i));
    }
    free(bytes);
    return 0;
}

static uint8_t *write_example(uint32_t row, uint32_t rank, size_t *len_out)
{
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    uint8_t *bytes = NULL;
    const struct wf_model *model = model_of(row);
    WF_ASSERT(wf_recipe_parse(rows[row].spec, model, &recipe, &error) == WF_OK &&
              wf_layout_derive(model, &recipe, rank, &layout, &error) == WF_OK &&
              wf_manifest_write(model, layout, &bytes, len_out, &error) == WF_OK);
    wf_layout_free(layout);
    return bytes;
}

/* Each rank's manifest, without its hash so that what is changed in it may hold; then with it. */
size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static struct {
        uint8_t *bytes; /* made once, and kept until the end */
        size_t len;
    } made[2 * ROWS];
    uint32_t which = index / 2;
    if (which >= 2 * ROWS) {
        return 0;
    }
    if (made[which].bytes == NULL) {
        made[which].bytes = write_example(which / 2, which % 2, &made[which].len);
    }
    size_t len = made[which].len;
    WF_ASSERT(len <= cap);
    memcpy(out, made[which].bytes, len);
    if (index % 2 == 0) {
        out[HASH_AT] = 0xc0;
        memmove(out + HASH_AT + 1, out + HASH_AT + HASH_BYTES, len - HASH_AT - HASH_BYTES);
        len -= HASH_BYTES - 1;
    }
    return len;
}
