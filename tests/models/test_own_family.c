/* test_own_family.c - tables of families that pass the check and go wrong only with their numbers:
 * refused with a sentence, or laid out as they say. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/families/family.h"
#include "models/layout.h"

/* Families to change one thing of. Sizes by index: the enum. */
enum { SIZE_H, SIZE_L, SIZE_V, SIZE_TIED, SIZE_E, SIZE_I, SIZE_GLOB, SIZE_NQ, SIZE_NK, SIZE_D };

struct draft {
    struct wf_family family;
    struct wf_family_size sizes[10];
    struct wf_family_stack stack;
    struct wf_family_row rows[8];
    struct wf_family_engine engine;
    struct wf_engine_row engine_row;
};

static void make_draft(struct draft *d)
{
    *d = (struct draft){
        .sizes = {[SIZE_H] = {"H", NULL, "64", NULL},
                  [SIZE_L] = {"L", NULL, "2", NULL},
                  [SIZE_V] = {"V", NULL, "128", NULL},
                  [SIZE_TIED] = {"tied", NULL, "0", NULL},
                  [SIZE_E] = {"E", NULL, "4", NULL},
                  [SIZE_I] = {"I", NULL, "8", NULL},
                  [SIZE_GLOB] = {"glob", NULL, "layer % 2", NULL},
                  [SIZE_NQ] = {"nq", NULL, "8", NULL},
                  [SIZE_NK] = {"nk", NULL, "4", NULL},
                  [SIZE_D] = {"d", NULL, "16", NULL}},
        .stack = {"layer", "h.{i}.", "L", NULL},
        .rows = {{.role = "embedding", .name = "wte.weight", .shape = "V,H"},
                 {.role = "q", .name = "{layers}q.weight", .shape = "nq*d,H", .unit = "nq"},
                 {.role = "k", .name = "{layers}k.weight", .shape = "nk*d,H", .unit = "nk"},
                 {.role = "v", .name = "{layers}v.weight", .shape = "nk*d,H", .unit = "nk"},
                 {.role = "expert_gate", .name = "{layers}experts.{expert}.g", .shape = "I,H"},
                 {.role = "expert_up", .name = "{layers}experts.{expert}.u", .shape = "I,H"},
                 {.role = "expert_down", .name = "{layers}experts.{expert}.d", .shape = "H,I"},
                 {.role = "head", .name = "head.weight", .shape = "V,H", .when = "!tied"}},
    };
    d->engine = (struct wf_family_engine){.engine = "vllm", .rows = &d->engine_row, .row_count = 1};
    d->family = (struct wf_family){.name = "own",
                                   .model_types = "own",
                                   .sizes = d->sizes,
                                   .size_count = 10,
                                   .stacks = &d->stack,
                                   .stack_count = 1,
                                   .rows = d->rows,
                                   .row_count = 8};
}

/* Everything from the table to one rank's layout; frees nothing of what it gives. */
static enum wf_status derive(const struct draft *d, const char *spec, struct wf_model **model_out,
                             struct wf_layout **layout_out, struct wf_error *error)
{
    static const char config[] = "{\"model_type\": \"own\"}";
    const struct wf_family *const extra[] = {&d->family, NULL};
    struct wf_recipe recipe;
    enum wf_status status = wf_family_check(&d->family, error);
    if (status == WF_OK) {
        status = wf_model_parse(config, sizeof config - 1, extra, model_out, error);
    }
    if (status == WF_OK) {
        status = wf_recipe_parse(spec, *model_out, &recipe, error);
    }
    return status == WF_OK ? wf_layout_derive(*model_out, &recipe, 0, layout_out, error) : status;
}

#define CHANGE(row, change)                   \
    static void change_##row(struct draft *d) \
    {                                         \
        change;                               \
    }
CHANGE(none, (void)d)
CHANGE(experts, d->sizes[SIZE_E].otherwise = "60000")
CHANGE(experts_wrap, d->sizes[SIZE_E].otherwise = "4294967296 + 4")
/* A row of vLLM's of the family's own. */
static void give_row(struct draft *d, const char *name, const char *parts, const char *extra)
{
    d->engine_row = (struct wf_engine_row){.name = name, .parts = parts, .extra = extra};
    d->family.engines = &d->engine;
    d->family.engine_count = 1;
}
#define HUGE_NUMBER "2147483648 * 2147483648"
CHANGE(slots, give_row(d, "{experts}w2", "expert_down", "4294967296: expert_down"))
CHANGE(slots_wrap, give_row(d, "{experts}w2", "expert_down", HUGE_NUMBER " * 3: expert_down"))
CHANGE(slots_apart, give_row(d, "{name}", "expert_down", "1: expert_down"))
CHANGE(repeats, give_row(d, "{dir}wqkv", "q(nq * d, *" HUGE_NUMBER ", *4) k v", NULL))

static void change_pad(struct draft *d)
{
    give_row(d, "{dir}wqkv", "q k v", NULL);
    d->engine_row.pad = HUGE_NUMBER " * 3";
}

static void change_local_pad(struct draft *d)
{
    change_pad(d);
    d->engine_row.pad = "1;" HUGE_NUMBER;
}

static void change_groups(struct draft *d)
{
    change_pad(d);
    d->engine_row.pad = NULL;
    d->engine_row.groups = HUGE_NUMBER;
}

static void change_shape(struct draft *d)
{
    change_pad(d);
    d->engine_row.pad = NULL;
    d->engine_row.kind = WF_ROW_KEEP;
    d->engine_row.shape = HUGE_NUMBER ", 5";
}
CHANGE(no_share, give_row(d, "{dir}wqkv", "q(nq@0:0, d) k v", NULL))
CHANGE(no_repeats, give_row(d, "{dir}wqkv", "q(nq * d, *0) k v", NULL))
CHANGE(experts_vary, d->sizes[SIZE_E].otherwise = "layer < 1 ? 0 : 8")
CHANGE(width_varies, d->sizes[SIZE_H].otherwise = "layer < 1 ? 64 : 32")

static void change_heads_vary(struct draft *d)
{
    d->sizes[SIZE_NK].otherwise = "glob ? 1 : 4";
    give_row(d, "{dir}wqkv", "q k v", NULL);
    d->engine.requires = "nk % 2 == 0: an odd number of heads";
}

Test(own_family, numbers_that_do_not_do_are_refused)
{
    static const struct {
        const char *name;
        void (*change)(struct draft *);
        const char *spec, *fragment; /* NULL: accepted */
    } rows[] = {
        {"as it is", change_none, "vllm:", NULL},
        {"more experts than slots", change_experts, "fsdp:", "at most 8192 experts"},
        {"experts of 33 bits", change_experts_wrap, "hf:", "at most 8192 experts"},
        {"experts by layer", change_experts_vary, "hf:", "size E varies"},
        {"width by layer", change_width_varies, "hf:", "size H varies"},
        {"needs heads of no layer", change_heads_vary, "vllm:", "\"nk\""},
        {"a share of nothing", change_no_share, "vllm:", "takes 0 to 0 of 8"},
        {"extra slots without end", change_slots, "vllm:", "4294967296 extra slots"},
        {"extra slots that wrap", change_slots_wrap, "vllm:", "extra slots"},
        {"extra slots of each expert", change_slots_apart, "vllm:", "in one tensor of all"},
        {"repeats that wrap", change_repeats, "vllm:", "2^56 elements"},
        {"padded without end", change_pad, "vllm:", "2^56 elements"},
        {"padded behind the cut", change_local_pad, "vllm:", "2^56 elements"},
        {"groups without end", change_groups, "vllm:", "2^56 elements"},
        {"a shape without end", change_shape, "vllm:", "2^56 elements"},
        {"repeated no times", change_no_repeats, "vllm:", "the factor *0 is 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct draft draft;
        struct wf_model *model = NULL;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        make_draft(&draft);
        rows[i].change(&draft);
        enum wf_status status = derive(&draft, rows[i].spec, &model, &layout, &error);
        cr_expect_eq(status, rows[i].fragment ? WF_INVALID : WF_OK, "%s: %s", rows[i].name,
                     error.text);
        cr_expect(!rows[i].fragment || strstr(error.text, rows[i].fragment), "%s: %s", rows[i].name,
                  error.text);
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

/* Two layers whose parameters have one shape and whose heads are not the same: each is grouped by
 * its own KV heads. */
Test(own_family, layers_of_one_shape_keep_their_own_heads)
{
    static const struct {
        const char *name;
        uint64_t k_row; /* where the first KV head's rows begin */
    } rows[] = {{"h.0.k.weight", 2 * 16}, {"h.1.k.weight", 2 * 32}};
    struct draft draft;
    struct wf_model *model = NULL;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    make_draft(&draft);
    draft.sizes[SIZE_NQ].otherwise = "glob ? 4 : 8";
    draft.sizes[SIZE_NK].otherwise = "glob ? 2 : 4";
    draft.sizes[SIZE_D].otherwise = "glob ? 32 : 16";
    draft.family.row_count = 4;
    cr_assert_eq(derive(&draft, "megatron:", &model, &layout, &error), WF_OK, "%s", error.text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t param = wf_model_find(model, rows[i].name, strlen(rows[i].name)), piece = 0;
        cr_assert_neq(param, WF_NONE);
        while (piece < layout->piece_count && layout->pieces[piece].param != param) {
            piece++;
        }
        cr_assert_lt(piece, layout->piece_count, "%s", rows[i].name);
        cr_expect_eq(layout->pieces[piece].tensor_offset, rows[i].k_row * 64 * 2, "%s: %llu",
                     rows[i].name, (unsigned long long)layout->pieces[piece].tensor_offset);
    }
    wf_layout_free(layout);
    wf_model_free(model);
}
