/* variant.c - two views of one config, and the inventory of both. */
#include "models/variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "models/engines/engine.h"

enum { BLOCK = 128 }; /* rows and columns of the engines' fp8 blocks */

/* What the groups of a job ask for. */
struct wish {
    enum wf_quant rule;   /* NONE: nobody named one */
    const char *by;       /* the engine of the group that did */
    const char *plain_by; /* that of a group which holds the matrices themselves, or NULL */
    bool plain_said;      /* by its SPEC */
};

/* --- what the groups ask for ------------------------------------------------------------------ */

static enum wf_status add_rule(struct wish *wish, const struct wf_recipe *recipe,
                               struct wf_error *error)
{
    enum wf_quant rule = wf_recipe_rule(recipe);
    if (wish->rule != WF_QUANT_NONE && wish->rule != rule) {
        return wf_error_set(error, WF_INVALID,
                            "%s has quant=%s and %s has quant=%s: expected one rule in all groups "
                            "of a job, for codes are made once",
                            wish->by, wf_quant_name(wish->rule), recipe->engine->name,
                            wf_quant_name(rule));
    }
    wish->rule = rule;
    wish->by = recipe->engine->name;
    return WF_OK;
}

static enum wf_status add_wish(struct wish *wish, const struct wf_recipe *recipe,
                               struct wf_error *error)
{
    bool said = recipe->engine->view == WF_VIEW_SPEC;
    if (said && recipe->quant > WF_RECIPE_QUANT_NONE) {
        return add_rule(wish, recipe, error);
    }
    if (recipe->engine->view == WF_VIEW_PLAIN || (said && recipe->quant == WF_RECIPE_QUANT_NONE)) {
        wish->plain_by = recipe->engine->name;
        wish->plain_said = wish->plain_said || said;
    }
    return WF_OK;
}

static bool is_fp8(const struct wf_model *config)
{
    return wf_model_size(config, "fp8") != 0 || wf_model_size(config, "fp8_rows") != 0;
}

/* A config's codes have a place in the job only where its scales are the rule's. */
static enum wf_status check_scales(const struct wf_model *config, const struct wish *wish,
                                   struct wf_error *error)
{
    bool by_row = wf_model_size(config, "fp8_rows") != 0;
    if (!is_fp8(config) || wish->rule == WF_QUANT_NONE ||
        wf_quant_is_by_row(wish->rule) == by_row) {
        return WF_OK;
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "%s: quant=%s: the config has fp8 with %s, and this rule makes %s; give "
                        "the config without quantization_config",
                        wish->by, wf_quant_name(wish->rule),
                        by_row ? "a scale for each row" : "scales of blocks",
                        by_row ? "scales of blocks" : "a scale for each row");
}

/* Whether both views are needed; what cannot be is refused. */
static enum wf_status judge(const struct wf_model *config, const struct wish *wish,
                            bool *needed_out, struct wf_error *error)
{
    bool fp8 = is_fp8(config);
    bool other = !fp8 && (wf_model_size(config, "packed") || wf_model_size(config, "mxfp4") ||
                          wf_model_size(config, "int4") || wf_model_size(config, "nvfp4"));
    bool said = wish->rule != WF_QUANT_NONE || wish->plain_said;
    if (other && said) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: quant=%s: the config has weights that are quantised in another "
                            "way than fp8 with scales of blocks or rows: they go as they are and "
                            "are not requantised; leave quant out",
                            wish->rule ? wish->by : wish->plain_by, wf_quant_name(wish->rule));
    }
    *needed_out = fp8 ? wish->plain_by != NULL : wish->rule != WF_QUANT_NONE;
    bool by_row = wf_quant_is_by_row(wish->rule) || wf_model_size(config, "fp8_rows") != 0;
    const char *size = by_row ? "fp8_rows" : "fp8";
    if (*needed_out && wf_family_find_size(config->family, size, strlen(size)) == WF_NONE) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: quant=%s: the family %s has no rows for scales of fp8: no engine "
                            "is known to hold it quantised",
                            wish->by, wf_quant_name(wish->rule), config->family->name);
    }
    uint64_t rows = wf_model_size(config, "bn"), columns = wf_model_size(config, "bk");
    if (*needed_out && wf_model_size(config, "fp8") && (rows != BLOCK || columns != BLOCK)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "the config has fp8 in blocks of %llu x %llu, and %s holds matrices "
                            "that are not quantised: only blocks of %d x %d are made of those",
                            (unsigned long long)rows, (unsigned long long)columns, wish->plain_by,
                            BLOCK, BLOCK);
    }
    return check_scales(config, wish, error);
}

/* --- the inventory of both views ------------------------------------------------------------- */

static bool is_same(const struct wf_param *a, const struct wf_param *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0;
}

static uint32_t find_twin(const struct wf_model *model, const struct wf_param *param)
{
    return wf_model_find(model, param->name, strlen(param->name));
}

/* Numbers every parameter of the quantised view; gives how many the plain one has not. */
static uint32_t number_params(struct wf_variants *v)
{
    uint32_t more = 0;
    for (uint32_t i = 0; i < v->quantised->param_count; i++) {
        const struct wf_param *param = &v->quantised->params[i];
        uint32_t twin = find_twin(v->plain, param);
        bool shared = twin != WF_NONE && is_same(&v->plain->params[twin], param);
        v->of_quantised[i] = shared ? twin : v->plain_count + more;
        more += !shared;
    }
    return more;
}

/* Adds those parameters to the job's model. */
static enum wf_status add_params(struct wf_model *job, const struct wf_variants *v, uint32_t more,
                                 struct wf_error *error)
{
    const char *rule = wf_quant_name(v->rule);
    size_t room = 1, used = 0;
    for (uint32_t i = 0; i < v->quantised->param_count; i++) {
        bool added = v->of_quantised[i] >= v->plain_count;
        room += added ? strlen(v->quantised->params[i].name) + strlen(rule) + 2 : 0;
    }
    struct wf_param *params =
        realloc(job->params, ((size_t)job->param_count + more + 1) * sizeof *params);
    job->params = params ? params : job->params;
    char *names = malloc(room);
    wf_memory(job)->variant_names = names;
    if (!params || !names) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    }
    for (uint32_t i = 0; i < v->quantised->param_count; i++) {
        const struct wf_param *param = &v->quantised->params[i];
        if (v->of_quantised[i] < v->plain_count) {
            continue;
        }
        int len = snprintf(names + used, room - used, "%s@%s", param->name, rule);
        if (len >= WF_NAME_MAX) {
            return wf_error_set(error, WF_INVALID, "the name %s@%s has more than %d bytes",
                                param->name, rule, WF_NAME_MAX - 1);
        }
        WF_ASSERT(v->of_quantised[i] == job->param_count);
        struct wf_param *added = &params[job->param_count++];
        *added = *param;
        added->name = names + used;
        used += (size_t)len + 1;
    }
    return WF_OK;
}

static enum wf_status index_params(struct wf_model *job, struct wf_error *error)
{
    uint64_t *hashes = malloc(((size_t)job->param_count + 1) * sizeof *hashes);
    enum wf_status status =
        hashes ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    for (uint32_t i = 0; hashes && i < job->param_count; i++) {
        hashes[i] = wf_hash_bytes(job->params[i].name, strlen(job->params[i].name));
    }
    if (status == WF_OK) {
        status = wf_model_index(job, hashes, error);
    }
    free(hashes);
    return status;
}

/* --- pairs ----------------------------------------------------------------------------------- */

static const char *scales_end(enum wf_quant rule)
{
    return wf_quant_is_by_row(rule) ? "rows" : "scale";
}

/* The scales of codes: the parameter of role "ROLE_scale" or "ROLE_rows" beside them. */
static uint32_t find_scales(const struct wf_model *quantised, enum wf_quant rule,
                            const struct wf_param *codes)
{
    char role[WF_NAME_MAX];
    int len = snprintf(role, sizeof role, "%s_%s", quantised->family->rows[codes->row].role,
                       scales_end(rule));
    if (len >= (int)sizeof role) {
        return WF_NONE;
    }
    uint32_t stack = codes->stack == WF_NONE ? UINT32_MAX : codes->stack;
    uint32_t row = wf_family_find_row(quantised->family, stack, role, (size_t)len);
    return row == UINT32_MAX ? WF_NONE
                             : wf_model_param(quantised, codes->stack, codes->index, row,
                                              codes->expert == WF_NONE ? 0 : codes->expert);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct wf_variant_pair *x = a, *y = b;
    return x->matrix < y->matrix ? -1 : x->matrix > y->matrix;
}

/* One scale for each block, and a matrix of the codes' shape. */
static bool fit_together(enum wf_quant rule, const struct wf_param *matrix,
                         const struct wf_param *codes, const struct wf_param *scales)
{
    bool by_row = wf_quant_is_by_row(rule);
    bool fit = matrix->ndim == 2 && codes->ndim == 2 && scales->ndim == 2 &&
               scales->dtype == WF_DTYPE_F32 && wf_dtype_castable(matrix->dtype, WF_DTYPE_F32);
    for (uint32_t axis = 0; axis < 2 && fit; axis++) {
        uint64_t size = codes->shape[axis], block = !by_row ? BLOCK : axis == 0 ? 1 : size;
        fit = matrix->shape[axis] == size && scales->shape[axis] == (size + block - 1) / block;
    }
    return fit;
}

/* Every parameter that the plain view has not is codes of a matrix or their scales. */
static enum wf_status pair_params(const struct wf_model *job, struct wf_variants *v, uint32_t more,
                                  struct wf_error *error)
{
    for (uint32_t i = 0; i < v->quantised->param_count; i++) {
        const struct wf_param *codes = &v->quantised->params[i];
        if (v->of_quantised[i] < v->plain_count || codes->dtype != WF_DTYPE_F8_E4M3) {
            continue;
        }
        uint32_t matrix = find_twin(v->plain, codes),
                 scales = find_scales(v->quantised, v->rule, codes);
        if (matrix == WF_NONE || scales == WF_NONE || v->of_quantised[scales] < v->plain_count ||
            !fit_together(v->rule, &v->plain->params[matrix], codes,
                          &v->quantised->params[scales])) {
            return wf_error_set(error, WF_INVALID,
                                "the family %s: %s in fp8: expected a row %s_%s of f32 beside it, "
                                "one for each %s, and a matrix of its shape where the config has "
                                "no fp8",
                                job->family->name, codes->name, job->family->rows[codes->row].role,
                                scales_end(v->rule),
                                wf_quant_is_by_row(v->rule) ? "row" : "block of 128 x 128");
        }
        if (wf_quant_is_by_row(v->rule) && codes->shape[1] > WF_VARIANT_ROW_MAX) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "%s has rows of %llu elements; expected at most %d with one scale: "
                                "give the engine a rule of blocks (quant=deepseek)",
                                codes->name, (unsigned long long)codes->shape[1],
                                WF_VARIANT_ROW_MAX);
        }
        v->pairs[v->pair_count++] =
            (struct wf_variant_pair){matrix, v->of_quantised[i], v->of_quantised[scales]};
    }
    if (v->pair_count == 0 || 2 * v->pair_count != more) {
        return wf_error_set(error, v->pair_count == 0 ? WF_UNSUPPORTED : WF_INVALID,
                            "the family %s: %u matrices with scales of %u parameters of fp8; "
                            "expected some, and each with its own",
                            job->family->name, v->pair_count, more);
    }
    qsort(v->pairs, v->pair_count, sizeof *v->pairs, compare_pairs);
    for (uint32_t i = 0; i < v->pair_count; i++) {
        v->pair_of[v->pairs[i].codes - v->plain_count] = i;
        v->pair_of[v->pairs[i].scales - v->plain_count] = i;
    }
    return WF_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

static const struct wf_size_change plain_sizes[] = {
    {"fp8", 0}, {"bn", 0}, {"bk", 0}, {"fp8_static", 0}, {"quantised", 0}, {"fp8_rows", 0}};
static const struct wf_size_change block_sizes[] = {
    {"fp8", 1}, {"bn", BLOCK}, {"bk", BLOCK}, {"fp8_static", 0}, {"quantised", 1}, {"fp8_rows", 0}};
static const struct wf_size_change row_sizes[] = {
    {"fp8", 0}, {"bn", 0}, {"bk", 0}, {"fp8_static", 0}, {"quantised", 1}, {"fp8_rows", 1}};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* The rule's name and both views are what tells two jobs' models apart. */
static void hash_job(struct wf_model *job)
{
    const char *rule = wf_quant_name(job->variants->rule);
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_text(&hasher, rule, strlen(rule));
    wf_hasher_u64(&hasher, job->variants->config_quantised);
    const struct wf_model *const views[] = {job->variants->plain, job->variants->quantised};
    for (size_t i = 0; i < COUNT(views); i++) {
        wf_hasher_u64(&hasher, views[i]->hash.high);
        wf_hasher_u64(&hasher, views[i]->hash.low);
    }
    job->hash = wf_hasher_end(&hasher);
}

static enum wf_status fill(struct wf_model *job, const struct wf_model *config,
                           struct wf_error *error)
{
    struct wf_variants *v = job->variants;
    enum wf_status status =
        wf_model_vary(config, plain_sizes, COUNT(plain_sizes), &v->plain, error);
    if (status == WF_OK) {
        status = wf_model_vary(config, wf_quant_is_by_row(v->rule) ? row_sizes : block_sizes,
                               COUNT(row_sizes), &v->quantised, error);
    }
    if (status != WF_OK) {
        return status;
    }
    uint32_t count = v->quantised->param_count;
    v->config_quantised = is_fp8(config);
    v->plain_count = v->plain->param_count;
    v->of_quantised = calloc((size_t)count + 1, sizeof *v->of_quantised);
    v->pairs = calloc((size_t)count + 1, sizeof *v->pairs);
    v->pair_of = calloc((size_t)count + 1, sizeof *v->pair_of);
    if (!v->of_quantised || !v->pairs || !v->pair_of) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    }
    uint32_t more = number_params(v);
    status = add_params(job, v, more, error);
    if (status == WF_OK) {
        status = index_params(job, error);
    }
    if (status == WF_OK) {
        status = pair_params(job, v, more, error);
    }
    if (status == WF_OK) {
        hash_job(job);
    }
    return status;
}

enum wf_status wf_model_for_job(const struct wf_model *config,
                                const struct wf_recipe *const *recipes, uint32_t recipe_count,
                                struct wf_model **model_out, struct wf_error *error)
{
    WF_ASSERT(!config->variants);
    struct wish wish = {0};
    bool needed = false;
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < recipe_count && status == WF_OK; i++) {
        status = add_wish(&wish, recipes[i], error);
    }
    if (status == WF_OK) {
        status = judge(config, &wish, &needed, error);
    }
    struct wf_model *job = NULL;
    if (status == WF_OK) {
        status = wf_model_vary(config, plain_sizes, needed ? COUNT(plain_sizes) : 0, &job, error);
    }
    if (status == WF_OK && needed) {
        job->variants = calloc(1, sizeof *job->variants);
        if (!job->variants) {
            status = wf_error_set(error, WF_NO_MEMORY, "no memory for a model");
        } else {
            job->variants->rule = wish.rule != WF_QUANT_NONE          ? wish.rule
                                  : wf_model_size(config, "fp8_rows") ? WF_QUANT_CHANNEL_DIV
                                                                      : WF_QUANT_DEEPSEEK;
            status = fill(job, config, error);
        }
    }
    if (status != WF_OK) {
        wf_model_free(job);
        return status;
    }
    *model_out = job;
    return WF_OK;
}

void wf_variants_free(struct wf_variants *variants)
{
    if (!variants) {
        return;
    }
    wf_model_free(variants->plain);
    wf_model_free(variants->quantised);
    free(variants->of_quantised);
    free(variants->pairs);
    free(variants->pair_of);
    free(variants);
}

const struct wf_model *wf_model_config_view(const struct wf_model *model)
{
    const struct wf_variants *v = model->variants;
    return !v ? model : v->config_quantised ? v->quantised : v->plain;
}

const struct wf_model *wf_model_view(const struct wf_model *model, const struct wf_recipe *recipe)
{
    const struct wf_variants *v = model->variants;
    enum wf_engine_view view = recipe->engine->view;
    if (!v || view == WF_VIEW_CONFIG ||
        (view == WF_VIEW_SPEC && recipe->quant == WF_RECIPE_QUANT_CONFIG)) {
        return wf_model_config_view(model);
    }
    return view == WF_VIEW_PLAIN || recipe->quant == WF_RECIPE_QUANT_NONE ? v->plain : v->quantised;
}

uint32_t wf_model_of_view(const struct wf_model *model, const struct wf_model *view, uint32_t param)
{
    const struct wf_variants *v = model->variants;
    return v && view == v->quantised ? v->of_quantised[param] : param;
}

static const struct wf_variant_pair *find_pair(const struct wf_variants *v, uint32_t matrix)
{
    const struct wf_variant_pair wanted = {.matrix = matrix};
    return bsearch(&wanted, v->pairs, v->pair_count, sizeof *v->pairs, compare_pairs);
}

const struct wf_variant_pair *wf_model_pair(const struct wf_model *model, uint32_t param)
{
    const struct wf_variants *v = model->variants;
    if (!v) {
        return NULL;
    }
    return param < v->plain_count ? find_pair(v, param)
                                  : &v->pairs[v->pair_of[param - v->plain_count]];
}
