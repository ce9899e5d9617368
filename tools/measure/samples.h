/* samples.h - figures that are measured again and again: kept, with their median and spread.
 *
 * Zeroed is empty. The newest WF_SAMPLES_MAX are kept.
 */
#ifndef WEFT_TOOLS_MEASURE_SAMPLES_H
#define WEFT_TOOLS_MEASURE_SAMPLES_H

#include <stdint.h>

enum { WF_SAMPLES_MAX = 512 };

struct wf_samples {
    double values[WF_SAMPLES_MAX];
    uint32_t count, next;
};

void wf_samples_add(struct wf_samples *samples, double value);
/* The value at `part` (0 least, 0.5 median, 1 greatest) of the last `last` samples (0: of all); 0
 * without samples. */
double wf_samples_quantile(const struct wf_samples *samples, uint32_t last, double part);
/* The i-th kept, oldest first. */
double wf_samples_get(const struct wf_samples *samples, uint32_t index);

#endif
