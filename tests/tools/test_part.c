/* test_part.c - which part of a job a process is, and where it looks for the server. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/config/variables.h"
#include "tools/run/part.h"

enum { TRAIN_RANKS = 3, INFER_RANKS = 5 };

#define MPI(rank, size, local)                                  \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size, \
        "OMPI_COMM_WORLD_LOCAL_SIZE=" local, "PMIX_NAMESPACE=77"
#define TORCHRUN(rank, size) "RANK=" rank, "WORLD_SIZE=" size, "MASTER_ADDR=node1"

static const enum wf_job_part all = WF_PART_ALL, train = WF_PART_TRAIN, infer = WF_PART_INFER;

/* clang-format off */
static const struct {
    const char *name;
    const enum wf_job_part *part;
    const char *set[VARIABLES_MAX];
    const char *listen, *address, *given; /* of the job file; --server */
    int kind; /* -1: refused */
    const char *who, *server; /* "train:0"; says, where refused */
} rows[] = {
    {"plain shell", NULL, {0}, NULL, NULL, NULL, WF_RUN_JOB, "", ""},
    {"leader on one host", NULL, {MPI("0", "8", "8")}, NULL, NULL, NULL, WF_RUN_LEADER, "train:0", "unix:@weft-server-"},
    {"last train rank", NULL, {MPI("2", "8", "8")}, NULL, NULL, NULL, WF_RUN_RANK, "train:2", "unix:@weft-server-"},
    {"first infer rank", NULL, {MPI("3", "8", "8")}, NULL, NULL, NULL, WF_RUN_RANK, "infer:0", "unix:@weft-server-"},
    {"two hosts and no address", NULL, {MPI("3", "8", "4")}, NULL, NULL, NULL, -1, "", "server.listen"},
    {"no job id", NULL, {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=8"}, NULL, NULL, NULL, -1, "", "server.listen"},
    {"one side on one host", &train, {MPI("1", "3", "3")}, NULL, NULL, NULL, -1, "", "server.listen"},
    {"listen with a host", NULL, {MPI("0", "8", "4")}, "tcp:node1:7000", NULL, NULL, WF_RUN_LEADER, "train:0", "tcp:node1:7000"},
    {"the same, elsewhere", NULL, {MPI("7", "8", "4")}, "tcp:node1:7000", NULL, NULL, WF_RUN_RANK, "infer:4", "tcp:node1:7000"},
    {"any host, the launcher says which", NULL, {TORCHRUN("7", "8")}, "tcp:*:7000", NULL, NULL, WF_RUN_RANK, "infer:4", "tcp:node1:7000"},
    {"any host in numbers", NULL, {TORCHRUN("0", "8")}, "tcp:0.0.0.0:7000", NULL, NULL, WF_RUN_LEADER, "train:0", "tcp:node1:7000"},
    {"an IPv6 master", NULL, {"RANK=1", "WORLD_SIZE=8", "MASTER_ADDR=fd00::1"}, "tcp:[::]:7000", NULL, NULL, WF_RUN_RANK, "train:1", "tcp:[fd00::1]:7000"},
    {"any host, the launcher does not say", NULL, {MPI("0", "8", "8")}, "tcp:*:7000", NULL, NULL, -1, "", "HOST:7000"},
    {"a port that only the server knows", NULL, {TORCHRUN("0", "8")}, "tcp:node1:0", NULL, NULL, -1, "", "tcp:node1:0"},
    {"a name that only the server knows", NULL, {TORCHRUN("0", "8")}, "unix:@x-*", NULL, NULL, -1, "", "unix:@x-*"},
    {"train side alone leads", &train, {TORCHRUN("0", "3")}, "tcp:*:7000", NULL, NULL, WF_RUN_LEADER, "train:0", "tcp:node1:7000"},
    {"infer side alone does not", &infer, {TORCHRUN("0", "5")}, "tcp:node9:7000", NULL, NULL, WF_RUN_RANK, "infer:0", "tcp:node9:7000"},
    {"nor does its master say where the server is", &infer, {TORCHRUN("0", "5")}, "tcp:*:7000", NULL, NULL, -1, "", "HOST:7000"},
    {"a server that runs already", NULL, {TORCHRUN("0", "8")}, NULL, "tcp:s:1", NULL, WF_RUN_RANK, "train:0", "tcp:s:1"},
    {"--server goes first", NULL, {TORCHRUN("0", "8")}, NULL, "tcp:s:1", "tcp:t:2", WF_RUN_RANK, "train:0", "tcp:t:2"},
    {"a trainer's RANK in an engine", &infer, {TORCHRUN("1", "3")}, NULL, "tcp:s:1", NULL, -1, "", "WORLD_SIZE=3"},
    {"--side all undoes the job file's", &all, {TORCHRUN("1", "8")}, NULL, "tcp:s:1", NULL, WF_RUN_RANK, "train:1", "tcp:s:1"},
};
/* clang-format on */

Test(part, who_and_where)
{
    struct wf_run_setup *setup = calloc(1, sizeof *setup);
    cr_assert(setup != NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_run_wish wish = {
            .launcher = WF_LAUNCHER_UNSAID, .part = rows[i].part, .server = rows[i].given};
        struct wf_run_part part;
        struct wf_error error = {0};
        char who[40] = "";
        *setup = (struct wf_run_setup){.train_ranks = TRAIN_RANKS, .infer_ranks = INFER_RANKS};
        setup->job.run.launcher = WF_LAUNCHER_UNSAID;
        setup->job.run.part = rows[i].part == &all ? WF_PART_INFER : WF_PART_ALL;
        strcpy(setup->job.name, "j");
        strcpy(setup->job.server.token_file, "/token");
        strcpy(setup->job.server.listen, rows[i].listen != NULL ? rows[i].listen : "");
        strcpy(setup->job.server.address, rows[i].address != NULL ? rows[i].address : "");
        enum wf_status status =
            wf_run_part_find(setup, &wish, look_up, (void *)(uintptr_t)rows[i].set, &part, &error);
        cr_expect_eq(status, rows[i].kind < 0 ? WF_INVALID : WF_OK, "%s: %s", rows[i].name,
                     error.text);
        if (status != WF_OK) {
            cr_expect(strstr(error.text, rows[i].server) != NULL, "%s: %s", rows[i].name,
                      error.text);
            continue;
        }
        cr_expect_eq((int)part.kind, rows[i].kind, "%s", rows[i].name);
        if (part.kind != WF_RUN_JOB) {
            snprintf(who, sizeof who, "%s:%u", wf_side_name(part.side), part.rank);
        }
        cr_expect_str_eq(who, rows[i].who, "%s", rows[i].name);
        cr_expect_eq(strncmp(part.server, rows[i].server, strlen(rows[i].server)), 0, "%s: %s",
                     rows[i].name, part.server);
        cr_expect_eq(part.listen[0] != '\0', part.kind == WF_RUN_LEADER, "%s", rows[i].name);
    }
    free(setup);
}

/* clang-format off */
static const struct {
    const char *name, *set[VARIABLES_MAX], *argument, *job_file;
    bool good;
} token_rows[] = {
    {"one host", {MPI("3", "8", "8")}, NULL, "", true},
    {"several", {MPI("3", "8", "4")}, NULL, "", false},
    {"several, by the command line", {MPI("3", "8", "4")}, "/t", "", true},
    {"several, by the job file", {MPI("3", "8", "4")}, NULL, "/t", true},
    {"several, by the environment", {MPI("3", "8", "4"), "WEFT_TOKEN_FILE=/t"}, NULL, "", true},
    {"several, an empty variable", {MPI("3", "8", "4"), "WEFT_TOKEN_FILE="}, NULL, "", false},
    {"hosts that nobody counts", {TORCHRUN("1", "8")}, NULL, "", true},
    {"one node", {"SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_NNODES=1"}, NULL, "", true},
    {"two nodes", {"SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_NNODES=2"}, NULL, "", false},
    {"two nodes under PMIx", {"SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_NNODES=2", "PMIX_RANK=1", "PMIX_NAMESPACE=7"}, NULL, "", false},
    {"pods", {"JOB_COMPLETION_INDEX=1", "WEFT_WORLD_SIZE=8"}, NULL, "", false},
};
/* clang-format on */

Test(part, several_hosts_need_one_token)
{
    struct wf_run_setup *setup = calloc(1, sizeof *setup);
    cr_assert(setup != NULL);
    for (size_t i = 0; i < sizeof token_rows / sizeof token_rows[0]; i++) {
        struct wf_run_wish wish = {.launcher = WF_LAUNCHER_AUTO,
                                   .server = "tcp:s:1",
                                   .token_file = token_rows[i].argument};
        struct wf_run_part part;
        struct wf_error error = {0};
        *setup = (struct wf_run_setup){.train_ranks = TRAIN_RANKS, .infer_ranks = INFER_RANKS};
        setup->job.run.part = WF_PART_ALL;
        strcpy(setup->job.server.token_file, token_rows[i].job_file);
        enum wf_status status = wf_run_part_find(
            setup, &wish, look_up, (void *)(uintptr_t)token_rows[i].set, &part, &error);
        cr_expect_eq(status, token_rows[i].good ? WF_OK : WF_INVALID, "%s: %s", token_rows[i].name,
                     error.text);
        cr_expect(token_rows[i].good || strstr(error.text, "WEFT_TOKEN_FILE") != NULL, "%s: %s",
                  token_rows[i].name, error.text);
    }
    free(setup);
}

Test(part, two_starts_on_one_host_do_not_meet)
{
    struct wf_run_setup *setup = calloc(1, sizeof *setup);
    cr_assert(setup != NULL);
    *setup = (struct wf_run_setup){.train_ranks = 1, .infer_ranks = 1};
    setup->job.run.launcher = WF_LAUNCHER_UNSAID;
    strcpy(setup->job.name, "j");
    static const char *const starts[3][VARIABLES_MAX] = {
        {MPI("0", "2", "2")},
        {MPI("1", "2", "2")},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "PMIX_NAMESPACE=78"}};
    struct wf_run_wish wish = {.launcher = WF_LAUNCHER_UNSAID};
    struct wf_run_part parts[3];
    struct wf_error error = {0};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(wf_run_part_find(setup, &wish, look_up, (void *)(uintptr_t)starts[i],
                                      &parts[i], &error),
                     WF_OK, "%s", error.text);
    }
    cr_expect_str_eq(parts[0].server, parts[1].server, "ranks of one start meet");
    cr_expect_str_neq(parts[0].server, parts[2].server, "those of two do not");
    wish =
        (struct wf_run_wish){.launcher = WF_LAUNCHER_UNSAID, .observe = true, .server = "tcp:s:1"};
    cr_expect_eq(
        wf_run_part_find(setup, &wish, look_up, (void *)(uintptr_t)starts[0], &parts[0], &error),
        WF_OK);
    cr_expect_eq(parts[0].kind, WF_RUN_OBSERVER, "an observer is no rank");
    cr_expect_str_eq(parts[0].server, "tcp:s:1");
    static const char *const unsaid[] = {"tcp:*:7000", "tcp:localhost:0", "unix:*"};
    for (size_t i = 0; i < sizeof unsaid / sizeof unsaid[0]; i++) {
        wish.server = NULL;
        snprintf(setup->job.server.listen, sizeof setup->job.server.listen, "%s", unsaid[i]);
        enum wf_status status = wf_run_part_find(setup, &wish, look_up,
                                                 (void *)(uintptr_t)starts[0], &parts[0], &error);
        cr_expect_eq(status, WF_INVALID, "%s", unsaid[i]);
        cr_expect_not_null(strstr(error.text, "--observe needs --server"), "%s", error.text);
        cr_expect_not_null(strstr(error.text, unsaid[i]), "%s", error.text);
    }
    free(setup);
}
