/* strips.c - nests of a matrix as strips, and strips that meet grown together. */
#include "models/strips.h"

#include <stdlib.h>
#include <string.h>

enum {
    MERGES_MAX = 8, /* passes over the strips, each along one dimension and the other */
};

void wf_strips_begin(struct wf_strips *strips, uint64_t columns)
{
    strips->columns = columns;
    strips->count = 0;
}

bool wf_strips_add(struct wf_strips *strips, const struct wf_strip *strip)
{
    if (strips->count == WF_STRIPS_MAX) {
        return false;
    }
    if (strips->count == strips->room) {
        uint32_t wanted = strips->room > 0 ? 2 * strips->room : 16;
        struct wf_strip *grown = reallocarray(strips->at, wanted, sizeof *grown);
        if (grown == NULL) {
            strips->no_memory = true;
            return false;
        }
        strips->at = grown;
        strips->room = wanted;
    }
    strips->at[strips->count++] = *strip;
    return true;
}

static bool add_strip(struct wf_strips *m, uint64_t row, uint64_t row_end, uint64_t column,
                      uint64_t column_end)
{
    return wf_strips_add(m, &(struct wf_strip){{row, row_end}, {column, column_end}});
}

/* Elements [first, first + count): the end of a row, whole rows, the beginning of a row. */
static bool add_run(struct wf_strips *m, uint64_t first, uint64_t count)
{
    uint64_t end = first + count, row = first / m->columns, column = first % m->columns;
    if (column + count <= m->columns && count < m->columns) {
        return add_strip(m, row, row + 1, column, column + count);
    }
    bool good = column == 0 || add_strip(m, row, row + 1, column, m->columns);
    row += column > 0;
    uint64_t last = end / m->columns;
    good = good && (row == last || add_strip(m, row, last, 0, m->columns));
    return good && (end % m->columns == 0 || add_strip(m, last, last + 1, 0, end % m->columns));
}

/* The parameter's side of a nest: axes by falling step, neighbours that continue fused, a run of
 * single elements and an axis of rows taken out. */
struct shown {
    uint64_t first, run, rows; /* `rows` such runs, a row apart */
    uint32_t axis_count;
    struct wf_axis axes[WF_AXES_MAX];
};

static struct shown show(const struct wf_nest *nest, uint64_t columns)
{
    struct shown s = {.first = nest->param_first, .run = 1, .rows = 1};
    struct wf_axis sorted[WF_AXES_MAX];
    uint32_t count = 0;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        uint32_t at = count;
        if (nest->axes[a].param_step == 0 || nest->axes[a].count == 1) {
            continue; /* shows no further element */
        }
        for (; at > 0 && sorted[at - 1].param_step < nest->axes[a].param_step; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = nest->axes[a];
        count++;
    }
    while (count > 0 && sorted[count - 1].param_step == s.run) {
        s.run *= sorted[--count].count;
    }
    for (uint32_t a = 0; a < count; a++) {
        struct wf_axis *last = s.axis_count > 0 ? &s.axes[s.axis_count - 1] : NULL;
        if (last != NULL && last->param_step == sorted[a].param_step * sorted[a].count) {
            last->param_step = sorted[a].param_step;
            last->count *= sorted[a].count;
        } else {
            s.axes[s.axis_count++] = sorted[a];
        }
    }
    for (uint32_t a = 0; a < s.axis_count; a++) {
        if (s.axes[a].param_step == columns) {
            s.rows = s.axes[a].count;
            memmove(&s.axes[a], &s.axes[a + 1], (--s.axis_count - a) * sizeof s.axes[0]);
            break;
        }
    }
    return s;
}

static bool add_rows(struct wf_strips *m, const struct shown *s, uint64_t first)
{
    uint64_t row = first / m->columns, column = first % m->columns;
    if (s->rows > 1 && column + s->run <= m->columns) {
        return add_strip(m, row, row + s->rows, column, column + s->run);
    }
    bool good = true;
    for (uint64_t i = 0; i < s->rows && good; i++) {
        good = add_run(m, first + i * m->columns, s->run);
    }
    return good;
}

bool wf_strips_add_nest(struct wf_strips *m, const struct wf_nest *nest)
{
    struct shown s = show(nest, m->columns);
    uint64_t index[WF_AXES_MAX] = {0}, first = s.first;
    for (;;) {
        if (!add_rows(m, &s, first)) {
            return false;
        }
        uint32_t a = s.axis_count;
        while (a > 0 && ++index[a - 1] == s.axes[a - 1].count) {
            first -= (s.axes[a - 1].count - 1) * s.axes[a - 1].param_step;
            index[--a] = 0;
        }
        if (a == 0) {
            return true;
        }
        first += s.axes[a - 1].param_step;
    }
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_columns(const void *left, const void *right)
{
    const struct wf_strip *a = left, *b = right;
    int order = compare(a->columns[0], b->columns[0]);
    order = order != 0 ? order : compare(a->columns[1], b->columns[1]);
    return order != 0 ? order : compare(a->rows[0], b->rows[0]);
}

static int by_rows(const void *left, const void *right)
{
    const struct wf_strip *a = left, *b = right;
    int order = compare(a->rows[0], b->rows[0]);
    order = order != 0 ? order : compare(a->rows[1], b->rows[1]);
    return order != 0 ? order : compare(a->columns[0], b->columns[0]);
}

/* Strips of equal columns whose rows meet become one, or the other way round. */
static bool grow(struct wf_strips *m, bool along_rows)
{
    uint32_t kept = 0, before = m->count;
    qsort(m->at, before, sizeof *m->at, along_rows ? by_columns : by_rows);
    for (uint32_t i = 1; i < before; i++) {
        struct wf_strip *last = &m->at[kept], *next = &m->at[i];
        uint64_t *meet = along_rows ? last->rows : last->columns;
        const uint64_t *next_meet = along_rows ? next->rows : next->columns;
        bool same = memcmp(along_rows ? last->columns : last->rows,
                           along_rows ? next->columns : next->rows, sizeof last->rows) == 0;
        if (same && next_meet[0] <= meet[1]) {
            meet[1] = next_meet[1] > meet[1] ? next_meet[1] : meet[1];
        } else {
            m->at[++kept] = *next;
        }
    }
    m->count = before > 0 ? kept + 1 : 0;
    return m->count < before;
}

void wf_strips_merge(struct wf_strips *m)
{
    for (unsigned pass = 0; m->count > 1 && pass < MERGES_MAX; pass++) {
        bool rows = grow(m, true), columns = grow(m, false);
        if (!rows && !columns) {
            return;
        }
    }
}
