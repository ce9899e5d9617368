/* dump_write.c - writes the files of ranks out of a checkpoint, tensor after tensor. */
#include "tools/compare/dump_write.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/casts.h"
#include "models/copy.h"
#include "models/engines/engine.h"
#include "models/json.h"
#include "models/quant.h"
#include "models/safetensors.h"
#include "models/variant.h"
#include "tools/compare/side.h"
#include "tools/files/atomic.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/manifest_files.h"

#define SPAN_MAX ((uint64_t)1 << 30) /* bytes of pieces that lie inside each other */
enum { BLOCK_ELEMENTS = 1 << 20, PATH_ROOM = 4096 };

/* A matrix as codes and scales, by the rule of the SPEC: the last one that was asked for. */
struct codes {
    uint32_t param; /* of the side; WF_NONE: none */
    uint8_t *codes;
    float *scales;
};

struct writer {
    struct wf_compare_side side;  /* from where */
    struct wf_model *job;         /* whose view the ranks have */
    const struct wf_model *model; /* that view */
    struct codes codes;
    struct wf_recipe recipe;
    const struct wf_layout *layout; /* of the rank at hand */
    struct wf_atomic_file file;
    float *block; /* BLOCK_ELEMENTS, of any dtype up to 4 bytes */
    float *wide;  /* BLOCK_ELEMENTS */
    struct wf_dump_written *written;
    struct wf_error *error;
};

/* --- values ---------------------------------------------------------------------------------- */

/* Where the values of a parameter of the ranks' view come from. */
struct origin {
    uint32_t param; /* of the side, or WF_NONE */
    bool codes, scales;
};

static struct origin origin_of(const struct writer *w, uint32_t param)
{
    char name[WF_NAME_MAX];
    const struct wf_param *wanted = &w->model->params[param];
    struct origin origin = {.param = wf_side_find(&w->side, wanted->name)};
    size_t stem = wf_side_scales_stem(wanted->name);
    if (origin.param == WF_NONE && stem > 0) {
        snprintf(name, sizeof name, "%.*s", (int)stem, wanted->name);
        origin.param = wf_side_find(&w->side, name);
        origin.scales = origin.param != WF_NONE;
    } else if (origin.param != WF_NONE) {
        origin.codes = wanted->dtype == WF_DTYPE_F8_E4M3 &&
                       w->side.params[origin.param].dtype != WF_DTYPE_F8_E4M3;
    }
    return origin;
}

/* The codes and scales of a whole matrix: blocks do not end where ranks' shares do. */
static enum wf_status quantise(struct writer *w, uint32_t param)
{
    const struct wf_side_param *p = &w->side.params[param];
    const enum wf_quant rule = w->job->variants->rule;
    uint32_t high, wide; /* of a block; wide may be 0: whole rows */
    wf_quant_block(rule, &high, &wide);
    uint64_t rows = p->shape[0], columns = p->shape[1];
    uint64_t blocks = wide == 0 ? 1 : (columns + wide - 1) / wide;
    size_t bytes = wf_dtype_bytes(p->dtype);
    if (w->codes.param == param) {
        return WF_OK;
    }
    free(w->codes.codes);
    free(w->codes.scales);
    w->codes = (struct codes){.param = WF_NONE,
                              .codes = malloc(p->elements),
                              .scales = malloc((rows + high - 1) / high * blocks * sizeof(float))};
    void *values = malloc(p->elements * bytes);
    enum wf_status status = w->codes.codes != NULL && w->codes.scales != NULL && values != NULL
                                ? WF_OK
                                : wf_error_set(w->error, WF_NO_MEMORY, "no memory for %s", p->name);
    status = status == WF_OK
                 ? wf_side_read(&w->side, param, 0, p->elements, p->dtype, values, NULL, w->error)
                 : status;
    if (status == WF_OK) {
        const struct wf_quant_matrix matrix = {values, p->dtype, rows, columns, columns * bytes};
        wf_quantise(rule, &matrix, w->codes.codes, columns, w->codes.scales, blocks, false);
        w->codes.param = param;
    }
    free(values);
    return status;
}

/* Elements of a piece's parameter as the tensor holds them, into `block`. */
static enum wf_status read_block(struct writer *w, const struct wf_piece *piece, uint64_t first,
                                 uint64_t count, enum wf_dtype as)
{
    struct origin origin = origin_of(w, piece->param);
    if (origin.codes || origin.scales) {
        enum wf_status made = quantise(w, origin.param);
        if (made == WF_OK && origin.codes) {
            memcpy(w->block, w->codes.codes + first, count);
        } else if (made == WF_OK) {
            memcpy(w->block, w->codes.scales + first, count * sizeof(float));
        }
        return made;
    }
    bool less_one = piece->value_rule == WF_VALUE_LESS_ONE;
    void *to = less_one ? w->wide : w->block;
    enum wf_status status = wf_side_read(&w->side, origin.param, first, count,
                                         less_one ? WF_DTYPE_F32 : as, to, NULL, w->error);
    if (status == WF_OK && less_one) {
        for (uint64_t i = 0; i < count; i++) {
            w->wide[i] -= 1.0F;
        }
        wf_cast_for(WF_DTYPE_F32, as, false)(w->block, w->wide, count);
    }
    return status;
}

static enum wf_status write_run(struct writer *w, const struct wf_piece *piece, enum wf_dtype dtype)
{
    enum wf_status status = WF_OK;
    for (uint64_t done = 0; done < piece->count && status == WF_OK; done += BLOCK_ELEMENTS) {
        uint64_t left = piece->count - done, n = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
        status = read_block(w, piece, piece->param_first + done, n, dtype);
        status = status == WF_OK
                     ? wf_atomic_write(&w->file, w->block, n * wf_dtype_bytes(dtype), w->error)
                     : status;
    }
    return status;
}

struct scatter {
    const void *block;
    char *span;
    enum wf_dtype dtype;
};

static bool scatter_box(void *user, const struct wf_box *box)
{
    const struct scatter *scatter = user;
    wf_copy_box_cached(box, scatter->block, scatter->dtype, scatter->span, scatter->dtype,
                       (struct wf_copy_part){0, box->elements});
    return true;
}

/* One piece into the span that begins at the nest's offset 0. */
static enum wf_status scatter_piece(struct writer *w, const struct wf_piece *piece,
                                    const struct wf_nest *nest, char *span, enum wf_dtype dtype)
{
    struct scatter scatter = {w->block, span, dtype};
    uint64_t last = nest->param_first;
    uint32_t bytes = (uint32_t)wf_dtype_bytes(dtype);
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        last += (nest->axes[a].count - 1) * nest->axes[a].param_step;
    }
    enum wf_status status = WF_OK;
    for (uint64_t at = nest->param_first; at <= last && status == WF_OK; at += BLOCK_ELEMENTS) {
        uint64_t n = last + 1 - at < BLOCK_ELEMENTS ? last + 1 - at : BLOCK_ELEMENTS;
        struct wf_nest range = {
            .param_first = at, .elem_bytes = bytes, .axis_count = n > 1, .axes = {{n, 1, bytes}}};
        status = read_block(w, piece, at, n, dtype);
        status = status == WF_OK ? wf_nest_intersect(&range, nest, scatter_box, &scatter, w->error)
                                 : status;
    }
    return status;
}

static uint64_t end_of(const struct wf_nest *nest)
{
    uint64_t end = nest->tensor_offset + nest->elem_bytes;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        end += (nest->axes[a].count - 1) * (uint64_t)nest->axes[a].tensor_step;
    }
    return end;
}

/* Pieces [first, end) that lie inside each other, in bytes [from, to) of the tensor. */
static enum wf_status write_span(struct writer *w, uint32_t first, uint32_t end, uint64_t from,
                                 uint64_t to, enum wf_dtype dtype)
{
    char *span = to - from <= SPAN_MAX ? calloc(1, to - from) : NULL;
    enum wf_status status =
        span != NULL ? WF_OK
                     : wf_error_set(w->error, WF_NO_MEMORY,
                                    "no memory for %" PRIu64 " bytes of a tensor", to - from);
    for (uint32_t i = first; i < end && status == WF_OK; i++) {
        const struct wf_piece *piece = &w->layout->pieces[i];
        struct wf_nest nest = wf_layout_nest(w->layout, i);
        nest.tensor_offset -= from;
        if (piece->kind == WF_PIECE_FILL) {
            wf_fill_nest(&nest, span, (uint8_t)piece->value_rule);
        } else {
            status = scatter_piece(w, piece, &nest, span, dtype);
        }
    }
    status = status == WF_OK ? wf_atomic_write(&w->file, span, to - from, w->error) : status;
    free(span);
    return status;
}

static enum wf_status write_tensor(struct writer *w, uint32_t tensor)
{
    uint32_t first, end;
    uint64_t at = 0;
    enum wf_dtype dtype = w->layout->tensors[tensor].dtype;
    enum wf_status status = WF_OK;
    wf_layout_pieces(w->layout, tensor, &first, &end);
    while (first < end && status == WF_OK) {
        const struct wf_piece *piece = &w->layout->pieces[first];
        struct wf_nest nest = wf_layout_nest(w->layout, first);
        uint64_t to = end_of(&nest);
        uint32_t next = first + 1;
        for (; next < end && w->layout->pieces[next].tensor_offset < to; next++) {
            nest = wf_layout_nest(w->layout, next);
            to = end_of(&nest) > to ? end_of(&nest) : to;
        }
        bool run = next == first + 1 && piece->form == 0 && piece->kind == WF_PIECE_DATA;
        status = run ? write_run(w, piece, dtype) : write_span(w, first, next, at, to, dtype);
        at = to;
        first = next;
    }
    return status;
}

/* --- a rank ---------------------------------------------------------------------------------- */

static bool is_row_major(const struct wf_tensor *tensor)
{
    int64_t step = 1;
    bool is = true;
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        is = is && (tensor->shape[d] == 1 || tensor->strides[d] == step);
        step *= (int64_t)tensor->shape[d];
    }
    return is;
}

/* What the checkpoint must have for a tensor. */
static enum wf_status check_tensor(struct writer *w, uint32_t index)
{
    const struct wf_tensor *tensor = &w->layout->tensors[index];
    uint32_t first, end;
    if (!is_row_major(tensor)) {
        return wf_error_set(w->error, WF_UNSUPPORTED,
                            "%s: the framework keeps its dimensions in another order than files do",
                            tensor->name);
    }
    wf_layout_pieces(w->layout, index, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        const struct wf_piece *piece = &w->layout->pieces[i];
        if (piece->kind == WF_PIECE_FILL) {
            continue;
        }
        const struct origin origin = origin_of(w, piece->param);
        const char *name = w->model->params[piece->param].name;
        const struct wf_side_param *param =
            origin.param != WF_NONE ? &w->side.params[origin.param] : NULL;
        bool whole = param != NULL && param->held == param->elements;
        bool made = origin.codes || origin.scales;
        /* Codes are no values: without their scales they are not to be cast. */
        bool fits = whole && (made ? w->job->variants != NULL && param->ndim == 2 &&
                                         wf_dtype_castable(param->dtype, WF_DTYPE_F32) &&
                                         wf_dtype_bytes(param->dtype) > 1
                                   : param->dtype == tensor->dtype ||
                                         (wf_dtype_bytes(param->dtype) > 1 &&
                                          wf_dtype_castable(param->dtype, tensor->dtype)));
        if (!fits) {
            return wf_error_set(
                w->error, WF_UNSUPPORTED,
                "%s: %s does not hold all of it, or holds it in a type (%s) that is "
                "not cast into %s; dump a checkpoint that is not quantised",
                name, w->side.path, wf_dtype_name(param != NULL ? param->dtype : WF_DTYPE_NONE),
                wf_dtype_name(tensor->dtype));
        }
    }
    return WF_OK;
}

static const char *plain_name(const char *name)
{
    const char *colon = strchr(name, ':'); /* "buffer:", "attr:" */
    return colon != NULL ? colon + 1 : name;
}

static enum wf_status write_header(struct writer *w, uint32_t *list, uint32_t count)
{
    struct wf_st_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
    uint8_t *bytes = NULL;
    size_t len = 0;
    if (tensors == NULL) {
        return wf_error_set(w->error, WF_NO_MEMORY, "no memory for a header");
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct wf_tensor *tensor = &w->layout->tensors[list[i]];
        tensors[i] = (struct wf_st_tensor){.name = plain_name(tensor->name),
                                           .dtype = tensor->dtype,
                                           .ndim = tensor->ndim,
                                           .shape = tensor->shape};
    }
    enum wf_status status = wf_st_format(tensors, count, NULL, &bytes, &len, w->error);
    status = status == WF_OK ? wf_atomic_write(&w->file, bytes, len, w->error) : status;
    free(bytes);
    free(tensors);
    return status;
}

/* A dump has its own copies of the manifests that it was made by. */
static enum wf_status write_manifest(struct writer *w, const char *folder, uint32_t rank)
{
    char path[PATH_ROOM];
    uint8_t *bytes = NULL;
    size_t len = 0;
    if (w->recipe.engine != &wf_engine_manifest || rank >= wf_recipe_ranks_per_engine(&w->recipe)) {
        return WF_OK;
    }
    snprintf(path, sizeof path, "%s/rank-%" PRIu32 ".manifest", folder, rank);
    struct wf_layout *layout = NULL; /* in the job's parameters */
    enum wf_status status = wf_layout_derive(w->job, &w->recipe, rank, &layout, w->error);
    status = status == WF_OK ? wf_manifest_write(w->job, layout, &bytes, &len, w->error) : status;
    status = status == WF_OK ? wf_atomic_write_file(path, bytes, len, w->error) : status;
    wf_layout_free(layout);
    free(bytes);
    return status;
}

static enum wf_status write_rank(struct writer *w, const char *folder, uint32_t rank)
{
    char path[PATH_ROOM];
    struct wf_layout *layout = NULL;
    enum wf_status status = wf_layout_derive_view(w->job, &w->recipe, rank, &layout, w->error);
    if (status != WF_OK) {
        return status;
    }
    w->layout = layout;
    uint32_t *list = calloc((size_t)layout->tensor_count + 1, sizeof *list), count = 0;
    status = list != NULL ? WF_OK : wf_error_set(w->error, WF_NO_MEMORY, "no memory for a rank");
    for (uint32_t i = 0; i < layout->tensor_count && status == WF_OK; i++) {
        if (layout->tensors[i].kind == WF_TENSOR_WEIGHTS && layout->tensors[i].bytes > 0) {
            list[count++] = i;
            status = check_tensor(w, i);
        }
    }
    snprintf(path, sizeof path, "%s/rank_%02" PRIu32 ".safetensors", folder, rank);
    status = status == WF_OK ? wf_atomic_open(&w->file, path, w->error) : status;
    status = status == WF_OK ? write_header(w, list, count) : status;
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        status = write_tensor(w, list[i]);
        w->written->tensors++;
        w->written->bytes += layout->tensors[list[i]].bytes;
    }
    if (status == WF_OK) {
        status = wf_atomic_commit(&w->file, w->error);
    } else {
        wf_atomic_abort(&w->file);
    }
    status = status == WF_OK ? write_manifest(w, folder, rank) : status;
    free(list);
    wf_layout_free(layout);
    return status;
}

/* --- all of it ------------------------------------------------------------------------------- */

/* {"engine": ..., the SPEC's keys, "model": the config}. */
static enum wf_status write_recipe(struct writer *w, const char *folder)
{
    char path[PATH_ROOM], spec[WF_SPEC_MAX], *config = NULL, *rest = NULL;
    char manifests[] = "rank-%d.manifest"; /* as write_manifest names them */
    size_t len = 0;
    struct json_object *model = NULL, *root = json_object_new_object();
    enum wf_status status = wf_hf_config_read(w->side.path, &config, &len, w->error);
    status =
        status == WF_OK ? wf_json_parse(config, len, WF_JSON_PYTHON, &model, w->error) : status;
    free(config);
    wf_recipe_format(&w->recipe, spec);
    char *keys = strchr(spec, ':');
    if (keys != NULL) {
        *keys++ = '\0';
    }
    json_object_object_add(root, "engine", json_object_new_string(spec));
    for (char *key = keys != NULL ? strtok_r(keys, ",", &rest) : NULL; key != NULL;
         key = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(key, '=');
        *value++ = '\0';
        value = strcmp(key, "files") == 0 ? manifests : value;
        bool is_number = strspn(value, "0123456789") == strlen(value);
        json_object_object_add(root, key,
                               is_number ? json_object_new_int64(strtoll(value, NULL, 10))
                                         : json_object_new_string(value));
    }
    json_object_object_add(root, "model", model);
    snprintf(path, sizeof path, "%s/recipe.json", folder);
    char *text = NULL;
    int written = asprintf(&text, "%s\n",
                           json_object_to_json_string_ext(
                               root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    if (status == WF_OK) {
        status = written >= 0 ? wf_atomic_write_file(path, text, (size_t)written, w->error)
                              : wf_error_set(w->error, WF_NO_MEMORY, "no memory for a recipe");
    }
    if (written >= 0) {
        free(text);
    }
    json_object_put(root);
    return status;
}

/* The recipe, and the model as its ranks see it: with codes and scales where it says a rule. */
static enum wf_status read_spec(struct writer *w, const char *spec)
{
    const struct wf_recipe *recipes[] = {&w->recipe};
    enum wf_status status = wf_recipe_parse(spec, NULL, &w->recipe, w->error);
    status =
        status == WF_OK ? wf_model_for_job(w->side.model, recipes, 1, &w->job, w->error) : status;
    if (status == WF_OK) {
        w->model = wf_model_view(w->job, &w->recipe);
        status = wf_manifest_files_load(recipes, 1, NULL, w->job, w->error);
    }
    if (status == WF_OK) {
        status = wf_recipe_parse(spec, w->job, &w->recipe, w->error);
    }
    return status;
}

/* A checkpoint stays one. Of a dump over more ranks some files would stay, and belong to nothing.
 */
static enum wf_status check_folder(const char *folder, uint32_t world, struct wf_error *error)
{
    char **names = NULL, config[PATH_ROOM];
    uint32_t count = 0;
    struct wf_error why = {0};
    snprintf(config, sizeof config, "%s/config.json", folder);
    if (access(config, F_OK) == 0) { /* a recipe.json beside it could be read in two ways */
        return wf_error_set(error, WF_REFUSED,
                            "%s holds a config.json: it is a Hugging Face folder; name another "
                            "folder for a dump",
                            folder);
    }
    enum wf_status status = wf_dump_rank_files(folder, &names, &count, &why);
    wf_dump_rank_files_free(names, count);
    if (status == WF_OK && count > world) {
        return wf_error_set(error, WF_REFUSED,
                            "%s holds a dump over %" PRIu32 " ranks, and this one has %" PRIu32
                            "; remove its files, or name another folder",
                            folder, count, world);
    }
    if (status == WF_INVALID || status == WF_NOT_FOUND) { /* a gap, or two files of a rank */
        return wf_error_set(error, WF_REFUSED,
                            "%s: it holds part of a dump; remove its files, or name another folder",
                            why.text);
    }
    return status == WF_OK ? WF_OK : wf_error_set(error, status, "%s", why.text);
}

enum wf_status wf_dump_write(const struct wf_dump_write_options *options,
                             struct wf_dump_written *written_out, struct wf_error *error)
{
    struct wf_dump_written written = {0};
    struct writer w = {.written = &written, .error = error, .codes = {.param = WF_NONE}};
    enum wf_status status = wf_side_open(options->model, options->families, &w.side, error);
    if (status == WF_INVALID) { /* the folder; to our caller INVALID is the SPEC's */
        struct wf_error why = error != NULL ? *error : (struct wf_error){0};
        status = wf_error_set(error, WF_IO, "%s", why.text);
    }
    if (status == WF_OK && (strcmp(w.side.spec, "hf") != 0 || w.side.refused.count > 0)) {
        status = w.side.refused.count > 0
                     ? wf_error_set(error, WF_UNSUPPORTED, "%s", w.side.refused.items[0])
                     : wf_error_set(error, WF_UNSUPPORTED,
                                    "%s: expected a Hugging Face folder (config.json and "
                                    "safetensors), found a dump of %s",
                                    options->model, w.side.spec);
    }
    status = status == WF_OK ? read_spec(&w, options->spec) : status;
    status = status == WF_OK ? wf_folder_make(options->folder, 0777, error) : status;
    w.block = malloc(BLOCK_ELEMENTS * sizeof *w.block);
    w.wide = malloc(BLOCK_ELEMENTS * sizeof *w.wide);
    if (status == WF_OK && (w.block == NULL || w.wide == NULL)) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory to write a dump");
    }
    uint32_t world = status == WF_OK ? wf_recipe_world(&w.recipe) : 0;
    status = status == WF_OK ? check_folder(options->folder, world, error) : status;
    for (uint32_t r = 0; r < world && status == WF_OK; r++) {
        status = write_rank(&w, options->folder, r);
        written.ranks = r + 1;
        if (options->progress != NULL) {
            options->progress(options->user, r + 1, world);
        }
    }
    status = status == WF_OK ? write_recipe(&w, options->folder) : status;
    free(w.block);
    free(w.wide);
    free(w.codes.codes);
    free(w.codes.scales);
    wf_model_free(w.job);
    wf_side_close(&w.side);
    if (status == WF_OK) {
        *written_out = written;
    }
    return status;
}
