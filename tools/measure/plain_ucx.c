/* plain_ucx.c - UCX with nothing around it. */
#include "tools/measure/plain_ucx.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transports/ucx_library.h"

enum {
    AM_ID = 7,
    MESSAGE_BYTES = WF_PLAIN_UCX_MESSAGE_BYTES,
    IN_FLIGHT = 8,
    LOOK_EVERY = 4096 /* turns between looks at the clock and at the other process */
};
#define PATIENCE_NS UINT64_C(20000000000)

struct wf_plain_ucx {
    struct ucx_library ucx;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_address_t *address;
    size_t address_len;
    uint8_t *memory;
    uint64_t region_bytes;
    uint64_t place; /* in the memory, of the next message */
    uint32_t out;   /* operations under way */
    uint64_t left;  /* bytes that did not arrive yet */
    bool failed;
};

static uint8_t *walk(struct wf_plain_ucx *me)
{
    uint8_t *at = me->memory + me->place;
    me->place = (me->place + MESSAGE_BYTES) % me->region_bytes;
    return at;
}

static void received(void *request, ucs_status_t status, size_t length, void *user)
{
    struct wf_plain_ucx *me = user;
    me->failed |= status != UCS_OK;
    me->left -= length;
    me->ucx.ucp_request_free(request);
}

static ucs_status_t offered(void *argument, const void *header, size_t header_len, void *data,
                            size_t len, const ucp_am_recv_param_t *param)
{
    (void)header;
    (void)header_len;
    struct wf_plain_ucx *me = argument;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 || len != MESSAGE_BYTES) {
        me->failed = true;
        return UCS_OK;
    }
    const ucp_request_param_t receive = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = received,
        .user_data = me,
    };
    ucs_status_ptr_t request =
        me->ucx.ucp_am_recv_data_nbx(me->worker, data, walk(me), len, &receive);
    me->failed |= UCS_PTR_IS_ERR(request);
    me->left -= request == NULL ? len : 0;
    return UCS_INPROGRESS;
}

static ucs_status_t make(struct wf_plain_ucx *me, const char *tls)
{
    const struct ucx_library *ucx = &me->ucx;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .cb = offered,
        .arg = me,
    };
    ucp_config_t *config;
    ucs_status_t status = ucx->ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }
    status = tls != NULL ? ucx->ucp_config_modify(config, "TLS", tls) : UCS_OK;
    if (status == UCS_OK) {
        status = ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &me->context);
    }
    ucx->ucp_config_release(config);
    if (status == UCS_OK) {
        status = ucx->ucp_worker_create(me->context, &worker, &me->worker);
    }
    if (status == UCS_OK) {
        status = ucx->ucp_worker_set_am_recv_handler(me->worker, &handler);
    }
    return status == UCS_OK
               ? ucx->ucp_worker_get_address(me->worker, &me->address, &me->address_len)
               : status;
}

enum wf_status wf_plain_ucx_new(uint8_t *memory, uint64_t bytes, const char *tls,
                                struct wf_plain_ucx **ucx_out, struct wf_error *error)
{
    struct wf_plain_ucx *me = calloc(1, sizeof *me);
    if (me == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory");
    }
    me->memory = memory;
    me->region_bytes = bytes;
    enum wf_status status = ucx_library_open(NULL, &me->ucx, error);
    if (status != WF_OK) {
        free(me);
        return status;
    }
    ucs_status_t made = make(me, tls);
    if (made != UCS_OK) {
        status = wf_error_set(error, WF_UNSUPPORTED, "plain ucx cannot be set up: %s",
                              me->ucx.ucs_status_string(made));
        wf_plain_ucx_free(me);
        return status;
    }
    *ucx_out = me;
    return WF_OK;
}

void wf_plain_ucx_free(struct wf_plain_ucx *me)
{
    if (me == NULL) {
        return;
    }
    if (me->address != NULL) {
        me->ucx.ucp_worker_release_address(me->worker, me->address);
    }
    if (me->worker != NULL) {
        me->ucx.ucp_worker_destroy(me->worker);
    }
    if (me->context != NULL) {
        me->ucx.ucp_cleanup(me->context);
    }
    free(me);
}

const void *wf_plain_ucx_address(const struct wf_plain_ucx *me, size_t *len_out)
{
    *len_out = me->address_len;
    return me->address;
}

enum wf_status wf_plain_ucx_connect(struct wf_plain_ucx *me, const void *address,
                                    struct wf_error *error)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                    .address = address};
    ucs_status_t status = me->ucx.ucp_ep_create(me->worker, &params, &me->ep);
    return status == UCS_OK ? WF_OK
                            : wf_error_set(error, WF_CONNECTION, "plain ucx cannot connect: %s",
                                           me->ucx.ucs_status_string(status));
}

static void sent(void *request, ucs_status_t status, void *user)
{
    struct wf_plain_ucx *me = user;
    me->failed |= status != UCS_OK;
    me->out--;
    me->ucx.ucp_request_free(request);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One turn of waiting; false: it has been too long, or the other process is gone. */
struct wait {
    uint64_t until_ns;
    unsigned turns;
    int control;
};

static bool turn(struct wf_plain_ucx *me, struct wait *wait)
{
    me->ucx.ucp_worker_progress(me->worker);
    if (++wait->turns % LOOK_EVERY != 0) {
        return !me->failed;
    }
    struct pollfd look = {.fd = wait->control, .events = POLLIN};
    return !me->failed && now_ns() < wait->until_ns && poll(&look, 1, 0) == 0;
}

bool wf_plain_ucx_send(struct wf_plain_ucx *me, uint64_t bytes, int control)
{
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_RNDV,
        .cb.send = sent,
        .user_data = me,
    };
    struct wait wait = {.until_ns = now_ns() + PATIENCE_NS, .control = control};
    uint64_t unsent = bytes;
    do {
        if (unsent > 0 && me->out < IN_FLIGHT) {
            ucs_status_ptr_t request =
                me->ucx.ucp_am_send_nbx(me->ep, AM_ID, NULL, 0, walk(me), MESSAGE_BYTES, &param);
            me->failed |= UCS_PTR_IS_ERR(request);
            me->out += UCS_PTR_IS_PTR(request);
            unsent -= MESSAGE_BYTES;
        }
    } while ((unsent > 0 || me->out > 0) && turn(me, &wait));
    return unsent == 0 && me->out == 0 && !me->failed;
}

bool wf_plain_ucx_receive(struct wf_plain_ucx *me, uint64_t bytes, int control)
{
    struct wait wait = {.until_ns = now_ns() + PATIENCE_NS, .control = control};
    me->left = bytes;
    while (me->left > 0 && turn(me, &wait)) {
    }
    return me->left == 0 && !me->failed;
}
