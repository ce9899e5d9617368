/* samples.h - figures that are measured again and again: kept, with their median and spread.
 *
 * Zeroed is empty. The newest WF_SAMPLES_MAX are kept.
 */
#ifndef WEFT_TOOLS_MEASURE_SAMPLES_H
#define WEFT_TOOLS_MEASURE_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

enum { WF_SAMPLES_MAX = 512 };

struct wf_samples {
    double values[WF_SAMPLES_MAX];
    uint32_t count, next;
};

/* Sorts `values` and gives the one at `part` (0 least, 0.5 median, 1 greatest); 0 without values.
 */
double wf_quantile(double *values, size_t count, double part);

void wf_samples_add(struct wf_samples *samples, double value);
/* The same of the last `last` samples (0: of all); 0
 * without samples. */
double wf_samples_quantile(const struct wf_samples *samples, uint32_t last, double part);
/* The i-th kept, oldest first. */
double wf_samples_get(const struct wf_samples *samples, uint32_t index);

#endif
