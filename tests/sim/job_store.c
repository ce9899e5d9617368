/* job_store.c - versions that lie in files, without files: what every version's weights are is
 * known. On bad links it is sometimes not there yet, or cannot be read; with `corrupt` it is
 * damaged. */
#include <stdlib.h>

#include "tests/sim/job_internal.h"

struct wf_stored {
    struct job *job;
    struct wf_version version;
    const struct wf_layout *layout;
};

static struct job *job_of(struct wf_store *store)
{
    return (struct job *)((char *)store - offsetof(struct job, store));
}

static bool fails(struct job *job, bool may, uint64_t one_in)
{
    return may && !job->calm && wf_sim_choose(job->sim, one_in) == 0;
}

static enum wf_status open_version(struct wf_store *store, const struct wf_store_wanted *wanted,
                                   struct wf_stored **stored_out, struct wf_error *error)
{
    struct job *job = job_of(store);
    if (fails(job, job->options.bad_links, 4)) {
        return wf_error_set(error, WF_NOT_FOUND, "it is not there yet");
    }
    struct wf_stored *stored = malloc(sizeof *stored);
    WF_ASSERT(stored != NULL);
    *stored = (struct wf_stored){job, wanted->version, wanted->layout};
    *stored_out = stored;
    return WF_OK;
}

static enum wf_status read_bytes(struct wf_stored *stored, struct wf_store_window *window,
                                 uint32_t tensor, uint64_t first, uint64_t len,
                                 const uint8_t **bytes_out, struct wf_error *error)
{
    WF_ASSERT(first % 2 == 0 && len % 2 == 0 && len <= stored->job->store.read_max);
    if (fails(stored->job, stored->job->options.bad_links, 50)) {
        return wf_error_set(error, WF_IO, "the disk is broken");
    }
    if (fails(stored->job, stored->job->options.corrupt, 50)) {
        return wf_error_set(error, WF_DIGEST, "it is damaged");
    }
    free(window->memory);
    window->memory = malloc(len);
    uint32_t *marks = calloc(stored->layout->tensors[tensor].bytes / 2 + 1, sizeof *marks);
    WF_ASSERT(window->memory != NULL && marks != NULL);
    if (stored->job->options.experts) {
        job_mark_tensor(stored->layout, tensor, marks);
    }
    for (uint64_t i = 0; i < len / 2; i++) {
        ((uint16_t *)window->memory)[i] = job_content(stored->version, marks[first / 2 + i]);
    }
    free(marks);
    *bytes_out = window->memory;
    return WF_OK;
}

static void close_version(struct wf_stored *stored)
{
    free(stored);
}

const struct wf_store_ops job_store_ops = {
    .open = open_version, .read = read_bytes, .close = close_version};
