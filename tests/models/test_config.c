/* test_config.c - what a config.json may say, what is refused, and what absent keys mean. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/config.h"
#include "models/families/family.h"

/* A small config of any family; each entry can be replaced or left out. */
static const char *const base[][2] = {
    {"hidden_size", "64"},
    {"num_hidden_layers", "2"},
    {"vocab_size", "101"},
    {"num_attention_heads", "8"},
    {"num_key_value_heads", "2"},
    {"intermediate_size", "96"},
    {"head_dim", "16"},
    {"tie_word_embeddings", "false"},
    {"torch_dtype", "\"bfloat16\""},
    {"architectures", "[\"LlamaForCausalLM\"]"},
};

/* `changes` is "key=value;key=value"; a value of "-" leaves the key out. */
static void write_config(char *out, size_t room, const char *family, const char *changes)
{
    size_t used = (size_t)snprintf(out, room, "{\"model_type\": \"%s\"", family);
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "%s=", base[i][0]);
        const char *found = strstr(changes, wanted);
        if (!found || (found != changes && found[-1] != ';')) {
            used +=
                (size_t)snprintf(out + used, room - used, ", \"%s\": %s", base[i][0], base[i][1]);
        }
    }
    while (*changes) {
        size_t len = strcspn(changes, ";"), key = strcspn(changes, "=");
        if (strncmp(changes + key, "=-", 2) != 0 || len != key + 2) {
            used += (size_t)snprintf(out + used, room - used, ", \"%.*s\": %.*s", (int)key, changes,
                                     (int)(len - key - 1), changes + key + 1);
        }
        changes += len + (changes[len] == ';');
    }
    snprintf(out + used, room - used, "}");
}

static enum wf_status parse(const char *family, const char *changes, struct wf_model **model,
                            struct wf_error *error)
{
    char text[4096];
    write_config(text, sizeof text, family, changes);
    return wf_model_parse(text, strlen(text), NULL, model, error);
}

Test(config, refusals_say_what_and_why)
{
    static const struct {
        const char *name, *family, *changes;
        enum wf_status status;
        const char *fragment;
    } rows[] = {
        {"unknown family", "qwen9", "", WF_UNSUPPORTED, "llama mistral mixtral qwen2"},
        {"relative of a known family", "qwen4_moe", "", WF_UNSUPPORTED, "qwen4_moe"},
        {"family in capitals", "Llama", "", WF_UNSUPPORTED, "Llama"},
        {"hidden absent", "llama", "hidden_size=-", WF_INVALID, "hidden_size"},
        {"hidden null", "llama", "hidden_size=null", WF_INVALID, "hidden_size"},
        {"hidden zero", "llama", "hidden_size=0", WF_INVALID, "hidden_size"},
        {"hidden as text", "llama", "hidden_size=\"64\"", WF_INVALID, "hidden_size"},
        {"hidden as float", "llama", "hidden_size=64.0", WF_INVALID, "hidden_size"},
        {"hidden huge", "llama", "hidden_size=99999999999999999999999", WF_INVALID, "hidden_size"},
        {"hidden wraps", "llama", "hidden_size=4294967360", WF_INVALID, "hidden_size"},
        {"hidden true", "llama", "hidden_size=true", WF_INVALID, "hidden_size"},
        {"hidden twice", "llama", "hidden_size=64;hidden_size=64", WF_INVALID, "same object"},
        {"layers negative", "llama", "num_hidden_layers=-1", WF_INVALID, "num_hidden_layers"},
        {"too many layers", "llama", "num_hidden_layers=4097", WF_INVALID, "4096"},
        {"heads do not divide", "llama", "num_key_value_heads=3", WF_INVALID, "multiple"},
        {"more KV heads than heads", "llama", "num_key_value_heads=16", WF_INVALID, "multiple"},
        {"no head size", "llama", "head_dim=-;hidden_size=60", WF_INVALID, "head_dim"},
        {"head size zero", "llama", "head_dim=0", WF_INVALID, "head_dim"},
        {"qwen3 head size null", "qwen3", "head_dim=null", WF_INVALID, "disagree"},
        {"qwen3 KV heads absent", "qwen3", "num_key_value_heads=-", WF_INVALID, "32"},
        {"product overflows", "llama", "hidden_size=2147483648;vocab_size=2147483648", WF_INVALID,
         "2^56"},
        {"dtypes disagree", "llama", "dtype=\"float32\"", WF_INVALID, "give one"},
        {"dtype unknown", "llama", "torch_dtype=\"int4\"", WF_UNSUPPORTED, "int4"},
        {"dtype as number", "llama", "torch_dtype=16", WF_UNSUPPORTED, "16"},
        {"tied as number", "llama", "tie_word_embeddings=0", WF_INVALID, "tie_word_embeddings"},
        {"bias as text", "llama", "attention_bias=\"yes\"", WF_INVALID, "attention_bias"},
        {"MLP bias of qwen3", "qwen3", "mlp_bias=true", WF_UNSUPPORTED, "mlp_bias"},
        {"attention bias of mistral", "mistral", "attention_bias=true", WF_UNSUPPORTED,
         "attention_bias"},
        {"other bias flag", "llama", "bias=true", WF_UNSUPPORTED, "\"bias\""},
        {"norms under a flag", "llama", "use_qk_norm=true", WF_UNSUPPORTED, "use_qk_norm"},
        {"experts", "qwen3", "num_experts=8", WF_UNSUPPORTED, "num_experts"},
        {"fp8 without blocks", "qwen3", "quantization_config={\"quant_method\": \"fp8\"}",
         WF_INVALID, "weight_block_size"},
        {"fp8 with input scales", "qwen3",
         "quantization_config={\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], "
         "\"activation_scheme\": \"static\"}",
         WF_INVALID, "static"},
        {"layer list too short", "qwen3_next",
         "num_experts=4;moe_intermediate_size=8;shared_expert_intermediate_size=8;"
         "linear_num_key_heads=2;linear_num_value_heads=4;linear_key_head_dim=4;"
         "linear_value_head_dim=4;layer_types=[\"full_attention\"]",
         WF_INVALID, "layer_types"},
        {"further tokens", "qwen3", "num_nextn_predict_layers=1", WF_UNSUPPORTED, "nextn"},
        {"nested", "llama", "text_config={\"hidden_size\": 64}", WF_UNSUPPORTED, "text_config"},
        {"other head", "llama", "architectures=[\"LlamaForSequenceClassification\"]",
         WF_UNSUPPORTED, "SequenceClassification"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        enum wf_status status = parse(rows[i].family, rows[i].changes, &model, &error);
        cr_expect_eq(status, rows[i].status, "%s: %s %s", rows[i].name, wf_status_name(status),
                     error.text);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].name, error.text);
        cr_expect_null(model, "%s", rows[i].name);
        wf_model_free(model);
    }
}

Test(config, experts_are_quantised_all_or_none)
{
    static const struct {
        const char *excluded;
        enum wf_status status;
    } rows[] = {
        {"[]", WF_OK},
        {"[\"model.layers.1.mlp.experts\"]", WF_OK},
        {"[\"model.layers.1.mlp.experts.2.up_proj\"]", WF_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char changes[512];
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        snprintf(changes, sizeof changes,
                 "num_experts=4;moe_intermediate_size=128;num_experts_per_tok=2;"
                 "quantization_config={\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": [128, 128], \"modules_to_not_convert\": %s}",
                 rows[i].excluded);
        cr_expect_eq(parse("qwen3_moe", changes, &model, &error), rows[i].status, "%s: %s",
                     rows[i].excluded, error.text);
        cr_expect(rows[i].status == WF_OK || strstr(error.text, "all or none"), "%s", error.text);
        wf_model_free(model);
    }
}

/* Of compressed-tensors' list: which of two linears stays as it is, or what the sentence says. */
Test(config, regular_expressions_leave_modules_as_they_are)
{
    static const struct {
        const char *list;
        bool q, gate; /* packed: layer 0's q_proj, layer 1's first expert's gate_proj */
        const char *refused;
    } rows[] = {
        {"[]", true, true, NULL},
        {"[\"re:.*self_attn.*\"]", false, true, NULL},
        {"[\"re:.*self_attn\"]", false, true, NULL},
        {"[\"re:self_attn\"]", true, true, NULL},
        {"[\"re:model\\\\.layers\\\\.0\"]", false, true, NULL},
        {"[\"re:.*(q|k|gate)_proj\"]", false, false, NULL},
        {"[\"re:.*mlp\\\\.(gate|up)_proj.*\"]", true, true, NULL},
        {"[\"re:.*(self|cross)_(attn|mlp).*\"]", false, true, NULL},
        {"[\"model.layers.0.self_attn.q_proj\", \"re:.*experts.*\"]", false, false, NULL},
        {"[\"re:.*\"]", false, false, NULL},
        {"[\"re:.+\"]", false, false, "regular expression"},
        {"[\"re:.*proj$\"]", false, false, NULL},
        {"[\"re:.*mlp.gate$\"]", true, true, NULL},
        {"[\"re:.*mlp.experts.*gate_proj$\"]", true, false, NULL},
        {"[\"re:.*mlp.experts.*gate$\"]", true, true, NULL},
        {"[\"re:.*q$proj\"]", false, false, "regular expression"},
        {"[\"re:a(b|(c|d))\"]", false, false, "regular expression"},
        {"[\"re:(a|b\"]", false, false, "regular expression"},
        {"[\"re:[qk]_proj\"]", false, false, "regular expression"},
        {"[\"re:(a|b)(c|d)(e|f)(g|h)(i|j)\"]", false, false, "regular expression"},
        {"[\"re:(a|b|c|d|e|f|g|h|i)(a|b|c|d|e|f|g|h|i)\"]", false, false, "64 with *"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const char q[] = "model.layers.0.self_attn.q_proj.weight_packed",
                          gate[] = "model.layers.1.mlp.experts.0.gate_proj.weight_packed";
        char changes[1024];
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        snprintf(changes, sizeof changes,
                 "num_experts=4;moe_intermediate_size=128;num_experts_per_tok=2;"
                 "quantization_config={\"quant_method\": \"compressed-tensors\", \"format\": "
                 "\"pack-quantized\", \"weights\": {\"num_bits\": 4, \"group_size\": 8, "
                 "\"symmetric\": true}, \"ignore\": %s}",
                 rows[i].list);
        enum wf_status status = parse("qwen3_moe", changes, &model, &error);
        cr_expect_eq(status == WF_OK, rows[i].refused == NULL, "%s: %s", rows[i].list, error.text);
        if (status != WF_OK) {
            cr_expect(strstr(error.text, rows[i].refused), "%s: %s", rows[i].list, error.text);
            continue;
        }
        cr_expect_eq(wf_model_find(model, q, strlen(q)) != WF_NONE, rows[i].q, "%s", rows[i].list);
        cr_expect_eq(wf_model_find(model, gate, strlen(gate)) != WF_NONE, rows[i].gate, "%s",
                     rows[i].list);
        wf_model_free(model);
    }
}

Test(config, unneeded_keys_cannot_stop_a_run)
{
    static const char *const rows[] = {
        "rope_theta=1e6",
        "rope_scaling=null",
        "max_position_embeddings=99999999999999999999999999",
        "sliding_window=NaN",
        "initializer_range=-Infinity",
        "quantization_config=null",
        "num_experts=0",
        "text_config={}",
        "architectures=null",
        "architectures=7",
        "use_qk_norm=false",
        "a\\u0000b=1;a\\u0000b=2",
        "auto_map={\"x\": [[[\"\\ud800\"]]]}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        cr_expect_eq(parse("llama", rows[i], &model, &error), WF_OK, "%s: %s", rows[i], error.text);
        wf_model_free(model);
    }
}

Test(config, absent_null_false_and_zero_differ)
{
    static const struct {
        const char *name, *family, *changes;
        uint64_t kv_heads, head_dim;
        bool tied;
        enum wf_dtype dtype;
    } rows[] = {
        {"as given", "llama", "", 2, 16, false, WF_DTYPE_BF16},
        {"KV heads absent", "llama", "num_key_value_heads=-", 8, 16, false, WF_DTYPE_BF16},
        {"KV heads null", "qwen3", "num_key_value_heads=null", 8, 16, false, WF_DTYPE_BF16},
        {"KV heads absent, mistral", "mistral", "num_key_value_heads=-", 8, 16, false,
         WF_DTYPE_BF16},
        {"KV heads absent, qwen2", "qwen2", "num_key_value_heads=-;num_attention_heads=64", 32, 16,
         false, WF_DTYPE_BF16},
        {"head size absent", "llama", "head_dim=-", 2, 8, false, WF_DTYPE_BF16},
        {"head size null", "llama", "head_dim=null", 2, 8, false, WF_DTYPE_BF16},
        {"head size absent, qwen3", "qwen3", "head_dim=-", 2, 128, false, WF_DTYPE_BF16},
        {"head size null and equal", "qwen3", "head_dim=null;hidden_size=1024", 2, 128, false,
         WF_DTYPE_BF16},
        {"tied", "qwen2", "tie_word_embeddings=true", 2, 16, true, WF_DTYPE_BF16},
        {"tied absent", "qwen2", "tie_word_embeddings=-", 2, 16, false, WF_DTYPE_BF16},
        {"tied null", "qwen2", "tie_word_embeddings=null", 2, 16, false, WF_DTYPE_BF16},
        {"dtype absent", "llama", "torch_dtype=-", 2, 16, false, WF_DTYPE_BF16},
        {"dtype null", "llama", "torch_dtype=null", 2, 16, false, WF_DTYPE_BF16},
        {"dtype in its new key", "llama", "torch_dtype=-;dtype=\"float16\"", 2, 16, false,
         WF_DTYPE_F16},
        {"dtype in both", "llama", "dtype=\"torch.bfloat16\"", 2, 16, false, WF_DTYPE_BF16},
        {"dtype float32", "llama", "torch_dtype=\"float32\"", 2, 16, false, WF_DTYPE_F32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        cr_assert_eq(parse(rows[i].family, rows[i].changes, &model, &error), WF_OK, "%s: %s",
                     rows[i].name, error.text);
        cr_expect_eq(wf_model_size(model, "nk"), rows[i].kv_heads, "%s", rows[i].name);
        cr_expect_eq(wf_model_size(model, "d"), rows[i].head_dim, "%s", rows[i].name);
        cr_expect_eq(model->tied, rows[i].tied, "%s", rows[i].name);
        cr_expect_eq(model->dtype, rows[i].dtype, "%s", rows[i].name);
        wf_model_free(model);
    }
}

static bool has(const struct wf_model *model, const char *name)
{
    return wf_model_find(model, name, strlen(name)) != UINT32_MAX;
}

Test(config, flags_add_their_tensors)
{
    static const struct {
        const char *family, *changes, *name;
        bool there;
    } rows[] = {
        {"llama", "", "model.layers.1.self_attn.q_proj.bias", false},
        {"llama", "attention_bias=true", "model.layers.1.self_attn.q_proj.bias", true},
        {"llama", "attention_bias=true", "model.layers.1.self_attn.o_proj.bias", true},
        {"llama", "attention_bias=true", "model.layers.1.mlp.down_proj.bias", false},
        {"llama", "mlp_bias=true", "model.layers.1.mlp.gate_proj.bias", true},
        {"llama", "mlp_bias=true", "model.layers.1.mlp.down_proj.bias", true},
        {"llama", "attention_bias=null", "model.layers.0.self_attn.k_proj.bias", false},
        {"qwen2", "", "model.layers.0.self_attn.v_proj.bias", true},
        {"qwen2", "", "model.layers.0.self_attn.o_proj.bias", false},
        {"qwen2", "attention_bias=false", "model.layers.0.self_attn.v_proj.bias", true},
        {"qwen3", "", "model.layers.0.self_attn.q_norm.weight", true},
        {"qwen3", "attention_bias=true", "model.layers.0.self_attn.k_proj.bias", true},
        {"llama", "", "model.layers.0.self_attn.q_norm.weight", false},
        {"llama", "", "lm_head.weight", true},
        {"llama", "tie_word_embeddings=true", "lm_head.weight", false},
        {"llama", "", "model.layers.2.input_layernorm.weight", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        cr_assert_eq(parse(rows[i].family, rows[i].changes, &model, &error), WF_OK, "%s",
                     error.text);
        cr_expect_eq(has(model, rows[i].name), rows[i].there, "%s %s %s", rows[i].family,
                     rows[i].changes, rows[i].name);
        wf_model_free(model);
    }
}

Test(config, names_find_their_index_with_their_length)
{
    struct wf_model *model = NULL;
    cr_assert_eq(parse("qwen3", "num_hidden_layers=12", &model, NULL), WF_OK);
    for (uint32_t i = 0; i < model->param_count; i++) {
        const char *name = model->params[i].name;
        cr_expect_eq(wf_model_find(model, name, strlen(name)), i, "%s", name);
        cr_expect_eq(wf_model_find(model, name, strlen(name) - 1), UINT32_MAX, "%s", name);
        cr_expect_eq(wf_model_find(model, name, strlen(name) + 1), UINT32_MAX, "%s", name);
    }
    wf_model_free(model);
}

Test(config, another_layer_count_is_another_model)
{
    struct wf_model *model = NULL, *shorter = NULL, *same = NULL;
    struct wf_error error = {0};
    cr_assert_eq(parse("qwen3", "num_hidden_layers=12", &model, NULL), WF_OK);
    cr_assert_eq(wf_model_with_layers(model, 3, &shorter, &error), WF_OK);
    cr_assert_eq(parse("qwen3", "num_hidden_layers=3", &same, NULL), WF_OK);
    cr_expect(wf_hash_equal(shorter->hash, same->hash));
    cr_expect(!wf_hash_equal(shorter->hash, model->hash));
    cr_expect_eq(shorter->param_count, same->param_count);
    struct wf_model *none = NULL;
    cr_expect_eq(wf_model_with_layers(model, 0, &none, &error), WF_INVALID);
    cr_expect_eq(wf_model_with_layers(model, WF_LAYERS_MAX + 1, &none, &error), WF_INVALID);
    wf_model_free(model);
    wf_model_free(shorter);
    wf_model_free(same);
}

Test(config, a_config_is_an_object)
{
    static const char *const rows[] = {
        "", "null", "[]", "7", "\"llama\"", "{}", "{\"model_type\": null}", "{\"model_type\": 3}"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        cr_expect_eq(wf_model_parse(rows[i], strlen(rows[i]), NULL, &model, &error), WF_INVALID,
                     "%s", rows[i]);
        cr_expect_neq(error.text[0], '\0', "%s", rows[i]);
    }
}
