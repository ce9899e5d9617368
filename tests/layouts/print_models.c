/* print_models.c [FILE] - docs/models.md: every family in every engine, by feature, and how it is
 * known. Without FILE it prints the page; with FILE it compares, and says how to make it anew.
 *
 * A cell is what this program finds out: an executed fixture has the feature (tools/layout_check
 * compares it), or small configs of the family derive all ranks with it, or are refused, and then
 * the refusal's own words stand below.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout.h"
#include "tools/layout/check.h"
#include "zoo.h"

#define REAL "tests/golden/real/"

enum { CASES_MAX = 256, CONFIGS = 60, NOTES_MAX = 256, NOTE_TEXT = 512, JSON_MAX = 1 << 20 };

/* How a config's weights are quantised: the size that is 1 then, and what the config says. */
enum format { PLAIN, FP8, INT4, NVFP4, MXFP4, FORMATS };
static const struct {
    const char *size, *config;
} formats[FORMATS] = {
    [PLAIN] = {NULL, NULL},
    [FP8] = {"fp8",
             "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\", "
             "\"weight_block_size\": [128, 128], \"modules_to_not_convert\": [\"...\"]}"},
    [INT4] = {"int4",
              "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
              "\"weights\": {\"num_bits\": 4, \"group_size\": 32, \"symmetric\": true}, "
              "\"ignore\": [\"re:.*attn.*\", \"re:.*attention.*\", \"re:.*shared_expert.*\", "
              "\"re:.*mlp\\\\.(gate|up|down)_proj.*\"]}"},
    [NVFP4] = {"nvfp4", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}"},
    [MXFP4] = {"mxfp4", "{\"quant_method\": \"mxfp4\"}"},
};

struct feature {
    const char *title, *spec; /* what is added to the engine's SPEC */
    const char *shown;        /* keys of an executed recipe that has it, parted by spaces */
    const char *needs;        /* size or stack that the family must have; NULL: none */
    enum format format;
};

static const struct feature megatron_features[] = {
    {"TP", "tp=2", "tp", NULL, PLAIN},
    {"PP", "pp=2", "pp", NULL, PLAIN},
    {"VPP", "pp=2,vpp=2", "vpp", NULL, PLAIN},
    {"uneven stages", "pp=2,first=1", "first", NULL, PLAIN},
    {"DP, CP", "dp=2,cp=2", "dp", NULL, PLAIN},
    {"EP", "dp=2,ep=2,etp=1", "ep", "E", PLAIN},
    {"ETP over TP", "dp=2,etp=2", "etp", "E", PLAIN},
    {"local names", "names=local,experts=sequential", "names=local", NULL, PLAIN},
    {"0.16", "version=0.16", "version=0.16", NULL, PLAIN},
    {"further tokens", "", "", "mtp", PLAIN},
};
static const struct feature fsdp_features[] = {
    {"FSDP2", "dp=3", "dp", NULL, PLAIN},
    {"over TP", "tp=2,dp=2", "tp", NULL, PLAIN},
    {"HSDP", "dp=2,replicate=2", "replicate", NULL, PLAIN},
    {"Shard(1)", "dp=2,shard=1", "shard", NULL, PLAIN},
    {"FSDP1", "dp=3,flat=1", "flat", NULL, PLAIN},
};
static const struct feature files_features[] = {
    {"plain", "", "", NULL, PLAIN}, {"fp8 blocks", "", "", NULL, FP8}, {"int4", "", "", NULL, INT4},
    {"mxfp4", "", "", NULL, MXFP4}, {"nvfp4", "", "", NULL, NVFP4},
};
static const struct feature vllm_features[] = {
    {"TP", "tp=2", "tp", NULL, PLAIN},
    {"PP", "pp=2", "pp", NULL, PLAIN},
    {"DP", "dp=2", "dp", NULL, PLAIN},
    {"EP", "tp=2,ep=2", "ep", "E", PLAIN},
    {"round robin", "tp=2,ep=2,strategy=round_robin", "strategy=round_robin", "E", PLAIN},
    {"redundant", "tp=2,ep=2,eplb=1,redundant=2", "redundant", "E", PLAIN},
    {"after the hook", "tp=2,stage=post,moe_backend=triton", "stage=post", NULL, PLAIN},
    {"fp8 blocks", "tp=2", "", NULL, FP8},
    {"int4 experts", "tp=2", "", "E", INT4},
    {"mxfp4", "tp=2", "", NULL, MXFP4},
    {"nvfp4", "tp=2", "", NULL, NVFP4},
};
static const struct feature sglang_features[] = {
    {"TP", "tp=2", "tp", NULL, PLAIN},
    {"PP", "pp=2", "pp", NULL, PLAIN},
    {"DP attention", "tp=2,dp=2,dp_attention=1", "dp_attention", NULL, PLAIN},
    {"EP", "tp=2,ep=2", "ep", "E", PLAIN},
    {"redundant", "tp=2,ep=2,redundant=2", "redundant", "E", PLAIN},
    {"fused shared", "tp=2,shared_experts=fused", "shared_experts=fused", "ns", PLAIN},
    {"after the hook", "tp=2,stage=post,moe_backend=triton", "stage=post", NULL, PLAIN},
    {"fp8 blocks", "tp=2", "", NULL, FP8},
    {"int4 experts", "tp=2", "", "E", INT4},
    {"mxfp4", "tp=2", "", NULL, MXFP4},
    {"nvfp4", "tp=2", "", NULL, NVFP4},
};

struct page {
    FILE *out;
    struct {
        char name[128], spec[WF_SPEC_MAX];
        const struct wf_engine *engine;
        char model_type[64];
        enum format format;
        bool mtp;
    } cases[CASES_MAX];
    size_t case_count;
    char notes[NOTES_MAX][NOTE_TEXT];
    size_t note_count;
};

/* --- executed -------------------------------------------------------------------------------- */

static uint64_t stack_count(const struct wf_model *model, const char *stack)
{
    for (uint32_t s = 0; s < model->family->stack_count; s++) {
        if (strcmp(model->family->stacks[s].name, stack) == 0) {
            return wf_model_stack_count(model, s);
        }
    }
    return 0;
}

static enum format format_of(const struct wf_model *model)
{
    enum format format = FORMATS - 1;
    while (format > PLAIN && wf_model_size(model, formats[format].size) == 0) {
        format--;
    }
    return format;
}

static void read_case(struct page *page, const char *name)
{
    char path[512], *text = malloc(JSON_MAX);
    struct wf_case it;
    struct wf_case_result result;
    snprintf(path, sizeof path, REAL "%s/case.json", name);
    FILE *file = fopen(path, "rb");
    size_t len = file != NULL ? fread(text, 1, JSON_MAX, file) : 0;
    if (file != NULL && wf_case_parse(text, len, NULL, &it, NULL) == WF_OK) {
        snprintf(path, sizeof path, REAL "%s", name);
        wf_case_check(path, NULL, &result);
        size_t at = page->case_count;
        snprintf(page->cases[at].name, sizeof page->cases[at].name, "%s", name);
        wf_recipe_format(&it.recipe, page->cases[at].spec);
        page->cases[at].engine = it.recipe.engine;
        memcpy(page->cases[at].model_type, it.model->model_type, sizeof it.model->model_type);
        page->cases[at].format = format_of(it.model);
        page->cases[at].mtp = stack_count(it.model, "mtp") > 0;
        page->case_count += result.ok;
        wf_case_fini(&it);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(text);
}

static int is_case(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strchr(entry->d_name, '.') == NULL;
}

static void read_cases(struct page *page)
{
    struct dirent **entries = NULL;
    int count = scandir(REAL, &entries, is_case, alphasort);
    for (int i = 0; i < count; i++) {
        if (page->case_count < CASES_MAX) {
            read_case(page, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
}

/* Whether the SPEC gives the key ("pp"), or the key this value ("stage=post"). */
static bool gives(const char *spec, const char *key, size_t len)
{
    for (const char *at = strchr(spec, ':'); at != NULL; at = strchr(at + 1, ',')) {
        char after = at[1 + len];
        bool whole = memchr(key, '=', len) != NULL ? after == ',' || after == '\0' || after == '.'
                                                   : after == '=';
        if (strncmp(at + 1, key, len) == 0 && whole) {
            return true;
        }
    }
    return false;
}

static bool case_shows(const struct page *page, size_t i, const struct feature *feature)
{
    const char *key = feature->shown;
    if (page->cases[i].format != feature->format ||
        (feature->needs != NULL && strcmp(feature->needs, "mtp") == 0 && !page->cases[i].mtp)) {
        return false;
    }
    while (*key != '\0') {
        size_t len = strcspn(key, " ");
        if (!gives(page->cases[i].spec, key, len)) {
            return false;
        }
        key += len + strspn(key + len, " ");
    }
    return true;
}

/* --- derived or refused ---------------------------------------------------------------------- */

static bool derives(const struct wf_model *model, const struct wf_engine *engine, const char *spec,
                    struct wf_error *error)
{
    char text[WF_SPEC_MAX];
    struct wf_recipe recipe;
    snprintf(text, sizeof text, "%s:%s", engine->name, spec);
    if (wf_recipe_parse(text, model, &recipe, error) != WF_OK) {
        return false;
    }
    for (uint32_t rank = 0; rank < wf_recipe_world(&recipe); rank++) {
        struct wf_layout *layout = NULL;
        if (wf_layout_derive(model, &recipe, rank, &layout, error) != WF_OK) {
            return false;
        }
        wf_layout_free(layout);
    }
    return true;
}

/* A small config of the family; of a quantised one the sizes are large enough. */
static void config_of(const struct zoo_family *zoo, unsigned number, enum format format,
                      char out[ZOO_CONFIG_MAX])
{
    uint64_t state = 0x5eed0700 + number;
    zoo_config_scaled(zoo, &state, format != PLAIN ? 128 : 1, out);
    if (format != PLAIN) {
        size_t len = strlen(out);
        int more = snprintf(out + len - 1, ZOO_CONFIG_MAX - len, ", \"quantization_config\": %s}",
                            formats[format].config);
        if (more < 0 || (size_t)more >= ZOO_CONFIG_MAX - len) {
            abort(); /* room for the largest is ZOO_CONFIG_MAX */
        }
    }
}

enum cell { CELL_DERIVED, CELL_REFUSED, CELL_NONE };

/* What configs were refused with, and how often. */
struct refusals {
    char texts[CONFIGS][NOTE_TEXT];
    unsigned counts[CONFIGS], count;
};

static void add_refusal(struct refusals *refusals, const char *text)
{
    char cut[NOTE_TEXT];
    unsigned at = 0;
    snprintf(cut, sizeof cut, "%.500s", text);
    while (at < refusals->count && strcmp(refusals->texts[at], cut) != 0) {
        at++;
    }
    memcpy(refusals->texts[at], cut, sizeof cut);
    refusals->count += at == refusals->count;
    refusals->counts[at]++;
}

static const char *usual_refusal(const struct refusals *refusals)
{
    unsigned best = 0;
    for (unsigned i = 1; i < refusals->count; i++) {
        best = refusals->counts[i] > refusals->counts[best] ? i : best;
    }
    return refusals->texts[best];
}

/* Without the SPEC that the recipe's reader puts before. */
static const char *sentence(const char *text)
{
    const char *quote = strncmp(text, "SPEC \"", 6) == 0 ? strstr(text + 6, "\": ") : NULL;
    return quote != NULL ? quote + 3 : text;
}

/* Tries configs until one derives. CELL_NONE: the family has nothing that the feature speaks of. */
static enum cell find_cell(const struct zoo_family *zoo, const struct wf_engine *engine,
                           const struct feature *feature, struct refusals *refusals)
{
    enum cell cell = CELL_NONE;
    for (unsigned i = 0; i < CONFIGS && cell != CELL_DERIVED; i++) {
        char config[ZOO_CONFIG_MAX];
        struct wf_model *model = NULL;
        struct wf_error error;
        config_of(zoo, i, feature->format, config);
        bool good = wf_model_parse(config, strlen(config), NULL, &model, &error) == WF_OK;
        bool other = good && feature->format == MXFP4 && format_of(model) != MXFP4;
        if (other || (good && feature->needs != NULL && wf_model_size(model, feature->needs) == 0 &&
                      stack_count(model, feature->needs) == 0)) {
            wf_model_free(model);
            continue;
        }
        good = good && derives(model, engine, feature->spec, &error);
        cell = good ? CELL_DERIVED : CELL_REFUSED;
        if (!good) {
            add_refusal(refusals, sentence(error.text));
        }
        wf_model_free(model);
    }
    return cell;
}

static size_t note_of(struct page *page, const char *text)
{
    for (size_t i = 0; i < page->note_count; i++) {
        if (strcmp(page->notes[i], text) == 0) {
            return i + 1;
        }
    }
    if (page->note_count < NOTES_MAX) {
        snprintf(page->notes[page->note_count++], NOTE_TEXT, "%s", text);
    }
    return page->note_count;
}

static void print_cell(struct page *page, const struct zoo_family *zoo,
                       const struct wf_engine *engine, const struct feature *feature)
{
    unsigned executed = 0;
    for (size_t i = 0; i < page->case_count; i++) {
        executed += page->cases[i].engine == engine &&
                    strcmp(page->cases[i].model_type, zoo->name) == 0 &&
                    case_shows(page, i, feature);
    }
    if (executed > 0) {
        fprintf(page->out, " **%u** |", executed);
        return;
    }
    struct refusals *refusals = calloc(1, sizeof *refusals);
    switch (find_cell(zoo, engine, feature, refusals)) {
    case CELL_DERIVED:
        fprintf(page->out, " yes |");
        break;
    case CELL_REFUSED:
        fprintf(page->out, " [%zu] |", note_of(page, usual_refusal(refusals)));
        break;
    default:
        fprintf(page->out, " |");
    }
    free(refusals);
}

/* --- the page -------------------------------------------------------------------------------- */

static void print_engine(struct page *page, const struct wf_engine *engine, const char *title,
                         const struct feature *features, size_t count)
{
    fprintf(page->out, "\n## %s\n\n| model_type |", title);
    for (size_t f = 0; f < count; f++) {
        fprintf(page->out, " %s |", features[f].title);
    }
    fprintf(page->out, "\n|---|");
    for (size_t f = 0; f < count; f++) {
        fprintf(page->out, "---|");
    }
    for (const struct zoo_family *zoo = zoo_families; zoo->name != NULL; zoo++) {
        fprintf(page->out, "\n| %s |", zoo->name);
        for (size_t f = 0; f < count; f++) {
            print_cell(page, zoo, engine, &features[f]);
        }
    }
    fprintf(page->out, "\n");
}

static void print_page(struct page *page)
{
    static const char head[] =
        "# Models, engines, features\n\n"
        "What is known of each family in each engine, and how. This page is printed by\n"
        "`build/tests/layouts/print_models`; the test `layouts/models_documented` compares it.\n\n"
        "* **2**: layouts that the framework itself made with this feature, in so many executed\n"
        "  cases of the model type (tests/golden/real), are reproduced element by element\n"
        "  (`tests/tools/test_layout_check.c`).\n"
        "* yes: small configs derive on all ranks here, and numbered elements arrive through real\n"
        "  plans (`layouts/pairs`, fp8 in `layouts/quantised`, other formats in "
        "`layouts/packed`);\n"
        "  the rules stand in the tables with their sources.\n"
        "  Vision towers of Gemma 3 and Kimi K2.5 are also held against layouts that an "
        "independent\n"
        "  script works out from the engines' code (tests/golden/derived); of those that engines "
        "made,\n  Gemma 3's are kept here (tests/golden/real), Kimi's are not.\n"
        "* [3]: refused, with the words below. What an engine holds then can be spelled out\n"
        "  ([manifests](manifests.md)).\n"
        "* Nothing: the family has no such thing.\n\n"
        "Packed weights (int4 of compressed-tensors' pack-quantized, mxfp4, nvfp4 of modelopt) "
        "move as\n"
        "the bytes that they are, between files, and into engines before their hooks "
        "(`stage=load`):\n"
        "from another format nothing is packed, and cuts that would tear a group are refused. A\n"
        "checkpoint that mixes formats (modelopt's MIXED_PRECISION), int4 with zero points or an "
        "order,\n"
        "awq and gptq are refused by name. `weft run` checks packed elements against their layout\n"
        "alone, and those that SGLang transposes or gpt-oss interleaves not at all (it asks for\n"
        "`policy.validate_every: 0`); `weft dump` and `weft compare` know them all. A config with "
        "a vision tower's family but without\n"
        "`vision_config` is the text model's alone (gemma3, kimi_k25).\n";
    fputs(head, page->out);
    print_engine(page, &wf_engine_hf, "Checkpoints (files)", files_features,
                 sizeof files_features / sizeof files_features[0]);
    print_engine(page, &wf_engine_megatron, "Megatron-core (training)", megatron_features,
                 sizeof megatron_features / sizeof megatron_features[0]);
    print_engine(page, &wf_engine_fsdp, "PyTorch FSDP (training)", fsdp_features,
                 sizeof fsdp_features / sizeof fsdp_features[0]);
    print_engine(page, &wf_engine_vllm, "vLLM (inference)", vllm_features,
                 sizeof vllm_features / sizeof vllm_features[0]);
    print_engine(page, &wf_engine_sglang, "SGLang (inference)", sglang_features,
                 sizeof sglang_features / sizeof sglang_features[0]);
    fprintf(page->out, "\n## Refusals\n\n");
    for (size_t i = 0; i < page->note_count; i++) {
        fprintf(page->out, "%s[%zu] %s\n", i > 0 ? "\n" : "", i + 1, page->notes[i]);
    }
}

/* 0 if the file has the text. */
static int compare(const char *path, const char *text, size_t len)
{
    char *have = malloc(JSON_MAX);
    FILE *file = fopen(path, "rb");
    size_t got = file != NULL ? fread(have, 1, JSON_MAX, file) : 0;
    size_t same = 0;
    unsigned line = 1;
    while (same < got && same < len && have[same] == text[same]) {
        line += have[same++] == '\n';
    }
    bool equal = got == len && same == len;
    if (!equal) {
        fprintf(stderr,
                "%s: line %u is not what the tables say now; make it anew: print_models > "
                "%s\n",
                path, line, path);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(have);
    return equal ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct page *page = calloc(1, sizeof *page);
    char *text = NULL;
    size_t len = 0;
    page->out = open_memstream(&text, &len);
    read_cases(page);
    print_page(page);
    fclose(page->out);
    int status = argc > 1 ? compare(argv[1], text, len) : fwrite(text, 1, len, stdout) != len;
    free(text);
    free(page);
    return status;
}
