/* transports.c - makes a rank's transports in their order, and wraps them in the job's faults. */
#include "tools/run/transports.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "tools/run/reach.h"
#include "transports/fault.h"
#include "transports/ucx.h"

enum { CHUNK_BYTES = 1 << 20, CHUNKS_MIN = 8 };

static const char *said_tls(const struct wf_job_file *job)
{
    for (uint32_t i = 0; i < job->transport.ucx_count; i++) {
        const char *name = job->transport.ucx[i].name;
        if (strcmp(name, "TLS") == 0 || strcmp(name, "UCX_TLS") == 0) {
            return job->transport.ucx[i].value;
        }
    }
    return NULL;
}

/* UCX gets no shared memory unasked. A reader that is killed while it puts a message into a
 * source's queue there leaves a gap, behind which the source hears nobody any more. And it would
 * take processes in two network namespaces of one machine for neighbours, but cannot wake a
 * sleeping one across them. */
static const char *default_tls(void)
{
    return getenv("UCX_TLS") == NULL ? "^sm" : NULL;
}

bool wf_run_transports_map(const struct wf_job_file *job)
{
    return job->transport.prefer_count == 0 || strcmp(job->transport.prefer[0], "ucx") != 0;
}

const char *wf_run_transports_tls(const struct wf_job_file *job)
{
    const char *said = said_tls(job);
    return said != NULL ? said : default_tls();
}

static enum wf_status open_ucx(struct wf_loop *loop, const struct wf_job_file *job,
                               const struct wf_run_transports_options *options,
                               struct wf_transport **out, struct wf_error *error)
{
    struct wf_transport_ucx_option own[WF_JOB_UCX_MAX + 1];
    uint32_t count = 0;
    char devices[WF_DEVICES_TEXT] = "";
    if (said_tls(job) == NULL && default_tls() != NULL) {
        own[count++] = (struct wf_transport_ucx_option){"TLS", default_tls()};
    }
    for (uint32_t i = 0; i < job->transport.ucx_count; i++) {
        own[count++] = (struct wf_transport_ucx_option){job->transport.ucx[i].name,
                                                        job->transport.ucx[i].value};
    }
    if (job->transport.interfaces[0] != '\0') {
        enum wf_status status = wf_reach_devices(job->transport.interfaces, devices, error);
        if (status != WF_OK) {
            return status;
        }
    }
    /* Some chunks of a small budget have to fit into it; the job file gives all ranks the same. */
    uint64_t chunk = job->transport.transit_bytes / CHUNKS_MIN;
    chunk = chunk < WF_UCX_CHUNK_MIN ? WF_UCX_CHUNK_MIN : chunk < CHUNK_BYTES ? chunk : CHUNK_BYTES;
    const struct wf_transport_ucx_options ucx = {.transit_bytes = job->transport.transit_bytes,
                                                 .chunk_bytes = (uint32_t)chunk,
                                                 .lanes = job->transport.lanes,
                                                 .interfaces = devices,
                                                 .host = options->host,
                                                 .options = own,
                                                 .option_count = count};
    return wf_transport_ucx_new(loop, &ucx, out, error);
}

static bool hits(const struct wf_job_fault *fault, const char *transport, uint32_t rank)
{
    bool named = fault->rank_count == 0;
    for (uint32_t i = 0; i < fault->rank_count; i++) {
        named = named || fault->ranks[i] == rank;
    }
    return named && (fault->transport[0] == '\0' || strcmp(fault->transport, transport) == 0);
}

/* Adds a transport to the list, inside the faults that the job has for this reader. */
static enum wf_status add(struct wf_loop *loop, const struct wf_job_file *job,
                          const struct wf_run_transports_options *options,
                          struct wf_transport *transport, struct wf_run_transports *out,
                          struct wf_error *error)
{
    struct wf_fault faults[WF_FAULTS_MAX];
    uint32_t count = 0;
    uint64_t seed = options->rank;
    for (uint32_t i = 0; options->side == WF_INFER && i < job->fault_count; i++) {
        if (hits(&job->faults[i], transport->ops->name, options->rank)) {
            faults[count++] = job->faults[i].fault;
            seed = seed * 31 + job->faults[i].seed;
        }
    }
    out->list[out->count++] = transport;
    if (count == 0) {
        return WF_OK;
    }
    return wf_transport_fault_new(loop, transport, faults, count, seed, &out->list[out->count - 1],
                                  error);
}

static enum wf_status open_named(struct wf_loop *loop, const struct wf_job_file *job,
                                 const struct wf_run_transports_options *options, const char *name,
                                 struct wf_run_transports *out, struct wf_error *error)
{
    struct wf_transport *transport = NULL;
    enum wf_status status = strcmp(name, "shm") == 0
                                ? wf_transport_shm_new(loop, options->workers, &transport, error)
                                : open_ucx(loop, job, options, &transport, error);
    return status == WF_OK ? add(loop, job, options, transport, out, error) : status;
}

bool wf_run_transports_afar(const struct wf_job_file *job, const char *server)
{
    bool afar = server != NULL && server[0] != '\0' && strncmp(server, "unix:", 5) != 0;
    for (uint32_t i = 0; i < job->infer_count; i++) {
        afar = afar || job->infer[i].host[0] != '\0';
    }
    return afar;
}

static enum wf_status open_auto(struct wf_loop *loop, const struct wf_job_file *job,
                                const struct wf_run_transports_options *options,
                                struct wf_run_transports *out, struct wf_error *error)
{
    struct wf_error reason;
    enum wf_status status = open_named(loop, job, options, "shm", out, error);
    if (status == WF_OK && wf_run_transports_afar(job, options->server) &&
        open_named(loop, job, options, "ucx", out, &reason) != WF_OK) {
        wf_log(wf_loop_log(loop), WF_LOG_INFO, "no ucx, so only ranks on this host can be read: %s",
               reason.text);
    }
    return status;
}

enum wf_status wf_run_transports_open(struct wf_loop *loop, const struct wf_job_file *job,
                                      const struct wf_run_transports_options *options,
                                      struct wf_run_transports *out, struct wf_error *error)
{
    *out = (struct wf_run_transports){0};
    if (job->transport.prefer_count == 0) {
        return open_auto(loop, job, options, out, error);
    }
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; status == WF_OK && i < job->transport.prefer_count; i++) {
        status = open_named(loop, job, options, job->transport.prefer[i], out, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "transport.prefer asks for %s", job->transport.prefer[i]);
        }
    }
    return status;
}

void wf_run_transports_close(struct wf_run_transports *transports)
{
    while (transports->count > 0) {
        struct wf_transport *last = transports->list[--transports->count];
        last->ops->close(last);
    }
}

void wf_run_transports_describe(const struct wf_run_transports *transports, char *text_out,
                                size_t room)
{
    size_t len = 0;
    text_out[0] = '\0';
    for (uint32_t i = 0; i < transports->count && len < room; i++) {
        struct wf_transport *transport = transports->list[i];
        const char *text =
            transport->ops->describe != NULL ? transport->ops->describe(transport) : NULL;
        if (text != NULL) {
            len += (size_t)snprintf(text_out + len, room - len, "%s%s", len > 0 ? "; " : "", text);
        }
    }
}
