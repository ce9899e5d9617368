/* detect_recipe.c - which parallel sizes and which pipeline the ranks of a dump can have. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

/* --- stages ---------------------------------------------------------------------------------- */

static uint64_t names_of(const struct wf_dump_rank *dump)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < dump->count; i++) {
        for (const char *at = dump->tensors[i].name; *at != '\0'; at++) {
            hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
        }
        hash = (hash ^ '\n') * 0x100000001b3u;
    }
    return hash;
}

/* The first stage alone has what it has: as many ranks as have its names are one stage, and as many
 * as have them one after the other are beside each other in it. */
bool wf_stages_find(const struct wf_dump_rank *dumps, uint32_t count, struct wf_stages *out)
{
    uint64_t names[WF_DETECT_WORLD_MAX];
    uint32_t alike = 0, inner = 0;
    for (uint32_t i = 0; i < count; i++) {
        names[i] = names_of(&dumps[i]);
        alike += names[i] == names[0];
        inner += inner == i && names[i] == names[0];
    }
    *out = (struct wf_stages){.world = count, .inner = inner, .outer = alike / inner};
    out->stages = count / alike;
    if (alike * out->stages != count || inner * out->outer != alike) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t stage = i / inner % out->stages;
        if (names[i] != names[stage * inner]) {
            return false;
        }
    }
    return true;
}

/* --- sizes ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void add(struct wf_sizes_list *list,
                                                      const char *format, ...)
{
    if (list->count == list->room) {
        uint32_t room = list->room > 0 ? list->room * 2 : 16;
        void *grown = realloc(list->texts, room * sizeof *list->texts);
        list->failed |= grown == NULL;
        if (grown == NULL) {
            return;
        }
        list->texts = grown;
        list->room = room;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(list->texts[list->count++], sizeof *list->texts, format, arguments);
    va_end(arguments);
}

/* ",key=value" where it is not what is meant without. */
struct word {
    char text[32];
};

static struct word said(const char *key, uint32_t value, uint32_t unless)
{
    struct word word = {""};
    if (value != unless) {
        snprintf(word.text, sizeof word.text, ",%s=%" PRIu32, key, value);
    }
    return word;
}

/* Experts stand in a grid of their own over the same ranks. */
static void add_megatron(struct wf_sizes_list *list, const struct wf_stages *stages, uint32_t ranks,
                         bool experts)
{
    bool outside = stages->stages > 1 && stages->outer > 1; /* dp beyond the pipeline */
    uint32_t inside = outside ? ranks / stages->outer : ranks;
    for (uint32_t tp = inside; tp >= 1; tp--) {
        uint32_t cp = outside ? inside / tp : 1, dp = ranks / tp / cp;
        for (uint32_t ep = experts ? inside : 1; ep >= 1 && inside % tp == 0; ep--) {
            for (uint32_t etp = 1; etp <= (experts ? inside / ep : 1); etp++) {
                if (inside % ep == 0 && (inside / ep) % etp == 0) {
                    add(list, "tp=%" PRIu32 "%s%s%s%s", tp, said("cp", cp, 1).text,
                        said("dp", dp, 1).text, said("ep", ep, 1).text,
                        said("etp", experts ? etp : tp, tp).text);
                }
            }
        }
    }
}

static void add_vllm(struct wf_sizes_list *list, const struct wf_stages *stages, uint32_t ranks,
                     bool experts)
{
    for (uint32_t tp = ranks; tp >= 1; tp--) {
        bool stands = ranks % tp == 0 && (stages->stages == 1 || tp == stages->inner);
        for (uint32_t dp = 1; dp <= (experts ? ranks / tp : 1) && stands; dp++) {
            if ((ranks / tp) % dp != 0) {
                continue;
            }
            struct word engines = said("engines", ranks / tp / dp, 1), data = said("dp", dp, 1);
            add(list, "tp=%" PRIu32 "%s%s", tp, data.text, engines.text);
            if (experts && tp * dp > 1) {
                add(list, "tp=%" PRIu32 "%s,ep=%" PRIu32 "%s", tp, data.text, tp * dp,
                    engines.text);
            }
        }
    }
}

static void add_sglang_tp(struct wf_sizes_list *list, uint32_t tp, uint32_t engines, bool experts,
                          bool dense)
{
    for (uint32_t flags = 0; flags < (dense ? 4 : 2);
         flags++) { /* 1: dp_lm_head, 2: moe_dense_tp */
        for (uint32_t dp = 1; dp <= tp; dp++) {
            bool idle = (flags & 1) && dp == 1;
            for (uint32_t ep = 1; ep <= (experts ? tp : 1) && tp % dp == 0 && !idle; ep++) {
                if (tp % ep != 0 || ((flags & 2) && tp == 1)) {
                    continue;
                }
                add(list, "tp=%" PRIu32 "%s%s%s%s%s%s", tp, said("engines", engines, 1).text,
                    said("ep", ep, 1).text, said("dp", dp, 1).text, dp > 1 ? ",dp_attention=1" : "",
                    flags & 1 ? ",dp_lm_head=1" : "", flags & 2 ? ",moe_dense_tp=1" : "");
            }
        }
    }
}

static void add_fsdp(struct wf_sizes_list *list, uint32_t ranks)
{
    for (uint32_t dp = ranks; dp >= 1; dp--) {
        for (uint32_t tp = 1; ranks % dp == 0 && tp <= ranks / dp; tp++) {
            if ((ranks / dp) % tp == 0) {
                add(list, "dp=%" PRIu32 "%s%s", dp, said("tp", tp, 1).text,
                    said("replicate", ranks / dp / tp, 1).text);
            }
        }
    }
}

void wf_recipe_sizes(const struct wf_guess *guess, const struct wf_stages *stages, uint32_t ranks,
                     struct wf_sizes_list *out)
{
    const char *engine = guess->engine->name;
    uint32_t size = wf_guess_size(guess->family, "E");
    bool experts = size != WF_NONE && guess->state[size] == WF_GUESS_NUMBER && guess->value[size];
    bool pipelines = wf_guess_engine_knows(guess->engine, "pp");
    *out = (struct wf_sizes_list){0};
    if (stages->stages > 1 && !pipelines) {
        return;
    }
    if (strcmp(engine, "megatron") == 0) {
        add_megatron(out, stages, ranks, experts);
    } else if (strcmp(engine, "vllm") == 0) {
        add_vllm(out, stages, ranks, experts);
    } else if (strcmp(engine, "sglang") == 0) {
        for (uint32_t tp = ranks; tp >= 1; tp--) {
            if (ranks % tp == 0 && (stages->stages == 1 || tp == stages->inner)) {
                add_sglang_tp(out, tp, ranks / tp, experts,
                              wf_guess_has_role(guess->family, "gate"));
            }
        }
    } else if (strcmp(engine, "fsdp") == 0) {
        add_fsdp(out, ranks);
    } else if (ranks == 1) {
        add(out, "%s", "");
    }
}

/* --- pipelines ------------------------------------------------------------------------------- */

/* Layers of each chunk of each stage, and where the final norm stands. */
struct split {
    uint32_t stages, chunks;
    uint32_t layers[WF_DETECT_WORLD_MAX][WF_CHUNKS_MAX],
        further[WF_DETECT_WORLD_MAX][WF_CHUNKS_MAX];
    bool norm[WF_DETECT_WORLD_MAX][WF_CHUNKS_MAX];
};

static const char *behind_top(const char *text)
{
    static const char top[] = "{top}";
    return text + (strncmp(text, top, sizeof top - 1) == 0 ? sizeof top - 1 : 0);
}

/* The engine's prefix of a stack up to the member's number: "mtp.layers.". */
static const char *prefix_of(const struct wf_engine *engine, const char *stack, char out[64])
{
    for (size_t i = 0; i < engine->stack_count; i++) {
        if (strcmp(engine->stacks[i].stack, stack) == 0) {
            const char *text = behind_top(engine->stacks[i].prefix);
            snprintf(out, 64, "%.*s", (int)strcspn(text, "{"), text);
            return out;
        }
    }
    return NULL;
}

/* The final norm's name, of engines that can be told where it stands; or NULL. */
static const char *norm_of(const struct wf_engine *engine)
{
    for (size_t i = 0; i < engine->row_count && wf_guess_engine_knows(engine, "final_norm"); i++) {
        if (strcmp(engine->rows[i].parts, "final_norm") == 0) {
            return behind_top(engine->rows[i].name);
        }
    }
    return NULL;
}

static void read_split(const struct wf_guess *guess, const struct wf_stages *stages,
                       const struct wf_dump_rank *dumps, uint64_t pattern, struct split *split)
{
    char room[64];
    const char *mtp = prefix_of(guess->engine, "mtp", room), *norm = norm_of(guess->engine);
    split->stages = stages->stages;
    split->chunks = 1;
    for (uint32_t s = 0; s < stages->stages; s++) {
        const struct wf_dump_rank *dump = &dumps[s * stages->inner];
        uint64_t last = 0, last_layer = UINT64_MAX;
        for (uint32_t i = 0; i < dump->count; i++) {
            uint64_t chunk = 0, number = 0;
            uint64_t own =
                wf_seen_pattern(dump->tensors[i].name, dump->tensors[i].dtype, &chunk, &number);
            chunk -= chunk > 0;
            if (chunk >= WF_CHUNKS_MAX) {
                continue;
            }
            split->chunks = chunk + 1 > split->chunks ? (uint32_t)chunk + 1 : split->chunks;
            if (own == pattern && (chunk << 32 | number) != last_layer) { /* not its next expert */
                split->layers[s][chunk]++;
                last_layer = chunk << 32 | number;
            }
            if (mtp != NULL && strstr(dump->tensors[i].name, mtp) != NULL && number != last) {
                split->further[s][chunk]++; /* names of one member stand together */
                last = number;
            }
            split->norm[s][chunk] |= norm != NULL && strstr(dump->tensors[i].name, norm) != NULL;
        }
    }
}

static bool splits_so(const struct wf_guess *guess, const struct split *split)
{
    struct wf_recipe recipe;
    struct wf_chunk chunks[WF_CHUNKS_MAX];
    const struct wf_model *model = wf_guess_model(guess, &recipe, NULL);
    bool good = model != NULL && recipe.pp == split->stages;
    bool normed = wf_guess_engine_knows(guess->engine, "final_norm");
    for (uint32_t s = 0; s < split->stages && good; s++) {
        uint32_t count = 0;
        good = guess->engine->chunks(model, &recipe, s, chunks, &count, NULL) == WF_OK &&
               count == split->chunks;
        for (uint32_t c = 0; c < count && good; c++) {
            good = chunks[c].layer_count == split->layers[s][c] &&
                   chunks[c].mtp_count == split->further[s][c] &&
                   (!normed || chunks[c].final_norm == split->norm[s][c]);
        }
    }
    return good;
}

/* "Et|tt|tt|tL": the stages of all ranks before those of the next virtual stage. */
static bool write_layout(const struct split *split, char out[WF_PIPELINE_TEXT_MAX])
{
    size_t used = 0;
    uint32_t all = split->stages * split->chunks;
    for (uint32_t i = 0; i < all && used < WF_PIPELINE_TEXT_MAX; i++) {
        uint32_t s = i % split->stages, c = i / split->stages, n = split->layers[s][c];
        char layers[16] = "", further[16] = "";
        if (n > 0) {
            snprintf(layers, sizeof layers, n > 1 ? "t*%" PRIu32 : "t", n);
        }
        if (split->further[s][c] > 0) {
            snprintf(further, sizeof further, split->further[s][c] > 1 ? "m*%" PRIu32 : "m",
                     split->further[s][c]);
        }
        used += (size_t)snprintf(out + used, WF_PIPELINE_TEXT_MAX - used, "%s%s%s%s%s",
                                 i > 0 ? "|" : "", i == 0 ? "E" : "", layers, further,
                                 i + 1 == all ? "L" : "");
    }
    return used < WF_PIPELINE_TEXT_MAX;
}

/* "3-5-4". */
static bool write_partition(const struct split *split, char out[WF_PIPELINE_TEXT_MAX])
{
    size_t used = 0;
    for (uint32_t s = 0; s < split->stages && used < WF_PIPELINE_TEXT_MAX; s++) {
        used += (size_t)snprintf(out + used, WF_PIPELINE_TEXT_MAX - used, "%s%" PRIu32,
                                 s > 0 ? "-" : "", split->layers[s][0]);
    }
    return used < WF_PIPELINE_TEXT_MAX;
}

/* What the framework does by itself, then what it is told in few words, then stage by stage. */
static bool find_pipeline(struct wf_guess *guess, const struct wf_stages *stages,
                          const struct split *split)
{
    enum { WAYS = 9 };
    uint32_t last = split->stages - 1, first_layers = 0, last_layers = 0;
    for (uint32_t c = 0; c < split->chunks; c++) {
        first_layers += split->layers[0][c];
        last_layers += split->layers[last][c];
    }
    bool megatron = wf_guess_engine_knows(guess->engine, "account");
    char ways[WAYS][WF_PIPELINE_TEXT_MAX + 16] = {""}, text[WF_PIPELINE_TEXT_MAX];
    uint32_t count = 1;
    if (megatron && split->stages > 1) {
        snprintf(ways[count++], sizeof ways[0], ",account=embedding+loss");
        snprintf(ways[count++], sizeof ways[0], ",account=embedding");
        snprintf(ways[count++], sizeof ways[0], ",account=loss");
        snprintf(ways[count++], sizeof ways[0], ",first=%" PRIu32, first_layers);
        snprintf(ways[count++], sizeof ways[0], ",last=%" PRIu32, last_layers);
        snprintf(ways[count++], sizeof ways[0], ",first=%" PRIu32 ",last=%" PRIu32, first_layers,
                 last_layers);
    }
    if (megatron && split->stages > 1 && write_layout(split, text)) {
        snprintf(ways[count++], sizeof ways[0], ",layout=%s", text);
    }
    if (wf_guess_engine_knows(guess->engine, "partition") && split->stages > 1 &&
        write_partition(split, text)) {
        snprintf(ways[count++], sizeof ways[0], ",partition=%s", text);
    }
    bool order = megatron && stages->stages > 1 && stages->outer > 1;
    /* Where the head stands without a layer, the norm may be with either. */
    uint32_t norms = megatron && split->layers[last][split->chunks - 1] == 0 ? 2 : 1;
    for (uint32_t w = 0; w < count * norms; w++) {
        snprintf(guess->pipeline, sizeof guess->pipeline, "pp=%" PRIu32 "%s%s%.*s%s", split->stages,
                 order ? ",order=tp-cp-ep-pp-dp" : "", said("vpp", split->chunks, 1).text,
                 (int)sizeof ways[0] - 1, ways[w / norms], w % norms ? ",final_norm=layer" : "");
        if (splits_so(guess, split)) {
            return true;
        }
    }
    return false;
}

bool wf_recipe_pipeline(struct wf_guess *guess, const struct wf_stages *stages,
                        const struct wf_dump_rank *dumps, uint64_t pattern)
{
    struct split *split = calloc(1, sizeof *split);
    if (split == NULL) {
        return false;
    }
    read_split(guess, stages, dumps, pattern, split);
    bool none = split->stages == 1 && split->chunks == 1;
    guess->pipeline[0] = '\0';
    bool good =
        none || (wf_guess_engine_knows(guess->engine, "pp") && find_pipeline(guess, stages, split));
    free(split);
    return good;
}
