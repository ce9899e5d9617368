/* round.c - order and text of versions, round keys and culprits. */
#include "actors/round.h"

#include <inttypes.h>
#include <stdio.h>

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

int wf_version_compare(struct wf_version a, struct wf_version b)
{
    int order = compare_u64(a.term, b.term);
    if (order == 0) {
        order = compare_u64(a.counter, b.counter);
    }
    return order != 0 ? order : compare_u64(a.step, b.step);
}

bool wf_version_is_none(struct wf_version v)
{
    return v.term == 0 && v.counter == 0 && v.step == 0;
}

bool wf_round_key_equal(const struct wf_round_key *a, const struct wf_round_key *b)
{
    return a->models == b->models && wf_round_key_compare(a, b) == 0;
}

int wf_round_key_compare(const struct wf_round_key *a, const struct wf_round_key *b)
{
    int order = compare_u64(a->term, b->term);
    if (order == 0) {
        order = compare_u64(a->epoch, b->epoch);
    }
    if (order == 0) {
        order = wf_version_compare(a->version, b->version);
    }
    return order != 0 ? order : compare_u64(a->attempt, b->attempt);
}

void wf_version_format(struct wf_version v, char text_out[WF_VERSION_TEXT])
{
    if (wf_version_is_none(v)) {
        snprintf(text_out, WF_VERSION_TEXT, "none");
        return;
    }
    snprintf(text_out, WF_VERSION_TEXT, "%" PRIu64 ".%" PRIu64 ".%" PRIu64, v.term, v.counter,
             v.step);
}

void wf_source_format(uint64_t source, char text_out[WF_SOURCE_TEXT])
{
    if (source == 0 || source >= WF_SOURCE_STORE) {
        snprintf(text_out, WF_SOURCE_TEXT, "%s", source == 0 ? "train" : "folder");
    } else {
        snprintf(text_out, WF_SOURCE_TEXT, "engine %llu", (unsigned long long)source - 1);
    }
}

bool wf_culprit_is_none(const struct wf_culprit *culprit)
{
    return culprit->reason[0] == '\0';
}

void wf_culprit_format(const struct wf_culprit *culprit, char text_out[WF_CULPRIT_TEXT])
{
    text_out[0] = '\0';
    if (wf_culprit_is_none(culprit)) {
        return;
    }
    const char *host = culprit->host[0] != '\0' ? culprit->host : "unknown";
    if (culprit->side == WF_TRAIN) {
        snprintf(text_out, WF_CULPRIT_TEXT, "train rank %" PRIu64 " (host %s) %s", culprit->rank,
                 host, culprit->reason);
    } else if (culprit->side == WF_INFER) {
        snprintf(text_out, WF_CULPRIT_TEXT,
                 "infer rank %" PRIu64 " (host %s, engine %" PRIu64 ") %s", culprit->rank, host,
                 culprit->engine, culprit->reason);
    } else if (culprit->side == WF_CULPRIT_SERVER) {
        snprintf(text_out, WF_CULPRIT_TEXT, "the MetaServer %s", culprit->reason);
    } else {
        snprintf(text_out, WF_CULPRIT_TEXT, "%s", culprit->reason);
    }
}
