/* fuzz_job.c - throws bytes at the job file's reader: a sentence, or values inside their bounds. */
#include <stdlib.h>
#include <string.h>

#include "config/job.h"
#include "fuzz.h"

static const char *const examples[] = {
    "job: j\nmodel: m\ntrain: {spec: \"megatron:tp=2\"}\ninfer: {spec: \"vllm:tp=2\"}\n",
    "job: j\nmodel: m\ntrain: {spec: a, publish: snapshot}\ninfer:\n  - {name: x, spec: b, ignore: "
    "[p, q]}\n  - {spec: c}\npolicy: {commit: each, every: 3, drop_to_latest: true}\n",
    "job: j\nmodel: m\ntrain: {spec: a}\ninfer: [{spec: b}]\ntimeouts: {round: 5s, lease: 3s, "
    "heartbeat: 100ms}\nserver: {listen: \"127.0.0.1:0\"}\nrun: {versions: 7, readers: false}\n",
    "job: &a j\nmodel: *a\ntrain: {spec: a}\ninfer: [{spec: b}]\ntransport: {prefer: "
    "shm, share_memory: false}\nreport: r.json\n",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_job_file *job = calloc(1, sizeof *job);
    struct wf_error error = {0};
    WF_ASSERT(job != NULL);
    enum wf_status status = wf_job_parse("folder/job.yaml", (const char *)data, size, job, &error);
    if (status != WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && error.status == status);
    } else {
        WF_ASSERT(job->name[0] != '\0' && job->train_spec[0] != '\0' && job->policy.every > 0);
        WF_ASSERT(job->infer_count > 0 && job->infer_count <= WF_GROUPS_MAX);
        WF_ASSERT(job->run.versions > 0 && job->timeouts.heartbeat_ns < job->timeouts.lease_ns);
        for (uint32_t i = 0; i < job->infer_count; i++) {
            WF_ASSERT(job->infer[i].spec[0] != '\0' && job->infer[i].ignore_count <= WF_IGNORE_MAX);
        }
    }
    free(job);
    return 0;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    return fuzz_text(examples, sizeof examples / sizeof examples[0], index, out, cap);
}

const char *fuzz_word(uint32_t index)
{
    static const char *const words[] = {
        "{",          "}",           "[",          "]",        ", ",         ": ",       "\n",
        "\n  ",       "- ",          "&a ",        "*a",       "!!str ",     "|\n",      "? ",
        "---\n",      "null",        "true",       "0",        "-1",         "1e9",      "0x10",
        "4294967297", "5s",          "64MiB",      "\"",       "\xff",       "name: ",   "spec: ",
        "mode: ",     "in_place",    "policy: ",   "faults: ", "timeouts: ", "server: ", "listen: ",
        "run: ",      "transport: ", "families: ",
    };
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
