/* ucx_register.c - registering what a source offers, for readers that read it by themselves.
 *
 * Pinning tens of gigabytes takes longer than a lease, and so does letting go of them: both are
 * jobs of the loop's env, and the loop answers meanwhile. A reader that wants a region which is not
 * registered yet is told to ask again (ucx_import.c).
 *
 *   export --job--> REGISTERED (or not: it is streamed) --withdraw--job--> freed
 *
 * A context is held by its worker and by each region that UCX keeps something about, so that a
 * worker may end before the job does. A UCX that was built for one thread registers at once, on
 * the loop's.
 */
#include <stdlib.h>

#include "runtime/log.h"
#include "transports/ucx_internal.h"

/* Pool thread. */
static void do_register(struct wf_job *job)
{
    struct ucx_region *region = WF_CONTAINER(job, struct ucx_region, job);
    const struct ucx_library *library = &region->ucx->library;
    const ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = region->address,
        .length = region->len_bytes,
    };
    ucp_context_h context = region->context->handle;
    region->status = library->ucp_mem_map(context, &params, &region->memory);
    if (region->status != UCS_OK) {
        region->memory = NULL;
        return;
    }
    region->status =
        library->ucp_rkey_pack(context, region->memory, &region->key, &region->key_len);
    if (region->status != UCS_OK) {
        region->key = NULL;
    }
}

/* Pool thread. */
static void do_unregister(struct wf_job *job)
{
    struct ucx_region *region = WF_CONTAINER(job, struct ucx_region, job);
    const struct ucx_library *library = &region->ucx->library;
    if (region->key != NULL) {
        library->ucp_rkey_buffer_release(region->key);
    }
    library->ucp_mem_unmap(region->context->handle, region->memory);
}

/* On the pool, or at once where this UCX bears no other thread. */
static void start(struct ucx_region *region, int kind, void (*work)(struct wf_job *job))
{
    struct ucx *ucx = region->ucx;
    region->job = (struct wf_job){
        .done = {.kind = kind}, .owner = &ucx->actor, .work = work, .name = "ucx memory"};
    region->busy = true;
    ucx->source.jobs_out++;
    if (region->context->threads) {
        struct wf_env *env = wf_loop_env(ucx->loop);
        env->ops->job(env, &region->job);
    } else {
        work(&region->job);
        ucx_registered(ucx, &region->job.done);
    }
}

void ucx_register(struct ucx_region *region)
{
    if (region->ucx->has_rma) {
        region->context = ucx_context_hold(region->ucx->source.worker.context);
        start(region, UCX_REGISTERED, do_register);
    }
}

static void free_region(struct ucx_region *region)
{
    ucx_context_release(region->context);
    free(region);
}

void ucx_unregister(struct ucx_region *region)
{
    region->withdrawn = true;
    if (region->busy) {
        return; /* it comes back here */
    }
    if (region->memory != NULL) {
        start(region, UCX_UNREGISTERED, do_unregister);
    } else {
        free_region(region);
    }
}

void ucx_registered(struct ucx *ucx, struct wf_msg *msg)
{
    struct ucx_region *region = WF_CONTAINER(msg, struct ucx_region, job.done);
    region->busy = false;
    ucx->source.jobs_out--;
    if (msg->kind == UCX_UNREGISTERED) {
        free_region(region);
    } else if (region->withdrawn) {
        ucx_unregister(region);
    } else if (region->status != UCS_OK) {
        wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN,
               "ucx cannot register %llu bytes (%s), so they are streamed; look at the limit on "
               "locked memory",
               (unsigned long long)region->len_bytes,
               ucx->library.ucs_status_string(region->status));
    }
}
