/* side_read.c - elements of a parameter out of the files of the ranks that hold them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/copy.h"
#include "tools/compare/side.h"

enum {
    SPARSE_SPAN = 4,          /* a span of more times the bytes that are wanted is a waste */
    WHOLE_ELEMENTS = 32 << 20 /* of a transposed parameter read at once, at most */
};

/* One read of a range from one source. */
struct load {
    struct wf_compare_side *side;
    const struct wf_dump_rank *files;
    const struct wf_dump_tensor *tensor;
    const int64_t *order;
    enum wf_dtype as;
    size_t src_bytes, dst_bytes; /* of one element */
    bool add_one;
    char *out;
    uint8_t *seen;
    enum wf_status status;
    struct wf_error *error;
};

const struct wf_dump_tensor *wf_side_tensor(const struct wf_compare_side *side,
                                            const struct wf_side_source *source)
{
    return &side->ranks[source->rank].files.tensors[source->tensor];
}

const int64_t *wf_side_order(const struct wf_compare_side *side,
                             const struct wf_side_source *source)
{
    const struct wf_layout *layout = side->ranks[source->rank].layout;
    return source->piece == WF_NONE ? NULL
                                    : layout->tensors[layout->pieces[source->piece].tensor].strides;
}

struct wf_nest wf_side_nest(const struct wf_compare_side *side, const struct wf_side_param *param,
                            const struct wf_side_source *source)
{
    const struct wf_dump_tensor *tensor = wf_side_tensor(side, source);
    uint32_t bytes = (uint32_t)wf_dtype_bytes(tensor->dtype);
    const struct wf_layout *layout = side->ranks[source->rank].layout;
    struct wf_nest nest = {.elem_bytes = bytes};
    bool run = source->piece == WF_NONE || layout->pieces[source->piece].form == 0;
    uint64_t count = param->elements;
    if (source->piece != WF_NONE) {
        nest = wf_layout_nest(layout, source->piece);
        uint32_t planned = nest.elem_bytes;
        count = layout->pieces[source->piece].count;
        nest.tensor_offset = nest.tensor_offset / planned * bytes;
        for (uint32_t a = 0; a < nest.axis_count; a++) {
            nest.axes[a].tensor_step = nest.axes[a].tensor_step / (int64_t)planned * bytes;
        }
        nest.elem_bytes = bytes;
    }
    if (run) { /* the file may end before the layout does */
        uint64_t there = tensor->elements - nest.tensor_offset / bytes;
        count = count < there ? count : there;
        nest.axis_count = count > 1;
        nest.axes[0] = (struct wf_axis){count, 1, bytes};
    }
    return nest;
}

/* --- one box --------------------------------------------------------------------------------- */

static bool fail(struct load *load, enum wf_status status)
{
    load->status = status;
    return false;
}

static bool need_window(struct load *load, uint64_t bytes)
{
    if (load->side->window_bytes >= bytes) {
        return true;
    }
    free(load->side->window);
    load->side->window = malloc(bytes);
    load->side->window_bytes = load->side->window != NULL ? bytes : 0;
    return load->side->window != NULL ||
           fail(load,
                wf_error_set(load->error, WF_NO_MEMORY, "no memory for %" PRIu64 " bytes", bytes));
}

/* Bytes [from, end) of the tensor to `to`. */
static bool fetch(struct load *load, uint64_t from, uint64_t end, void *to)
{
    load->side->bytes_read += end - from;
    enum wf_status status =
        wf_dump_rank_read(load->files, load->tensor, load->order, from / load->src_bytes,
                          (end - from) / load->src_bytes, to, load->error);
    return status == WF_OK || fail(load, status);
}

static void add_one(float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        values[i] += 1.0F;
    }
}

static bool read_run(struct load *load, uint64_t src, uint64_t dst, uint64_t count)
{
    if (load->tensor->dtype == load->as && !load->add_one) {
        return fetch(load, src, src + count * load->src_bytes, load->out + dst);
    }
    wf_cast_t *cast = wf_cast_for(load->tensor->dtype, load->as, false);
    uint64_t at_once = WF_SIDE_WINDOW_BYTES / load->src_bytes;
    if (!need_window(load, WF_SIDE_WINDOW_BYTES)) {
        return false;
    }
    for (uint64_t done = 0; done < count; done += at_once) {
        uint64_t n = count - done < at_once ? count - done : at_once;
        uint64_t from = src + done * load->src_bytes;
        char *to = load->out + dst + done * load->dst_bytes;
        if (!fetch(load, from, from + n * load->src_bytes, load->side->window)) {
            return false;
        }
        cast(to, load->side->window, n);
        if (load->add_one) {
            add_one((float *)(void *)to, n);
        }
    }
    return true;
}

/* Long runs: each straight from the file. */
static bool read_runs(struct load *load, const struct wf_box *box)
{
    uint64_t index[WF_AXES_MAX] = {0};
    uint32_t outer = box->axis_count > 0 ? box->axis_count - 1 : 0;
    uint64_t count = box->axis_count > 0 ? box->axes[outer].count : 1;
    for (;;) {
        uint64_t src = box->src_offset, dst = box->dst_offset;
        for (uint32_t a = 0; a < outer; a++) {
            src += index[a] * (uint64_t)box->axes[a].src_step;
            dst += index[a] * (uint64_t)box->axes[a].dst_step;
        }
        if (!read_run(load, src, dst, count)) {
            return false;
        }
        uint32_t a = outer;
        while (a > 0 && ++index[a - 1] == box->axes[a - 1].count) {
            index[--a] = 0;
        }
        if (a == 0) {
            return true;
        }
    }
}

/* How many elements from `first` on are gathered from one span of the file. */
static uint64_t part_of(const struct load *load, const struct wf_box *box, uint64_t first,
                        uint64_t wanted, uint64_t *from_out, uint64_t *end_out)
{
    uint64_t inner = box->elements / box->axes[0].count, count = wanted;
    for (;;) {
        wf_box_source_span(box, (uint32_t)load->src_bytes, (struct wf_copy_part){first, count},
                           from_out, end_out);
        uint64_t span = *end_out - *from_out, used = count * load->src_bytes;
        bool fits = span <= WF_SIDE_WINDOW_BYTES ||
                    (span > SPARSE_SPAN * used && span <= WF_SIDE_WINDOW_MAX_BYTES);
        if (fits || count == 1) {
            return count;
        }
        count /= 2;
        count = count > inner ? count - count % inner : count;
    }
}

static bool gather(struct load *load, const struct wf_box *box)
{
    uint64_t at_once = box->elements;
    for (uint64_t first = 0; first < box->elements;) {
        uint64_t from, end, left = box->elements - first;
        at_once = part_of(load, box, first, left < at_once ? left : at_once, &from, &end);
        if (!need_window(load,
                         end - from < WF_SIDE_WINDOW_BYTES ? WF_SIDE_WINDOW_BYTES : end - from) ||
            !fetch(load, from, end, load->side->window)) {
            return false;
        }
        struct wf_box shifted = *box;
        shifted.src_offset -= from; /* modulo 2^64: the part's own places are behind `from` */
        wf_copy_box_cached(&shifted, load->side->window, load->tensor->dtype, load->out, load->as,
                           (struct wf_copy_part){first, at_once});
        first += at_once;
    }
    return true;
}

static void mark(const struct load *load, const struct wf_box *box)
{
    struct wf_nest bytes = {.tensor_offset = box->dst_offset / load->dst_bytes,
                            .elem_bytes = 1,
                            .axis_count = box->axis_count};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        bytes.axes[a].count = box->axes[a].count;
        bytes.axes[a].tensor_step = box->axes[a].dst_step / (int64_t)load->dst_bytes;
    }
    wf_fill_nest(&bytes, load->seen, 1);
}

static bool load_box(void *user, const struct wf_box *box)
{
    struct load *load = user;
    const uint32_t last = box->axis_count > 0 ? box->axis_count - 1 : 0;
    bool runs =
        box->axis_count == 0 || (box->axes[last].src_step == (int64_t)load->src_bytes &&
                                 box->axes[last].dst_step == (int64_t)load->dst_bytes &&
                                 (last == 0 || load->add_one ||
                                  box->axes[last].count * load->src_bytes >= WF_SIDE_RUN_BYTES));
    if (!runs && load->add_one) {
        return fail(load, wf_error_set(load->error, WF_UNSUPPORTED,
                                       "a tensor that holds the value minus 1 has its elements "
                                       "apart, which this build does not read"));
    }
    bool done = runs ? read_runs(load, box) : gather(load, box);
    if (done && load->seen != NULL) {
        mark(load, box);
    }
    return done;
}

/* --- entrances ------------------------------------------------------------------------------- */

/* The first and the last element that a nest shows. */
static void range_of(const struct wf_nest *nest, uint64_t *first_out, uint64_t *last_out)
{
    *first_out = *last_out = nest->param_first;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        *last_out += (nest->axes[a].count - 1) * nest->axes[a].param_step;
    }
}

bool wf_side_source_in(const struct wf_compare_side *side, uint32_t param, uint32_t source,
                       uint64_t first, uint64_t count)
{
    uint64_t low, high;
    struct wf_nest nest = wf_side_nest(side, &side->params[param], &side->sources[source]);
    range_of(&nest, &low, &high);
    return low < first + count && high >= first;
}

static struct wf_nest range_nest(uint64_t first, uint64_t count, uint32_t bytes)
{
    return (struct wf_nest){.param_first = first,
                            .elem_bytes = bytes,
                            .axis_count = count > 1,
                            .axes = {{count, 1, bytes}}};
}

enum wf_status wf_side_read_source(struct wf_compare_side *side, uint32_t param, uint32_t source,
                                   uint64_t first, uint64_t count, enum wf_dtype as, void *out,
                                   uint8_t *seen, struct wf_error *error)
{
    const struct wf_side_param *p = &side->params[param];
    const struct wf_side_source *s = &side->sources[source];
    const struct wf_dump_tensor *tensor = wf_side_tensor(side, s);
    struct load load = {.side = side,
                        .files = &side->ranks[s->rank].files,
                        .tensor = tensor,
                        .order = wf_side_order(side, s),
                        .as = as,
                        .src_bytes = wf_dtype_bytes(tensor->dtype),
                        .dst_bytes = wf_dtype_bytes(as),
                        .add_one = s->value_rule == WF_VALUE_LESS_ONE,
                        .out = out,
                        .seen = seen,
                        .error = error};
    if (!wf_dtype_castable(tensor->dtype, as) || (load.add_one && as != WF_DTYPE_F32)) {
        return wf_error_set(error, WF_UNSUPPORTED, "%s: %s cannot be read as %s", p->name,
                            wf_dtype_name(tensor->dtype), wf_dtype_name(as));
    }
    struct wf_nest nest = wf_side_nest(side, p, s);
    struct wf_nest range = range_nest(first, count, (uint32_t)load.dst_bytes);
    enum wf_status status = wf_nest_intersect(&nest, &range, load_box, &load, error);
    status = status == WF_OK ? load.status : status;
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", p->name);
    }
    return status;
}

enum wf_status wf_side_read(struct wf_compare_side *side, uint32_t param, uint64_t first,
                            uint64_t count, enum wf_dtype as, void *out, uint8_t *seen,
                            struct wf_error *error)
{
    const struct wf_side_param *p = &side->params[param];
    enum wf_status status = WF_OK;
    for (uint32_t s = p->first_source; s < p->first_source + p->source_count && status == WF_OK;
         s++) {
        if (side->sources[s].part != WF_SOURCE_COPY &&
            wf_side_source_in(side, param, s, first, count)) {
            status = wf_side_read_source(side, param, s, first, count, as, out, seen, error);
        }
    }
    return status;
}

/* --- tiles ----------------------------------------------------------------------------------- */

struct waste {
    uint32_t bytes;
    bool found;
};

static bool see_waste(void *user, const struct wf_box *box)
{
    struct waste *waste = user;
    uint64_t from, end;
    uint32_t last = box->axis_count > 0 ? box->axis_count - 1 : 0;
    bool run = box->axis_count == 0 ||
               (box->axes[last].src_step == waste->bytes &&
                (last == 0 || box->axes[last].count * waste->bytes >= WF_SIDE_RUN_BYTES));
    wf_box_source_span(box, waste->bytes, (struct wf_copy_part){0, box->elements}, &from, &end);
    waste->found = !run && end - from > SPARSE_SPAN * box->elements * waste->bytes;
    return false; /* the first box is as good as any */
}

uint64_t wf_side_tile(const struct wf_compare_side *side, uint32_t param, uint64_t wanted)
{
    const struct wf_side_param *p = &side->params[param];
    struct waste waste = {0};
    for (uint32_t s = p->first_source;
         s < p->first_source + p->source_count && !waste.found && wanted < p->elements; s++) {
        uint64_t low, high;
        struct wf_nest nest = wf_side_nest(side, p, &side->sources[s]);
        range_of(&nest, &low, &high);
        struct wf_nest range = range_nest(low, wanted, 1);
        waste.bytes = nest.elem_bytes;
        wf_nest_intersect(&nest, &range, see_waste, &waste, NULL);
    }
    wanted = waste.found ? WHOLE_ELEMENTS : wanted;
    return wanted < p->elements ? wanted : p->elements;
}

/* --- fills ----------------------------------------------------------------------------------- */

static enum wf_status check_fill(struct wf_compare_side *side, uint32_t rank, uint32_t piece,
                                 wf_side_padding_t *found, void *user, struct wf_error *error)
{
    const struct wf_side_rank *r = &side->ranks[rank];
    uint32_t tensor = r->layout->pieces[piece].tensor;
    const struct wf_dump_tensor *live = &r->files.tensors[r->live[tensor]];
    const struct wf_tensor *wanted = &r->layout->tensors[tensor];
    struct wf_nest nest = wf_layout_nest(r->layout, piece);
    uint8_t byte = (uint8_t)r->layout->pieces[piece].value_rule;
    struct wf_side_padding padding = {.tensor = live->name, .rank = rank, .expected = byte};
    uint64_t index[WF_AXES_MAX] = {0};
    uint32_t outer = nest.axis_count, last = outer > 0 ? outer - 1 : 0;
    size_t bytes = wf_dtype_bytes(live->dtype), planned = nest.elem_bytes;
    uint64_t run = 1;
    if (outer > 0 && nest.axes[last].tensor_step == (int64_t)planned) {
        run = nest.axes[last].count;
        outer = last;
    }
    uint8_t *buffer = malloc(WF_SIDE_WINDOW_BYTES);
    enum wf_status status = buffer != NULL ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory");
    for (bool more = true; more && status == WF_OK;) {
        uint64_t at = nest.tensor_offset / planned;
        for (uint32_t a = 0; a < outer; a++) {
            at += index[a] * (uint64_t)(nest.axes[a].tensor_step / (int64_t)planned);
        }
        uint64_t at_once = WF_SIDE_WINDOW_BYTES / bytes;
        for (uint64_t done = 0; done < run && status == WF_OK; done += at_once) {
            uint64_t n = run - done < at_once ? run - done : at_once;
            status =
                wf_dump_rank_read(&r->files, live, wanted->strides, at + done, n, buffer, error);
            side->bytes_read += n * bytes;
            for (uint64_t i = 0; i < n * bytes && status == WF_OK; i++) {
                if (buffer[i] != byte) {
                    padding.first = padding.wrong++ == 0 ? at + done + i / bytes : padding.first;
                }
            }
        }
        uint32_t a = outer;
        while (a > 0 && ++index[a - 1] == nest.axes[a - 1].count) {
            index[--a] = 0;
        }
        more = a > 0;
    }
    free(buffer);
    if (status == WF_OK && padding.wrong > 0) {
        found(user, &padding);
    }
    return status;
}

enum wf_status wf_side_check_fills(struct wf_compare_side *side, uint32_t rank,
                                   wf_side_padding_t *found, void *user, struct wf_error *error)
{
    const struct wf_side_rank *r = &side->ranks[rank];
    enum wf_status status = WF_OK;
    for (uint32_t p = 0; r->layout != NULL && r->live != NULL && !side->by_names &&
                         p < r->layout->piece_count && status == WF_OK;
         p++) {
        uint32_t tensor = r->layout->pieces[p].tensor, live = r->live[tensor];
        if (r->layout->pieces[p].kind == WF_PIECE_FILL && live != WF_NONE &&
            r->files.tensors[live].elements * wf_dtype_bytes(r->layout->tensors[tensor].dtype) ==
                r->layout->tensors[tensor].bytes) {
            status = check_fill(side, rank, p, found, user, error);
        }
    }
    return status;
}
