/* layout_view.c - a row's view: dimensions factored, and the order of the factors in memory. */
#include <inttypes.h>
#include <string.h>

#include "models/expr.h"
#include "models/layout_rows.h"

struct factor {
    const char *name;
    size_t len;
    uint64_t size;
};

struct viewer {
    const struct wf_row_at *at;
    const char *text;
    struct factor factors[WF_AXES_MAX];
    uint32_t count;
    /* For a text alone: names are asked for, sizes do not matter. NULL: at `at`. */
    wf_expr_lookup_t *checks;
    void *user;
    struct wf_error *error;
};

static enum wf_status refuse(struct viewer *v, const char *why)
{
    return wf_error_set(v->error, WF_INVALID,
                        "view \"%s\": %s; expected dimensions -> the same factors in another order",
                        v->text, why);
}

static size_t word_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

static enum wf_status read_size(struct viewer *v, const char *text, size_t len, uint64_t *size_out)
{
    *size_out = 1;
    if (v->checks) {
        return wf_expr_check(text, len, v->checks, v->user, v->error);
    }
    struct wf_row_at place = *v->at;
    return wf_expr_eval(text, len, wf_row_lookup, &place, size_out, v->error);
}

/* "name" or "name:EXPR" (which ends at a blank or a parenthesis that it did not open). */
static enum wf_status read_factor(struct viewer *v, const char **text, bool *sized_out)
{
    const char *at = *text;
    size_t len = word_length(at), expr = 0;
    if (len == 0 || v->count == WF_AXES_MAX) {
        return refuse(v, len == 0 ? "a factor needs a name" : "too many factors");
    }
    struct factor *factor = &v->factors[v->count++];
    *factor = (struct factor){at, len, 0};
    at += len;
    *sized_out = *at == ':';
    if (*at == ':') {
        int depth = 0;
        for (at++; at[expr] && at[expr] != ' ' && !(at[expr] == ')' && depth == 0); expr++) {
            depth += at[expr] == '(';
            depth -= at[expr] == ')';
        }
        enum wf_status status = read_size(v, at, expr, &factor->size);
        if (status != WF_OK) {
            return status;
        }
    }
    *text = at + expr;
    return WF_OK;
}

/* One dimension of `size`: a factor, or several in parentheses. */
static enum wf_status read_dimension(struct viewer *v, const char **text, uint64_t size)
{
    const char *at = *text + strspn(*text, " ");
    bool group = *at == '(';
    uint32_t unsized = UINT32_MAX;
    uint64_t product = 1;
    at += group;
    do {
        bool sized = false;
        at += strspn(at, " ");
        enum wf_status status = read_factor(v, &at, &sized);
        if (status != WF_OK) {
            return status;
        }
        if (!sized && unsized != UINT32_MAX) {
            return refuse(v, "a dimension has two factors without a size");
        }
        if (!sized) {
            unsized = v->count - 1;
        } else if (__builtin_mul_overflow(product, v->factors[v->count - 1].size, &product)) {
            return refuse(v, "factors overflow");
        }
        at += strspn(at, " ");
    } while (group && *at && *at != ')');
    if (group && *at != ')') {
        return refuse(v, "a ( is not closed");
    }
    if (v->checks) {
        *text = at + group;
        return WF_OK;
    }
    if (product == 0 || size % product != 0 || (unsized == UINT32_MAX && size != product)) {
        return wf_error_set(v->error, WF_INVALID,
                            "view \"%s\": factors of %" PRIu64 " do not make a dimension of "
                            "%" PRIu64,
                            v->text, product, size);
    }
    if (unsized != UINT32_MAX) {
        v->factors[unsized].size = size / product;
    }
    *text = at + group;
    return WF_OK;
}

/* Steps in memory by the order behind the arrow. */
static enum wf_status read_order(struct viewer *v, const char *text, uint32_t elem_bytes,
                                 struct wf_nest *nest)
{
    uint32_t order[WF_AXES_MAX], count = 0;
    bool used[WF_AXES_MAX] = {false};
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t len = word_length(text);
        uint32_t i = 0;
        while (i < v->count &&
               (v->factors[i].len != len || memcmp(v->factors[i].name, text, len) != 0)) {
            i++;
        }
        if (len == 0 || i == v->count || used[i]) {
            return refuse(v, "a factor behind the arrow is unknown or stands there twice");
        }
        used[i] = true;
        order[count++] = i;
        text += len;
    }
    if (count != v->count) {
        return refuse(v, "a factor is missing behind the arrow");
    }
    int64_t step = elem_bytes;
    while (count-- > 0) {
        nest->axes[order[count]].tensor_step = step;
        step *= (int64_t)v->factors[order[count]].size;
    }
    return WF_OK;
}

enum wf_status wf_view_make(const struct wf_row_at *at, const char *view, bool stacked,
                            uint32_t elem_bytes, struct wf_nest *nest_out, struct wf_error *error)
{
    struct viewer v = {.at = at, .text = view, .error = error};
    const uint64_t sizes[] = {at->slots, at->rows, at->columns};
    const char *text = view;
    enum wf_status status = WF_OK;
    for (unsigned i = stacked ? 0 : 1; i < 3 && status == WF_OK; i++) {
        status = read_dimension(&v, &text, sizes[i]);
    }
    if (status != WF_OK) {
        return status;
    }
    text += strspn(text, " ");
    if (strncmp(text, "->", 2) != 0) {
        return refuse(&v, "no arrow behind the dimensions");
    }
    *nest_out = (struct wf_nest){.elem_bytes = elem_bytes, .axis_count = v.count};
    uint64_t step = 1;
    for (uint32_t i = v.count; i-- > 0;) {
        nest_out->axes[i].count = v.factors[i].size;
        nest_out->axes[i].param_step = step;
        step *= v.factors[i].size;
    }
    return read_order(&v, text + 2, elem_bytes, nest_out);
}

enum wf_status wf_view_check(const char *view, wf_expr_lookup_t *lookup, void *user,
                             struct wf_error *error)
{
    struct viewer v = {.text = view, .checks = lookup, .user = user, .error = error};
    const char *text = view;
    unsigned dimensions = 0;
    enum wf_status status = WF_OK;
    for (; dimensions < 3 && status == WF_OK; dimensions++) {
        text += strspn(text, " ");
        if (dimensions >= 2 && (*text == '\0' || strncmp(text, "->", 2) == 0)) {
            break;
        }
        status = read_dimension(&v, &text, 1);
    }
    text += strspn(text, " ");
    if (status == WF_OK && strncmp(text, "->", 2) != 0) {
        return refuse(&v, "no arrow behind the dimensions");
    }
    struct wf_nest unused;
    return status == WF_OK ? read_order(&v, text + 2, 1, &unused) : status;
}
