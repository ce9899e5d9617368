/* parent_gate.c - when the trainers may go on, and what the server says.
 *
 * The gate: trainers may make step s+1 when step s is committed (or given up), every living infer
 * rank has sent its account of s, and the limit was measured.
 */
#include "tools/run/parent_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FINISH_WAIT_NS (30 * WF_PARENT_SECOND_NS)      /* beside the time that a lost rank has */
#define CHECK_BYTES_PER_S (20 * 1000 * UINT64_C(1000)) /* a slow host that checks the weights */

enum { NAMED_MAX = 4 };

/* --- names ---------------------------------------------------------------------------------- */
void wf_parent_list(char *text, size_t size, const char *name, uint32_t before)
{
    size_t len = strlen(text);
    if (before < NAMED_MAX) {
        snprintf(text + len, size - len, "%s%s", before > 0 ? ", " : "", name);
    }
}

void wf_parent_list_end(char *text, size_t size, uint32_t count)
{
    size_t len = strlen(text);
    if (count > NAMED_MAX) {
        snprintf(text + len, size - len, " and %u more", count - NAMED_MAX);
    }
}

/* The account of the settled version is wanted and has not come. */
static bool is_awaited(const struct parent *p, uint32_t rank)
{
    const struct wf_report_round *round = wf_report_last(&p->report, p->settled);
    if (round == NULL || round->frame.state != WF_REPORT_COMMITTED || p->noted[rank]) {
        return false;
    }
    uint32_t engine = wf_run_place(p->setup, rank).engine;
    for (uint32_t e = 0; e < round->frame.engines_count; e++) {
        if (round->frame.engines[e].engine == engine) {
            return true;
        }
    }
    return false; /* its engine does not serve this version */
}

void wf_parent_name_awaited(const struct parent *p, char *text, size_t size)
{
    uint32_t count = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < p->setup->infer_ranks; i++) {
        if (is_awaited(p, i)) {
            char name[40];
            snprintf(name, sizeof name, "infer rank %u", i);
            wf_parent_list(text, size, name, count++);
        }
    }
    wf_parent_list_end(text, size, count);
}

/* --- the gate ----------------------------------------------------------------------------------
 */
static void tell_trainers(struct parent *p, const char *line)
{
    for (uint32_t i = 0; i < p->children.count; i++) {
        if (p->children.children[i].kind == WF_CHILD_TRAIN) {
            wf_child_tell(&p->children.children[i], line);
        }
    }
}

static void finish(struct parent *p)
{
    p->state = FINISHING;
    tell_trainers(p, "finish\n");
    wf_parent_arm(p, p->setup->job.timeouts.join_ns + FINISH_WAIT_NS,
                  "the end of the job after its last version");
}

void wf_parent_open_gate(struct parent *p)
{
    char line[40];
    if (p->settled >= p->report.versions_wanted) {
        finish(p);
        return;
    }
    p->allowed = p->settled + 1;
    memset(p->noted, 0, p->setup->infer_ranks * sizeof *p->noted);
    snprintf(line, sizeof line, "step %llu\n", (unsigned long long)p->allowed);
    tell_trainers(p, line);
}

static void limit_work(struct wf_job *job)
{
    struct parent *p = WF_CONTAINER(job, struct parent, limit_job);
    wf_limit_measure(&p->limit);
}

/* Called whenever an account has come or a version has ended. */
void wf_parent_check_gate(struct parent *p)
{
    if (p->state != RUNNING || p->measuring || p->settled < p->allowed) {
        return;
    }
    for (uint32_t i = 0; i < p->setup->infer_ranks; i++) {
        if (is_awaited(p, i)) {
            return;
        }
    }
    wf_timer_cancel(p->loop, &p->timer);
    if (p->options->scope != WF_PARENT_HOST || p->options->hosts != NULL) {
        wf_parent_open_gate(p); /* this host's memory is not what bounds such a job */
        return;
    }
    p->measuring = true;
    p->limit_job = (struct wf_job){.owner = &p->actor, .work = limit_work, .name = "limit"};
    p->limit_job.done.kind = PARENT_LIMIT_DONE;
    p->env->ops->job(p->env, &p->limit_job);
}

static void settle(struct parent *p, uint64_t step)
{
    if (step >= p->allowed && step > p->settled) {
        p->settled = step;
        wf_parent_arm(p,
                      p->setup->job.timeouts.join_ns +
                          p->weights_bytes / CHECK_BYTES_PER_S * WF_PARENT_SECOND_NS,
                      "the check of a version");
    }
    wf_parent_check_gate(p);
}

void wf_parent_check_end(struct parent *p)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < p->report.round_count; i++) {
        const struct wf_frame_round_report *round = &p->report.rounds[i].frame;
        if (round->state == WF_REPORT_COMMITTED && round->round.version.step > newest) {
            newest = round->round.version.step;
        }
    }
    for (uint32_t i = 0; !p->failed && i < p->setup->infer_ranks; i++) {
        if (p->held_step[i] < newest) {
            char line[120];
            snprintf(line, sizeof line, "infer rank %u did not get version %llu; it had %llu", i,
                     (unsigned long long)newest, (unsigned long long)p->held_step[i]);
            wf_parent_complain(p, line);
            p->failed = true;
        }
    }
}

/* --- frames from the server
 * --------------------------------------------------------------------------- */
static bool is_repeated(struct parent *p, const struct wf_frame_note *note)
{
    uint64_t ranks = note->side == WF_TRAIN ? p->setup->train_ranks : p->setup->infer_ranks;
    if (note->rank >= ranks) {
        return false;
    }
    uint64_t at = note->side == WF_TRAIN ? note->rank : p->setup->train_ranks + note->rank;
    bool same = p->was_lost && p->told[at].attempt == note->attempt &&
                wf_version_compare(p->told[at].version, note->version) == 0;
    p->told[at] = (struct parent_told){note->version, note->attempt};
    return same;
}

static void take_note(struct parent *p, const struct wf_frame_note *note)
{
    if (is_repeated(p, note)) {
        return;
    }
    wf_report_note(&p->report, note);
    if (note->side == WF_INFER && note->rank < p->setup->infer_ranks) {
        p->held_step[note->rank] = note->version.step;
        if (note->version.step == p->allowed) {
            p->noted[note->rank] = true;
            wf_parent_check_gate(p);
        }
    }
    if (note->side == WF_TRAIN && strcmp(note->text, WF_RUN_IN_DOUBT) == 0 &&
        wf_report_in_doubt(&p->report, note->version)) {
        wf_progress_doubt(&p->progress, note->version);
    }
    if (note->side == WF_TRAIN && strcmp(note->text, "given up") == 0) {
        if (note->version.step > p->given_up) { /* the first of its ranks says so */
            p->given_up = note->version.step;
            wf_progress_given_up(&p->progress, note->version);
        }
        settle(p, note->version.step);
    }
}

/* The engines' ranks whose weights an aborted version has not touched, for all we know: of those
 * that read into place only they know. Who keeps versions in a folder serves nobody. */
static uint32_t count_keeping(const struct parent *p)
{
    uint32_t keeping = 0;
    for (uint32_t i = 0; i < p->setup->infer_ranks; i++) {
        const uint32_t group = wf_run_place(p->setup, i).group;
        keeping += p->setup->job.infer[group].mode == WF_MODE_STAGED &&
                   !wf_run_keeps(p->setup, group) && !p->away[p->setup->train_ranks + i] &&
                   p->held_step[i] > 0;
    }
    return keeping;
}

static void take_round(struct parent *p, const struct wf_frame_round_report *round)
{
    uint64_t step = round->round.version.step;
    for (uint32_t i = 0; p->was_lost && i < p->report.round_count; i++) {
        const struct wf_frame_round_report *known = &p->report.rounds[i].frame;
        bool again = known->state == WF_REPORT_COMMITTED && known->fill == round->fill &&
                     wf_version_compare(known->round.version, round->round.version) == 0;
        if (again || wf_round_key_equal(&known->round, &round->round)) {
            return; /* a server that was started again tells how the newest rounds ended */
        }
    }
    wf_report_round(&p->report, round, wf_loop_now_ns(p->loop));
    wf_progress_round(&p->progress, round, count_keeping(p));
    if (round->state == WF_REPORT_COMMITTED) {
        settle(p, step);
    }
}

void wf_parent_take_frame(struct parent *p, const struct wf_wire_msg *wire)
{
    struct wf_frame frame;
    struct wf_error error;
    if (wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error) != WF_OK) {
        wf_parent_complain(p, error.text);
        wf_parent_stop(p, true);
        return;
    }
    if (!p->handshake.done) {
        if (wf_handshake_observe(&p->handshake, p->env, p->conn, &p->token, p->setup->job.name,
                                 &frame, &error) != WF_OK) {
            wf_parent_complain(p, error.text);
            wf_parent_stop(p, true);
        }
        p->greeted = p->greeted || p->handshake.done;
        p->lost_ns = p->handshake.done ? 0 : p->lost_ns;
        wf_frame_fini(&frame);
        return;
    }
    switch (frame.type) {
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
    case WF_FRAME_presence:
        wf_parent_take_presence(p, &frame.presence);
        break;
    case WF_FRAME_leave:
        if (p->options->scope == WF_PARENT_OBSERVER && p->state == RUNNING &&
            p->settled >= p->report.versions_wanted) {
            finish(p); /* the last accounts come before the server's end */
        }
        if (p->state == STARTING || p->state == RUNNING) {
            wf_parent_complain(p, frame.leave.reason);
            wf_parent_stop(p, true);
        }
        break;
    case WF_FRAME_refused:
        wf_parent_complain(p, frame.refused.text);
        wf_parent_stop(p, true);
        break;
    default:
        break;
    }
    wf_frame_fini(&frame);
}
