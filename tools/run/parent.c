/* parent.c - the job's one supervisor: children, the observer's connection, the gate between
 * versions.
 *
 *   STARTING -> RUNNING -> FINISHING (trainers were told to finish) -> ENDED
 *            any -> STOPPING (a signal, or a failure): children get SIGTERM, then SIGKILL
 */
#include "tools/run/parent_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/run/transports.h"

#define STOP_WAIT_NS (5 * WF_PARENT_SECOND_NS)
#define RECONNECT_NS (WF_PARENT_SECOND_NS / 5)
#define END_WAIT_NS (60 * WF_PARENT_SECOND_NS) /* from the server's end to that of its ranks */

enum { LIMIT_BYTES_MAX = 256 << 20, LIMIT_BYTES_MIN = 64 << 20 };

static void timer_fired(struct wf_timer *timer);

void wf_parent_arm(struct parent *p, uint64_t wait_ns, const char *name)
{
    p->timer.fire = timer_fired;
    p->timer.name = name;
    wf_timer_arm(p->loop, &p->timer, wf_loop_now_ns(p->loop) + wait_ns);
}

void wf_parent_stop(struct parent *p, bool failed)
{
    p->failed = p->failed || failed;
    if (p->state == STOPPING) {
        return;
    }
    p->state = STOPPING;
    wf_children_signal(&p->children, SIGTERM);
    wf_parent_arm(p, STOP_WAIT_NS, "processes that were asked to end");
    if (wf_children_running(&p->children) == 0) {
        wf_loop_stop(p->loop);
    }
}

void wf_parent_complain(struct parent *p, const char *text)
{
    wf_progress_clear(&p->progress);
    fprintf(stderr, "weft: %s\n", text);
}

static void timer_fired(struct wf_timer *timer)
{
    struct parent *p = WF_CONTAINER(timer, struct parent, timer);
    char who[160], line[300];
    if (p->state == STOPPING) {
        wf_loop_stop(p->loop);
        return;
    }
    if (p->state == FINISHING) {
        wf_parent_name_running(p, who, sizeof who);
    } else {
        wf_parent_name_awaited(p, who, sizeof who);
    }
    snprintf(line, sizeof line, "waited too long for %s: %s", p->timer.name, who);
    wf_parent_complain(p, line);
    wf_parent_stop(p, true);
}

static void interrupted(void *user)
{
    struct parent *p = user;
    if (p->state == STOPPING) { /* somebody is in a hurry */
        wf_loop_stop(p->loop);
        return;
    }
    wf_parent_complain(p, "interrupted; ending the job");
    wf_parent_stop(p, true);
}

/* --- the connection to the server ----------------------------------------------------------------
 */
enum wf_status wf_parent_connect(struct parent *p, struct wf_error *error)
{
    p->handshake = (struct wf_handshake){0};
    return p->env->ops->connect(p->env, &p->actor, p->server, &p->conn, error);
}

static void connect_again(struct wf_timer *timer)
{
    struct parent *p = WF_CONTAINER(timer, struct parent, reconnect);
    struct wf_error error;
    if (wf_parent_connect(p, &error) != WF_OK) {
        wf_parent_complain(p, error.text);
        wf_parent_stop(p, true);
    }
}

/* A server that somebody else starts may come up after us, and one that was lost may be started
 * again, by us or by others: ranks wait for it too. */
static bool may_come(struct parent *p, uint64_t now)
{
    const struct wf_timeouts *t = &p->setup->job.timeouts;
    if (p->greeted) {
        p->was_lost = true;
        p->lost_ns = p->lost_ns == 0 ? now : p->lost_ns;
        return now - p->lost_ns < t->reconnect_ns;
    }
    return p->bound[0] == '\0' && now - p->started_ns < t->connect_ns;
}

static void connection_closed(struct parent *p, const char *why)
{
    uint64_t now = wf_loop_now_ns(p->loop);
    p->conn = 0;
    if (p->state == FINISHING && wf_children_running(&p->children) == 0) {
        wf_loop_stop(p->loop);
    } else if (p->state == FINISHING) {
        wf_parent_arm(p, END_WAIT_NS, "the end of processes whose job is over");
    } else if (p->state != STOPPING && may_come(p, now)) {
        p->reconnect = (struct wf_timer){.fire = connect_again, .name = "connecting again"};
        wf_timer_arm(p->loop, &p->reconnect, now + RECONNECT_NS);
    } else if (p->state != STOPPING) {
        char line[WF_ADDRESS_MAX + 300];
        snprintf(line, sizeof line, "%s the server at %s: %s", p->greeted ? "lost" : "cannot reach",
                 p->server, why);
        wf_parent_complain(p, line);
        wf_parent_stop(p, true);
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct parent *p = WF_CONTAINER(self, struct parent, actor);
    if (msg->kind == PARENT_LIMIT_DONE) {
        p->measuring = false;
        wf_report_limit(&p->report, p->settled, &p->limit);
        if (p->state == RUNNING) {
            wf_parent_open_gate(p);
        }
        return WF_KEEP;
    }
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (wire->conn != p->conn) {
        return WF_FREE;
    }
    if (msg->kind == WF_WIRE_FRAME) {
        wf_parent_take_frame(p, wire);
    } else if (msg->kind == WF_WIRE_CLOSED) {
        connection_closed(p, wire->text);
    }
    return WF_FREE;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */
/* May any rank of this host be read by something else than shared memory? */
static bool reads_by_network(const struct parent *p)
{
    const struct wf_job_file *job = &p->setup->job;
    const char *server = job->server.address[0] != '\0' ? job->server.address : job->server.listen;
    bool network = job->transport.prefer_count == 0 && wf_run_transports_afar(job, server);
    for (uint32_t i = 0; i < job->transport.prefer_count; i++) {
        network = network || strcmp(job->transport.prefer[i], "shm") != 0;
    }
    return network;
}

/* What the host can do is measured where all ranks are on it. */
static enum wf_status prepare_limit(struct parent *p, struct wf_error *error)
{
    for (uint32_t i = 0; i < p->setup->model->param_count; i++) {
        const struct wf_param *param = &p->setup->model->params[i];
        p->weights_bytes += param->elements * wf_dtype_bytes(param->dtype);
    }
    if (p->options->scope != WF_PARENT_HOST || p->options->hosts != NULL) {
        return WF_OK;
    }
    const struct wf_limit_options options = {
        .bytes = p->weights_bytes < LIMIT_BYTES_MIN   ? LIMIT_BYTES_MIN
                 : p->weights_bytes > LIMIT_BYTES_MAX ? LIMIT_BYTES_MAX
                                                      : p->weights_bytes,
        .link = reads_by_network(p),
        .tls = wf_run_transports_tls(&p->setup->job)};
    return wf_limit_init(&p->limit, &options, error);
}

static enum wf_status prepare(struct parent *p, struct wf_error *error)
{
    struct wf_loop_options loop_options = {.poller = WF_POLLER_EPOLL, .spin_ns = 0};
    enum wf_status status = prepare_limit(p, error); /* it forks, so before there are threads */
    if (status == WF_OK) {
        status = wf_loop_new(&loop_options, &p->loop, error);
    }
    if (status != WF_OK) {
        return status;
    }
    struct wf_env_real_options env_options = {.workers = 1};
    status = wf_env_real_new(p->loop, &env_options, &p->env, error);
    if (status != WF_OK) {
        wf_loop_free(p->loop);
        p->loop = NULL;
        return status;
    }
    wf_loop_set_env(p->loop, p->env);
    wf_stderr_log_init(&p->log, p->loop, "weft run");
    wf_actor_init(&p->actor, p->loop, "parent", handle);
    p->started_ns = wf_loop_now_ns(p->loop);
    return wf_signals_open(&p->signals, p->loop, interrupted, p, error);
}

/* What nobody checks is said before anything moves, and again behind the numbers. */
static enum wf_status look_at_checks(struct parent *p, struct wf_error *error)
{
    uint32_t count = 0;
    enum wf_status status = wf_run_check_all(p->setup, p->checks, &count, error);
    p->report.checks = p->checks;
    p->report.check_count = status == WF_OK ? count : 0;
    for (uint32_t i = 0; i < p->report.check_count && !p->options->quiet; i++) {
        if (p->checks[i].by == WF_RUN_CHECK_NOTHING) {
            fprintf(stderr, "weft: %s (%s): %s\n", p->checks[i].group, p->checks[i].spec,
                    p->checks[i].why);
        }
    }
    return status;
}

/* What likely is wrong with manifests, told at the same two places. */
static void look_at_manifests(struct parent *p)
{
    const struct wf_run_setup *setup = p->setup;
    for (uint32_t g = 0; g <= setup->job.infer_count; g++) {
        struct wf_manifest_lacks *lacks = &p->lacks[p->report.lacks_count];
        char text[WF_MANIFEST_LACKS_TEXT];
        if (!wf_manifest_lacks_find(setup->model, g == 0 ? &setup->train : &setup->infer[g - 1],
                                    g == 0 ? setup->job.train_spec : setup->job.infer[g - 1].spec,
                                    setup->job.path, lacks)) {
            continue;
        }
        p->report.lacks_count++;
        wf_manifest_lacks_format(lacks, text);
        if (!p->options->quiet) {
            fprintf(stderr, "weft: beware: %s\n", text);
        }
    }
    p->report.lacks = p->lacks;
}

static void finish(struct parent *p)
{
    if (p->loop == NULL) {
        return;
    }
    wf_parent_end_far(p);
    wf_children_fini(&p->children);
    wf_parent_end_server(p);
    wf_timer_cancel(p->loop, &p->timer);
    wf_timer_cancel(p->loop, &p->reconnect);
    if (p->conn != 0) {
        p->env->ops->close(p->env, p->conn);
    }
    wf_actor_close(&p->actor);
    while (wf_loop_turn(p->loop)) {
    }
    wf_signals_close(&p->signals);
    wf_env_real_free(p->env);
    wf_stderr_log_fini(&p->log);
    wf_actor_fini(&p->actor);
    wf_loop_free(p->loop);
}

static bool write_reports(const struct parent *p)
{
    struct wf_error error;
    const char *json = p->options->json != NULL          ? p->options->json
                       : p->setup->job.report[0] != '\0' ? p->setup->job.report
                                                         : NULL;
    bool good = true;
    if (json != NULL && wf_report_write(&p->report, json, &error) != WF_OK) {
        fprintf(stderr, "weft: report: %s\n", error.text);
        good = false;
    }
    if (p->options->timeline != NULL &&
        wf_timeline_write(&p->report, p->options->timeline, &error) != WF_OK) {
        fprintf(stderr, "weft: timeline: %s\n", error.text);
        good = false;
    }
    return good;
}

/* The table, where a reader that went away is no failure but a full disk is one. */
static bool print_table(const struct parent *p)
{
    bool stdout_is_json = p->options->json != NULL && strcmp(p->options->json, "-") == 0;
    FILE *out = stdout_is_json ? stderr : stdout;
    wf_report_print(&p->report, out);
    if ((fflush(out) == 0 && !ferror(out)) || errno == EPIPE) {
        return true;
    }
    fprintf(stderr, "weft: cannot write to standard output: %s\n", strerror(errno));
    return false;
}

int wf_parent_run(struct wf_run_setup *setup, const struct wf_parent_options *options)
{
    struct wf_error error;
    struct parent *p = calloc(1, sizeof *p);
    WF_ASSERT(p != NULL);
    p->setup = setup;
    p->options = options;
    /* With drop_to_latest trainers do not wait: only the newest version has to arrive. Nor do they
     * where somebody else starts them. */
    bool gated = options->scope == WF_PARENT_HOST && !setup->job.policy.drop_to_latest;
    p->allowed = gated ? 1 : setup->job.run.versions;
    p->noted = calloc(setup->infer_ranks, sizeof *p->noted);
    p->away = calloc(setup->train_ranks + setup->infer_ranks, sizeof *p->away);
    p->held_step = calloc(setup->infer_ranks, sizeof *p->held_step);
    p->told = calloc(setup->train_ranks + setup->infer_ranks, sizeof *p->told);
    WF_ASSERT(p->noted != NULL && p->away != NULL && p->held_step != NULL && p->told != NULL);
    snprintf(p->report.job, sizeof p->report.job, "%s", setup->job.name);
    p->report.versions_wanted = setup->job.run.versions;
    p->report.every = setup->job.policy.every;
    p->report.only_latest = setup->job.policy.drop_to_latest;
    wf_progress_init(&p->progress, options->quiet ? NULL : stderr, setup->job.run.versions);
    enum wf_status status = look_at_checks(p, &error);
    if (status == WF_OK) {
        look_at_manifests(p);
        status = wf_run_setup_make(setup, &error);
    }
    if (status == WF_OK) {
        status = wf_run_setup_try(setup, &error);
    }
    if (status == WF_OK) {
        status = prepare(p, &error);
    }
    if (status == WF_OK) {
        status = wf_parent_start_all(p, &error);
    }
    if (status == WF_OK) {
        p->state = RUNNING;
        wf_loop_run(p->loop);
    } else {
        wf_parent_complain(p, error.text);
        p->failed = true;
    }
    finish(p);
    wf_parent_check_end(p);
    p->report.failed = p->failed;
    wf_report_close_doubts(&p->report);
    wf_progress_clear(&p->progress);
    bool good = options->quiet || print_table(p);
    good = write_reports(p) && wf_report_ok(&p->report) && good;
    wf_report_fini(&p->report);
    wf_limit_fini(&p->limit); /* the report had its samples */
    free(p->noted);
    free(p->away);
    free(p->held_step);
    free(p->told);
    free(p);
    return good ? WF_EXIT_OK : WF_EXIT_FAILED;
}
