/* process.c - loop, env, transport, signals and the gate of a rank process, and their order. */
#include "tools/run/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/run/reach.h"
#include "tools/run/token_file.h"

#define SPIN_NS 20000

enum { NOTE_SPANS = 48, JOB_THREADS = 1 };

static struct wf_process *of_gate(struct wf_watch *watch)
{
    return WF_CONTAINER(watch, struct wf_process, gate);
}

/* A signal, or the parent is gone. */
static void asked_to_end(void *user)
{
    struct wf_process *process = user;
    wf_process_end(process, process->kind->reader ? WF_EXIT_OK : WF_EXIT_FAILED);
}

static void gate_bytes(struct wf_process *process, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            process->gate_line[process->gate_len] = '\0';
            process->gate_len = 0;
            if (process->kind->gate_said != NULL) {
                process->kind->gate_said(process, process->gate_line);
            }
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
        asked_to_end(process);
    }
}

/* Unix for readers on this host; tcp as well where a transport reaches other hosts. */
static enum wf_status choose_listen(struct wf_process *process, struct wf_error *error)
{
    char tcp[WF_ADDRESS_MAX] = "";
    bool afar = false;
    for (uint32_t i = 0; i < process->transports.count; i++) {
        afar = afar || (process->transports.list[i]->ops->caps & WF_CAP_MAP) == 0;
    }
    enum wf_status status =
        afar ? wf_reach_listen(process->options->server, process->setup->job.transport.interfaces,
                               tcp, error)
             : WF_OK;
    snprintf(process->listen, sizeof process->listen, "unix:@weft-rank-*%s%s",
             tcp[0] != '\0' ? " " : "", tcp);
    return status;
}

/* What a rank has and a reader has not. */
static enum wf_status open_rank(struct wf_process *process, struct wf_error *error)
{
    const struct wf_process_options *options = process->options;
    const struct wf_run_transports_options how = {.side = options->side,
                                                  .rank = options->rank,
                                                  .server = options->server,
                                                  .host = process->host,
                                                  .workers = JOB_THREADS};
    char path[WF_PATH_MAX];
    enum wf_status status = wf_token_of_job(options->token_file, options->job, options->job->name,
                                            process->env, path, &process->token, error);
    if (status == WF_OK) {
        status = wf_run_transports_open(process->loop, &process->setup->job, &how,
                                        &process->transports, error);
    }
    return status == WF_OK ? choose_listen(process, error) : status;
}

static enum wf_status open_loop(struct wf_process *process, struct wf_error *error)
{
    struct wf_loop_options options = {.poller = WF_POLLER_EPOLL,
                                      .spin_ns = process->options->crowded ? 0 : SPIN_NS};
    enum wf_status status = wf_trace_init(&process->trace, WF_PROCESS_SPANS, error);
    if (status == WF_OK) {
        status = wf_loop_new(&options, &process->loop, error);
    }
    if (status != WF_OK) {
        wf_trace_fini(&process->trace);
        return status;
    }
    wf_loop_set_trace(process->loop, &process->trace);
    return WF_OK;
}

static enum wf_status open_process(struct wf_process *process, struct wf_error *error)
{
    const struct wf_process_options *options = process->options;
    bool reader = process->kind->reader;
    char who[40];
    const char *host = NULL;
    if (options->side == WF_INFER && !reader) {
        process->place = wf_run_place(process->setup, options->rank);
        const char *group_host = process->setup->job.infer[process->place.group].host;
        host = group_host[0] != '\0' ? group_host : NULL;
    }
    enum wf_status status = wf_reach_host_name(host, process->host, error);
    if (status == WF_OK) {
        status = open_loop(process, error);
    }
    if (status != WF_OK) {
        return status;
    }
    struct wf_env_real_options env_options = {.workers = reader ? 0 : JOB_THREADS};
    status = wf_env_real_new(process->loop, &env_options, &process->env, error);
    if (status != WF_OK) {
        return status;
    }
    wf_loop_set_env(process->loop, process->env);
    snprintf(who, sizeof who, "%s:%u", reader ? "reader" : wf_side_name(options->side),
             options->rank);
    wf_hold_init(&process->hold, process->env, who);
    snprintf(who, sizeof who, "%s %u",
             reader                      ? "reader of engine"
             : options->side == WF_TRAIN ? "train rank"
                                         : "infer rank",
             options->rank);
    wf_stderr_log_init(&process->log, process->loop, who);
    return reader ? WF_OK : open_rank(process, error);
}

static enum wf_status watch(struct wf_process *process, struct wf_error *error)
{
    enum wf_status status =
        wf_signals_open(&process->signals, process->loop, asked_to_end, process, error);
    if (status != WF_OK) {
        return status;
    }
    if (process->options->gate) {
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

static void close_process(struct wf_process *process)
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
}

static void finish(struct wf_process *process, bool acted)
{
    if (process->rank != NULL) {
        wf_rank_free(process->rank);
    }
    if (acted) {
        if (process->kind->close != NULL) {
            process->kind->close(process);
        }
        wf_actor_close(&process->actor);
        while (wf_loop_turn(process->loop)) {
        }
        wf_actor_fini(&process->actor);
    }
    close_process(process);
    process->kind->fini(process);
}

int wf_process_run(struct wf_process *process, const struct wf_process_kind *kind,
                   const struct wf_run_setup *setup, const struct wf_process_options *options)
{
    struct wf_error error;
    memset(process, 0, sizeof *process);
    process->kind = kind;
    process->setup = setup;
    process->options = options;
    process->gate.fd = -1;
    enum wf_status status = open_process(process, &error);
    bool acts = status == WF_OK;
    if (status == WF_OK) {
        wf_actor_init(&process->actor, process->loop, kind->name, kind->handle);
        status = kind->start(process, &error);
    }
    if (status == WF_OK) {
        status = watch(process, &error);
    }
    if (status == WF_OK) {
        wf_loop_run(process->loop);
    } else {
        wf_process_say(process, error.text);
        process->exit_status = WF_EXIT_FAILED;
    }
    finish(process, acts);
    return process->exit_status;
}

/* --- a rank ----------------------------------------------------------------------------------- */
void wf_process_rank_options(const struct wf_process *process, const struct wf_run_memory *memory,
                             struct wf_rank_options *rank_out)
{
    const struct wf_run_setup *setup = process->setup;
    const struct wf_run_place *place = &process->place;
    const struct wf_job_group *group = &setup->job.infer[place->group];
    bool train = process->options->side == WF_TRAIN;
    *rank_out = (struct wf_rank_options){
        .job = setup->job.name,
        .server = process->options->server,
        .token = &process->token,
        .listen = process->listen,
        .host_name = process->host,
        .side = process->options->side,
        .rank = process->options->rank,
        .engine = place->engine,
        .group = train ? "train" : group->name,
        .group_rank = train ? process->options->rank : place->group_rank,
        .model = setup->model,
        .recipe = train ? &setup->train : &setup->infer[place->group],
        .regions = &memory->region,
        .region_count = 1,
        .tensors = memory->tensors,
        .tensor_count = memory->tensor_count,
        .publish = setup->job.publish,
        .prepared_bytes_max =
            setup->job.transport.transit_is_set ? setup->job.transport.transit_bytes : 0,
        .policy = {.cast_bytes_max = setup->job.transport.transit_bytes /
                                     (setup->job.publish == WF_PUBLISH_SNAPSHOT ? 2 : 1),
                   .near_maps = wf_run_transports_map(&setup->job)},
        .mode = train ? 0 : group->mode,
        .transports = process->transports.list,
        .transport_count = process->transports.count,
        .capacity_jobs = JOB_THREADS,
        .timeouts = setup->job.timeouts,
    };
}

static void rank_ended(void *host, struct wf_rank *rank, const struct wf_error *why)
{
    struct wf_process *process = host;
    (void)rank;
    process->closing = true;
    if (why->status != WF_CLOSED) {
        wf_process_say(process, why->text);
        process->exit_status = WF_EXIT_FAILED;
    }
    process->ended = true;
    wf_process_stop_when_quiet(process);
}

enum wf_status wf_process_join(struct wf_process *process, struct wf_rank_options *rank,
                               struct wf_error *error)
{
    rank->host = process;
    rank->hooks.ended = rank_ended;
    return wf_rank_new(process->loop, rank, &process->rank, error);
}

void wf_process_end(struct wf_process *process, int exit_status)
{
    if (process->exit_status == 0) {
        process->exit_status = exit_status;
    }
    if (process->kind->reader) {
        wf_loop_stop(process->loop);
    } else if (!process->closing) {
        process->closing = true;
        wf_rank_close(process->rank);
    }
}

void wf_process_stop_when_quiet(struct wf_process *process)
{
    if (process->ended && !process->kind->busy(process)) {
        wf_loop_stop(process->loop);
    }
}

/* --- what it says ----------------------------------------------------------------------------- */
bool wf_process_tells_aborts(const struct wf_process *process)
{
    return !process->options->gate || process->options->verbose;
}

void wf_process_say(const struct wf_process *process, const char *text)
{
    if (process->kind->reader) {
        fprintf(stderr, "weft: reader: %s\n", text);
    } else {
        fprintf(stderr, "weft: %s rank %u: %s\n", wf_side_name(process->options->side),
                process->options->rank, text);
    }
}

uint64_t wf_process_now_ns(const struct wf_process *process)
{
    return process->env->ops->now_ns(process->env);
}

void wf_process_span(struct wf_process *process, const char *name, uint64_t start_ns,
                     uint64_t end_ns, uint64_t step)
{
    struct wf_trace_span span = {name, start_ns, end_ns, step, 0};
    wf_trace_add(&process->trace, span);
}

/* The spans of the trace that no note has carried yet. */
static uint32_t new_spans(struct wf_process *process, struct wf_el_span spans_out[NOTE_SPANS])
{
    const struct wf_trace *trace = &process->trace;
    size_t kept = wf_trace_count(trace);
    uint64_t oldest = trace->written - kept;
    uint64_t next = process->spans_noted > oldest ? process->spans_noted : oldest;
    uint32_t count = 0;
    for (; next < trace->written && count < NOTE_SPANS; next++) {
        const struct wf_trace_span *span = wf_trace_get(trace, (size_t)(next - oldest));
        struct wf_el_span *out = &spans_out[count++];
        snprintf(out->name, sizeof out->name, "%s", span->name);
        out->start_ns = span->start_ns;
        out->end_ns = span->end_ns;
    }
    process->spans_noted = next;
    return count;
}

void wf_process_note(struct wf_process *process, struct wf_frame_note *note)
{
    struct wf_el_span spans[NOTE_SPANS];
    note->side = process->options->side;
    note->rank = process->options->rank;
    note->engine = process->place.engine;
    note->spans = spans;
    note->spans_count = new_spans(process, spans);
    wf_rank_note(process->rank, note);
}
