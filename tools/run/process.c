/* process.c - loop, env, transport, signals and the gate of a rank process. */
#include "tools/run/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/reach.h"
#include "tools/run/token_file.h"

#define SPIN_NS 20000

static struct wf_process *of_gate(struct wf_watch *watch)
{
    return WF_CONTAINER(watch, struct wf_process, gate);
}

static void signal_came(void *user)
{
    struct wf_process *process = user;
    process->asked_to_end(process->user);
}

static void gate_bytes(struct wf_process *process, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            process->gate_line[process->gate_len] = '\0';
            process->gate_len = 0;
            process->gate_said(process->user, process->gate_line);
        } else if (process->gate_len + 1 < sizeof process->gate_line) {
            process->gate_line[process->gate_len++] = bytes[i];
        }
    }
}

static void gate_ready(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct wf_process *process = of_gate(watch);
    char bytes[256];
    ssize_t got = read(watch->fd, bytes, sizeof bytes);
    if (got > 0) {
        gate_bytes(process, bytes, (size_t)got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        wf_watch_remove(process->loop, watch);
        watch->fd = -1;
        process->asked_to_end(process->user);
    }
}

/* Unix for readers on this host; tcp as well where a transport reaches other hosts. */
static enum wf_status choose_listen(struct wf_process *process, const struct wf_run_setup *setup,
                                    const struct wf_process_options *options,
                                    struct wf_error *error)
{
    char tcp[WF_ADDRESS_MAX] = "";
    bool afar = false;
    for (uint32_t i = 0; i < process->transports.count; i++) {
        afar = afar || (process->transports.list[i]->ops->caps & WF_CAP_MAP) == 0;
    }
    enum wf_status status =
        afar ? wf_reach_listen(options->server, setup->job.transport.interfaces, tcp, error)
             : WF_OK;
    snprintf(process->listen, sizeof process->listen, "unix:@weft-rank-*%s%s",
             tcp[0] != '\0' ? " " : "", tcp);
    return status;
}

static enum wf_status open_transports(struct wf_process *process, const struct wf_run_setup *setup,
                                      const struct wf_process_options *options, unsigned workers,
                                      struct wf_error *error)
{
    const struct wf_run_transports_options how = {.side = options->side,
                                                  .rank = options->rank,
                                                  .server = options->server,
                                                  .host = process->host,
                                                  .workers = workers};
    enum wf_status status =
        wf_run_transports_open(process->loop, &setup->job, &how, &process->transports, error);
    return status == WF_OK ? choose_listen(process, setup, options, error) : status;
}

enum wf_status wf_process_init(struct wf_process *process, const struct wf_run_setup *setup,
                               const struct wf_process_options *options, unsigned workers,
                               struct wf_error *error)
{
    char who[40];
    memset(process, 0, sizeof *process);
    process->gate.fd = -1;
    const char *host = NULL;
    if (options->side == WF_INFER && workers > 0) {
        const char *group_host = setup->job.infer[wf_run_place(setup, options->rank).group].host;
        host = group_host[0] != '\0' ? group_host : NULL;
    }
    enum wf_status status = wf_reach_host_name(host, process->host, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_loop_options loop_options = {.poller = WF_POLLER_EPOLL,
                                           .spin_ns = options->crowded ? 0 : SPIN_NS};
    status = wf_trace_init(&process->trace, WF_PROCESS_SPANS, error);
    if (status == WF_OK) {
        status = wf_loop_new(&loop_options, &process->loop, error);
    }
    if (status != WF_OK) {
        wf_trace_fini(&process->trace);
        return status;
    }
    wf_loop_set_trace(process->loop, &process->trace);
    struct wf_env_real_options env_options = {.workers = workers};
    status = wf_env_real_new(process->loop, &env_options, &process->env, error);
    if (status == WF_OK) {
        wf_loop_set_env(process->loop, process->env);
        snprintf(who, sizeof who, "%s:%u", workers == 0 ? "reader" : wf_side_name(options->side),
                 options->rank);
        wf_hold_init(&process->hold, process->env, who);
        snprintf(who, sizeof who, "%s %u",
                 workers == 0                ? "reader of engine"
                 : options->side == WF_TRAIN ? "train rank"
                                             : "infer rank",
                 options->rank);
        wf_stderr_log_init(&process->log, process->loop, who);
        if (workers > 0) {
            char path[WF_PATH_MAX];
            status = wf_token_of_job(options->token_file, options->job, options->job->name,
                                     process->env, path, &process->token, error);
        }
        if (workers > 0 && status == WF_OK) {
            status = open_transports(process, setup, options, workers, error);
        }
    }
    if (status != WF_OK) {
        wf_process_fini(process);
    }
    return status;
}

enum wf_status wf_process_watch(struct wf_process *process,
                                const struct wf_process_options *options, struct wf_error *error)
{
    enum wf_status status =
        wf_signals_open(&process->signals, process->loop, signal_came, process, error);
    if (status != WF_OK) {
        return status;
    }
    if (options->gate) {
        fcntl(WF_GATE_FD, F_SETFL, O_NONBLOCK);
        process->gate =
            (struct wf_watch){.fd = WF_GATE_FD, .events = WF_READABLE, .ready = gate_ready};
        if (wf_watch_add(process->loop, &process->gate) != WF_OK) {
            process->gate.fd = -1;
            return wf_error_set(error, WF_INVALID,
                                "--gate needs a pipe on descriptor 3; it is for weft run itself");
        }
    }
    return WF_OK;
}

void wf_process_fini(struct wf_process *process)
{
    if (process->loop == NULL) {
        return;
    }
    if (process->gate.fd >= 0) {
        wf_watch_remove(process->loop, &process->gate);
    }
    wf_signals_close(&process->signals);
    wf_run_transports_close(&process->transports);
    if (process->env != NULL) {
        wf_env_real_free(process->env);
        wf_stderr_log_fini(&process->log);
    }
    wf_loop_free(process->loop);
    wf_trace_fini(&process->trace);
    memset(process, 0, sizeof *process);
}

void wf_process_say(const struct wf_process_options *options, const char *text)
{
    fprintf(stderr, "weft: %s rank %u: %s\n", wf_side_name(options->side), options->rank, text);
}

uint32_t wf_process_spans(struct wf_process *process, struct wf_el_span spans_out[WF_NOTE_SPANS])
{
    const struct wf_trace *trace = &process->trace;
    size_t kept = wf_trace_count(trace);
    uint64_t oldest = trace->written - kept;
    uint64_t next = process->spans_noted > oldest ? process->spans_noted : oldest;
    uint32_t count = 0;
    for (; next < trace->written && count < WF_NOTE_SPANS; next++) {
        const struct wf_trace_span *span = wf_trace_get(trace, (size_t)(next - oldest));
        struct wf_el_span *out = &spans_out[count++];
        snprintf(out->name, sizeof out->name, "%s", span->name);
        out->start_ns = span->start_ns;
        out->end_ns = span->end_ns;
    }
    process->spans_noted = next;
    return count;
}

void wf_process_rank_options(const struct wf_process *process, const struct wf_run_setup *setup,
                             const struct wf_process_options *options,
                             struct wf_rank_options *rank_out)
{
    *rank_out = (struct wf_rank_options){
        .job = setup->job.name,
        .server = options->server,
        .token = &process->token,
        .listen = process->listen,
        .side = options->side,
        .rank = options->rank,
        .model = setup->model,
        .publish = setup->job.publish,
        .transports = process->transports.list,
        .transport_count = process->transports.count,
        .capacity_jobs = 1,
        .timeouts = setup->job.timeouts,
    };
    rank_out->host_name = process->host;
}
