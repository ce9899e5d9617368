/* fuzz_family.c - throws text at the reader of family files: it must refuse with a sentence, or
 * give a family that passes its check and with which configs can be read. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#include "config/family_file.h"
#include "models/config.h"

/* Configs of a type that some seeds give; small, so that a table decides the cost. */
static const char *const configs[] = {
    "{\"model_type\": \"harbor\", \"n_embd\": 64, \"n_layer\": 3, \"vocab_size\": 101, \"n_head\": "
    "8, \"n_head_kv\": 2, \"n_inner\": 96, \"num_experts\": 4, \"flags\": [\"a\", \"b\", \"a\"]}",
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 3, \"vocab_size\": "
    "101, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 7}",
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct wf_family_files files = {0};
    struct wf_error error = {0};
    /* An exact copy, so that a sanitizer sees a read behind the end. */
    char *text = malloc(len ? len : 1);
    WF_ASSERT(text);
    memcpy(text, bytes, len);
    enum wf_status status = wf_family_files_parse(&files, text, len, &error);
    WF_ASSERT(status == WF_OK ? files.count == 1 : error.text[0] != '\0' && files.count == 0);
    if (status == WF_OK) {
        WF_ASSERT(wf_family_check(files.list[0], &error) == WF_OK);
    }
    for (size_t i = 0; status == WF_OK && i < sizeof configs / sizeof configs[0]; i++) {
        struct wf_model *model = NULL;
        error.text[0] = '\0';
        if (wf_model_parse(configs[i], strlen(configs[i]), files.list, &model, &error) == WF_OK) {
            WF_ASSERT(model->family != NULL);
            wf_model_free(model);
        } else {
            WF_ASSERT(error.text[0] != '\0' && model == NULL);
        }
    }
    wf_family_files_fini(&files);
    free(text);
    return 0;
}

#define HARBOR                                                                              \
    "family: harbor\nmodel_types: [harbor]\nsizes:\n  - {name: H, key: n_embd}\n"           \
    "  - {name: L, key: n_layer}\n  - {name: V, key: vocab_size}\n"                         \
    "  - {name: nq, key: n_head}\n  - {name: nk, key: n_head_kv, otherwise: nq}\n"          \
    "  - {name: d, otherwise: H / nq}\n  - {name: tied, otherwise: \"0\"}\n"                \
    "  - {name: E, key: num_experts, otherwise: \"0\"}\n"                                   \
    "  - {name: full, key: flags, otherwise: layer % 2 == 1, match: a}\n"                   \
    "stacks:\n  - {name: layer, prefix: \"h.{i}.\", count: L}\n"                            \
    "  - {name: mtp, prefix: \"m.{i}.\", count: \"1\", first: L}\n"                         \
    "rows:\n  - {role: embedding, name: wte.weight, shape: \"V,H\"}\n"                      \
    "  - {role: q, name: \"{layers}wq\", shape: \"nq*d,H\", unit: nq, stacks: layer mtp}\n" \
    "  - {role: k, name: \"{layers}wk\", shape: \"nk*d,H\", when: \"full || layer > 1\"}\n" \
    "  - {role: expert_gate, name: \"{layers}e.{expert}.g\", shape: \"4,H\", dtype: f32}\n" \
    "  - {role: proj, name: m.p, shape: \"H,2*H\", stacks: mtp, when: mtp}\n"               \
    "requires: [\"nq % nk == 0: heads\"]\n"

static const char *const examples[] = {
    HARBOR,
    HARBOR "engines:\n  - engine: vllm\n    renames: [\"h.=>model.layers.\"]\n    rows:\n"
           "      - {name: \"{dir}qk\", parts: \"q k\", groups: tp_size, cuts: 0/tp}\n"
           "      - {name: \"{experts}w\", parts: expert_gate, view: \"e r c -> e c r\", shape: "
           "\"slots,columns,rows\", kind: keep}\n    aliases: [{role: q, name: x, when: tied}]\n",
    "family: qwen3\nextends: qwen3\nsizes:\n  - {name: G, key: gates, otherwise: \"3\"}\nrows:\n"
    "  - {role: q_norm, name: \"{layers}query_norm.weight\"}\n  - {role: k_norm, remove: true}\n"
    "  - {role: extra, name: extra.weight, shape: \"G,H\"}\n",
    "family: mine\nextends: deepseek\nmodel_types: [harbor]\nrefused: [\"x: y\"]\n",
};
static const char *const words[] = {
    "{layers}",
    "{expert}",
    "{i}",
    "layer",
    "index",
    "mtp",
    "null",
    "excluded",
    "(",
    ")",
    " ? 1 : ",
    " && ",
    " || ",
    "!",
    " // 0",
    " ^ 2",
    "* 4294967296",
    "- 1",
    ",",
    "|",
    ":",
    "\n",
    "  - ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "&a ",
    "*a",
    "true",
    "remove: true",
    "extends: llama\n",
    "stacks: layer",
    "when: ",
    "4096",
    "18446744073709551616",
    "E",
    "L",
    "tied",
    "((((((((((((((((((((((((((((((((",
    "dtype: \"f8_e4m3: full\"",
    "parts: \"*\"",
    "@layer",
    "#flags",
};

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    return fuzz_text(examples, sizeof examples / sizeof examples[0], index, out, cap);
}

const char *fuzz_word(uint32_t index)
{
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
