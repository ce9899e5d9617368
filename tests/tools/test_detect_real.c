/* test_detect_real.c - every executed layout is detected: the model and recipe of its case.json are
 * the answer, or among several that really make the same names, shapes and types. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/sanitized.h"
#include "tests/tools/detect_case.h"

#define REAL "tests/golden/real/"
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* RIGHT: no other answer makes what its ranks show. AMBIGUOUS: halves of wider models do (tp and
 * dp, etp), families of the same tensors (Llama, Mistral), or backends that change contents alone.
 */
struct row {
    const char *folder;
    enum detect_class class;
};

static const struct row fsdp[] = {
    {"dtensor-odd-tp3", DETECT_RIGHT},        {"fsdp1-qwen3-dp3", DETECT_RIGHT},
    {"fsdp2-odd-dp8-empty", DETECT_RIGHT},    {"fsdp2-odd-hsdp2x3", DETECT_RIGHT},
    {"fsdp2-odd-tied-dp5", DETECT_RIGHT},     {"fsdp2-qwen3-dp2", DETECT_RIGHT},
    {"fsdp2-qwen3-dp2-tp2", DETECT_RIGHT},    {"fsdp2-qwen3-dp3", DETECT_RIGHT},
    {"fsdp2-qwen3-dp3-tp2", DETECT_RIGHT},    {"fsdp2-qwen3-dp4", DETECT_RIGHT},
    {"fsdp2-qwen3-shard1-dp2", DETECT_RIGHT}, {"fsdp2-qwen3moe-dp4", DETECT_RIGHT},
    {"fsdp1-gemma3-tied-dp4", DETECT_RIGHT},  {"fsdp2-glm4moe-dp3", DETECT_RIGHT},
};

static const struct row megatron[] = {
    {"megatron-bridge-dsv3-mtp1-tp1", DETECT_AMBIGUOUS},
    {"megatron-bridge-gemma3-tp2", DETECT_AMBIGUOUS},
    {"megatron-bridge-gptoss-tp2-ep2-etp1", DETECT_AMBIGUOUS},
    {"megatron-bridge-qwen3next-tp1", DETECT_RIGHT},
    {"megatron-bridge-qwen3next-tp2-ep2-etp1", DETECT_AMBIGUOUS},
    {"megatron-dsv3-mtp1-tp1", DETECT_AMBIGUOUS},
    {"megatron-dsv3-pp2-layout-norm", DETECT_AMBIGUOUS},
    {"megatron-dsv3-tp1", DETECT_AMBIGUOUS},
    {"megatron-dsv3-tp2-ep2-etp1", DETECT_AMBIGUOUS},
    {"megatron-glm4moe-mtp1-pp2", DETECT_RIGHT},
    {"megatron-glm4moe-pp2-no-mtp", DETECT_RIGHT},
    {"megatron-glm4moe-tp2-ep2-etp1", DETECT_RIGHT},
    {"megatron-llama-pp2-account", DETECT_AMBIGUOUS},
    {"megatron-llama-pp2-vpp2", DETECT_AMBIGUOUS},
    {"megatron-llama-pp2-vpp2-layout", DETECT_AMBIGUOUS},
    {"megatron-llama-tp2-cp2-dp2", DETECT_AMBIGUOUS},
    {"megatron-llama-tp2-pp2-dp2", DETECT_AMBIGUOUS},
    {"megatron-local-qwen3-tp2", DETECT_AMBIGUOUS},
    {"megatron-local-qwen3moe-sequential-tp2-ep2-etp1", DETECT_AMBIGUOUS},
    {"megatron-mixtral-tp2-etp2", DETECT_AMBIGUOUS},
    {"megatron-qwen2-tp2", DETECT_AMBIGUOUS},
    {"megatron-qwen2moe-tp2-ep2-etp1", DETECT_AMBIGUOUS},
    {"megatron-qwen3-pp3-first2-last1", DETECT_AMBIGUOUS},
    {"megatron-qwen3-tied-tp2-pp2", DETECT_AMBIGUOUS},
    {"megatron-qwen3-tp1", DETECT_AMBIGUOUS},
    {"megatron-qwen3-tp2", DETECT_AMBIGUOUS},
    {"megatron-qwen3-tp4-kv2", DETECT_AMBIGUOUS},
    {"megatron-qwen3moe-ep2", DETECT_AMBIGUOUS},
    {"megatron-qwen3moe-tp1", DETECT_AMBIGUOUS},
    {"megatron-qwen3moe-tp1-dp4-ep2-etp2", DETECT_AMBIGUOUS},
    {"megatron-qwen3moe-tp2-ep2-etp1", DETECT_AMBIGUOUS},
    {"megatron-qwen3moe-tp2-pp2-dp2-ep4-etp1", DETECT_AMBIGUOUS},
    {"megatron-rel016-dsv3-mtp1-pp2", DETECT_AMBIGUOUS},
    {"megatron-rel016-dsv3-noqlora-tp2", DETECT_AMBIGUOUS},
    {"megatron-rel016-qwen3-tp2", DETECT_AMBIGUOUS},
};

static const struct row sglang[] = {
    {"sglang-deepseekv3-fp8block-tp4-dpattn2ep2", DETECT_AMBIGUOUS},
    {"sglang-deepseekv3-tp2", DETECT_AMBIGUOUS},
    {"sglang-deepseekv3-tp2-fusedshared", DETECT_AMBIGUOUS},
    {"sglang-deepseekv3-tp2-moedense1-dpattn2", DETECT_AMBIGUOUS},
    {"sglang-deepseekv3-tp4-dpattn2ep4", DETECT_AMBIGUOUS},
    {"sglang-deepseekv32-tp2", DETECT_AMBIGUOUS},
    {"sglang-dsv2-noqlora-tp2", DETECT_AMBIGUOUS},
    {"sglang-dsv2-onehead-tp2", DETECT_AMBIGUOUS},
    {"sglang-gemma2-tp4-odd", DETECT_AMBIGUOUS},
    {"sglang-gemma3-tp2-tied", DETECT_AMBIGUOUS},
    {"sglang-gemma3-tower-data", DETECT_RIGHT},
    {"sglang-glm4moe-tp4ep2-r2unheeded", DETECT_AMBIGUOUS},
    {"sglang-glm4moe-tp2", DETECT_AMBIGUOUS},
    {"sglang-glm4moelite-tp2", DETECT_AMBIGUOUS},
    {"sglang-gptoss-bf16-tp2", DETECT_AMBIGUOUS},
    {"sglang-gptoss-bf16-tp4-kvrep", DETECT_AMBIGUOUS},
    {"sglang-gptoss-mxfp4-tp4", DETECT_AMBIGUOUS},
    {"sglang-gptoss-tritonkernel-tp2", DETECT_AMBIGUOUS},
    {"sglang-ling25-tp2", DETECT_AMBIGUOUS},
    {"sglang-llama-tp1", DETECT_AMBIGUOUS},
    {"sglang-llama-tp2pp2-tied", DETECT_AMBIGUOUS},
    {"sglang-mistral-tp2", DETECT_AMBIGUOUS},
    {"sglang-mixtral-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen2moe-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen2-tp4-tied", DETECT_AMBIGUOUS},
    {"sglang-qwen3-fp8block-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3-fp8rows-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-fp8rows-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3-tp2-moedense1", DETECT_AMBIGUOUS},
    {"sglang-qwen3-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3-tp2pp2-tied", DETECT_AMBIGUOUS},
    {"sglang-qwen35-fp8block-tp2", DETECT_RIGHT},
    {"sglang-qwen35-tp2", DETECT_RIGHT},
    {"sglang-qwen35moe-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-fp8block-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-fp8block-tp2-deepgemm-post", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-fp8block-tp2-fitrtllm", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-fp8block-tp2-triton-post", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp2-ficutlass", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp2-post", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp2-triton-post", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp2-tritonkernel", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp2ep2-eplb-r2", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp4", DETECT_AMBIGUOUS},
    {"sglang-qwen3moe-tp4ep4", DETECT_AMBIGUOUS},
    {"sglang-qwen3next-fused-ep2-r2", DETECT_AMBIGUOUS},
    {"sglang-qwen3next-fused-tp4ep2", DETECT_AMBIGUOUS},
    {"sglang-qwen3next-tp2", DETECT_AMBIGUOUS},
    {"sglang-qwen3vlmoe-tp4", DETECT_AMBIGUOUS},
};

static const struct row vllm[] = {
    {"vllm-deepseekv3-fp8block-tp2", DETECT_AMBIGUOUS},
    {"vllm-deepseekv3-tp2", DETECT_AMBIGUOUS},
    {"vllm-deepseekv3-tp2-absorbed", DETECT_AMBIGUOUS},
    {"vllm-deepseekv3-tp2ep2-roundrobin", DETECT_AMBIGUOUS},
    {"vllm-deepseekv32-dp2tp2-ep", DETECT_AMBIGUOUS},
    {"vllm-deepseekv32-tp2", DETECT_AMBIGUOUS},
    {"vllm-gemma3-tower-pp2", DETECT_RIGHT},
    {"vllm-gemma3-tp2-tied", DETECT_AMBIGUOUS},
    {"vllm-glm4moe-tp4", DETECT_AMBIGUOUS},
    {"vllm-glm4moelite-tp2", DETECT_AMBIGUOUS},
    {"vllm-gptoss-bf16-tp2", DETECT_AMBIGUOUS},
    {"vllm-gptoss-mxfp4-tp4", DETECT_AMBIGUOUS},
    {"vllm-llama-tp1", DETECT_AMBIGUOUS},
    {"vllm-llama-tp2pp2-tied", DETECT_AMBIGUOUS},
    {"vllm-mixtral-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen2-tp2-bias", DETECT_AMBIGUOUS},
    {"vllm-qwen2moe-eplb-unheeded", DETECT_AMBIGUOUS},
    {"vllm-qwen2moe-tp2-nobias", DETECT_AMBIGUOUS},
    {"vllm-qwen3-fp8block-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3-fp8rows-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-fp8rows-tp2", DETECT_RIGHT},
    {"vllm-qwen3-fp8block-tp2-post", DETECT_AMBIGUOUS},
    {"vllm-qwen3-fp8block-ue8m0-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3-tp8-tied-kvrep", DETECT_AMBIGUOUS},
    {"vllm-qwen35-tp2", DETECT_RIGHT},
    {"vllm-qwen35moe-tp2-perexpert", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-dp2tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-ep4-uneven", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-fp8block-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-fp8block-tp2-fitrtllm", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-fp8block-tp2-triton-post", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-tp2-ficutlass", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-tp2-fitrtllm", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-tp2-triton-post", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-tp2ep2-eplb-r2", DETECT_AMBIGUOUS},
    {"vllm-qwen3moe-tp4", DETECT_AMBIGUOUS},
    {"vllm-qwen3next-tp2", DETECT_AMBIGUOUS},
    {"vllm-qwen3vl-fp8block-tp2", DETECT_RIGHT},
    {"vllm-qwen3vl-pp2", DETECT_RIGHT},
    {"vllm-qwen3vl-tp2-tied", DETECT_RIGHT},
    {"vllm-qwen3vl-tp2-visiondata", DETECT_AMBIGUOUS},
    {"vllm-qwen3vlmoe-tp4", DETECT_AMBIGUOUS},
};

enum { STRIDE = SANITIZED ? 9 : 1 };

static void expect_rows(const struct row *rows, size_t count)
{
    static struct detect_case one;
    for (size_t i = 0; i < count; i += STRIDE) {
        char path[256];
        snprintf(path, sizeof path, REAL "%s", rows[i].folder);
        detect_case_run(path, &one);
        cr_expect_eq(one.class, rows[i].class, "%s: expected %s, found %s: %s of %s: %s",
                     rows[i].folder, detect_class_names[rows[i].class],
                     detect_class_names[one.class], one.truth, one.family, one.text);
        cr_expect(!one.gave_up && !one.more, "%s: %s", rows[i].folder, one.text);
    }
}

Test(detect_real, fsdp)
{
    expect_rows(fsdp, COUNT(fsdp));
}

Test(detect_real, megatron)
{
    expect_rows(megatron, COUNT(megatron));
}

Test(detect_real, sglang)
{
    expect_rows(sglang, COUNT(sglang));
}

Test(detect_real, vllm)
{
    expect_rows(vllm, COUNT(vllm));
}

static bool has_row(const struct row *rows, size_t count, const char *folder)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].folder, folder) == 0) {
            return true;
        }
    }
    return false;
}

Test(detect_real, every_folder_has_a_row)
{
    DIR *folder = opendir(REAL);
    cr_assert(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        bool layout = strchr(name, '.') == NULL;
        cr_expect(!layout || has_row(fsdp, COUNT(fsdp), name) ||
                      has_row(megatron, COUNT(megatron), name) ||
                      has_row(sglang, COUNT(sglang), name) || has_row(vllm, COUNT(vllm), name),
                  "%s", name);
    }
    closedir(folder);
}
