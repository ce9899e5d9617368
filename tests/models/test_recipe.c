/* test_recipe.c - SPECs: what parses to what, what is refused, and where ranks stand. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "models/recipe.h"

Test(recipe, canonical_text)
{
    static const struct {
        const char *spec, *canonical;
        uint32_t world;
    } rows[] = {
        {"hf:", "hf:", 1},
        {"hf", "hf:", 1},
        {"megatron:", "megatron:", 1},
        {"megatron:pp=2,tp=4,dp=2", "megatron:tp=4,pp=2,dp=2", 16},
        {"megatron:tp=1", "megatron:", 1},
        {"megatron:tp=2,pp=2,vocab_div=128", "megatron:tp=2,pp=2,vocab_div=128", 4},
        {"megatron:tp=2,vocab_div=256", "megatron:tp=2", 2},
        {"megatron:tp=2,etp=2,ep=1", "megatron:tp=2", 2},
        {"megatron:tp=2,etp=1", "megatron:tp=2,etp=1", 2},
        {"megatron:dp=4,etp=2,ep=2", "megatron:dp=4,ep=2,etp=2", 4},
        {"megatron:tp=2,dp=2,cp=2,ep=4,etp=1", "megatron:tp=2,dp=2,cp=2,ep=4,etp=1", 8},
        {"megatron:loader=mbridge,skip_mtp=1,shared_gate=0",
         "megatron:loader=mbridge,skip_mtp=1,shared_gate=0", 1},
        {"megatron:loader=bridge,skip_mtp=0,shared_gate=1", "megatron:", 1},
        {"megatron:experts=sequential", "megatron:experts=sequential", 1},
        {"megatron:version=0.20.0", "megatron:", 1},
        {"megatron:version=0.16.1", "megatron:version=0.16", 1},
        {"megatron:pp=2,account=embedding+loss", "megatron:pp=2,account=embedding+loss", 2},
        {"megatron:names=te", "megatron:", 1},
        {"megatron:names=local", "megatron:names=local", 1},
        {"megatron:pp=2,layout=Et|tt|tt|tL", "megatron:pp=2,layout=Et|tt|tt|tL", 2},
        {"megatron:order=tp-cp-ep-dp-pp", "megatron:", 1},
        {"megatron:tp=2,order=pp-dp-tp", "megatron:tp=2,order=pp-dp-tp", 2},
        {"megatron:experts=grouped", "megatron:", 1},
        {"vllm:tp=2,engines=2", "vllm:tp=2,engines=2", 4},
        {"vllm:version=0.33.0,dtype=f32,dp=2", "vllm:dtype=f32,dp=2", 2},
        {"vllm:stage=load", "vllm:", 1},
        {"vllm:stage=post,tp=2", "vllm:tp=2,stage=post", 2},
        {"vllm:quant=vllm_ue8m0,tp=2", "vllm:quant=vllm_ue8m0,tp=2", 2},
        {"sglang:quant=none", "sglang:quant=none", 1},
        {"sglang:quant=config", "sglang:", 1},
        {"megatron:dp=65536", "megatron:dp=65536", 65536},
        {"fsdp:tp=2,dp=4", "fsdp:dp=4,tp=2", 8},
        {"fsdp:replicate=2,dp=3,order=dp-replicate", "fsdp:dp=3,replicate=2,order=dp-replicate", 6},
        {"fsdp:dp=2,order=tp-dp-replicate,shard=1", "fsdp:dp=2,shard=1", 2},
        {"fsdp:version=5.24.0,flat=1,dp=3,align=8", "fsdp:dp=3,flat=1,align=8", 3},
        {"manifest:files=a.manifest", "manifest:files=a.manifest", 1},
        {"manifest:engines=3,quant=vllm,ranks=2,files=m/%d",
         "manifest:files=m/%d,ranks=2,engines=3,quant=vllm", 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe, again;
        struct wf_error error = {0};
        char text[WF_SPEC_MAX], second[WF_SPEC_MAX];
        cr_assert_eq(wf_recipe_parse(rows[i].spec, NULL, &recipe, &error), WF_OK, "%s: %s",
                     rows[i].spec, error.text);
        wf_recipe_format(&recipe, text);
        cr_expect_str_eq(text, rows[i].canonical, "%s", rows[i].spec);
        cr_expect_eq(wf_recipe_world(&recipe), rows[i].world, "%s", rows[i].spec);
        cr_assert_eq(wf_recipe_parse(text, NULL, &again, &error), WF_OK, "%s: %s", text,
                     error.text);
        wf_recipe_format(&again, second);
        cr_expect_str_eq(second, text);
    }
}

static const struct {
    const char *spec;
    enum wf_status status;
    const char *fragment;
} refusals[] = {
    {"", WF_INVALID, "unknown engine"},
    {"megatro:tp=2", WF_INVALID, "megatron?"},
    {"sglang:tp=2,dp_attention=1", WF_INVALID, "SGLang turns it off"},
    {"torchtitan:tp=2", WF_INVALID, "fsdp, hf, manifest, megatron, sglang, vllm"},
    {"fsdp:mesh=2x3", WF_INVALID, "no key \"mesh\""},
    {"fsdp:version=4.57.1", WF_UNSUPPORTED, "known: 5"},
    {"fsdp:shard=2", WF_INVALID, "0 or 1"},
    {"fsdp:shard=", WF_INVALID, "0 or 1"},
    {"fsdp:flat=1,tp=2", WF_UNSUPPORTED, "FSDP1"},
    {"fsdp:flat=1,shard=1", WF_UNSUPPORTED, "FSDP1"},
    {"fsdp:align=8", WF_INVALID, "flat=1"},
    {"fsdp:dp=256,tp=256,replicate=2", WF_INVALID, "ranks"},
    {"fsdp:dp=2,order=tp-replicate", WF_INVALID, "leaves out dp"},
    {"fsdp:order=tp-pp", WF_INVALID, "tp|dp|replicate"},
    {"megatron:tpp=2", WF_INVALID, "did you mean tp?"},
    {"megatron:vocab_dim=2", WF_INVALID, "did you mean vocab_div?"},
    {"megatron:engines=2", WF_INVALID, "engines"},
    {"vllm:cp=2", WF_INVALID, "cp"},
    {"hf:tp=2", WF_INVALID, "tp"},
    {"manifest:", WF_INVALID, "files: expected the path"},
    {"manifest:files=a-%d-%d", WF_INVALID, "with one %d"},
    {"manifest:files=a-%s", WF_INVALID, "with one %d"},
    {"manifest:files=a,ranks=2", WF_INVALID, "expected %d in it"},
    {"manifest:files=a-%d,tp=2", WF_INVALID, "tp"},
    {"megatron:tp=2,tp=2", WF_INVALID, "twice"},
    {"megatron:tp=", WF_INVALID, "tp"},
    {"megatron:tp", WF_INVALID, "KEY=VALUE"},
    {"megatron:tp=2,", WF_INVALID, "KEY=VALUE"},
    {"megatron:,tp=2", WF_INVALID, "KEY=VALUE"},
    {"megatron:tp=0", WF_INVALID, "tp"},
    {"megatron:tp=02", WF_INVALID, "tp"},
    {"megatron:tp=+2", WF_INVALID, "tp"},
    {"megatron:tp=-2", WF_INVALID, "tp"},
    {"megatron:tp=2k", WF_INVALID, "tp"},
    {"megatron:tp=0x2", WF_INVALID, "tp"},
    {"megatron:tp= 2", WF_INVALID, "tp"},
    {"megatron:tp=2 ", WF_INVALID, "tp"},
    {"megatron:tp=2.0", WF_INVALID, "tp"},
    {"megatron:tp=4294967298", WF_INVALID, "tp"},
    {"megatron:tp=99999999999999999999999", WF_INVALID, "tp"},
    {"megatron:tp=65536,pp=65536", WF_INVALID, "ranks"},
    {"megatron:tp=256,pp=256,dp=2", WF_INVALID, "ranks"},
    {"megatron:tp=65536,pp=65536,dp=65536,cp=65536", WF_INVALID, "ranks"},
    {"megatron:ep=2", WF_INVALID, "1 ranks (tp x cp x dp x pp) cannot be divided by 2"},
    {"megatron:tp=4,etp=3", WF_INVALID, "etp=3"},
    {"megatron:tp=2,pp=2,dp=2,order=tp-pp-dp,etp=1", WF_INVALID, "pp is not last"},
    {"megatron:tp=2,pp=2,dp=2,ep=2,order=tp-pp-dp", WF_INVALID, "leaves out ep"},
    {"megatron:tp=2,pp=2,dp=2,cp=2,order=tp-cp-pp-dp", WF_INVALID, "2 and 4"},
    {"megatron:experts=fused", WF_INVALID, "grouped|sequential|single"},
    {"megatron:skip_mtp=yes", WF_INVALID, "0 or 1"},
    {"vllm:quant=fp8", WF_INVALID, "quant: expected one of config|none|deepseek"},
    {"sglang:quant=row128", WF_INVALID, "transformers|channel_div|channel_mul, found \"row128\""},
    {"megatron:quant=vllm", WF_INVALID, "megatron has no key \"quant\""},
    {"vllm:stage=after", WF_INVALID, "stage: expected one of"},
    {"megatron:version=0.19", WF_UNSUPPORTED, "0.16 0.20"},
    {"megatron:version=0.200", WF_UNSUPPORTED, "0.16 0.20"},
    {"megatron:version=", WF_UNSUPPORTED, "known"},
    {"vllm:version=0.33.0; rm", WF_UNSUPPORTED, "known"},
    {"vllm:dtype=bfloat16", WF_INVALID, "bf16"},
    {"vllm:dtype=f8_e4m3", WF_UNSUPPORTED, "f8_e4m3"},
    {"megatron:account=both", WF_INVALID, "embedding+loss"},
    {"megatron:names=torch", WF_INVALID, "local"},
    {"megatron:order=tp-tp", WF_INVALID, "order"},
    {"megatron:order=", WF_INVALID, "order"},
    {"megatron:order=tp-xp", WF_INVALID, "order"},
    {"megatron:pp=2,order=tp-dp", WF_INVALID, "leaves out pp"},
    {"megatron:layout=", WF_INVALID, "layout"},
};

Test(recipe, refusals_name_the_key)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct wf_recipe recipe;
        struct wf_error error = {0};
        enum wf_status status = wf_recipe_parse(refusals[i].spec, NULL, &recipe, &error);
        cr_expect_eq(status, refusals[i].status, "%s: %s", refusals[i].spec, error.text);
        cr_expect(strstr(error.text, refusals[i].fragment), "%s: %s", refusals[i].spec, error.text);
    }
}

Test(recipe, a_long_spec_is_refused)
{
    char spec[3000];
    memset(spec, 'x', sizeof spec - 1);
    spec[sizeof spec - 1] = '\0';
    struct wf_recipe recipe;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, NULL, &recipe, &error), WF_INVALID);
    memcpy(spec, "megatron:layout=", 16);
    spec[1000] = '\0';
    cr_assert_eq(wf_recipe_parse(spec, NULL, &recipe, &error), WF_INVALID);
    cr_assert(strstr(error.text, "layout"), "%s", error.text);
}

Test(recipe, sizes_that_do_not_fit_the_model_are_refused)
{
    /* 9 query heads, 3 KV heads, 4 layers, vocabulary 384. */
    struct wf_model *llama = golden_model("tests/golden/models/tiny-llama.json");
    /* 8 query heads, 2 KV heads, 4 layers, vocabulary 500. */
    struct wf_model *qwen = golden_model("tests/golden/models/tiny-qwen3.json");
    const struct {
        const struct wf_model *model;
        const char *spec, *fragment; /* NULL: fits */
    } rows[] = {
        {llama, "megatron:tp=3,pp=2", NULL},
        {llama, "vllm:tp=3", NULL},
        {llama, "megatron:tp=2", "3 KV heads"},
        {llama, "vllm:tp=2", "9 units"},
        {llama, "vllm:tp=9", "384 rows of model.embed_tokens.weight"},
        {qwen, "megatron:tp=4", NULL},
        {qwen, "vllm:tp=8", NULL},
        {qwen, "vllm:tp=16", "8 units"},
        {qwen, "megatron:tp=2,vocab_div=1", NULL},
        {qwen, "megatron:tp=8,vocab_div=1", "500 rows of model.embed_tokens.weight"},
        {qwen, "megatron:pp=3", "4 layers cannot be divided equally over pp=3"},
        {qwen, "vllm:pp=3", NULL},
        {qwen, "vllm:pp=5", "4 layers"},
        {qwen, "megatron:pp=2,vpp=2", NULL},
        {qwen, "megatron:pp=2,vpp=3", "vpp=3"},
        {qwen, "megatron:vpp=2", "pp of at least 2"},
        {qwen, "megatron:pp=2,first=1", NULL},
        {qwen, "megatron:pp=2,first=1,last=2", "between first and last"},
        {qwen, "megatron:pp=2,first=5", "do not fit"},
        {qwen, "megatron:pp=2,first=1,account=loss", "account"},
        {qwen, "megatron:pp=3,account=embedding+loss", NULL},
        {qwen, "megatron:pp=2,account=loss", "pp=2"},
        {qwen, "megatron:pp=2,layout=Ett|ttL", NULL},
        {qwen, "megatron:pp=2,layout=Ett|tL", "places 3 layers"},
        {qwen, "megatron:pp=2,layout=Ett|ttmL", "places 1 further-token layers (m)"},
        {qwen, "fsdp:dp=3,tp=7", NULL},
        {qwen, "fsdp:dp=2,shard=1", NULL},
        {qwen, "fsdp:dp=7,shard=1", "FSDP shards unevenly on dimension 0 only"},
        {qwen, "fsdp:dp=7,flat=1", NULL},
        {qwen, "megatron:pp=2,layout=ttE|ttL", "begin with"},
        {qwen, "megatron:pp=2,layout=Ett|Ltt", "end with"},
        {qwen, "megatron:pp=2,layout=Ett|tt|L", "stages"},
        {qwen, "megatron:pp=2,layout=E(t|)*4L", "stages"},
        {qwen, "megatron:pp=2,layout=Ett|ttL,first=1", "combined"},
        {qwen, "megatron:pp=2,layout=Ex|ttL", "expected"},
        {qwen, "megatron:pp=2,layout=E(tt|ttL", "expected"},
        {qwen, "megatron:pp=2,layout=Ett)|ttL", "expected"},
        {qwen, "megatron:pp=2,layout=Et*2|t*2L", NULL},
        {qwen, "megatron:pp=2,layout=Et*99999999999|L", "expected"},
        {qwen, "megatron:pp=2,layout=(((((((((t)*9)*9)*9)*9)*9)*9)*9)*9)*9", "expected"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe;
        struct wf_error error = {0};
        enum wf_status status = wf_recipe_parse(rows[i].spec, rows[i].model, &recipe, &error);
        cr_expect_eq(status, rows[i].fragment ? WF_INVALID : WF_OK, "%s: %s", rows[i].spec,
                     error.text);
        cr_expect(!rows[i].fragment || strstr(error.text, rows[i].fragment), "%s: %s", rows[i].spec,
                  error.text);
    }
    wf_model_free(llama);
    wf_model_free(qwen);
}

Test(recipe, megatron_ranks_stand_as_the_framework_says)
{
    struct json_object *root = golden_json("tests/golden/vectors/megatron_ranks.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        char spec[256];
        snprintf(spec, sizeof spec, "megatron:tp=%u,pp=%u,dp=%u,cp=%u,ep=%u,etp=%u,order=%s",
                 golden_number(it, "tp"), golden_number(it, "pp"), golden_number(it, "dp"),
                 golden_number(it, "cp"), golden_number(it, "ep"), golden_number(it, "etp"),
                 json_object_get_string(golden_get(it, "order")));
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(spec, NULL, &recipe, &error), WF_OK, "%s", error.text);
        cr_assert_eq(wf_recipe_world(&recipe), golden_number(it, "world"), "%s", spec);
        for (uint32_t rank = 0; rank < wf_recipe_world(&recipe); rank++) {
            struct wf_coordinates at = wf_recipe_coordinates(&recipe, rank);
            cr_expect_eq(at.tp, golden_at(golden_get(it, "tp_rank"), rank), "%s %u", spec, rank);
            cr_expect_eq(at.pp, golden_at(golden_get(it, "pp_rank"), rank), "%s %u", spec, rank);
            cr_expect_eq(at.dp, golden_at(golden_get(it, "dp_rank"), rank), "%s %u", spec, rank);
            cr_expect_eq(at.cp, golden_at(golden_get(it, "cp_rank"), rank), "%s %u", spec, rank);
            cr_expect_eq(at.group[WF_GROUP_EP].rank, golden_at(golden_get(it, "ep_rank"), rank),
                         "%s %u", spec, rank);
            cr_expect_eq(at.group[WF_GROUP_ETP].rank, golden_at(golden_get(it, "etp_rank"), rank),
                         "%s %u", spec, rank);
        }
    }
    json_object_put(root);
}

/* Row by row over the mesh that the order names from its last axis on. */
Test(recipe, fsdp_ranks_stand_as_the_mesh_says)
{
    static const struct {
        const char *spec;
        uint32_t rank, tp, shard, dp;
    } rows[] = {
        {"fsdp:dp=3,tp=2", 0, 0, 0, 0},
        {"fsdp:dp=3,tp=2", 5, 1, 2, 2},
        {"fsdp:dp=3,tp=2,replicate=2", 7, 1, 0, 3},
        {"fsdp:dp=3,replicate=2", 4, 0, 1, 4},
        {"fsdp:dp=3,tp=2,order=dp-tp", 4, 1, 1, 1},
        {"fsdp:dp=3,replicate=2,order=replicate-dp", 3, 0, 1, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(rows[i].spec, NULL, &recipe, &error), WF_OK, "%s", error.text);
        struct wf_coordinates at = wf_recipe_coordinates(&recipe, rows[i].rank);
        cr_expect_eq(at.tp, rows[i].tp, "%s %u", rows[i].spec, rows[i].rank);
        cr_expect_eq(at.group[WF_GROUP_TP].rank, rows[i].tp, "%s %u", rows[i].spec, rows[i].rank);
        cr_expect_eq(at.group[WF_GROUP_DP].rank, rows[i].shard, "%s %u", rows[i].spec,
                     rows[i].rank);
        cr_expect_eq(at.dp, rows[i].dp, "%s %u", rows[i].spec, rows[i].rank);
    }
}

Test(recipe, vllm_engines_follow_one_another)
{
    struct wf_recipe recipe;
    cr_assert_eq(wf_recipe_parse("vllm:tp=2,pp=3,dp=2,engines=2", NULL, &recipe, NULL), WF_OK);
    cr_assert_eq(wf_recipe_world(&recipe), 24);
    cr_assert_eq(wf_recipe_ranks_per_engine(&recipe), 12);
    struct wf_coordinates at = wf_recipe_coordinates(&recipe, 12 + 6 + 2 * 2 + 1);
    cr_expect(at.engine == 1 && at.dp == 1 && at.pp == 2 && at.tp == 1);
}
