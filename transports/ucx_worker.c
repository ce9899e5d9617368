/* ucx_worker.c - a UCX worker as a progress source of a loop. */
#include "transports/ucx_worker.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "transports/ucx_devices.h"

enum {
    ROUNDS = 16,      /* of progress in one pass, so that the loop's other work gets its turn */
    DEVICE_TRIES = 5, /* while interfaces come and go */
    SETTLE_ROUNDS = 20000,
    SETTLE_IDLE = 100, /* rounds in which nothing moved any more */
};

const char *ucx_worker_text(const struct ucx_worker *worker, ucs_status_t status)
{
    return worker->ucx->ucs_status_string(status);
}

bool ucx_worker_progress(struct ucx_worker *worker)
{
    bool moved = false;
    for (int i = 0; i < ROUNDS && worker->worker != NULL; i++) {
        bool now = worker->ucx->ucp_worker_progress(worker->worker) != 0;
        now |= worker->after(worker);
        moved |= now;
        if (!now) {
            break;
        }
    }
    return moved;
}

void ucx_worker_settle(struct ucx_worker *worker, const uint32_t *open)
{
    for (unsigned i = 0, idle = 0; worker->worker != NULL && i < SETTLE_ROUNDS; i++) {
        idle = worker->ucx->ucp_worker_progress(worker->worker) != 0 ? 0 : idle + 1;
        if (*open == 0 && idle >= SETTLE_IDLE) {
            break;
        }
    }
}

static bool progress(struct wf_progress_source *source)
{
    return ucx_worker_progress(WF_CONTAINER(source, struct ucx_worker, source));
}

static bool arm(struct wf_progress_source *source)
{
    struct ucx_worker *worker = WF_CONTAINER(source, struct ucx_worker, source);
    ucs_status_t status = worker->ucx->ucp_worker_arm(worker->worker);
    if (status != UCS_OK && status != UCS_ERR_BUSY) {
        wf_log(wf_loop_log(worker->loop), WF_LOG_ERROR, "ucx cannot arm its wake-up: %s",
               ucx_worker_text(worker, status));
    }
    return status != UCS_ERR_BUSY;
}

/* Only arming takes back what UCX wrote into its descriptor; without it the loop would be told for
 * ever that there is something. */
static void ready(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct ucx_worker *worker = WF_CONTAINER(watch, struct ucx_worker, watch);
    ucx_worker_progress(worker);
    if (worker->worker != NULL) {
        worker->ucx->ucp_worker_arm(worker->worker);
    }
}

static enum wf_status start(struct ucx_worker *worker, unsigned am_id,
                            ucp_am_recv_callback_t on_message, void *argument,
                            struct wf_error *error)
{
    const struct ucx_library *ucx = worker->ucx;
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = am_id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = argument,
    };
    int fd;
    ucs_status_t status = ucx->ucp_worker_set_am_recv_handler(worker->worker, &handler);
    if (status == UCS_OK) {
        status =
            ucx->ucp_worker_get_address(worker->worker, &worker->address, &worker->address_len);
    }
    if (status == UCS_OK) {
        status = ucx->ucp_worker_get_efd(worker->worker, &fd);
    }
    if (status != UCS_OK) {
        return wf_error_set(
            error, WF_UNSUPPORTED,
            "a ucx worker cannot be set up: %s; look at the limits on open files and "
            "locked memory (ulimit -n, -l) and at transport.ucx",
            ucx_worker_text(worker, status));
    }
    worker->watch = (struct wf_watch){.fd = fd, .events = WF_READABLE, .ready = ready};
    if (wf_watch_add(worker->loop, &worker->watch) != WF_OK) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "ucx's descriptor cannot be watched; raise the limit of open files "
                            "(ulimit -n)");
    }
    worker->source = (struct wf_progress_source){.progress = progress, .arm = arm};
    wf_loop_add_source(worker->loop, &worker->source);
    return WF_OK;
}

ucs_status_t ucx_context_open(const struct ucx_library *ucx, struct ucx_recipe *recipe,
                              ucp_context_h *context_out)
{
    const ucp_params_t params = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = recipe->features,
        .mt_workers_shared = (recipe->features & UCP_FEATURE_RMA) != 0, /* ucx_register.c */
        .name = "weft",
    };
    char devices[UCX_DEVICES_TEXT];
    ucs_status_t status = UCS_OK;
    if (recipe->chooses_devices) {
        status = ucx->ucp_config_modify(recipe->config, "NET_DEVICES",
                                        ucx_devices_now(devices) ? devices : "all");
    }
    if (status != UCS_OK) {
        return status;
    }
    ucx_environment_enter(&recipe->environment);
    status =
        ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, recipe->config, context_out);
    ucx_environment_leave(&recipe->environment);
    return status;
}

struct ucx_context *ucx_context_hold(struct ucx_context *context)
{
    context->references++;
    return context;
}

void ucx_context_release(struct ucx_context *context)
{
    if (context != NULL && --context->references == 0) {
        context->ucx->ucp_cleanup(context->handle);
        free(context);
    }
}

/* Whether a UCX bears a second thread is a matter of how it was built. */
static bool bears_threads(const struct ucx_library *ucx, ucp_context_h handle)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_THREAD_MODE};
    return ucx->ucp_context_query(handle, &attr) == UCS_OK &&
           attr.thread_mode == UCS_THREAD_MODE_MULTI;
}

static ucs_status_t create(struct ucx_worker *worker, struct ucx_recipe *recipe)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
    };
    struct ucx_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    ucs_status_t status = ucx_context_open(worker->ucx, recipe, &context->handle);
    if (status != UCS_OK) {
        free(context);
        return status;
    }
    context->references = 1;
    context->ucx = worker->ucx;
    context->threads = bears_threads(worker->ucx, context->handle);
    ucx_environment_enter(&recipe->environment);
    status = worker->ucx->ucp_worker_create(context->handle, &params, &worker->worker);
    ucx_environment_leave(&recipe->environment);
    if (status != UCS_OK) {
        ucx_context_release(context);
        worker->worker = NULL;
        return status;
    }
    worker->context = context;
    return UCS_OK;
}

enum wf_status ucx_worker_open(struct ucx_worker *worker, struct wf_loop *loop,
                               const struct ucx_library *ucx, struct ucx_recipe *recipe,
                               unsigned am_id, ucp_am_recv_callback_t on_message, void *argument,
                               struct wf_error *error)
{
    WF_ASSERT(worker->worker == NULL);
    worker->loop = loop;
    worker->ucx = ucx;
    ucs_status_t ucs_status = UCS_ERR_NO_DEVICE;
    for (int tries = 0; tries < DEVICE_TRIES && ucs_status == UCS_ERR_NO_DEVICE; tries++) {
        ucs_status = create(worker, recipe);
    }
    if (ucs_status != UCS_OK) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "ucx cannot make a worker: %s; look at the limits on open files and "
                            "locked memory (ulimit -n, -l) and at transport.interfaces",
                            ucx_worker_text(worker, ucs_status));
    }
    enum wf_status status = start(worker, am_id, on_message, argument, error);
    if (status != WF_OK) {
        ucx_worker_close(worker);
    }
    return status;
}

void ucx_worker_close(struct ucx_worker *worker)
{
    if (worker->worker == NULL) {
        return;
    }
    if (worker->source.progress != NULL) {
        wf_loop_remove_source(worker->loop, &worker->source);
        wf_watch_remove(worker->loop, &worker->watch);
    }
    if (worker->address != NULL) {
        worker->ucx->ucp_worker_release_address(worker->worker, worker->address);
    }
    worker->ucx->ucp_worker_destroy(worker->worker);
    ucx_context_release(worker->context);
    worker->context = NULL;
    worker->worker = NULL;
    worker->address = NULL;
    worker->source = (struct wf_progress_source){0};
}
