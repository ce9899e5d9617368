/* test_layout_check.c - derived layouts equal what frameworks really made; a changed fixture is
 * found, and a hostile one gives a sentence. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/files/io.h"
#include "tools/layout/check.h"

#define REAL "tests/golden/real/"
#define DERIVED "tests/golden/derived/"

/* Gives how many cases the folder has. */
static unsigned check_cases(const char *parent)
{
    unsigned cases = 0;
    DIR *folder = opendir(parent);
    cr_assert(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[512];
        if (strchr(entry->d_name, '.') != NULL || strncmp(entry->d_name, "hf-", 3) == 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s%s/", parent, entry->d_name);
        struct wf_case_result result;
        wf_case_check(path, NULL, &result);
        cr_expect(result.ok && !result.refused, "%s: %s", path, result.difference.text);
        cr_expect_str_eq(result.name, entry->d_name);
        cr_expect(result.elements > 0 && result.tensors > 0 && result.ranks > 0, "%s", path);
        cases++;
    }
    closedir(folder);
    return cases;
}

Test(layout_check, every_executed_case_is_reproduced)
{
    cr_assert_geq(check_cases(REAL), 110u);
}

Test(layout_check, every_case_worked_out_by_hand_is_reproduced)
{
    cr_assert_geq(check_cases(DERIVED), 14u);
}

/* --- changed copies -------------------------------------------------------------------------- */

struct copy {
    char path[64];
};

static void copy_file(const char *from_folder, const char *name, const char *to_folder)
{
    char path[512], bytes[1 << 16];
    snprintf(path, sizeof path, "%s/%s", from_folder, name);
    FILE *from = fopen(path, "rb");
    cr_assert(from, "%s", path);
    size_t len = fread(bytes, 1, sizeof bytes, from);
    cr_assert_lt(len, sizeof bytes);
    fclose(from);
    snprintf(path, sizeof path, "%s/%s", to_folder, name);
    FILE *to = fopen(path, "wb");
    cr_assert(to && fwrite(bytes, 1, len, to) == len, "%s", path);
    fclose(to);
}

static struct copy copy_case(const char *name)
{
    struct copy copy;
    char from[256];
    snprintf(copy.path, sizeof copy.path, "/tmp/weft-case-XXXXXX");
    snprintf(from, sizeof from, REAL "%s", name);
    cr_assert(mkdtemp(copy.path));
    DIR *folder = opendir(from);
    cr_assert(folder, "%s", from);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] != '.') {
            copy_file(from, entry->d_name, copy.path);
        }
    }
    closedir(folder);
    return copy;
}

/* Replaces the first `old` of a file by `new`, or the whole content where `old` is NULL. */
static void edit(const struct copy *copy, const char *name, const char *old, const char *new)
{
    char path[512], text[1 << 16];
    snprintf(path, sizeof path, "%s/%s", copy->path, name);
    FILE *file = fopen(path, "rb");
    size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[len] = '\0';
    if (file) {
        fclose(file);
    }
    file = fopen(path, "wb");
    cr_assert(file);
    char *at = old ? strstr(text, old) : text;
    cr_assert(at, "%s holds no \"%s\"", name, old);
    fwrite(text, 1, (size_t)(at - text), file);
    fputs(new, file);
    fputs(old ? at + strlen(old) : "", file);
    fclose(file);
}

static void expect_failure(const char *title, const struct copy *copy, const char *const *fragments)
{
    struct wf_case_result result;
    wf_case_check(copy->path, NULL, &result);
    cr_expect(!result.ok, "%s", title);
    for (size_t i = 0; i < 3 && fragments[i]; i++) {
        cr_expect(strstr(result.difference.text, fragments[i]), "%s: %s", title,
                  result.difference.text);
    }
}

static const struct {
    const char *title, *name, *file, *old, *new;
    const char *fragments[3];
} changed_rows[] = {
    {"another start",
     "megatron-qwen3-tp2",
     "rank_01.tsv",
     "7:768+768",
     "7:769+768",
     {"rank_01.tsv", "decoder.layers.0.self_attention.linear_qkv.weight", "7:769+768"}},
    {"another parameter",
     "megatron-qwen3-tp2",
     "rank_00.tsv",
     "3:0+1920",
     "4:0+1920",
     {"rank_00.tsv", "linear_fc1", "4:0+1920"}},
    {"another step",
     "megatron-qwen3-tp2",
     "rank_00.tsv",
     "8:0+32*48/64",
     "8:0+32*48/63",
     {"linear_proj", "8:0+32*48/63", "element 32"}},
    {"a run cut short",
     "vllm-qwen3-tp2",
     "rank_01.tsv",
     "z+1728",
     "z+1727",
     {"embed_tokens", "1", "shape"}},
    {"data for padding",
     "vllm-qwen3-tp2",
     "rank_01.tsv",
     "z+1728",
     "0:0+1728",
     {"embed_tokens", "0:0+1728", "zero"}},
    {"padding for data",
     "vllm-qwen3-tp2",
     "rank_00.tsv",
     "\t1:0+64",
     "\tz+64",
     {"input_layernorm", "z+64", "model.layers.0.input_layernorm.weight"}},
    {"unknown contents",
     "vllm-qwen3-tp2",
     "rank_00.tsv",
     "\t1:0+64",
     "\tu+64",
     {"input_layernorm", "u+64", NULL}},
    {"two runs exchanged",
     "vllm-llama-tp1",
     "rank_00.tsv",
     "3:0+",
     "4:0+",
     {"qkv_proj", "4:0+", NULL}},
    {"another dtype",
     "megatron-qwen3-tp2",
     "rank_00.tsv",
     "bfloat16\t48\t",
     "float32\t48\t",
     {"dtype", "float32", NULL}},
    {"another shape",
     "megatron-qwen3-tp2",
     "rank_00.tsv",
     "48x32",
     "32x48",
     {"linear_proj", "shape", NULL}},
    {"another name",
     "megatron-qwen3-tp2",
     "rank_00.tsv",
     "linear_proj",
     "linear_prog",
     {"linear_prog", "not derived", NULL}},
    {"a name twice",
     "megatron-qwen3-tp2",
     "rank_00.tsv",
     "# name\tdtype\tshape\truns",
     "decoder.layers.0.self_attention.q_layernorm.weight\tbfloat16\t16\t9:0+16",
     {"q_layernorm", "twice", NULL}},
    {"an alias missing",
     "vllm-llama-tp2pp2-tied",
     "rank_03.tsv",
     "alias\tlm_head.weight\tmodel.embed_tokens.weight\n",
     "",
     {"aliases", NULL, NULL}},
    {"another alias",
     "vllm-llama-tp2pp2-tied",
     "rank_03.tsv",
     "alias\tlm_head",
     "alias\tlm_foot",
     {"lm_foot", NULL, NULL}},
    {"a tensor missing",
     "vllm-llama-tp1",
     "rank_00.tsv",
     "model.norm.weight",
     "# ",
     {"model.norm.weight", "not there", NULL}},
    {"another parameter shape",
     "megatron-qwen3-tp2",
     "params.tsv",
     "101x48",
     "102x48",
     {"params.tsv", "shape", NULL}},
    {"another config",
     "megatron-qwen3-tp2",
     "case.json",
     "\"intermediate_size\": 80",
     "\"intermediate_size\": 96",
     {"shape", NULL, NULL}},
    {"another size",
     "megatron-qwen3-tp1",
     "case.json",
     "\"tp\": 1,",
     "\"tp\": 2,",
     {"divided", NULL, NULL}},
    {"more ranks",
     "megatron-llama-tp2-cp2-dp2",
     "case.json",
     "\"dp\": 2",
     "\"dp\": 1",
     {"ranks", NULL, NULL}},
    {"fewer ranks",
     "megatron-llama-tp2-cp2-dp2",
     "case.json",
     "\"dp\": 2",
     "\"dp\": 4",
     {"rank_08.tsv", NULL, NULL}},
    {"another version",
     "megatron-qwen3-tp2",
     "case.json",
     "0.20.0",
     "0.31.0",
     {"version", "0.31.0", NULL}},
    {"an option",
     "vllm-qwen3-tp2",
     "case.json",
     "\"engine_options\": {",
     "\"engine_options\": {\"enable_lora\": true",
     {"enable_lora", "not supported", NULL}},
    {"a size of another kind of parallelism",
     "vllm-qwen3-tp2",
     "case.json",
     "\"world\": 2",
     "\"pcp\": 2",
     {"parallel.pcp", "not supported", NULL}},
    {"a view further on",
     "vllm-deepseekv3-tp2-absorbed",
     "rank_00.tsv",
     "kv_b_proj.weight+8192",
     "kv_b_proj.weight+8191",
     {"W_UV", "7:8192+8192", "8191"}},
    {"a view's other stride",
     "vllm-deepseekv3-tp2-absorbed",
     "rank_00.tsv",
     "strides=16384,1,64",
     "strides=16384,1,63",
     {"W_UV", "7:8192+8192", NULL}},
    {"a view outside",
     "vllm-deepseekv3-tp2-absorbed",
     "rank_00.tsv",
     "strides=16384,1,64",
     "strides=26384,1,64",
     {"W_UV", "outside", NULL}},
    {"a view that shows something else",
     "vllm-deepseekv3-tp2-absorbed",
     "rank_00.tsv",
     "7:8192+8192",
     "7:8193+8192",
     {"W_UV", "7:8193+8192", NULL}},
    {"no view",
     "vllm-deepseekv3-tp2-absorbed",
     "rank_00.tsv",
     "\tshares=model.layers.0.self_attn.kv_b_proj.weight+8192",
     "",
     {"W_UV", "no view", NULL}},
    {"a view of nothing",
     "vllm-deepseekv3-tp2-absorbed",
     "rank_00.tsv",
     "shares=model.layers.0.self_attn.kv_b_proj",
     "shares=model.layers.0.self_attn.kv_c_proj",
     {"W_UV", "kv_c_proj", NULL}},
    {"an element of fused experts",
     "vllm-gptoss-bf16-tp2",
     "rank_00.tsv",
     "14:2+1*64/128",
     "14:3+1*64/128",
     {"w13_weight", "14:3+1*64/128", "gate_proj"}},
    {"an element of transposed experts",
     "vllm-qwen3vlmoe-tp4",
     "rank_00.tsv",
     "10:1+1*64/64",
     "10:1+1*64/65",
     {"w13_weight", "10:1+1*64/65", NULL}},
    {"another form of fused experts",
     "vllm-gptoss-bf16-tp2",
     "params.tsv",
     "4x64x128",
     "4x128x64",
     {"params.tsv", "gate_up_proj", "shape"}},
    {"zero where 127 is filled in",
     "sglang-gptoss-mxfp4-tp4",
     "rank_03.tsv",
     "u+1024",
     "z+1024",
     {"w13_weight_scale", "z+1024", "bytes 127"}},
    {"unknown where zero is filled in",
     "vllm-gptoss-mxfp4-tp4",
     "rank_03.tsv",
     "z+1024",
     "u+1024",
     {"w13_weight_scale", "u+1024", "zero"}},
    {"a parameter where nothing is written",
     "vllm-qwen3-fp8block-tp2",
     "rank_00.tsv",
     "u+1",
     "0:0+1",
     {"q_scale", "0:0+1", "never written"}},
    {"zero where nothing is written",
     "sglang-qwen3next-tp2",
     "rank_00.tsv",
     "u+64",
     "z+64",
     {"gemma_weight", "z+64", "never written"}},
    {"another order in memory",
     "sglang-deepseekv3-tp2",
     "rank_00.tsv",
     "strides=8192,1,128",
     "strides=8192,128,1",
     {"w_kc", "stride", NULL}},
    {"a missing second name of experts",
     "vllm-qwen3moe-tp4",
     "rank_00.tsv",
     "alias\tmodel.layers.0.mlp.experts.gate.weight",
     "# ",
     {"experts.gate.weight", "not there", NULL}},
    {"a second name in full with other contents",
     "fsdp2-odd-tied-dp5",
     "rank_00.tsv",
     "lm_head.weight\tfloat32\t11x30\t0:0+330",
     "lm_head.weight\tfloat32\t11x30\t0:1+330",
     {"lm_head.weight", "0:1+330", NULL}},
    {"a field that is not known",
     "vllm-qwen3-tp2",
     "rank_00.tsv",
     "\t1:0+64",
     "\t1:0+64\tcolour=red",
     {"input_layernorm", "colour=red", NULL}},
    {"an override",
     "megatron-qwen3-tp2",
     "case.json",
     "\"megatron_config_overrides\": {",
     "\"megatron_config_overrides\": {\"mtp_num_layers\": 1",
     {"mtp_num_layers", NULL, NULL}},
};

Test(layout_check, a_changed_copy_fails_and_the_place_is_named)
{
    for (size_t i = 0; i < sizeof changed_rows / sizeof changed_rows[0]; i++) {
        struct copy copy = copy_case(changed_rows[i].name);
        edit(&copy, changed_rows[i].file, changed_rows[i].old, changed_rows[i].new);
        expect_failure(changed_rows[i].title, &copy, changed_rows[i].fragments);
        wf_folder_remove(copy.path);
    }
}

Test(layout_check, hostile_fixtures_give_a_sentence)
{
    static const struct {
        const char *title, *file, *old, *new, *fragment;
    } rows[] = {
        {"empty rank", "rank_00.tsv", NULL, "", "not there"},
        {"no lines at all", "params.tsv", NULL, "", "parameters"},
        {"bytes", "rank_00.tsv", NULL, "\x01\x02\xff\xfe\n\t\t\t\n", "malformed"},
        {"no fields", "rank_00.tsv", NULL, "hello\n", "line 1"},
        {"many fields", "rank_00.tsv", NULL, "a\tb\t1\td\te\tf\tg\th\ti\tj\n", "line 1"},
        {"shape of letters", "rank_00.tsv", "48x32", "48xab", "malformed"},
        {"shape overflows", "rank_00.tsv", "48x32", "4294967296x4294967296x4", "malformed"},
        {"shape of five", "rank_00.tsv", "48x32", "1x1x1x1x1", "shape"},
        {"shape of six", "rank_00.tsv", "48x32", "1x1x1x1x1x1", "malformed"},
        {"strides too few", "rank_00.tsv", "8:0+32*48/64", "8:0+32*48/64\tstrides=1", "malformed"},
        {"strides huge", "rank_00.tsv", "8:0+32*48/64",
         "8:0+32*48/64\tstrides=9223372036854775808,1", "malformed"},
        {"shares nothing", "rank_00.tsv", "8:0+32*48/64", "8:0+32*48/64\tshares=+4", "malformed"},
        {"shares somewhere", "rank_00.tsv", "8:0+32*48/64", "8:0+32*48/64\tshares=x", "malformed"},
        {"number overflows", "rank_00.tsv", "8:0+32*48/64", "8:99999999999999999999+1",
         "malformed"},
        {"sum overflows", "rank_00.tsv", "8:0+32*48/64", "8:18446744073709551615+32*48/64",
         "malformed"},
        {"product wraps", "rank_00.tsv", "8:0+32*48/64",
         "8:0+4294967296*4294967296/18446744073709551615", "malformed"},
        {"count wraps", "rank_00.tsv", "8:0+32*48/64", "8:0+4294967296*4294967297/0", "end"},
        {"count of none", "rank_00.tsv", "8:0+32*48/64", "8:0+0", "malformed"},
        {"times none", "rank_00.tsv", "8:0+32*48/64", "8:0+32*0/64", "malformed"},
        {"parameter out of range", "rank_00.tsv", "8:0+32*48/64", "888:0+32*48/64",
         "parameter 888"},
        {"run of letters", "rank_00.tsv", "8:0+32*48/64", "x", "malformed"},
        {"comma at the end", "rank_00.tsv", "8:0+32*48/64", "8:0+32*48/64,", NULL},
        {"longer than the shape", "rank_00.tsv", "8:0+32*48/64", "8:0+32*48/64,8:0+1", "end"},
        {"index out of order", "params.tsv", "\n1\t", "\n7\t", "index"},
        {"index huge", "params.tsv", "\n1\t", "\n99999999999999999999999\t", "malformed"},
        {"unknown parameter", "params.tsv", "model.norm", "model.form", "inventory"},
        {"JSON cut", "case.json", NULL, "{\"framework\": ", "case.json"},
        {"JSON list", "case.json", NULL, "[]", "object"},
        {"no framework", "case.json", "\"framework\"", "\"frame\"", "framework"},
        {"framework as number", "case.json", "\"megatron-core\"", "7", "framework"},
        {"unknown framework", "case.json", "megatron-core", "megatron-score", "not supported"},
        {"no config", "case.json", "\"hf_config\"", "\"config\"", "hf_config"},
        {"sizes as text", "case.json", "\"tp\": 2", "\"tp\": \"2\"", "tp"},
        {"sizes huge", "case.json", "\"tp\": 2", "\"tp\": 99999999999999999999", "tp"},
        {"sizes zero", "case.json", "\"tp\": 2", "\"tp\": 0", "tp"},
        {"vocabulary huge", "case.json", "\"vocab_size\": 101", "\"vocab_size\": 1e99",
         "vocab_size"},
        {"version of a page", "case.json", "\"version\": \"0.20.0 ",
         "\"version\": \"99999999999999999999999999999999999999999999999999 ", "version"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct copy copy = copy_case("megatron-qwen3-tp2");
        edit(&copy, rows[i].file, rows[i].old, rows[i].new);
        if (rows[i].fragment) {
            const char *const fragments[3] = {rows[i].fragment, NULL, NULL};
            expect_failure(rows[i].title, &copy, fragments);
        } else {
            struct wf_case_result result;
            wf_case_check(copy.path, NULL, &result);
            cr_expect(result.ok, "%s: %s", rows[i].title, result.difference.text);
        }
        wf_folder_remove(copy.path);
    }
}

Test(layout_check, folders_that_are_no_case_are_refused_with_a_reason)
{
    struct wf_case_result result;
    wf_case_check("/nowhere/at/all", NULL, &result);
    cr_expect(!result.ok && result.refused && strstr(result.difference.text, "/nowhere"));
    wf_case_check("tests/golden/torch-casts", NULL, &result);
    cr_expect(!result.ok && result.refused && strstr(result.difference.text, "case.json"));
    wf_case_check(REAL "hf-transformers-5.24.0", NULL, &result);
    cr_expect(result.ok && !result.refused && result.kind == WF_CASE_INVENTORY);
    wf_case_check("tests/golden/models", NULL, &result);
    cr_expect(!result.ok && result.refused && strstr(result.difference.text, "case.json"));
    wf_case_check(REAL "README.md", NULL, &result);
    cr_expect(!result.ok && result.refused && result.difference.text[0]);
    struct copy copy = copy_case("megatron-qwen3-tp2");
    char path[512];
    edit(&copy, "case.json", NULL, "{\"framework\": \"torch\", \"files\": {}}");
    wf_case_check(copy.path, NULL, &result);
    cr_expect(!result.ok && result.kind == WF_CASE_LAYOUT, "an oracle with parameters");
    snprintf(path, sizeof path, "%s/params.tsv", copy.path);
    unlink(path);
    wf_case_check(copy.path, NULL, &result);
    cr_expect(result.ok && !result.refused && result.kind == WF_CASE_ORACLE);
    wf_folder_remove(copy.path);
    copy = copy_case("megatron-qwen3-tp2");
    snprintf(path, sizeof path, "%s/rank_00.tsv", copy.path);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    wf_case_check(copy.path, NULL, &result);
    cr_expect(!result.ok && strstr(result.difference.text, "rank_00.tsv"), "%s",
              result.difference.text);
    wf_folder_remove(copy.path);
}
