/* samples.c - a ring of figures and their quantiles. */
#include "tools/measure/samples.h"

#include <stdlib.h>
#include <string.h>

void wf_samples_add(struct wf_samples *samples, double value)
{
    samples->values[samples->next] = value;
    samples->next = (samples->next + 1) % WF_SAMPLES_MAX;
    samples->count += samples->count < WF_SAMPLES_MAX;
}

double wf_samples_get(const struct wf_samples *samples, uint32_t index)
{
    return samples
        ->values[(samples->next + WF_SAMPLES_MAX - samples->count + index) % WF_SAMPLES_MAX];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wf_quantile(double *values, size_t count, double part)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof *values, by_value);
    return values[(size_t)(part * (double)(count - 1) + 0.5)];
}

double wf_samples_quantile(const struct wf_samples *samples, uint32_t last, double part)
{
    double sorted[WF_SAMPLES_MAX];
    uint32_t count = last == 0 || last > samples->count ? samples->count : last;
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = wf_samples_get(samples, samples->count - count + i);
    }
    return wf_quantile(sorted, count, part);
}
