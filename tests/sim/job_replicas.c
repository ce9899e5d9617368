/* job_replicas.c - a rank whose copy of the last norm is not the others', and what must be said of
 * it: it is named, of the step it differs in, and a trainer's is served by nobody, nor written over
 * what an engine serves. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/job_internal.h"

static const char *const norms[] = {"decoder.final_layernorm.weight", "model.norm.weight"};

static bool is_altered_rank(const struct job_rank *host)
{
    const struct job_options *options = &host->job->options;
    if (options->altered == JOB_ALTERED_TRAIN) { /* of the last stage, which has the norm */
        return host->side == WF_TRAIN && host->index == JOB_TRAIN / 2 + options->seed % 2;
    }
    return options->altered == JOB_ALTERED_INFER && host->side == WF_INFER &&
           host->index == options->seed % JOB_INFER;
}

bool job_is_altered(const struct job_rank *host, uint64_t tensor)
{
    return host->side == WF_INFER && host->version.step == JOB_ALTERED_STEP &&
           is_altered_rank(host) &&
           strcmp(host->layout->tensors[tensor].name, norms[WF_INFER]) == 0;
}

void job_alter(struct job_rank *host, struct wf_version version)
{
    if (version.step != JOB_ALTERED_STEP || !is_altered_rank(host)) {
        return;
    }
    uint32_t norm = wf_layout_find(host->layout, norms[host->side], strlen(norms[host->side]));
    WF_ASSERT(norm != UINT32_MAX && host->layout->tensors[norm].dtype == WF_DTYPE_BF16);
    *(uint16_t *)host->tensors[norm].address = job_content(version, 0) ^ 1;
}

bool job_check_unwritten(struct job *job)
{
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS && job->options.altered == JOB_ALTERED_TRAIN; i++) {
        const struct job_rank *host = &job->ranks[i];
        if (!host->alive || host->rank == NULL || !(job->options.in_place >> host->engine & 1)) {
            continue;
        }
        const struct wf_meta_client *client = host->rank->client;
        if (client->state == WF_RANK_READ && client->round.version.step == JOB_ALTERED_STEP) {
            job_fail(job,
                     "step %u, in which trainers differ, is written over what infer rank %u "
                     "served",
                     (unsigned)JOB_ALTERED_STEP, host->index);
            return false;
        }
    }
    return true;
}

void job_check_replicas(struct job *job, const struct wf_frame_round_report *report)
{
    char text[WF_CULPRIT_TEXT], who[32] = "nobody";
    uint64_t step = report->round.version.step;
    job->result->compared += report->replicas_checked;
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        if (is_altered_rank(&job->ranks[i])) {
            snprintf(who, sizeof who, "%s rank %u ", wf_side_name(job->ranks[i].side),
                     job->ranks[i].index);
        }
    }
    if (job->options.altered == JOB_ALTERED_TRAIN && step == JOB_ALTERED_STEP &&
        report->state == WF_REPORT_COMMITTED) {
        job_fail(job, "step %llu is served, in which %sdiffers", (unsigned long long)step, who);
    }
    if (report->replicas_different == 0) {
        return;
    }
    job->result->different++;
    wf_culprit_format(&report->culprit, text);
    if (step != JOB_ALTERED_STEP || strstr(text, "holds other bytes") == NULL ||
        strstr(text, who) == NULL || report->replicas_different > 2) {
        job_fail(job, "of step %llu it is said: %s; %sdiffers", (unsigned long long)step, text,
                 who);
    }
}
