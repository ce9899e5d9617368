/* parent.c - the job's one supervisor: children, the observer's connection, the gate between
 * versions.
 *
 *   STARTING -> RUNNING -> FINISHING (trainers were told to finish) -> ENDED
 *            any -> STOPPING (a signal, or a failure): children get SIGTERM, then SIGKILL
 *
 * The gate: trainers may make step s+1 when step s is committed (or given up), every living infer
 * rank has sent its account of s, and the limit was measured.
 */
#include "tools/run/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/messages.h"
#include "runtime/env.h"
#include "runtime/loop.h"
#include "tools/commands.h"
#include "tools/run/children.h"
#include "tools/run/limit.h"
#include "tools/run/progress.h"
#include "tools/run/report.h"

#define SECOND_NS 1000000000ULL
#define SERVER_START_MS 10000
#define NOTES_WAIT_NS (120 * SECOND_NS)
#define STOP_WAIT_NS (5 * SECOND_NS)
#define FINISH_WAIT_NS (30 * SECOND_NS)

enum { LIMIT_BYTES_MAX = 256 << 20, LIMIT_BYTES_MIN = 64 << 20, STARTS_MAX = 2 };
enum parent_kind { PARENT_LIMIT_DONE = 0x1000 };
enum parent_state { STARTING, RUNNING, FINISHING, STOPPING };

struct parent {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_run_setup *setup;
    const struct wf_parent_options *options;
    struct wf_children children;
    struct wf_report report;
    struct wf_progress progress;
    struct wf_limit limit;
    struct wf_job limit_job;
    struct wf_watch signals;
    struct wf_timer timer; /* of the state: notes, stopping */
    enum parent_state state;
    char server[WF_ADDRESS_MAX];
    char reader_prefix[64];
    uint64_t conn;
    uint64_t allowed; /* the step trainers may make */
    uint64_t settled; /* newest step that is committed or given up */
    bool *noted;      /* by infer rank: its account of `settled` has come */
    bool measuring, failed;
};

/* --- starting ------------------------------------------------------------------------------------
 */
static enum wf_status start_child(struct parent *p, struct wf_child *child, struct wf_error *error)
{
    char number[WF_LABEL_MAX], socket[WF_ADDRESS_MAX];
    const char *arguments[WF_CHILD_ARGS_MAX] = {"run", p->setup->job.path};
    int n = 2;
    snprintf(number, sizeof number, "%s:%u", child->kind == WF_CHILD_TRAIN ? "train" : "infer",
             child->number);
    if (child->kind == WF_CHILD_READER) {
        snprintf(number, sizeof number, "%u", child->number);
        arguments[n++] = "--reader";
        arguments[n++] = number;
    } else {
        arguments[n++] = "--rank";
        arguments[n++] = number;
        arguments[n++] = "--server";
        arguments[n++] = p->server;
    }
    arguments[n++] = "--gate";
    if (child->kind >= WF_CHILD_INFER && p->setup->job.run.readers) {
        uint32_t engine = child->kind == WF_CHILD_READER
                              ? child->number
                              : wf_run_place(p->setup, child->number).engine;
        snprintf(socket, sizeof socket, "%s-%u", p->reader_prefix, engine);
        arguments[n++] = "--reader-socket";
        arguments[n++] = socket;
    }
    enum wf_status status = wf_child_start(&p->children, child, arguments, -1, error);
    if (status == WF_OK && child->kind == WF_CHILD_TRAIN) {
        char line[40];
        snprintf(line, sizeof line, "step %llu\n", (unsigned long long)p->allowed);
        wf_child_tell(child, line);
        if (p->state == FINISHING) {
            wf_child_tell(child, "finish\n");
        }
    }
    return status;
}

/* Reads the server's "listening on ADDRESS" line. */
static enum wf_status read_server_line(int fd, char address[WF_ADDRESS_MAX], struct wf_error *error)
{
    static const char head[] = "listening on ";
    char line[WF_ADDRESS_MAX + sizeof head - 1];
    size_t len = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (len + 1 < sizeof line && poll(&wait, 1, SERVER_START_MS) == 1) {
        ssize_t got = read(fd, line + len, 1);
        if (got <= 0 || line[len] == '\n') {
            break;
        }
        len++;
    }
    line[len] = '\0';
    if (strncmp(line, head, sizeof head - 1) != 0) {
        return wf_error_set(error, WF_CONNECTION,
                            "the server did not say within 10 s where it listens");
    }
    memcpy(address, line + sizeof head - 1, len + 2 - sizeof head);
    return WF_OK;
}

static enum wf_status start_server(struct parent *p, struct wf_error *error)
{
    const struct wf_job_file *job = &p->setup->job;
    if (job->server.address[0] != '\0') {
        snprintf(p->server, sizeof p->server, "%s", job->server.address);
        return WF_OK;
    }
    int out[2];
    if (pipe2(out, O_CLOEXEC) != 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make a pipe: %s", strerror(errno));
    }
    const char *arguments[] = {"server", job->path, "--ends-with-parent", NULL};
    enum wf_status status =
        wf_child_start(&p->children, &p->children.children[0], arguments, out[1], error);
    close(out[1]);
    if (status == WF_OK) {
        status = read_server_line(out[0], p->server, error);
    }
    close(out[0]);
    return status;
}

static void child_ended(void *user, struct wf_child *child, bool clean, const char *text);
static void check_gate(struct parent *p);

static void name_children(struct parent *p)
{
    struct wf_run_setup *setup = p->setup;
    uint32_t readers = setup->job.run.readers ? setup->engines : 0;
    p->children.count = 1 + setup->train_ranks + setup->infer_ranks + readers;
    p->children.children = calloc(p->children.count, sizeof *p->children.children);
    WF_ASSERT(p->children.children != NULL);
    p->children.loop = p->loop;
    p->children.ended = child_ended;
    p->children.user = p;
    struct wf_child *child = p->children.children;
    for (uint32_t i = 0; i < p->children.count; i++) {
        child[i].gate = -1;
    }
    child++->kind = WF_CHILD_SERVER;
    for (uint32_t i = 0; i < readers; i++, child++) {
        child->kind = WF_CHILD_READER;
        child->number = i;
    }
    for (uint32_t i = 0; i < setup->train_ranks; i++, child++) {
        child->kind = WF_CHILD_TRAIN;
        child->number = i;
    }
    for (uint32_t i = 0; i < setup->infer_ranks; i++, child++) {
        child->kind = WF_CHILD_INFER;
        child->number = i;
    }
}

static enum wf_status start_all(struct parent *p, struct wf_error *error)
{
    name_children(p);
    uint64_t random;
    p->env->ops->random(p->env, &random, sizeof random);
    snprintf(p->reader_prefix, sizeof p->reader_prefix, "unix:@weft-reader-%016llx",
             (unsigned long long)random);
    enum wf_status status = start_server(p, error);
    for (uint32_t i = 1; i < p->children.count && status == WF_OK; i++) {
        status = start_child(p, &p->children.children[i], error);
    }
    if (status == WF_OK) {
        status = p->env->ops->connect(p->env, &p->actor, p->server, &p->conn, error);
    }
    return status;
}

/* --- stopping
 * -------------------------------------------------------------------------------------- */
static void timer_fired(struct wf_timer *timer);

static void arm(struct parent *p, uint64_t wait_ns, const char *name)
{
    p->timer.fire = timer_fired;
    p->timer.name = name;
    wf_timer_arm(p->loop, &p->timer, wf_loop_now_ns(p->loop) + wait_ns);
}

static void stop_job(struct parent *p, bool failed)
{
    p->failed = p->failed || failed;
    if (p->state == STOPPING) {
        return;
    }
    p->state = STOPPING;
    wf_children_signal(&p->children, SIGTERM);
    arm(p, STOP_WAIT_NS, "processes that were asked to end");
    if (wf_children_running(&p->children) == 0) {
        wf_loop_stop(p->loop);
    }
}

static void complain(struct parent *p, const char *text)
{
    wf_progress_clear(&p->progress);
    fprintf(stderr, "weft: %s\n", text);
}

static const char *kind_name(enum wf_child_kind kind)
{
    static const char *const names[] = {"server", "train rank", "infer rank", "reader of engine"};
    return names[kind];
}

/* An engine that lost a rank serves nothing until its next version: no account of this one comes.
 */
static void excuse_engine(struct parent *p, const struct wf_child *child)
{
    if (child->kind != WF_CHILD_INFER) {
        return;
    }
    uint32_t engine = wf_run_place(p->setup, child->number).engine;
    for (uint32_t i = 0; i < p->setup->infer_ranks; i++) {
        p->noted[i] = p->noted[i] || wf_run_place(p->setup, i).engine == engine;
    }
    check_gate(p);
}

static void child_ended(void *user, struct wf_child *child, bool clean, const char *text)
{
    struct parent *p = user;
    bool ending = p->state == STOPPING || p->state == FINISHING;
    if (!clean && p->state != STOPPING) {
        char line[200];
        bool again = child->kind != WF_CHILD_SERVER && child->starts < STARTS_MAX;
        snprintf(line, sizeof line, "%s %u %s%s", kind_name(child->kind), child->number, text,
                 again ? "; starting it again" : "");
        complain(p, line);
        struct wf_error error;
        if (again && start_child(p, child, &error) == WF_OK) {
            excuse_engine(p, child);
            return;
        }
        stop_job(p, true);
    } else if (clean && !ending) {
        char line[200];
        snprintf(line, sizeof line, "%s %u ended before the job did", kind_name(child->kind),
                 child->number);
        complain(p, line);
        stop_job(p, true);
    }
    bool readers_only = true;
    for (uint32_t i = 0; i < p->children.count; i++) {
        const struct wf_child *other = &p->children.children[i];
        readers_only = readers_only && (other->pid == 0 || other->kind == WF_CHILD_READER);
    }
    if (readers_only) {
        wf_loop_stop(p->loop);
    }
}

static void timer_fired(struct wf_timer *timer)
{
    struct parent *p = (struct parent *)((char *)timer - offsetof(struct parent, timer));
    if (p->state == STOPPING) {
        wf_loop_stop(p->loop);
    } else if (p->state == FINISHING) {
        complain(p, "the job did not end within 30 s of its last version");
        stop_job(p, true);
    } else {
        complain(p, "some inference ranks sent no account of the last version within 120 s");
        stop_job(p, true);
    }
}

static void signal_came(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct parent *p = (struct parent *)((char *)watch - offsetof(struct parent, signals));
    struct signalfd_siginfo info;
    if (read(watch->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        complain(p, "interrupted; ending the job");
        stop_job(p, true);
    }
}

/* --- the gate
 * ---------------------------------------------------------------------------------------- */
static void tell_trainers(struct parent *p, const char *line)
{
    for (uint32_t i = 0; i < p->children.count; i++) {
        if (p->children.children[i].kind == WF_CHILD_TRAIN) {
            wf_child_tell(&p->children.children[i], line);
        }
    }
}

static void open_gate(struct parent *p)
{
    char line[40];
    if (p->settled >= p->report.versions_wanted) {
        p->state = FINISHING;
        tell_trainers(p, "finish\n");
        arm(p, FINISH_WAIT_NS, "the end of the job");
        return;
    }
    p->allowed = p->settled + 1;
    memset(p->noted, 0, p->setup->infer_ranks * sizeof *p->noted);
    snprintf(line, sizeof line, "step %llu\n", (unsigned long long)p->allowed);
    tell_trainers(p, line);
}

static void limit_work(struct wf_job *job)
{
    struct parent *p = (struct parent *)((char *)job - offsetof(struct parent, limit_job));
    wf_limit_measure(&p->limit);
}

/* Called whenever an account has come or a version has ended. */
static void check_gate(struct parent *p)
{
    if (p->state != RUNNING || p->measuring || p->settled < p->allowed) {
        return;
    }
    const struct wf_report_round *round = wf_report_last(&p->report, p->settled);
    bool committed = round != NULL && round->frame.state == WF_REPORT_COMMITTED;
    for (uint32_t i = 0; committed && i < p->setup->infer_ranks; i++) {
        uint32_t engine = wf_run_place(p->setup, i).engine;
        bool decided = false;
        for (uint32_t e = 0; e < round->frame.engines_count; e++) {
            decided = decided || round->frame.engines[e].engine == engine;
        }
        if (decided && !p->noted[i]) {
            return;
        }
    }
    wf_timer_cancel(p->loop, &p->timer);
    p->measuring = true;
    p->limit_job = (struct wf_job){.owner = &p->actor, .work = limit_work, .name = "limit"};
    p->limit_job.done.kind = PARENT_LIMIT_DONE;
    p->env->ops->job(p->env, &p->limit_job);
}

static void settle(struct parent *p, uint64_t step)
{
    if (step >= p->allowed && step > p->settled) {
        p->settled = step;
        arm(p, NOTES_WAIT_NS, "the inference ranks' accounts of a version");
    }
    check_gate(p);
}

/* --- frames from the server
 * --------------------------------------------------------------------------- */
static void say_hello(struct parent *p)
{
    struct wf_frame_hello hello = {.proto_min = WF_PROTOCOL_MIN,
                                   .proto_max = WF_PROTOCOL_MAX,
                                   .role = WF_ROLE_OBSERVER,
                                   .pid = (uint64_t)getpid()};
    snprintf(hello.job, sizeof hello.job, "%s", p->setup->job.name);
    wf_frame_send(p->env, p->conn, WF_FRAME_hello, &hello, -1);
}

static void take_note(struct parent *p, const struct wf_frame_note *note)
{
    wf_report_note(&p->report, note);
    if (note->side == WF_INFER && note->rank < p->setup->infer_ranks &&
        note->version.step == p->allowed) {
        p->noted[note->rank] = true;
        check_gate(p);
    }
    if (note->side == WF_TRAIN && strcmp(note->text, "given up") == 0) {
        settle(p, note->version.step);
    }
}

static void take_round(struct parent *p, const struct wf_frame_round_report *round)
{
    wf_report_round(&p->report, round);
    wf_progress_round(&p->progress, round);
    if (round->state == WF_REPORT_COMMITTED) {
        settle(p, round->round.version.step);
    }
}

static void take_frame(struct parent *p, const struct wf_wire_msg *wire)
{
    struct wf_frame frame;
    struct wf_error error;
    if (wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error) != WF_OK) {
        complain(p, error.text);
        stop_job(p, true);
        return;
    }
    switch (frame.type) {
    case WF_FRAME_challenge:
        say_hello(p);
        break;
    case WF_FRAME_plan_report:
        wf_report_plan(&p->report, &frame.plan_report);
        wf_progress_plan(&p->progress, &frame.plan_report);
        break;
    case WF_FRAME_progress:
        wf_progress_phase(&p->progress, &frame.progress);
        break;
    case WF_FRAME_round_report:
        take_round(p, &frame.round_report);
        break;
    case WF_FRAME_note:
        take_note(p, &frame.note);
        break;
    case WF_FRAME_refused:
        complain(p, frame.refused.text);
        stop_job(p, true);
        break;
    default:
        break;
    }
    wf_frame_fini(&frame);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct parent *p = (struct parent *)((char *)self - offsetof(struct parent, actor));
    if (msg->kind == PARENT_LIMIT_DONE) {
        p->measuring = false;
        wf_report_limit(&p->report, p->settled, p->limit.bytes_per_s, p->limit.workers,
                        p->limit.how);
        if (p->state == RUNNING) {
            open_gate(p);
        }
        return WF_KEEP;
    }
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (wire->conn != p->conn) {
        return WF_FREE;
    }
    if (msg->kind == WF_WIRE_FRAME) {
        take_frame(p, wire);
    } else if (msg->kind == WF_WIRE_CLOSED) {
        p->conn = 0;
        if (p->state == STARTING || p->state == RUNNING) {
            char line[WF_ADDRESS_MAX + 300];
            snprintf(line, sizeof line, "lost the server at %s: %s", p->server, wire->text);
            complain(p, line);
            stop_job(p, true);
        }
    }
    return WF_FREE;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */
static enum wf_status watch_signals(struct parent *p, struct wf_error *error)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    p->signals = (struct wf_watch){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                   .events = WF_READABLE,
                                   .ready = signal_came};
    if (p->signals.fd < 0 || wf_watch_add(p->loop, &p->signals) != WF_OK) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot watch signals: %s", strerror(errno));
    }
    return WF_OK;
}

static enum wf_status prepare(struct parent *p, struct wf_error *error)
{
    struct wf_loop_options loop_options = {.poller = WF_POLLER_EPOLL, .spin_ns = 0};
    enum wf_status status = wf_loop_new(&loop_options, &p->loop, error);
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
    wf_actor_init(&p->actor, p->loop, "parent", handle);
    status = watch_signals(p, error);
    uint64_t weights = 0;
    for (uint32_t i = 0; i < p->setup->model->param_count; i++) {
        const struct wf_param *param = &p->setup->model->params[i];
        weights += param->elements * wf_dtype_bytes(param->dtype);
    }
    uint64_t bytes = weights < LIMIT_BYTES_MIN   ? LIMIT_BYTES_MIN
                     : weights > LIMIT_BYTES_MAX ? LIMIT_BYTES_MAX
                                                 : weights;
    return status == WF_OK ? wf_limit_init(&p->limit, bytes, error) : status;
}

static void finish(struct parent *p)
{
    if (p->loop == NULL) {
        return;
    }
    wf_children_fini(&p->children);
    wf_timer_cancel(p->loop, &p->timer);
    if (p->conn != 0) {
        p->env->ops->close(p->env, p->conn);
    }
    wf_actor_close(&p->actor);
    while (wf_loop_turn(p->loop)) {
    }
    if (p->signals.fd > 0) {
        wf_watch_remove(p->loop, &p->signals);
        close(p->signals.fd);
    }
    wf_env_real_free(p->env);
    wf_actor_fini(&p->actor);
    wf_loop_free(p->loop);
    wf_limit_fini(&p->limit);
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

int wf_parent_run(struct wf_run_setup *setup, const struct wf_parent_options *options)
{
    struct wf_error error;
    struct parent *p = calloc(1, sizeof *p);
    WF_ASSERT(p != NULL);
    p->setup = setup;
    p->options = options;
    /* With drop_to_latest trainers do not wait: only the newest version has to arrive. */
    p->allowed = setup->job.policy.drop_to_latest ? setup->job.run.versions : 1;
    p->noted = calloc(setup->infer_ranks, sizeof *p->noted);
    WF_ASSERT(p->noted != NULL);
    snprintf(p->report.job, sizeof p->report.job, "%s", setup->job.name);
    p->report.versions_wanted = setup->job.run.versions;
    p->report.every = setup->job.policy.every;
    p->report.only_latest = setup->job.policy.drop_to_latest;
    wf_progress_init(&p->progress, options->quiet ? NULL : stderr, setup->job.run.versions);
    enum wf_status status = wf_run_setup_make(setup, &error);
    if (status == WF_OK) {
        status = wf_run_setup_try(setup, &error);
    }
    if (status == WF_OK) {
        status = prepare(p, &error);
    }
    if (status == WF_OK) {
        status = start_all(p, &error);
    }
    if (status == WF_OK) {
        p->state = RUNNING;
        wf_loop_run(p->loop);
    } else {
        complain(p, error.text);
        p->failed = true;
    }
    finish(p);
    wf_progress_clear(&p->progress);
    bool stdout_is_json = options->json != NULL && strcmp(options->json, "-") == 0;
    if (!options->quiet) {
        wf_report_print(&p->report, stdout_is_json ? stderr : stdout);
    }
    bool good = write_reports(p) && !p->failed && wf_report_ok(&p->report);
    wf_report_fini(&p->report);
    free(p->noted);
    free(p);
    return good ? WF_EXIT_OK : WF_EXIT_FAILED;
}
