/* parent_children.c - which processes the job has, starting them, and what their ends mean. */
#include "tools/run/parent_internal.h"
#include "tools/run/token_file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { STARTS_MAX = 2, FAR_STARTS_MAX = 4, LOST_BY_SHELL = 255 };

/* --- starting --------------------------------------------------------------------------------- */
static enum wf_status start_child(struct parent *p, struct wf_child *child, struct wf_error *error)
{
    char number[WF_LABEL_MAX], socket[WF_ADDRESS_MAX], here[16];
    const struct wf_run_host *host = wf_parent_host_of(p, child);
    bool far = host != NULL && !host->local;
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
    for (uint32_t i = 0; i < p->setup->given_count; i++) {
        arguments[n++] = "--family";
        arguments[n++] = p->setup->given[i];
    }
    if (!far) {
        arguments[n++] = "--token-file";
        arguments[n++] = p->token_file;
        arguments[n++] = "--gate";
    }
    if (p->options->verbose) {
        arguments[n++] = "--verbose";
    }
    if (host != NULL) {
        snprintf(here, sizeof here, "%u", host->placed);
        arguments[n++] = "--ranks-here";
        arguments[n++] = here;
    }
    bool reads = child->kind >= WF_CHILD_INFER && p->setup->job.run.readers;
    uint32_t engine = child->kind == WF_CHILD_INFER ? wf_run_place(p->setup, child->number).engine
                                                    : child->number;
    if (reads && wf_parent_reads(p, engine)) {
        snprintf(socket, sizeof socket, "%s-%u", p->reader_prefix, engine);
        arguments[n++] = "--reader-socket";
        arguments[n++] = socket;
    }
    enum wf_status status = far ? wf_parent_start_far(p, child, host, arguments, error)
                                : wf_child_start(&p->children, child, arguments, -1, error);
    if (status == WF_OK && child->kind == WF_CHILD_TRAIN) {
        char line[60];
        bool each = p->options->scope == WF_PARENT_LEADER && !p->setup->job.policy.drop_to_latest;
        snprintf(line, sizeof line, "%sstep %llu\n", each ? "publish each\n" : "",
                 (unsigned long long)p->allowed);
        wf_child_tell(child, line);
        if (p->state == FINISHING) {
            wf_child_tell(child, "finish\n");
        }
    }
    return status;
}

static void child_ended(void *user, struct wf_child *child, bool clean, const char *text);

static void name_children(struct parent *p)
{
    struct wf_run_setup *setup = p->setup;
    bool all = p->options->scope == WF_PARENT_HOST;
    uint32_t train = all ? setup->train_ranks : p->options->scope == WF_PARENT_LEADER ? 1 : 0;
    uint32_t infer = all ? setup->infer_ranks : 0;
    uint32_t readers = all && setup->job.run.readers ? setup->engines : 0;
    p->children.count = 1 + train + infer + readers;
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
    for (uint32_t i = 0; i < train; i++, child++) {
        child->kind = WF_CHILD_TRAIN;
        child->number = i;
    }
    for (uint32_t i = 0; i < infer; i++, child++) {
        child->kind = WF_CHILD_INFER;
        child->number = i;
    }
}

enum wf_status wf_parent_start_all(struct parent *p, struct wf_error *error)
{
    name_children(p);
    uint64_t random;
    p->env->ops->random(p->env, &random, sizeof random);
    snprintf(p->reader_prefix, sizeof p->reader_prefix, "unix:@weft-reader-%016llx",
             (unsigned long long)random);
    enum wf_status status =
        wf_token_of_job(p->options->token_file, &p->setup->job, p->setup->job.name, p->env,
                        p->token_file, &p->token, error);
    if (status == WF_OK) {
        status = wf_parent_start_server(p, error);
    }
    for (uint32_t i = 1; i < p->children.count && status == WF_OK; i++) {
        struct wf_child *child = &p->children.children[i];
        if (child->kind != WF_CHILD_READER || wf_parent_reads(p, child->number)) {
            status = start_child(p, child, error);
        }
    }
    if (status == WF_OK) {
        status = wf_parent_connect(p, error);
    }
    return status;
}

static void name_child(const struct wf_child *child, char *name, size_t size)
{
    static const char *const kinds[] = {"the server", "train rank", "infer rank",
                                        "the reader of engine"};
    if (child->kind == WF_CHILD_SERVER) {
        snprintf(name, size, "%s", kinds[child->kind]);
    } else {
        snprintf(name, size, "%s %u%s%.20s", kinds[child->kind], child->number,
                 child->far_host != NULL ? " on " : "",
                 child->far_host != NULL ? child->far_host : "");
    }
}

/* --- frozen ranks -------------------------------------------------------------------------------
 * The server tells who was fenced. A rank that was only away for a while goes on by itself; one
 * that stays silent is killed, and started again like any that dies.
 */
static void frozen_too_long(struct wf_timer *timer)
{
    struct wf_child *child = WF_CONTAINER(timer, struct wf_child, frozen);
    struct parent *p = child->all->user;
    char line[200], name[60];
    name_child(child, name, sizeof name);
    snprintf(line, sizeof line,
             "%s has been silent for %.3g s after its lease ran out: killing process %d", name,
             (double)p->setup->job.run.frozen_ns / WF_PARENT_SECOND_NS, (int)child->pid);
    wf_parent_complain(p, line);
    kill(child->pid, SIGKILL);
}

void wf_parent_take_presence(struct parent *p, const struct wf_frame_presence *presence)
{
    const struct wf_culprit *who = &presence->who;
    enum wf_child_kind kind = who->side == WF_TRAIN ? WF_CHILD_TRAIN : WF_CHILD_INFER;
    char line[WF_CULPRIT_TEXT];
    uint32_t world = who->side == WF_TRAIN ? p->setup->train_ranks : p->setup->infer_ranks;
    if (who->rank >= world) {
        return;
    }
    bool *away = &p->away[who->rank + (who->side == WF_TRAIN ? 0 : p->setup->train_ranks)];
    if (*away == (presence->away != 0)) {
        return; /* known; who only joined is no news */
    }
    *away = presence->away != 0;
    wf_culprit_format(who, line);
    wf_parent_complain(p, line);
    for (uint32_t i = 0; i < p->children.count; i++) {
        struct wf_child *child = &p->children.children[i];
        if (child->kind != kind || child->number != who->rank || child->pid == 0) {
            continue;
        }
        wf_timer_cancel(p->loop, &child->frozen);
        if (presence->away) {
            child->frozen.fire = frozen_too_long;
            child->frozen.name = "a frozen rank";
            wf_timer_arm(p->loop, &child->frozen,
                         wf_loop_now_ns(p->loop) + p->setup->job.run.frozen_ns);
        }
    }
}

/* --- ends --------------------------------------------------------------------------------------
 */
void wf_parent_name_running(const struct parent *p, char *text, size_t size)
{
    uint32_t count = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < p->children.count; i++) {
        const struct wf_child *child = &p->children.children[i];
        if (child->pid > 0 && child->kind != WF_CHILD_READER) { /* readers end with the job */
            char name[60];
            name_child(child, name, sizeof name);
            wf_parent_list(text, size, name, count++);
        }
    }
    wf_parent_list_end(text, size, count);
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
    wf_parent_check_gate(p);
}

/* True if it was started again. */
static bool start_again(struct parent *p, struct wf_child *child)
{
    struct wf_error error;
    enum wf_status status = child->kind == WF_CHILD_SERVER ? wf_parent_start_server(p, &error)
                                                           : start_child(p, child, &error);
    if (status != WF_OK) {
        wf_parent_complain(p, error.text);
        return false;
    }
    excuse_engine(p, child);
    return true;
}

static void child_ended(void *user, struct wf_child *child, bool clean, const char *text)
{
    struct parent *p = user;
    if (p->far != NULL) { /* what it said last comes before what we say of it */
        wf_far_output_fini(&p->far[child - p->children.children]);
    }
    bool ending = p->state == STOPPING || p->state == FINISHING;
    /* Whoever ends by itself has said why, and would do so again. */
    bool crashed = WIFSIGNALED(child->exit_status) && WTERMSIG(child->exit_status) != SIGTERM;
    /* A remote shell says 255 when it did not get through, as where too many ask a host at once,
     * and when it lost what it had started. */
    bool far = child->far_host != NULL;
    crashed = crashed || (far && WIFEXITED(child->exit_status) &&
                          WEXITSTATUS(child->exit_status) == LOST_BY_SHELL);
    char line[200], name[60];
    name_child(child, name, sizeof name);
    if (!clean && (p->state != STOPPING || crashed)) {
        bool again =
            crashed && p->state != STOPPING && child->starts < (far ? FAR_STARTS_MAX : STARTS_MAX);
        snprintf(line, sizeof line, "%s %s%s", name, text, again ? "; starting it again" : "");
        wf_parent_complain(p, line);
        if (again && start_again(p, child)) {
            return;
        }
        wf_parent_stop(p, true);
    } else if (clean && !ending) {
        snprintf(line, sizeof line, "%s ended before the job did", name);
        wf_parent_complain(p, line);
        wf_parent_stop(p, true);
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
