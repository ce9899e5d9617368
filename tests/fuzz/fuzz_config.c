/* fuzz_config.c - throws text at the reader of configs: it must refuse with a sentence, or give an
 * inventory whose names, shapes and hash hold together. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "models/config.h"

static void check_model(const struct wf_model *model, const char *text, size_t len)
{
    WF_ASSERT(model->param_count > 0 && model->kv_heads > 0);
    WF_ASSERT(model->query_heads % model->kv_heads == 0);
    uint64_t total = 0;
    for (uint32_t i = 0; i < model->param_count; i++) {
        const struct wf_param *param = &model->params[i];
        uint64_t elements = 1;
        for (uint32_t axis = 0; axis < param->ndim; axis++) {
            WF_ASSERT(param->shape[axis] > 0);
            elements *= param->shape[axis];
        }
        total += param->elements;
        WF_ASSERT(elements == param->elements && total < (uint64_t)1 << 57);
        WF_ASSERT(wf_model_find(model, param->name, strlen(param->name)) == i);
    }
    struct wf_model *again = NULL;
    WF_ASSERT(wf_model_parse(text, len, &again, NULL) == WF_OK);
    WF_ASSERT(wf_hash_equal(again->hash, model->hash));
    wf_model_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    /* An exact copy, so that a sanitizer sees a read behind the end. */
    char *text = malloc(len ? len : 1);
    WF_ASSERT(text);
    memcpy(text, bytes, len);
    if (wf_model_parse(text, len, &model, &error) == WF_OK) {
        check_model(model, text, len);
    } else {
        WF_ASSERT(error.text[0] != '\0' && model == NULL);
    }
    wf_model_free(model);
    free(text);
    return 0;
}

static const char *const examples[] = {
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": "
    "101, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"intermediate_size\": 96}",
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 3, \"vocab_size\": "
    "101, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"head_dim\": 16, "
    "\"intermediate_size\": 7, \"tie_word_embeddings\": true, \"torch_dtype\": \"float16\", "
    "\"rope_scaling\": {\"factor\": [1.5, {\"a\": null}]}}",
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"attention_bias\": "
    "null, \"mlp_bias\": false, \"hidden_size\": 8, \"num_hidden_layers\": 1, \"vocab_size\": 1, "
    "\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"intermediate_size\": 1}",
};
static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "false",
    "NaN",
    "-Infinity",
    "0",
    "1",
    "-1",
    "4096",
    "4097",
    "2147483648",
    "1e308",
    "1.0",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\"",
    "\xef\xbb\xbf",
    "\xc3\xa4",
    "\xff",
    "head_dim",
    "num_hidden_layers",
    "\"quantization_config\": {}, ",
    "\"attention_bias\": true, ",
    "\"hidden_size\": 64, ",
    "[[[[[[[[[[[[[[[[",
    "mistral",
};

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    return fuzz_text(examples, sizeof examples / sizeof examples[0], index, out, cap);
}

const char *fuzz_word(uint32_t index)
{
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
