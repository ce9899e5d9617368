/* diagnose_values.c - hypotheses about two arrays: NaNs, rounding, lost rows, transposes, factors.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/compare/diagnose_private.h"

enum { BLOCK = 128, SAMPLES_MIN = 4 };

static struct wf_finding nans(const struct wf_patient *p)
{
    struct wf_finding finding = {0};
    const struct wf_values *v = &p->pair->result.values;
    if (v->nan_a != v->nan_b) {
        bool b = v->nan_b > v->nan_a;
        finding.cause = WF_CAUSE_NAN;
        snprintf(finding.text, sizeof finding.text, "%" PRIu64 " NaN in %s where %s has numbers",
                 b ? v->nan_b - v->nan_a : v->nan_a - v->nan_b, b ? "B" : "A", b ? "A" : "B");
    }
    return finding;
}

/* Every difference is one place of the type that both were compared in. */
static struct wf_finding rounding(const struct wf_patient *p)
{
    struct wf_finding finding = {0};
    const struct wf_values *v = &p->pair->result.values;
    if (v->different > 0 && v->one_ulp == v->different && v->different < v->elements) {
        finding.cause = WF_CAUSE_ROUNDING;
        snprintf(finding.text, sizeof finding.text,
                 "%" PRIu64 " of %" PRIu64 " elements differ, each by one place of %s",
                 v->different, v->elements, wf_dtype_name(p->pair->result.as));
    }
    return finding;
}

static bool row_is(const struct wf_patient *p, uint64_t row, bool zero)
{
    const float *a = p->values[WF_A] + row * p->columns, *b = p->values[WF_B] + row * p->columns;
    bool lost = true, same = true;
    for (uint64_t c = 0; c < p->columns; c++) {
        lost = lost && b[c] == 0;
        same = same && a[c] == b[c];
    }
    return zero ? lost && !same : same;
}

/* Equal rows, and behind them rows of zeros. */
static struct wf_finding truncated(const struct wf_patient *p)
{
    struct wf_finding finding = {0};
    uint64_t lost = 0, row = p->rows;
    for (; row > 0 && row_is(p, row - 1, true); row--) {
        lost++;
    }
    bool rest = lost > 0 && row > 0;
    for (; row > 0 && rest; row--) {
        rest = row_is(p, row - 1, false);
    }
    if (rest) {
        finding.cause = WF_CAUSE_TRUNCATED;
        snprintf(finding.text, sizeof finding.text,
                 "the last %" PRIu64 " of %" PRIu64 " rows are zero in B and not in A", lost,
                 p->rows);
    }
    return finding;
}

static struct wf_finding transposed(const struct wf_patient *p)
{
    struct wf_finding finding = {0};
    bool same = p->rows == p->columns && p->rows > 1;
    for (uint64_t r = 0; r < p->rows && same; r++) {
        for (uint64_t c = 0; c < p->columns && same; c++) {
            same = p->values[WF_A][r * p->columns + c] == p->values[WF_B][c * p->columns + r];
        }
    }
    if (same) {
        finding.cause = WF_CAUSE_TRANSPOSED;
        snprintf(finding.text, sizeof finding.text, "B holds A's transpose");
    }
    return finding;
}

/* What shares a scale. */
struct block {
    uint64_t rows, columns;
};

/* What B's numbers of a block are A's times, if it is one factor for all of them. Codes are off by
 * half a step, 1 in 16, each; together they are not. */
static bool factor_of(const struct wf_patient *p, struct block block, uint64_t row, uint64_t column,
                      double *factor_out)
{
    uint64_t rows = p->rows - row < block.rows ? p->rows - row : block.rows;
    uint64_t rest_of_row = p->columns - column, used = 0;
    uint64_t columns = rest_of_row < block.columns ? rest_of_row : block.columns;
    double ab = 0, aa = 0, off = 0, bb = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < rows * columns; i++) {
            uint64_t at = (row + i / columns) * p->columns + column + i % columns;
            double a = p->values[WF_A][at], b = p->values[WF_B][at];
            if (pass == 0) {
                used += a != 0;
                ab += a * b;
                aa += a * a;
                bb += b * b;
            } else {
                double rest = b - *factor_out * a;
                off += rest * rest;
            }
        }
        if (aa == 0 && bb == 0) { /* zeros beside zeros, whatever their scale */
            *factor_out = 1;
            return true;
        }
        if (used < SAMPLES_MIN || aa == 0 || bb == 0) {
            return false;
        }
        *factor_out = ab / aa;
    }
    return off < bb / 400; /* a part in 20 */
}

/* The blocks of a side that has codes; false where it has none. */
static bool find_block(const struct wf_patient *p, uint32_t side, struct block *block_out)
{
    const struct wf_side_param *params = p->compare->side[side].params;
    const struct wf_side_param *codes = &params[p->pair->param[side]];
    if (codes->scales == WF_NONE) {
        return false;
    }
    const struct wf_side_param *scales = &params[codes->scales];
    bool each_row = scales->ndim == 2 && scales->shape[0] == p->rows && scales->shape[1] == 1;
    *block_out = each_row ? (struct block){1, p->columns} : (struct block){BLOCK, BLOCK};
    return true;
}

static void say_scaled(uint64_t wrong, uint64_t blocks, struct block block, const char *first,
                       struct wf_finding *finding)
{
    char what[48] = "rows";
    if (block.rows > 1) {
        snprintf(what, sizeof what, "blocks of %" PRIu64 " x %" PRIu64, block.rows, block.columns);
    }
    finding->cause = WF_CAUSE_SCALE;
    snprintf(finding->text, sizeof finding->text,
             "%" PRIu64 " of %" PRIu64 " %s are off by a factor, first that at %s", wrong, blocks,
             what, first);
}

/* Of codes on either side; numbers without a scale cannot have a wrong one. */
static struct wf_finding scaled(const struct wf_patient *p)
{
    struct wf_finding finding = {0};
    struct block block;
    uint64_t blocks = 0, wrong = 0;
    char first[96] = "";
    if (!find_block(p, WF_A, &block) && !find_block(p, WF_B, &block)) {
        return finding;
    }
    for (uint64_t row = 0; row < p->rows; row += block.rows) {
        for (uint64_t column = 0; column < p->columns; column += block.columns, blocks++) {
            double factor = 1;
            if (!factor_of(p, block, row, column, &factor)) {
                return finding;
            }
            if (fabs(factor - 1) > 0.05 && wrong++ == 0) {
                snprintf(first, sizeof first,
                         "row %" PRIu64 ", column %" PRIu64 ": B is %.4g times A", row, column,
                         factor);
            }
        }
    }
    if (wrong > 0) {
        say_scaled(wrong, blocks, block, first, &finding);
    }
    return finding;
}

struct wf_finding wf_diagnose_values(const struct wf_patient *patient)
{
    static struct wf_finding (*const hypotheses[])(const struct wf_patient *) = {
        nans, rounding, truncated, transposed, scaled};
    struct wf_finding finding = {0};
    for (size_t i = 0; i < sizeof hypotheses / sizeof hypotheses[0] && !finding.cause; i++) {
        finding = hypotheses[i](patient);
    }
    return finding;
}
