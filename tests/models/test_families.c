/* test_families.c - the tables of families: checked as users' files are, and what a check finds. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/families/family.h"
#include "models/layout_roles.h"

Test(families, built_in_tables_pass_the_check)
{
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        struct wf_error error = {0};
        cr_expect_eq(wf_family_check(*family, &error), WF_OK, "%s", error.text);
    }
}

Test(families, model_types_and_names_are_unique)
{
    for (const struct wf_family *const *a = wf_families; *a; a++) {
        for (const struct wf_family *const *b = a + 1; *b; b++) {
            char types[512];
            snprintf(types, sizeof types, "%s", (*a)->model_types);
            cr_expect_str_neq((*a)->name, (*b)->name);
            for (char *rest = types, *type; (type = strsep(&rest, "|"));) {
                char all[512], wanted[128];
                snprintf(all, sizeof all, "|%s|", (*b)->model_types);
                snprintf(wanted, sizeof wanted, "|%s|", type);
                cr_expect(!strstr(all, wanted), "%s and %s: %s", (*a)->name, (*b)->name, type);
            }
        }
    }
}

/* Also of roles that only other families have. */
Test(families, an_index_of_roles_finds_the_same_rows)
{
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        static struct wf_roles roles;
        wf_roles_index(*family, &roles);
        for (const struct wf_family *const *other = wf_families; *other; other++) {
            for (size_t i = 0; i < (*other)->row_count; i++) {
                const char *role = (*other)->rows[i].role;
                size_t len = strlen(role);
                for (uint32_t s = 0; s <= WF_FAMILY_STACKS_MAX; s++) {
                    uint32_t stack = s == WF_FAMILY_STACKS_MAX ? WF_NONE : s;
                    cr_assert_eq(wf_roles_find(&roles, *family, stack, role, len),
                                 wf_family_find_row(*family, stack, role, len), "%s: %s in %u",
                                 (*family)->name, role, stack);
                    cr_assert_eq(wf_roles_find(&roles, *family, stack, role, len - 1),
                                 wf_family_find_row(*family, stack, role, len - 1));
                }
            }
        }
    }
}

Test(families, rows_are_found_by_stack_and_role)
{
    extern const struct wf_family wf_family_qwen3_next;
    const struct wf_family *family = &wf_family_qwen3_next;
    uint32_t q = wf_family_find_row(family, 0, "q", 1);
    cr_assert_neq(q, WF_NONE);
    cr_expect_eq(wf_family_find_row(family, 1, "q", 1), q);
    cr_expect_eq(wf_family_find_row(family, WF_NONE, "q", 1), WF_NONE);
    cr_expect_eq(wf_family_find_row(family, 0, "qq", 2), WF_NONE);
    cr_expect_eq(wf_family_find_row(family, 0, "gdn_ba", 6) == WF_NONE, false);
    cr_expect_eq(wf_family_find_row(family, 1, "gdn_ba", 6), WF_NONE);
    cr_expect_eq(wf_family_find_row(family, 7, "q", 1), WF_NONE);
    cr_expect_neq(wf_family_find_row(family, 1, "mtp_proj", 8), WF_NONE);
    cr_expect_eq(wf_family_find_row(family, WF_NONE, "mtp_proj", 8), WF_NONE);
    cr_expect_neq(wf_family_find_row(family, WF_NONE, "embedding", 9), WF_NONE);
}

/* --- what the check finds -------------------------------------------------------------------- */

/* A family that passes; each row of the table below changes one thing. */
struct draft {
    struct wf_family family;
    struct wf_family_size sizes[WF_FAMILY_SIZES_MAX];
    struct wf_family_stack stacks[2];
    struct wf_family_row rows[4];
    struct wf_family_engine engine;
    struct wf_engine_row engine_row;
    struct wf_engine_alias alias;
};

static void make_draft(struct draft *d)
{
    *d = (struct draft){
        .family = {.name = "mine", .model_types = "mine|mine_too", .requires = "L > 0: layers"},
        .sizes = {{"H", "hidden_size", NULL, NULL},
                  {"L", "num_hidden_layers", NULL, NULL},
                  {"V", "vocab_size", NULL, NULL},
                  {"tied", "tie_word_embeddings", "0", "true"},
                  {"E", "num_experts", "0", NULL}},
        .stacks = {{"layer", "model.layers.{i}.", "L", NULL}, {"mtp", "mtp.{i}.", "1", "L"}},
        .rows = {{.role = "embedding", .name = "embed.weight", .shape = "V,H"},
                 {.role = "q", .name = "{layers}q.weight", .shape = "H,H", .stacks = "layer mtp"},
                 {.role = "expert_gate",
                  .name = "{layers}experts.{expert}.gate",
                  .shape = "4,H",
                  .when = "E > 0 && layer > 0"},
                 {.role = "head", .name = "head.weight", .shape = "V,H", .when = "!tied"}},
        .engine = {.engine = "vllm", .renames = "a=>b c=>"},
        .engine_row = {.name = "{name}", .parts = "q"},
    };
    d->family.sizes = d->sizes;
    d->family.size_count = 5;
    d->family.stacks = d->stacks;
    d->family.stack_count = 2;
    d->family.rows = d->rows;
    d->family.row_count = 4;
    d->engine.rows = &d->engine_row;
    d->engine.row_count = 1;
    d->alias = (struct wf_engine_alias){.role = "q", .name = "again", .when = "tied && tp > 1"};
    d->engine.aliases = &d->alias;
    d->engine.alias_count = 1;
    d->engine.requires = "pp == 1 || tp > 1: no stages";
    d->family.engines = &d->engine;
    d->family.engine_count = 1;
}

#define WRONG(row, change, words)             \
    static void change_##row(struct draft *d) \
    {                                         \
        change;                               \
    }                                         \
    static const char *const words_##row = (words);
WRONG(name, d->family.name = "my family", "name")
WRONG(no_types, d->family.model_types = "", "model_types")
WRONG(empty_type, d->family.model_types = "a||b|", "model_types")
WRONG(no_rows, d->family.row_count = 0, "rows")
WRONG(size_twice, d->sizes[4].name = "H", "size H: the name is taken")
WRONG(size_layer, d->sizes[4].name = "layer", "taken")
WRONG(size_stack, d->sizes[4].name = "mtp", "taken")
WRONG(size_chunk, d->sizes[4].name = "heads", "size heads: the name is taken")
WRONG(size_group, d->sizes[4].name = "attn_size", "size attn_size: the name is taken")
WRONG(size_key, d->sizes[4].name = "dp_attention", "(sglang)")
WRONG(stack_key, d->stacks[1].name = "replicate", "stack replicate: the name is taken")
WRONG(size_nothing, (d->sizes[4].key = NULL, d->sizes[4].otherwise = NULL), "key")
WRONG(size_below, d->sizes[0].otherwise = "V", "\"V\"")
WRONG(size_missing, d->sizes[3].name = "bound", "tied is needed")
WRONG(stack_missing, d->stacks[0].name = "block", "layer")
WRONG(stack_twice, d->stacks[1].name = "layer", "taken")
WRONG(stack_prefix, d->stacks[1].prefix = "mtp.", "{i}")
WRONG(stack_braces, d->stacks[1].prefix = "mtp.{i}.{i}", "{i}")
WRONG(stack_count, d->stacks[1].count = "N", "\"N\"")
WRONG(stack_none, d->stacks[1].count = NULL, "stack mtp")
WRONG(stack_layers, d->stacks[0].count = "L + 1", "count is L")
WRONG(role, d->rows[1].role = "q proj", "role")
WRONG(role_twice, d->rows[3].role = "embedding", "stands twice")
WRONG(row_name, d->rows[1].name = NULL, "name")
WRONG(row_braces, d->rows[1].name = "{layers}q.{head}", "{layers}")
WRONG(row_middle, d->rows[1].name = "model.{layers}q", "{layers}")
WRONG(row_expert, d->rows[0].name = "embed.{expert}", "{expert}")
WRONG(row_stack, d->rows[1].stacks = "layer vision", "vision")
WRONG(row_shape, d->rows[1].shape = "H,X", "\"X\"")
WRONG(row_axes, d->rows[1].shape = "1,2,3,4,5,6", "dimensions")
WRONG(row_empty_axis, d->rows[1].shape = "H,,H", "ends where")
WRONG(row_when, d->rows[1].when = "layer >", "ends where")
WRONG(row_outside, d->rows[3].when = "layer == 0", "\"layer\"")
WRONG(row_dtype, d->rows[1].dtype = "float", "dtype")
WRONG(row_dtype_when, d->rows[1].dtype = "f32: nope", "\"nope\"")
WRONG(row_unit, d->rows[1].unit = "heads", "\"heads\"")
WRONG(needs, d->family.requires = "L > 0", "sentence")
WRONG(needs_names, d->family.requires = "Q > 0: queries", "\"Q\"")
WRONG(engine, d->engine.engine = "tgi", "tgi")
WRONG(rename, d->engine.renames = "a=>b c", "FROM=>TO")
WRONG(engine_role, d->engine_row.parts = "queries", "queries")
WRONG(engine_needs, d->engine.requires = "tq > 1: no", "\"tq\"")
WRONG(engine_words, d->engine.requires = "tp > 1", "sentence")
WRONG(engine_factor, d->engine_row.parts = "q(H, hq)", "\"hq\"")
WRONG(engine_range, d->engine_row.parts = "q(H@0:hq; H)", "\"hq\"")
WRONG(engine_extra, d->engine_row.extra = "hq: q", "\"hq\"")
WRONG(engine_dtype, d->engine_row.dtype = "float", "expected a dtype")
WRONG(engine_dtype_when, d->engine_row.dtype = "model: hq", "\"hq\"")
WRONG(engine_order, d->engine_row.order = "0 2", "each dimension once")
WRONG(engine_order_twice, d->engine_row.order = "1 0 1", "each dimension once")
WRONG(engine_view, d->engine_row.view = "a (b:hq c) -> b a c", "\"hq\"")
WRONG(engine_view_arrow, d->engine_row.view = "a b", "no arrow")
WRONG(engine_view_order, d->engine_row.view = "a (b:2 c) -> b a", "missing behind the arrow")
WRONG(alias_role, d->alias.role = "queries", "queries")
WRONG(alias_when, d->alias.when = "tq", "\"tq\"")

#define ROW(name)                           \
    {                                       \
#name, change_##name, &words_##name \
    }
static const struct {
    const char *name;
    void (*change)(struct draft *);
    const char *const *fragment;
} wrong_rows[] = {
    ROW(name),
    ROW(no_types),
    ROW(empty_type),
    ROW(no_rows),
    ROW(size_twice),
    ROW(size_layer),
    ROW(size_stack),
    ROW(size_nothing),
    ROW(size_below),
    ROW(size_missing),
    ROW(stack_missing),
    ROW(stack_twice),
    ROW(stack_prefix),
    ROW(stack_braces),
    ROW(stack_count),
    ROW(stack_none),
    ROW(stack_layers),
    ROW(role),
    ROW(role_twice),
    ROW(row_name),
    ROW(row_braces),
    ROW(row_middle),
    ROW(row_expert),
    ROW(row_stack),
    ROW(row_shape),
    ROW(row_axes),
    ROW(row_empty_axis),
    ROW(row_when),
    ROW(row_outside),
    ROW(row_dtype),
    ROW(row_dtype_when),
    ROW(row_unit),
    ROW(needs),
    ROW(needs_names),
    ROW(engine),
    ROW(rename),
    ROW(engine_role),
    ROW(engine_needs),
    ROW(engine_words),
    ROW(alias_role),
    ROW(engine_view),
    ROW(engine_view_arrow),
    ROW(engine_view_order),
    ROW(alias_when),
    ROW(size_chunk),
    ROW(size_group),
    ROW(size_key),
    ROW(stack_key),
    ROW(engine_factor),
    ROW(engine_range),
    ROW(engine_extra),
    ROW(engine_dtype),
    ROW(engine_dtype_when),
    ROW(engine_order),
    ROW(engine_order_twice),
};

Test(families, a_check_names_what_is_wrong)
{
    struct draft draft;
    struct wf_error error = {0};
    make_draft(&draft);
    cr_assert_eq(wf_family_check(&draft.family, &error), WF_OK, "%s", error.text);
    for (size_t i = 0; i < sizeof wrong_rows / sizeof wrong_rows[0]; i++) {
        make_draft(&draft);
        wrong_rows[i].change(&draft);
        error.text[0] = '\0';
        cr_expect_eq(wf_family_check(&draft.family, &error), WF_INVALID, "%s", wrong_rows[i].name);
        cr_expect(strstr(error.text, *wrong_rows[i].fragment), "%s: %s", wrong_rows[i].name,
                  error.text);
    }
}
