/* ucx.c - makes and closes the UCX transport; options, context, small messages. */
#include "transports/ucx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/log.h"
#include "transports/ucx_internal.h"

#define TRANSIT_DEFAULT (UINT64_C(64) << 20)
#define EDGE_DEFAULT (UINT64_C(16) << 20)
enum {
    CHUNK_DEFAULT = 1 << 20,
    LANES_DEFAULT = 1,
    BRIDGES_LEFT_OUT_MINOR = 16, /* UCX 1.16 is the first that uses no bridge */
};

/* --- small messages ----------------------------------------------------------------------------
 */

struct ucx_note *ucx_notes_add(struct ucx_notes *notes, const struct ucx_head *head,
                               const void *body, size_t body_len)
{
    struct ucx_note *note = NULL;
    if (notes->count < UCX_NOTES_MAX && body_len <= UCX_BODY_MAX) {
        note = malloc(sizeof *note + body_len);
    }
    if (note == NULL) {
        return NULL;
    }
    *note = (struct ucx_note){.head = *head, .body_len = (uint32_t)body_len};
    if (body_len > 0) {
        memcpy(note->body, body, body_len);
    }
    ucx_notes_put(notes, note);
    return note;
}

void ucx_notes_put(struct ucx_notes *notes, struct ucx_note *note)
{
    note->next = NULL;
    if (notes->last != NULL) {
        notes->last->next = note;
    } else {
        notes->first = note;
    }
    notes->last = note;
    notes->count++;
}

struct ucx_note *ucx_notes_take(struct ucx_notes *notes)
{
    struct ucx_note *note = notes->first;
    if (note != NULL) {
        notes->first = note->next;
        if (notes->first == NULL) {
            notes->last = NULL;
        }
        notes->count--;
    }
    return note;
}

void ucx_notes_clear(struct ucx_notes *notes)
{
    for (struct ucx_note *note; (note = ucx_notes_take(notes)) != NULL;) {
        free(note);
    }
}

struct saying {
    const struct ucx_library *ucx;
    uint8_t head[UCX_HEAD_BYTES];
    uint8_t body[];
};

static void said(void *request, ucs_status_t status, void *user)
{
    (void)status; /* a broken connection says so itself */
    struct saying *saying = user;
    saying->ucx->ucp_request_free(request);
    free(saying);
}

void ucx_say(struct ucx_worker *worker, ucp_ep_h ep, unsigned am_id, const struct ucx_head *head,
             const void *body, size_t body_len)
{
    struct saying *saying = malloc(sizeof *saying + body_len);
    if (saying == NULL || ep == NULL) {
        free(saying);
        return;
    }
    saying->ucx = worker->ucx;
    ucx_head_encode(head, saying->head);
    if (body_len > 0) {
        memcpy(saying->body, body, body_len);
    }
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = said,
        .user_data = saying,
    };
    ucs_status_ptr_t request = worker->ucx->ucp_am_send_nbx(ep, am_id, saying->head, UCX_HEAD_BYTES,
                                                            saying->body, body_len, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        free(saying);
    }
}

/* --- connections -------------------------------------------------------------------------------
 */

enum wf_status ucx_connect(struct ucx_worker *worker, const void *address,
                           ucp_err_handler_cb_t on_error, void *argument, ucp_ep_h *ep_out,
                           struct wf_error *error)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = argument},
    };
    ucs_status_t status = worker->ucx->ucp_ep_create(worker->worker, &params, ep_out);
    if (status != UCS_OK) {
        return wf_error_set(
            error, status == UCS_ERR_UNREACHABLE ? WF_UNSUPPORTED : WF_CONNECTION,
            "ucx finds no way between the two processes (%s); compare transport.interfaces and "
            "transport.ucx of both hosts",
            ucx_worker_text(worker, status));
    }
    return WF_OK;
}

void ucx_disconnect(struct ucx_worker *worker, ucp_ep_h ep, bool force)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0,
    };
    ucs_status_ptr_t request = worker->ucx->ucp_ep_close_nbx(ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        worker->ucx->ucp_request_free(request); /* it goes on; UCX asserts that nobody waits */
    }
}

/* --- options -----------------------------------------------------------------------------------
 */

static const char *plain_name(const char *name)
{
    return strncmp(name, "UCX_", 4) == 0 ? name + 4 : name;
}

/* All options that this UCX has, one "NAME=..." a line; NULL: it cannot tell. */
static char *list_options(const struct ucx_library *library)
{
    char *text = NULL;
    size_t len;
    FILE *stream = open_memstream(&text, &len);
    if (stream == NULL || library->print_all_options == NULL || library->options_list == NULL) {
        if (stream != NULL) {
            fclose(stream);
        }
        free(text);
        return NULL;
    }
    library->print_all_options(stream, "UCX_", UCS_CONFIG_PRINT_CONFIG, library->options_list,
                               NULL);
    fclose(stream);
    return text;
}

static bool has_option(const char *options, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = options; (at = strstr(at, name)) != NULL; at += len) {
        /* "UCX_TLS=", or a part's own prefix before the name: "UCX_IB_..." is written in full. */
        if (at[len] == '=' && at >= options + 4 && memcmp(at - 4, "UCX_", 4) == 0) {
            return true;
        }
    }
    return false;
}

/* What ucp_config_print says: the options of UCX's upper layer, which ucp_config_modify knows. The
 * parts below (tcp, ib, ...) have their own, which they read from the environment alone in a way
 * that all versions share. */
static char *list_upper_options(const struct ucx_library *library, const ucp_config_t *config)
{
    char *text = NULL;
    size_t len;
    FILE *stream = open_memstream(&text, &len);
    if (stream != NULL) {
        library->ucp_config_print(config, stream, NULL, UCS_CONFIG_PRINT_CONFIG);
        fclose(stream);
    }
    return text;
}

struct names {
    char *all, *upper; /* "UCX_NAME=value" lines; NULL: not known */
};

static enum wf_status set_option(struct ucx *ucx, ucp_config_t *config, const struct names *names,
                                 const char *name, const char *value, struct wf_error *error)
{
    const struct ucx_library *library = &ucx->library;
    if (name[0] == '\0') {
        return wf_error_set(error, WF_INVALID,
                            "an option for ucx has no name; expected one as in UCX's own list "
                            "(ucx_info -c), with or without UCX_ before it");
    }
    bool is_upper = names->upper == NULL || has_option(names->upper, name);
    if (!is_upper && names->all != NULL && !has_option(names->all, name)) {
        return wf_error_set(error, WF_INVALID,
                            "ucx %u.%u.%u has no option '%s'; `ucx_info -c` lists what it has",
                            library->major, library->minor, library->patch, name);
    }
    if (!is_upper) {
        return ucx_environment_add(&ucx->recipe.environment, name, value, error);
    }
    ucs_status_t status = library->ucp_config_modify(config, name, value);
    if (status != UCS_OK) {
        return wf_error_set(error, WF_INVALID, "ucx refuses %s=%s: %s", name, value,
                            library->ucs_status_string(status));
    }
    return WF_OK;
}

/* What Weft wants unless the environment or the job file says otherwise. Within a host UCX notices
 * dead peers only when told to, and without that it would not use shared memory between processes
 * that want to know. Larger segments spare a third of the reader's processor time over TCP, and a
 * connection that is not answered must not hold up the loop. */
static enum wf_status set_defaults(struct ucx *ucx, ucp_config_t *config, const struct names *names,
                                   struct wf_error *error)
{
    static const struct wf_transport_ucx_option defaults[] = {
        {"UCX_POSIX_ERROR_HANDLING", "y"}, {"UCX_SYSV_ERROR_HANDLING", "y"},
        {"UCX_XPMEM_ERROR_HANDLING", "y"}, {"UCX_TCP_TX_SEG_SIZE", "128k"},
        {"UCX_TCP_RX_SEG_SIZE", "256k"},   {"UCX_TCP_CONN_NB", "y"},
    };
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0] && status == WF_OK; i++) {
        const char *name = plain_name(defaults[i].name);
        bool exists = names->all == NULL || has_option(names->all, name);
        if (exists && getenv(defaults[i].name) == NULL) {
            status = set_option(ucx, config, names, name, defaults[i].value, error);
        }
    }
    return status;
}

/* True: whoever configured this left the choice of network devices to us. UCX has read its
 * ucx.conf, too. */
static bool chooses_devices(const struct ucx *ucx, const struct wf_transport_ucx_options *options)
{
    char *read = list_upper_options(&ucx->library, ucx->recipe.config);
    bool named = read == NULL || strstr(read, "UCX_NET_DEVICES=all\n") == NULL ||
                 getenv("UCX_NET_DEVICES") != NULL ||
                 (options->interfaces != NULL && options->interfaces[0] != '\0');
    free(read);
    for (uint32_t i = 0; i < options->option_count; i++) {
        named |= strcmp(plain_name(options->options[i].name), "NET_DEVICES") == 0;
    }
    return !named && ucx->library.major == 1 && ucx->library.minor < BRIDGES_LEFT_OUT_MINOR;
}

static enum wf_status configure(struct ucx *ucx, const struct wf_transport_ucx_options *options,
                                ucp_config_t *config, struct wf_error *error)
{
    struct names names = {list_options(&ucx->library), list_upper_options(&ucx->library, config)};
    enum wf_status status = set_defaults(ucx, config, &names, error);
    if (status == WF_OK && options->interfaces != NULL && options->interfaces[0] != '\0') {
        status = set_option(ucx, config, &names, "NET_DEVICES", options->interfaces, error);
    }
    for (uint32_t i = 0; i < options->option_count && status == WF_OK; i++) {
        status = set_option(ucx, config, &names, plain_name(options->options[i].name),
                            options->options[i].value, error);
    }
    free(names.all);
    free(names.upper);
    return status;
}

/* The recipe of contexts, tried once so that what is wrong with it is said at once. */
static enum wf_status make_recipe(struct ucx *ucx, const struct wf_transport_ucx_options *options,
                                  struct wf_error *error)
{
    ucp_context_h context;
    ucs_status_t status = ucx->library.ucp_config_read(NULL, NULL, &ucx->recipe.config);
    if (status != UCS_OK) {
        ucx->recipe.config = NULL;
        return wf_error_set(error, WF_INVALID, "ucx cannot read its configuration: %s",
                            ucx->library.ucs_status_string(status));
    }
    ucx->recipe.features =
        UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (ucx->has_rma ? UCP_FEATURE_RMA : 0);
    ucx->recipe.chooses_devices = chooses_devices(ucx, options);
    enum wf_status result = configure(ucx, options, ucx->recipe.config, error);
    if (result != WF_OK) {
        return result;
    }
    status = ucx_context_open(&ucx->library, &ucx->recipe, &context);
    if (status != UCS_OK) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "ucx (%s) finds nothing to use here: %s; look at "
                            "transport.interfaces and transport.ucx (TLS)",
                            ucx->library.path, ucx->library.ucs_status_string(status));
    }
    ucx->library.ucp_cleanup(context);
    return WF_OK;
}

static void free_ucx(struct ucx *ucx)
{
    if (ucx->recipe.config != NULL) {
        ucx->library.ucp_config_release(ucx->recipe.config);
    }
    ucx_environment_free(&ucx->recipe.environment);
    free(ucx);
}

static enum wf_status check_options(const struct wf_transport_ucx_options *options,
                                    struct wf_error *error)
{
    if (options->lanes > WF_UCX_LANES_MAX) {
        return wf_error_set(error, WF_INVALID, "%u lanes; expected at most %d", options->lanes,
                            WF_UCX_LANES_MAX);
    }
    uint32_t chunk = options->chunk_bytes;
    if (chunk != 0 && (chunk < WF_UCX_CHUNK_MIN || chunk > WF_UCX_CHUNK_MAX)) {
        return wf_error_set(error, WF_INVALID, "chunks of %u bytes; expected %d to %d", chunk,
                            WF_UCX_CHUNK_MIN, WF_UCX_CHUNK_MAX);
    }
    uint64_t least = 2 * (uint64_t)(chunk != 0 ? chunk : CHUNK_DEFAULT);
    if (options->transit_bytes != 0 && options->transit_bytes < least) {
        return wf_error_set(error, WF_INVALID,
                            "a transit budget of %llu bytes; expected room for two chunks, %llu",
                            (unsigned long long)options->transit_bytes, (unsigned long long)least);
    }
    if (options->option_count > WF_UCX_OPTIONS_MAX) {
        return wf_error_set(error, WF_INVALID, "%u options for ucx; expected at most %d",
                            options->option_count, WF_UCX_OPTIONS_MAX);
    }
    return WF_OK;
}

/* --- making and closing ------------------------------------------------------------------------
 */

static uint64_t host_hash(const char *host)
{
    char boot[64] = "";
    if (host == NULL) {
        FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
        if (file != NULL) {
            size_t len = fread(boot, 1, sizeof boot - 1, file);
            boot[len] = '\0';
            fclose(file);
        }
        host = boot;
    }
    return XXH3_64bits(host, strlen(host));
}

static const char *describe(struct wf_transport *t)
{
    return WF_CONTAINER(t, struct ucx, base)->description;
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    ucx_registered(WF_CONTAINER(self, struct ucx, actor), msg);
    return WF_KEEP; /* part of the region */
}

static void close_ucx(struct wf_transport *t)
{
    struct ucx *ucx = WF_CONTAINER(t, struct ucx, base);
    WF_ASSERT(ucx->reader.reads == NULL && ucx->reader.imports == NULL);
    ucx_reader_close(ucx);
    ucx_source_close(ucx);
    while (ucx->source.jobs_out > 0) { /* jobs that run still point here */
        wf_loop_turn(ucx->loop);
    }
    wf_actor_close(&ucx->actor);
    wf_actor_fini(&ucx->actor);
    free_ucx(ucx);
}

static const struct wf_transport_ops ucx_ops = {
    .name = "ucx",
    .caps = WF_CAP_STREAM | WF_CAP_WAKE_FD | WF_CAP_CAST,
    .export_region = ucx_export_region,
    .withdraw_region = ucx_withdraw_region,
    .import_region = ucx_import_region,
    .release_region = ucx_release_region,
    .read = ucx_read_start,
    .cancel = ucx_read_cancel,
    .close = close_ucx,
    .describe = describe,
};

static void settle(struct ucx *ucx, const struct wf_transport_ucx_options *options)
{
    ucx->transit_bytes = options->transit_bytes != 0 ? options->transit_bytes : TRANSIT_DEFAULT;
    ucx->edge_bytes = options->edge_bytes != 0 ? options->edge_bytes : EDGE_DEFAULT;
    ucx->chunk_bytes = options->chunk_bytes != 0 ? options->chunk_bytes : CHUNK_DEFAULT;
    ucx->lanes = options->lanes != 0 ? options->lanes : LANES_DEFAULT;
    if (ucx->edge_bytes > ucx->transit_bytes) {
        ucx->edge_bytes = ucx->transit_bytes;
    }
    if (ucx->edge_bytes < ucx->chunk_bytes) {
        ucx->edge_bytes = ucx->chunk_bytes;
    }
    ucx->host = host_hash(options->host);
    struct wf_env *env = wf_loop_env(ucx->loop);
    env->ops->random(env, ucx->life, sizeof ucx->life);
    const struct ucx_library *library = &ucx->library;
    snprintf(ucx->description, sizeof ucx->description, "ucx %u.%u.%u (%s)%s%s", library->major,
             library->minor, library->patch, library->path, library->warning[0] != '\0' ? "; " : "",
             library->warning);
    wf_log(wf_loop_log(ucx->loop), library->warning[0] != '\0' ? WF_LOG_WARN : WF_LOG_INFO, "%s",
           ucx->description);
}

enum wf_status wf_transport_ucx_new(struct wf_loop *loop,
                                    const struct wf_transport_ucx_options *options,
                                    struct wf_transport **transport_out, struct wf_error *error)
{
    static const struct wf_transport_ucx_options defaults;
    options = options != NULL ? options : &defaults;
    enum wf_status status = check_options(options, error);
    if (status != WF_OK) {
        return status;
    }
    struct ucx *ucx = calloc(1, sizeof *ucx);
    if (ucx == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the ucx transport");
    }
    ucx->base.ops = &ucx_ops;
    ucx->loop = loop;
    ucx->get = options->get;
    ucx->whole_chunks = options->whole_chunks;
    ucx->has_rma = ucx_get_wanted(ucx);
    status = ucx_library_open(options->library, &ucx->library, error);
    if (status == WF_OK) {
        status = make_recipe(ucx, options, error);
    }
    if (status != WF_OK) {
        free_ucx(ucx);
        return status;
    }
    settle(ucx, options);
    wf_actor_init(&ucx->actor, loop, "ucx", handle);
    *transport_out = &ucx->base;
    return WF_OK;
}
