/* show.c - prints a layout, and turns it into JSON. */
#include "tools/layout/show.h"

#include <inttypes.h>

/* What a tensor is where it is not weights. */
static const char *const kinds[] = {[WF_TENSOR_WEIGHTS] = "",
                                    [WF_TENSOR_DERIVED] = "derived",
                                    [WF_TENSOR_KEEP] = "kept",
                                    [WF_TENSOR_VIEW] = "a view"};

static void print_piece(FILE *out, const struct wf_model *model, const struct wf_layout *layout,
                        uint32_t index)
{
    const struct wf_piece *piece = &layout->pieces[index];
    struct wf_nest nest = wf_layout_nest(layout, index);
    fprintf(out, "    byte %-12" PRIu64 " ", piece->tensor_offset);
    if (piece->kind == WF_PIECE_FILL) {
        fprintf(out, "fill of %" PRIu16 ", %" PRIu64 " elements\n", piece->value_rule,
                wf_nest_elements(&nest));
        return;
    }
    fprintf(out, "%s[%" PRIu64 "]%s", model->params[piece->param].name, piece->param_first,
            piece->value_rule == WF_VALUE_LESS_ONE ? " less 1" : "");
    if (piece->form == 0) {
        fprintf(out, " x %" PRIu64 "\n", piece->count);
        return;
    }
    for (uint32_t a = 0; a < nest.axis_count; a++) {
        fprintf(out, " %" PRIu64 "(%" PRIu64 ", %" PRId64 ")", nest.axes[a].count,
                nest.axes[a].param_step, nest.axes[a].tensor_step);
    }
    fprintf(out, "\n");
}

static void print_tensor(FILE *out, const struct wf_tensor *tensor)
{
    fprintf(out, "%s %s ", tensor->name, wf_dtype_name(tensor->dtype));
    for (uint32_t axis = 0; axis < tensor->ndim; axis++) {
        fprintf(out, "%s%" PRIu64, axis ? "x" : "", tensor->shape[axis]);
    }
    fprintf(out, " %" PRIu64 " bytes%s%s%s\n", tensor->bytes, kinds[tensor->kind][0] ? " (" : "",
            kinds[tensor->kind], kinds[tensor->kind][0] ? ")" : "");
}

static void print_title(FILE *out, const struct wf_model *model, const struct wf_recipe *recipe,
                        uint32_t rank)
{
    char spec[WF_SPEC_MAX];
    if (recipe == NULL) {
        fprintf(out, "a manifest\n");
        return;
    }
    wf_recipe_format(recipe, spec);
    struct wf_coordinates at = wf_recipe_coordinates(recipe, rank);
    fprintf(out, "%s of %s, rank %" PRIu32 " of %" PRIu32, spec, model->model_type, rank,
            wf_recipe_world(recipe));
    fprintf(out,
            " (engine %" PRIu32 ", tp %" PRIu32 ", pp %" PRIu32 ", dp %" PRIu32 ", cp %" PRIu32
            ")\n",
            at.engine, at.tp, at.pp, at.dp, at.cp);
}

void wf_layout_print(FILE *out, const struct wf_model *model, const struct wf_recipe *recipe,
                     uint32_t rank, const struct wf_layout *layout)
{
    char hash[WF_HASH_TEXT];
    wf_hash_format(layout->hash, hash);
    print_title(out, model, recipe, rank);
    fprintf(out, "%" PRIu32 " tensors, %" PRIu32 " pieces, %" PRIu64 " bytes, hash %s\n\n",
            layout->tensor_count, layout->piece_count, layout->bytes, hash);
    uint32_t piece = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        print_tensor(out, &layout->tensors[i]);
        for (; piece < layout->piece_count && layout->pieces[piece].tensor == i; piece++) {
            print_piece(out, model, layout, piece);
        }
    }
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        fprintf(out, "%s is another name of %s\n", layout->aliases[i].name,
                layout->tensors[layout->aliases[i].tensor].name);
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void add_number(struct json_object *object, const char *key, uint64_t value)
{
    json_object_object_add(object, key, json_object_new_uint64(value));
}

static void add_text(struct json_object *object, const char *key, const char *value)
{
    json_object_object_add(object, key, json_object_new_string(value));
}

static struct json_object *piece_to_json(const struct wf_model *model,
                                         const struct wf_layout *layout, uint32_t index)
{
    const struct wf_piece *piece = &layout->pieces[index];
    struct wf_nest nest = wf_layout_nest(layout, index);
    struct json_object *object = json_object_new_object(), *axes = json_object_new_array();
    if (piece->kind == WF_PIECE_FILL) {
        add_number(object, "fill", piece->value_rule);
    } else {
        add_text(object, "param", model->params[piece->param].name);
        add_number(object, "param_first", piece->param_first);
    }
    if (piece->kind == WF_PIECE_DATA && piece->value_rule == WF_VALUE_LESS_ONE) {
        json_object_object_add(object, "less_one", json_object_new_boolean(true));
    }
    add_number(object, "tensor_offset", piece->tensor_offset);
    for (uint32_t a = 0; a < nest.axis_count; a++) {
        struct json_object *axis = json_object_new_object();
        add_number(axis, "count", nest.axes[a].count);
        add_number(axis, "param_step", nest.axes[a].param_step);
        json_object_object_add(axis, "tensor_step",
                               json_object_new_int64(nest.axes[a].tensor_step));
        json_object_array_add(axes, axis);
    }
    json_object_object_add(object, "axes", axes);
    return object;
}

static struct json_object *tensor_to_json(const struct wf_model *model,
                                          const struct wf_layout *layout, uint32_t index,
                                          uint32_t *piece)
{
    const struct wf_tensor *tensor = &layout->tensors[index];
    struct json_object *object = json_object_new_object(), *shape = json_object_new_array(),
                       *pieces = json_object_new_array();
    add_text(object, "name", tensor->name);
    add_text(object, "dtype", wf_dtype_name(tensor->dtype));
    for (uint32_t axis = 0; axis < tensor->ndim; axis++) {
        json_object_array_add(shape, json_object_new_uint64(tensor->shape[axis]));
    }
    json_object_object_add(object, "shape", shape);
    add_number(object, "bytes", tensor->bytes);
    if (kinds[tensor->kind][0] != '\0') {
        add_text(object, "kind", kinds[tensor->kind]);
    }
    for (; *piece < layout->piece_count && layout->pieces[*piece].tensor == index; (*piece)++) {
        json_object_array_add(pieces, piece_to_json(model, layout, *piece));
    }
    json_object_object_add(object, "pieces", pieces);
    return object;
}

static void add_place(struct json_object *root, const struct wf_recipe *recipe, uint32_t rank)
{
    char spec[WF_SPEC_MAX];
    struct json_object *where = json_object_new_object();
    wf_recipe_format(recipe, spec);
    struct wf_coordinates at = wf_recipe_coordinates(recipe, rank);
    add_text(root, "spec", spec);
    add_number(root, "rank", rank);
    add_number(where, "engine", at.engine);
    add_number(where, "tp", at.tp);
    add_number(where, "pp", at.pp);
    add_number(where, "dp", at.dp);
    add_number(where, "cp", at.cp);
    json_object_object_add(root, "coordinates", where);
}

struct json_object *wf_layout_to_json(const struct wf_model *model, const struct wf_recipe *recipe,
                                      uint32_t rank, const struct wf_layout *layout)
{
    char hash[WF_HASH_TEXT];
    struct json_object *root = json_object_new_object();
    if (!root) {
        return NULL;
    }
    struct json_object *tensors = json_object_new_array(), *aliases = json_object_new_array();
    wf_hash_format(layout->hash, hash);
    if (recipe != NULL) {
        add_place(root, recipe, rank);
    }
    add_text(root, "hash", hash);
    add_number(root, "bytes", layout->bytes);
    uint32_t piece = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        json_object_array_add(tensors, tensor_to_json(model, layout, i, &piece));
    }
    json_object_object_add(root, "tensors", tensors);
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        struct json_object *alias = json_object_new_object();
        add_text(alias, "name", layout->aliases[i].name);
        add_text(alias, "tensor", layout->tensors[layout->aliases[i].tensor].name);
        json_object_array_add(aliases, alias);
    }
    json_object_object_add(root, "aliases", aliases);
    return root;
}
