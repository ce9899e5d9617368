/* dump_read.c - elements of a dump's tensor in the order in which somebody else's memory has them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/dump.h"
#include "tools/files/io.h"

enum {
    WINDOW_BYTES = 64 << 10, /* read at once where runs lie close together */
    NEAR_BYTES = 4 << 10, /* runs so far apart are: a system call costs about that much reading */
};

struct axis {
    uint64_t count, src_step, dst_step; /* steps in elements */
};

struct nest {
    uint32_t axis_count;
    struct axis axes[WF_SHAPE_MAX]; /* outer to inner in the order that is asked for */
};

struct reader {
    const struct wf_dump_file *file;
    uint64_t elem_bytes;
    uint64_t begin, end; /* of the window, in the file; equal: it is empty */
    uint8_t *window;     /* made when first needed */
};

/* --- the order ------------------------------------------------------------------------------- */

/* Dimensions of more than one element by falling stride of `order`, whose strides must be dense. */
static bool axes_of(const struct wf_dump_tensor *tensor, const int64_t *order, struct nest *nest)
{
    uint64_t step = 1;
    bool used[WF_SHAPE_MAX] = {false};
    uint32_t left = 0;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        used[d] = tensor->shape[d] == 1;
        left += !used[d];
    }
    nest->axis_count = left;
    while (left > 0) {
        uint32_t found = tensor->ndim;
        for (uint32_t d = tensor->ndim; d-- > 0 && found == tensor->ndim;) {
            found = !used[d] && order[d] == (int64_t)step ? d : found;
        }
        if (found == tensor->ndim) {
            return false;
        }
        used[found] = true;
        nest->axes[--left] =
            (struct axis){tensor->shape[found], (uint64_t)tensor->strides[found], step};
        step *= tensor->shape[found];
    }
    return true;
}

/* Joins neighbours that are one axis on both sides. */
static void join_axes(struct nest *nest)
{
    uint32_t kept = 0;
    for (uint32_t a = 1; a < nest->axis_count; a++) {
        struct axis *outer = &nest->axes[kept];
        const struct axis *inner = &nest->axes[a];
        if (outer->src_step == inner->src_step * inner->count) {
            *outer = (struct axis){outer->count * inner->count, inner->src_step, inner->dst_step};
        } else {
            nest->axes[++kept] = *inner;
        }
    }
    nest->axis_count = nest->axis_count > 0 ? kept + 1 : 0;
}

/* --- runs ------------------------------------------------------------------------------------ */

static enum wf_status read_file(const struct wf_dump_file *file, void *buffer, uint64_t len,
                                uint64_t offset, struct wf_error *error)
{
    return file->read != NULL ? file->read(file, buffer, (size_t)len, offset, error)
                              : wf_file_pread(file->fd, buffer, (size_t)len, offset, error);
}

/* `len` bytes at `offset`, of which others follow nearby up to `end` if `near`. */
static enum wf_status fetch(struct reader *reader, uint64_t offset, uint64_t len, uint64_t end,
                            bool near, uint8_t *dst, struct wf_error *error)
{
    if (!near || len >= WINDOW_BYTES) {
        return read_file(reader->file, dst, len, offset, error);
    }
    if (offset < reader->begin || offset + len > reader->end) {
        if (reader->window == NULL && (reader->window = malloc(WINDOW_BYTES)) == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for %d bytes", WINDOW_BYTES);
        }
        uint64_t take = end - offset < WINDOW_BYTES ? end - offset : WINDOW_BYTES;
        enum wf_status status = read_file(reader->file, reader->window, take, offset, error);
        reader->begin = reader->end = offset;
        if (status != WF_OK) {
            return status;
        }
        reader->end = offset + take;
    }
    memcpy(dst, reader->window + (offset - reader->begin), (size_t)len);
    return WF_OK;
}

static int by_source(const void *a, const void *b)
{
    const struct axis *x = a, *y = b;
    return x->src_step > y->src_step ? -1 : x->src_step < y->src_step;
}

/* Puts a run of elements apart in `dst`. */
static void scatter(const uint8_t *run, const struct axis *axis, uint64_t elem_bytes, uint8_t *dst)
{
    for (uint64_t i = 0; i < axis->count; i++) {
        memcpy(dst + i * axis->dst_step * elem_bytes, run + i * elem_bytes, elem_bytes);
    }
}

/* The part of the innermost axis (source order) that is one run, once. */
static enum wf_status read_run(struct reader *reader, const struct axis *run, uint64_t offset,
                               uint64_t end, bool near, uint8_t *dst, struct wf_error *error)
{
    uint8_t block[WINDOW_BYTES / 16];
    uint64_t elem = reader->elem_bytes, at_once = sizeof block / elem;
    if (run->dst_step == 1) {
        return fetch(reader, offset, run->count * elem, end, near, dst, error);
    }
    enum wf_status status = WF_OK;
    for (uint64_t done = 0; done < run->count && status == WF_OK;) {
        struct axis part = *run;
        part.count = run->count - done < at_once ? run->count - done : at_once;
        status = fetch(reader, offset + done * elem, part.count * elem, end, near, block, error);
        if (status == WF_OK) {
            scatter(block, &part, elem, dst + done * run->dst_step * elem);
        }
        done += part.count;
    }
    return status;
}

/* A whole box from byte `offset` on. Its axes are walked in the file's order. */
static enum wf_status read_box(struct reader *reader, const struct nest *box, uint64_t offset,
                               uint8_t *dst, struct wf_error *error)
{
    struct nest nest = *box;
    struct axis run = {1, 1, 1};
    uint64_t index[WF_SHAPE_MAX] = {0}, elem = reader->elem_bytes, end = offset + elem;
    if (nest.axis_count > 1) {
        qsort(nest.axes, nest.axis_count, sizeof nest.axes[0], by_source);
    }
    for (uint32_t a = 0; a < nest.axis_count; a++) {
        end += (nest.axes[a].count - 1) * nest.axes[a].src_step * elem;
    }
    if (nest.axis_count > 0 && nest.axes[nest.axis_count - 1].src_step == 1) {
        run = nest.axes[--nest.axis_count];
    }
    bool near = nest.axis_count > 0 && nest.axes[nest.axis_count - 1].src_step * elem <= NEAR_BYTES;
    for (;;) {
        enum wf_status status = read_run(reader, &run, offset, end, near, dst, error);
        uint32_t a = nest.axis_count;
        for (; status == WF_OK && a > 0; a--) {
            const struct axis *axis = &nest.axes[a - 1];
            offset += axis->src_step * elem;
            dst += axis->dst_step * elem;
            if (++index[a - 1] < axis->count) {
                break;
            }
            offset -= axis->count * axis->src_step * elem;
            dst -= axis->count * axis->dst_step * elem;
            index[a - 1] = 0;
        }
        if (status != WF_OK || a == 0) {
            return status;
        }
    }
}

/* Elements [first, first + count) of the axes from `outer` on: the rest of one member, whole
 * members, the beginning of one. */
static enum wf_status read_range(struct reader *reader, const struct nest *nest, uint32_t outer,
                                 uint64_t offset, uint64_t first, uint64_t count, uint8_t *dst,
                                 struct wf_error *error)
{
    enum wf_status status = WF_OK;
    if (outer == nest->axis_count) {
        return read_box(reader, &(struct nest){0}, offset, dst, error);
    }
    uint64_t member = nest->axes[outer].dst_step, step = nest->axes[outer].src_step;
    while (count > 0 && status == WF_OK) {
        uint64_t index = first / member, inside = first % member, take = member - inside;
        uint64_t at = offset + index * step * reader->elem_bytes;
        if (inside == 0 && count >= member) {
            struct nest box = {.axis_count = nest->axis_count - outer};
            memcpy(box.axes, nest->axes + outer, box.axis_count * sizeof box.axes[0]);
            box.axes[0].count = count / member;
            take = count / member * member;
            status = read_box(reader, &box, at, dst, error);
        } else {
            take = take < count ? take : count;
            status = read_range(reader, nest, outer + 1, at, inside, take, dst, error);
        }
        first += take;
        count -= take;
        dst += take * reader->elem_bytes;
    }
    return status;
}

enum wf_status wf_dump_rank_read(const struct wf_dump_rank *rank,
                                 const struct wf_dump_tensor *tensor, const int64_t *order,
                                 uint64_t first, uint64_t count, void *buffer,
                                 struct wf_error *error)
{
    struct nest nest = {0};
    int64_t row_major[WF_SHAPE_MAX];
    WF_ASSERT(first <= tensor->elements && count <= tensor->elements - first);
    if (tensor->file == WF_NONE || tensor->dtype == WF_DTYPE_NONE) {
        return wf_error_set(error, WF_INVALID, "%s: %s", tensor->name,
                            tensor->file == WF_NONE
                                ? "only its name and shape are known"
                                : "its values are of a type that this build does not know");
    }
    if (count == 0) {
        return WF_OK;
    }
    int64_t step = 1;
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        row_major[d] = step;
        step *= (int64_t)tensor->shape[d];
    }
    if (!axes_of(tensor, order != NULL ? order : row_major, &nest)) {
        return wf_error_set(error, WF_INVALID, "%s: the order of its elements has gaps",
                            tensor->name);
    }
    join_axes(&nest);
    const struct wf_dump_file *file = &rank->files[tensor->file];
    struct reader reader = {.file = file, .elem_bytes = wf_dtype_bytes(tensor->dtype)};
    enum wf_status status =
        read_range(&reader, &nest, 0, tensor->offset, first, count, buffer, error);
    free(reader.window);
    if (status != WF_OK && file->read == NULL) { /* what is no file says itself who it is */
        wf_error_prefix(error, "%s: %s", file->path, tensor->name);
    }
    return status;
}
