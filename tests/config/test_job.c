/* test_job.c - job files: what is taken, and the sentence for each thing that is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/job.h"

#define HEAD "job: j\nmodel: m\ntrain: {spec: \"megatron:tp=2\"}\n"
#define INFER "infer: {spec: \"vllm:tp=2\"}\n"

static enum wf_status load(const char *text, size_t len, struct wf_job_file *job,
                           struct wf_error *error)
{
    char path[] = "/tmp/weft-test-job-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, len), (ssize_t)len);
    close(fd);
    enum wf_status status = wf_job_load(path, job, error);
    unlink(path);
    return status;
}

static const struct {
    const char *name, *text, *says;
} refused[] = {
    {"empty", "", "the file is empty"},
    {"a list", "- 1\n", "expected a mapping"},
    {"syntax", "job: [\n", "not valid YAML"},
    {"two documents", HEAD INFER "---\njob: k\n", "several documents"},
    {"unknown key", HEAD INFER "polcy: {every: 2}\n",
     "line 5: unknown key \"polcy\", did you mean \"policy\"?"},
    {"unknown inner key", HEAD INFER "policy:\n  evry: 2\n",
     "unknown key \"policy.evry\", did you mean \"every\"?"},
    {"key twice", HEAD INFER "job: k\n", "job is given a second time (first on line 1)"},
    {"inner key twice", HEAD INFER "run: {versions: 1, versions: 2}\n",
     "run.versions is given a second time"},
    {"missing", "job: j\nmodel: m\n" INFER, "train is missing"},
    {"missing spec", "job: j\nmodel: m\ntrain: {publish: hold}\n" INFER, "train.spec is missing"},
    {"no infer", HEAD "infer: []\n", "expected 1 to 64 entries, found 0"},
    {"hexadecimal", HEAD INFER "run: {versions: 0x10}\n",
     "run.versions: expected a whole number in decimal digits, found \"0x10\""},
    {"negative", HEAD INFER "run: {versions: -1}\n", "expected a whole number"},
    {"leading zero", HEAD INFER "run: {versions: 010}\n", "expected a whole number"},
    {"too long a number", HEAD INFER "run: {versions: 99999999999999999999}\n",
     "expected a whole number"},
    {"a mapping for a number", HEAD INFER "run: {versions: {a: 1}}\n",
     "expected one value, found a mapping"},
    {"yes is no boolean", HEAD INFER "run: {readers: yes}\n",
     "expected true or false, found \"yes\""},
    {"unknown word", HEAD INFER "policy: {commit: some}\n", "one of all, each"},
    {"families as a text", HEAD INFER "families: a.yaml\n", "families: expected a list"},
    {"duration", HEAD INFER "timeouts: {round: 5}\n",
     "timeouts.round: expected a duration such as"},
    {"zero duration", HEAD INFER "timeouts: {round: 0s}\n", "timeouts.round"},
    {"lease under heartbeat", HEAD INFER "timeouts: {lease: 1s, heartbeat: 2s}\n",
     "must be shorter"},
    {"timeout of no time", HEAD INFER "timeouts: {repeat: 1us}\n", "from 1ms to 1000h"},
    {"timeout for ever", HEAD INFER "timeouts: {round: 5124095h}\n", "from 1ms to 1000h"},
    {"transport", HEAD INFER "transport: {prefer: nccl}\n", "transport.prefer: expected auto, or"},
    {"transport twice", HEAD INFER "transport: {prefer: \"shm,shm\"}\n", "each once"},
    {"auto in a list", HEAD INFER "transport: {prefer: \"shm,auto\"}\n", "transport.prefer"},
    {"a comma too many", HEAD INFER "transport: {prefer: \"shm,\"}\n", "ends in a comma"},
    {"no budget", HEAD INFER "transport: {transit_budget: 1000}\n",
     "transport.transit_budget: expected bytes such as"},
    {"a tiny budget", HEAD INFER "transport: {transit_budget: 4KiB}\n", "from 1MiB to 1TiB"},
    {"no lanes", HEAD INFER "transport: {lanes: 0}\n",
     "transport.lanes: expected 1 to 8 connections to each source, found 0"},
    {"too many lanes", HEAD INFER "transport: {lanes: 9}\n", "found 9"},
    {"lanes that are no number", HEAD INFER "transport: {lanes: two}\n", "transport.lanes"},
    {"ucx is no mapping", HEAD INFER "transport: {ucx: tcp}\n",
     "line 5: transport.ucx: expected a mapping"},
    {"a name that UCX cannot have", HEAD INFER "transport: {ucx: {tls: tcp}}\n", "capital letters"},
    {"a prefix without a name", HEAD INFER "transport: {ucx: {UCX_: x}}\n", "capital letters"},
    {"an option of ucx twice", HEAD INFER "transport: {ucx: {TLS: tcp, TLS: self}}\n",
     "transport.ucx: an option is given a second time"},
    {"an option of ucx with a list", HEAD INFER "transport: {ucx: {TLS: [tcp]}}\n", "one text"},
    {"a fault of no kind", HEAD INFER "faults: [{at: 1}]\n", "faults[0].kind is missing"},
    {"a fault of another kind", HEAD INFER "faults: [{kind: fire, at: 1}]\n", "one of flip_wire"},
    {"a fault that never comes", HEAD INFER "faults: [{kind: drop}]\n", "give at"},
    {"a fault at no read", HEAD INFER "faults: [{kind: drop, at: 0}]\n", "faults[0].at"},
    {"a fault too often", HEAD INFER "faults: [{kind: drop, rate: 1000001}]\n", "faults[0].rate"},
    {"a delay of no time", HEAD INFER "faults: [{kind: delay, at: 1}]\n", "faults[0].delay"},
    {"a delay of something else", HEAD INFER "faults: [{kind: drop, at: 1, delay: 1s}]\n",
     "faults[0].delay"},
    {"a fault of another transport", HEAD INFER "faults: [{kind: drop, at: 1, transport: x}]\n",
     "expected shm or ucx"},
    {"a host with a blank", HEAD "infer: {spec: x, host: \"a b\"}\n", "infer[0].host"},
    {"every 0", HEAD INFER "policy: {every: 0}\n", "policy.every: expected 1 or more"},
    {"versions 0", HEAD INFER "run: {versions: 0}\n", "run.versions: expected 1 or more"},
    {"files without a folder", HEAD INFER "files: {keep: 2}\n", "files.folder is missing"},
    {"keep none", HEAD INFER "files: {folder: f, keep: 0}\n", "files.keep: expected 1 to 1000"},
    {"write none", HEAD INFER "files: {folder: f, every: 0}\n", "files.every: expected 1 or more"},
    {"a source of fills that is none", HEAD INFER "policy: {fill: disk}\n",
     "policy.fill: expected"},
    {"a source twice", HEAD INFER "policy: {fill: \"train,train\"}\n", "each once"},
    {"a comma for no source", HEAD INFER "policy: {fill: \"train,\"}\n", "policy.fill: expected"},
    {"a folder of nothing", HEAD INFER "policy: {fill: folder}\n", "folder needs files.folder"},
    {"drop needs snapshot", HEAD INFER "policy: {drop_to_latest: true}\n",
     "needs train.publish: snapshot"},
    {"same group name", HEAD "infer: [{name: a, spec: x}, {name: a, spec: y}]\n", "\"a\" is taken"},
    {"staging in place", HEAD "infer: {spec: x, mode: in_place, staging: host}\n",
     "updated in place has none"},
    {"staging", HEAD "infer: {spec: x, staging: device}\n", "not supported yet"},
    {"a table is needed", HEAD "infer: {spec: x, placements: [{after: 1}]}\n", "placements"},
    {"tables out of order",
     HEAD "infer: {spec: x, placements: [{table: a, after: 2}, {table: b, after: 2}]}\n",
     "infer[0].placements[1].after: expected more than 2, found 2"},
    {"address", HEAD INFER "server: {address: \"node3\"}\n", "server.address: expected tcp:HOST"},
    {"listen and address", HEAD INFER "server: {listen: \"a:1\", address: \"b:1\"}\n", "not both"},
    {"alias", "job: &a j\nmodel: *a\ntrain: {spec: x}\n" INFER, "aliases"},
    {"job name", "job: \"a b<c\"\nmodel: m\ntrain: {spec: x}\n" INFER, "letters, digits"},
    {"anchored bomb", "a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*b]\n", "unknown key \"a\""},
};

Test(job, refusals_name_line_key_and_remedy)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct wf_job_file *job = malloc(sizeof *job);
        struct wf_error error = {0};
        enum wf_status status = load(refused[i].text, strlen(refused[i].text), job, &error);
        cr_assert_neq(status, WF_OK, "%s was taken", refused[i].name);
        cr_assert_not_null(strstr(error.text, refused[i].says), "%s: \"%s\" does not say \"%s\"",
                           refused[i].name, error.text, refused[i].says);
        free(job);
    }
}

Test(job, a_nul_in_a_string_is_refused)
{
    static const char text[] = "job: \"a\\0b\"\nmodel: m\ntrain: {spec: x}\ninfer: {spec: y}\n";
    struct wf_job_file *job = malloc(sizeof *job);
    struct wf_error error;
    cr_assert_neq(load(text, sizeof text - 1, job, &error), WF_OK);
    cr_assert_not_null(strstr(error.text, "NUL"), "%s", error.text);
    free(job);
}

Test(job, defaults)
{
    struct wf_job_file *job = malloc(sizeof *job);
    struct wf_error error = {0};
    static const char text[] = HEAD INFER;
    cr_assert_eq(load(text, sizeof text - 1, job, &error), WF_OK, "%s", error.text);
    cr_assert_str_eq(job->name, "j");
    cr_assert_str_eq(job->model, "/tmp/m");
    cr_assert_str_eq(job->train_spec, "megatron:tp=2");
    cr_assert_eq(job->publish, WF_PUBLISH_HOLD);
    cr_assert_eq(job->infer_count, 1);
    cr_assert_str_eq(job->infer[0].name, "infer0");
    cr_assert_eq(job->policy.commit, WF_COMMIT_ALL);
    cr_assert_eq(job->policy.every, 1);
    cr_assert_eq(job->policy.validate_every, 1);
    cr_assert_eq(job->policy.fill, WF_FILL_ANY);
    cr_assert(job->transport.share_memory);
    cr_assert_eq(job->run.versions, 5);
    cr_assert(job->run.readers);
    cr_assert_not(job->run.skip_pause);
    cr_assert_not(job->run.skip_derived);
    cr_assert_not(job->run.packed_head);
    cr_assert_eq(job->timeouts.round_ns, wf_timeouts_default.round_ns);
    free(job);
}

static void check_faults(const struct wf_job_file *job)
{
    cr_assert_eq(job->fault_count, 2);
    cr_assert_eq(job->faults[0].fault.kind, WF_FAULT_FLIP_WIRE);
    cr_assert_eq(job->faults[0].fault.at, 2);
    cr_assert_eq(job->faults[0].rank_count, 2);
    cr_assert_eq(job->faults[0].ranks[1], 3);
    cr_assert_str_eq(job->faults[0].transport, "ucx");
    cr_assert_eq(job->faults[0].seed, 9);
    cr_assert_eq(job->faults[1].fault.per_million, 20);
    cr_assert_eq(job->faults[1].fault.delay_ns, 5000000);
    cr_assert_eq(job->faults[1].rank_count, 0);
}

Test(job, everything_given)
{
    static const char text[] =
        "job: all-1.2_x\nmodel: /abs\nreport: out/r.json\n"
        "train: {spec: \"megatron:tp=1\", publish: snapshot}\n"
        "infer:\n  - {name: a, spec: \"vllm:tp=1\", mode: staged, staging: host, ignore: [x, y], "
        "placements: [{table: t.json}, {table: /u.json, after: 3}]}\n"
        "  - {spec: \"vllm:tp=2\", mode: in_place}\n"
        "policy: {commit: each, every: 3, drop_to_latest: true, validate_every: 0, fill: false, "
        "extras: refuse}\n"
        "transport: {prefer: \"ucx, shm\", share_memory: false, transit_budget: 16MiB, lanes: 4, "
        "ucx: {TLS: \"tcp,self\", UCX_RNDV_THRESH: 8k}}\n"
        "faults: [{kind: flip_wire, at: 2, ranks: [0, 3], transport: ucx, seed: 9}, "
        "{kind: delay, rate: 20, delay: 5ms}]\n"
        "timeouts: {connect: 1s, lease: 9s, heartbeat: 500ms, join: 2m, plan: 1s, round: 7s, "
        "quiesce: 1s, flip: 1s, repeat: 200ms}\n"
        "files: {folder: v, keep: 7, every: 4}\n"
        "server: {listen: \"127.0.0.1:0\"}\nrun: {versions: 12, readers: false, skip_pause: "
        "true, skip_derived: true, packed_head: true}\n";
    struct wf_job_file *job = malloc(sizeof *job);
    struct wf_error error = {0};
    cr_assert_eq(load(text, sizeof text - 1, job, &error), WF_OK, "%s", error.text);
    cr_assert_str_eq(job->model, "/abs");
    cr_assert_str_eq(job->report, "/tmp/out/r.json");
    cr_assert_eq(job->publish, WF_PUBLISH_SNAPSHOT);
    cr_assert_eq(job->infer_count, 2);
    cr_assert_eq(job->infer[0].ignore_count, 2);
    cr_assert_str_eq(job->infer[0].ignore[1], "y");
    cr_assert_str_eq(job->infer[1].name, "infer1");
    cr_assert_eq(job->infer[0].placement_count, 2);
    cr_assert_not_null(strstr(job->infer[0].placements[0].table, "/t.json"));
    cr_assert_eq(job->infer[0].placements[0].after, 0);
    cr_assert_str_eq(job->infer[0].placements[1].table, "/u.json");
    cr_assert_eq(job->infer[0].placements[1].after, 3);
    cr_assert_eq(job->infer[0].mode, WF_MODE_STAGED);
    cr_assert_eq(job->infer[1].mode, WF_MODE_IN_PLACE);
    cr_assert_eq(job->policy.commit, WF_COMMIT_EACH);
    cr_assert_eq(job->policy.every, 3);
    cr_assert(job->policy.drop_to_latest);
    cr_assert_eq(job->policy.validate_every, 0);
    cr_assert_eq(job->policy.fill, 0);
    cr_assert(job->policy.extras_refuse);
    cr_assert_str_eq(job->files.folder, "/tmp/v");
    cr_assert_eq(job->files.keep, 7);
    cr_assert_eq(job->files.every, 4);
    cr_assert_not(job->transport.share_memory);
    cr_assert_eq(job->transport.prefer_count, 2);
    cr_assert_str_eq(job->transport.prefer[0], "ucx");
    cr_assert_str_eq(job->transport.prefer[1], "shm");
    cr_assert(job->transport.transit_bytes == 16 << 20 && job->transport.lanes == 4);
    cr_assert_eq(job->transport.ucx_count, 2);
    cr_assert_str_eq(job->transport.ucx[0].value, "tcp,self");
    cr_assert_str_eq(job->transport.ucx[1].name, "UCX_RNDV_THRESH");
    check_faults(job);
    cr_assert_eq(job->timeouts.round_ns, 7000000000);
    cr_assert_eq(job->timeouts.repeat_ns, 200000000);
    cr_assert_str_eq(job->server.listen, "tcp:127.0.0.1:0");
    cr_assert_eq(job->run.versions, 12);
    cr_assert_not(job->run.readers);
    cr_assert(job->run.skip_pause);
    cr_assert(job->run.skip_derived);
    cr_assert(job->run.packed_head);
    free(job);
}

static const struct {
    const char *text;
    uint32_t fill;
} fills[] = {
    {HEAD INFER, WF_FILL_ANY},
    {HEAD INFER "policy: {fill: true}\n", WF_FILL_ANY},
    {HEAD INFER "policy: {fill: \"engine\"}\n", WF_FILL_REPLICA},
    {HEAD INFER "files: {folder: f}\n", WF_FILL_ANY | WF_FILL_STORE},
    {HEAD INFER "files: {folder: f}\npolicy: {fill: folder}\n", WF_FILL_STORE},
    {HEAD INFER "files: {folder: f}\npolicy: {fill: \"folder , train\"}\n",
     WF_FILL_TRAINER | WF_FILL_STORE},
    {HEAD INFER "files: {folder: f}\npolicy: {fill: false}\n", 0},
};

Test(job, sources_of_fills)
{
    for (size_t i = 0; i < sizeof fills / sizeof fills[0]; i++) {
        struct wf_job_file *job = malloc(sizeof *job);
        struct wf_error error = {0};
        cr_assert_eq(load(fills[i].text, strlen(fills[i].text), job, &error), WF_OK, "%zu: %s", i,
                     error.text);
        cr_expect_eq(job->policy.fill, fills[i].fill, "%zu: %u", i, job->policy.fill);
        free(job);
    }
}

Test(job, a_file_that_is_not_there)
{
    struct wf_job_file *job = malloc(sizeof *job);
    struct wf_error error;
    cr_assert_eq(wf_job_load("/nonexistent/job.yaml", job, &error), WF_IO);
    cr_assert_not_null(strstr(error.text, "/nonexistent/job.yaml"));
    free(job);
}

Test(job, the_examples_are_right)
{
    static const char *const paths[] = {
        "config/examples/quickstart.yaml", "config/examples/smollm2.yaml",
        "config/examples/tcp.yaml",        "config/examples/files.yaml",
        "config/examples/in_place.yaml",   "config/examples/mixed.yaml"};
    struct wf_job_file *job = malloc(sizeof *job);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct wf_error error = {.text = ""};
        cr_assert_eq(wf_job_load(paths[i], job, &error), WF_OK, "%s", error.text);
    }
    cr_assert_str_eq(job->infer[1].host, "elsewhere");
    free(job);
}
