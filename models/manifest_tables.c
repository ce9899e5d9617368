/* manifest_tables.c - what a manifest says once and then counts: words, parameters, types, forms.
 */
#include "models/manifest_private.h"

#include <stdlib.h>
#include <string.h>

/* --- names ----------------------------------------------------------------------------------- */

/* A name by its words into `name` (NUL-terminated). */
enum wf_status wf_manifest_take_name(struct wf_manifest_reader *r, char name[WF_NAME_MAX],
                                     size_t *len_out)
{
    uint32_t count = 0, shared = 0;
    size_t len = 0;
    enum wf_status status = wf_manifest_take_list(r, 1, WF_MANIFEST_NAME_WORDS_MAX + 1, &count);
    status = status == WF_OK ? wf_manifest_take_index(r, r->before_count + 1, &shared) : status;
    if (status == WF_OK &&
        (shared + count - 1 > WF_MANIFEST_NAME_WORDS_MAX || shared + count == 1)) {
        status = wf_manifest_refuse(r, "a name of 1 to 128 words");
    }
    for (uint32_t i = 1; i < count && status == WF_OK; i++) {
        status = wf_manifest_take_index(r, r->word_count, &r->before[shared + i - 1]);
    }
    if (status != WF_OK) {
        return status;
    }
    r->before_count = shared + count - 1;
    for (uint32_t i = 0; i < r->before_count; i++) {
        const struct wf_manifest_word *word = &r->words[r->before[i]];
        if (len + 1 + word->len >= WF_NAME_MAX) {
            return wf_manifest_refuse(r, "a name of less than 256 bytes");
        }
        if (i > 0) {
            name[len++] = '.';
        }
        memcpy(name + len, word->text, word->len);
        len += word->len;
    }
    if (len == 0) {
        return wf_manifest_refuse(r, "a name that is not empty");
    }
    name[len] = '\0';
    *len_out = len;
    return WF_OK;
}

enum wf_status wf_manifest_take_words(struct wf_manifest_reader *r)
{
    r->part = "words";
    enum wf_status status = wf_manifest_take_list(r, 0, WF_MANIFEST_WORDS_MAX, &r->word_count);
    r->words = status == WF_OK ? calloc(r->word_count + 1, sizeof *r->words) : NULL;
    if (status == WF_OK && r->words == NULL) {
        status = wf_error_set(r->error, WF_NO_MEMORY, "no memory for a manifest");
    }
    for (r->index = 0; r->index < r->word_count && status == WF_OK; r->index++) {
        struct wf_manifest_word *word = &r->words[r->index];
        status = wf_manifest_take_text(r, word);
        if (status == WF_OK && (memchr(word->text, '\0', word->len) != NULL ||
                                memchr(word->text, '.', word->len) != NULL)) {
            status = wf_manifest_refuse(r, "a word without dots and NULs before it");
        }
    }
    return status;
}

/* Keeps a name for manifest_out->params, as an offset until all are there. */
static enum wf_status keep_name(struct wf_manifest_reader *r, const char *name, size_t len)
{
    struct wf_manifest *out = r->out;
    if (r->text_room - r->text_used <= len) {
        size_t room = 2 * r->text_room + len + 4096;
        char *grown = realloc(out->text, room);
        if (grown == NULL) {
            return wf_error_set(r->error, WF_NO_MEMORY, "no memory for a manifest's names");
        }
        out->text = grown;
        r->text_room = room;
    }
    memcpy(out->text + r->text_used, name, len + 1);
    out->params[out->param_count].name = (const char *)r->text_used;
    r->params[out->param_count] = out->param_count;
    out->param_count++;
    r->text_used += len + 1;
    return WF_OK;
}

static enum wf_status take_param(struct wf_manifest_reader *r)
{
    char name[WF_NAME_MAX];
    size_t len = 0;
    enum wf_status status = wf_manifest_take_name(r, name, &len);
    if (status != WF_OK || r->model == NULL) {
        return status == WF_OK ? keep_name(r, name, len) : status;
    }
    r->params[r->index] = wf_model_find(r->model, name, len);
    return r->params[r->index] != WF_NONE
               ? WF_OK
               : wf_error_set(r->error, WF_INVALID,
                              "the manifest names the parameter %s, which the model does not have",
                              name);
}

enum wf_status wf_manifest_take_params(struct wf_manifest_reader *r)
{
    r->part = "params";
    r->index = 0;
    enum wf_status status = wf_manifest_take_list(r, 0, WF_MANIFEST_PARAMS_MAX, &r->param_count);
    if (status != WF_OK) {
        return status;
    }
    r->params = calloc(r->param_count + 1, sizeof *r->params);
    r->out->params = r->model == NULL ? calloc(r->param_count + 1, sizeof *r->out->params) : NULL;
    if (r->params == NULL || (r->model == NULL && r->out->params == NULL)) {
        return wf_error_set(r->error, WF_NO_MEMORY, "no memory for a manifest");
    }
    for (; r->index < r->param_count && status == WF_OK; r->index++) {
        status = take_param(r);
    }
    for (uint32_t i = 0; i < r->out->param_count; i++) {
        r->out->params[i].name = r->out->text + (size_t)r->out->params[i].name;
    }
    return status;
}

/* --- types and forms ------------------------------------------------------------------------- */

static enum wf_status take_order(struct wf_manifest_reader *r, struct wf_manifest_type *type)
{
    uint32_t count = 0;
    unsigned seen = 0;
    enum wf_status status = wf_manifest_take_list(r, 0, WF_SHAPE_MAX, &count);
    if (status == WF_OK && count != 0 && count != type->ndim) {
        status = wf_manifest_refuse(r, "each dimension once");
    }
    type->ordered = count > 0;
    for (uint32_t d = 0; d < count && status == WF_OK; d++) {
        status = wf_manifest_take_index(r, type->ndim, &type->order[d]);
        if (status == WF_OK && (seen >> type->order[d] & 1) != 0) {
            status = wf_manifest_refuse(r, "each dimension once");
        }
        seen |= status == WF_OK ? 1u << type->order[d] : 0;
    }
    return status;
}

static enum wf_status take_type(struct wf_manifest_reader *r, struct wf_manifest_type *type)
{
    struct wf_manifest_word dtype = {0};
    uint32_t parts = 0;
    uint64_t kind = 0;
    enum wf_status status = wf_manifest_take_list(r, 4, 4, &parts);
    status = status == WF_OK ? wf_manifest_take_text(r, &dtype) : status;
    type->dtype = status == WF_OK ? wf_dtype_from_name(dtype.text, dtype.len) : WF_DTYPE_NONE;
    if (status == WF_OK && type->dtype == WF_DTYPE_NONE) {
        status = wf_manifest_refuse(r, "a dtype that this build knows before it (\"bf16\")");
    }
    status = status == WF_OK ? wf_manifest_take_number(r, WF_TENSOR_VIEW, &kind) : status;
    status = status == WF_OK ? wf_manifest_take_list(r, 0, WF_SHAPE_MAX, &type->ndim) : status;
    type->kind = (enum wf_tensor_kind)kind;
    type->bytes = wf_dtype_bytes(type->dtype);
    for (uint32_t d = 0; d < type->ndim && status == WF_OK; d++) {
        status = wf_manifest_take_number(r, INT64_MAX, &type->shape[d]);
        if (status == WF_OK &&
            (type->shape[d] == 0
                 ? false
                 : __builtin_mul_overflow(type->bytes, type->shape[d], &type->bytes) ||
                       type->bytes > INT64_MAX)) {
            status = wf_manifest_refuse(r, "a shape of less than 2^63 bytes before it");
        }
    }
    for (uint32_t d = 0; d < type->ndim; d++) {
        type->bytes = type->shape[d] == 0 ? 0 : type->bytes;
    }
    return status == WF_OK ? take_order(r, type) : status;
}

enum wf_status wf_manifest_take_types(struct wf_manifest_reader *r)
{
    r->part = "types";
    r->index = 0;
    enum wf_status status = wf_manifest_take_list(r, 0, WF_MANIFEST_TYPES_MAX, &r->type_count);
    r->types = status == WF_OK ? calloc(r->type_count + 1, sizeof *r->types) : NULL;
    if (status == WF_OK && r->types == NULL) {
        status = wf_error_set(r->error, WF_NO_MEMORY, "no memory for a manifest");
    }
    for (; r->index < r->type_count && status == WF_OK; r->index++) {
        status = take_type(r, &r->types[r->index]);
    }
    return status;
}

static enum wf_status take_form(struct wf_manifest_reader *r, struct wf_nest *nest)
{
    uint32_t count = 0, parts = 0;
    uint64_t unit = 0;
    enum wf_status status = wf_manifest_take_list(r, 1, WF_AXES_MAX + 1, &count);
    status = status == WF_OK ? wf_manifest_take_number(r, 8, &unit) : status;
    if (status == WF_OK && unit == 0) {
        status = wf_manifest_refuse(r, "an element of 1 to 8 bytes before it");
    }
    nest->elem_bytes = (uint32_t)unit;
    nest->axis_count = status == WF_OK ? count - 1 : 0;
    for (uint32_t a = 0; a < nest->axis_count && status == WF_OK; a++) {
        struct wf_axis *axis = &nest->axes[a];
        status = wf_manifest_take_list(r, 3, 3, &parts);
        status = status == WF_OK ? wf_manifest_take_number(r, INT64_MAX, &axis->count) : status;
        status =
            status == WF_OK ? wf_manifest_take_number(r, INT64_MAX, &axis->param_step) : status;
        status = status == WF_OK ? wf_manifest_take_signed(r, &axis->tensor_step) : status;
        if (status == WF_OK && axis->tensor_step % (int64_t)unit != 0) {
            status = wf_manifest_refuse(r, "a step of whole elements before it");
        }
    }
    return status;
}

enum wf_status wf_manifest_take_forms(struct wf_manifest_reader *r)
{
    r->part = "forms";
    r->index = 0;
    enum wf_status status = wf_manifest_take_list(r, 0, WF_MANIFEST_FORMS_MAX, &r->form_count);
    r->forms = status == WF_OK ? calloc(r->form_count + 1, sizeof *r->forms) : NULL;
    r->built = status == WF_OK ? calloc(r->form_count + 1, sizeof *r->built) : NULL;
    if (status == WF_OK && (r->forms == NULL || r->built == NULL)) {
        status = wf_error_set(r->error, WF_NO_MEMORY, "no memory for a manifest");
    }
    for (; r->index < r->form_count && status == WF_OK; r->index++) {
        status = take_form(r, &r->forms[r->index]);
        if (status == WF_OK) {
            /* In this order: the hash counts it. */
            r->built[r->index] = wf_build_form(&r->build, &r->forms[r->index]);
        }
    }
    return status;
}
