/* cmd_run.c - `weft run`: a whole job on this host, or the part of it that a launcher, or the
 * command line, says. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/address.h"
#include "config/host_name.h"
#include "tools/commands.h"
#include "tools/run/far.h"
#include "tools/run/parent.h"
#include "tools/run/part.h"
#include "tools/run/process.h"
#include "tools/run/reach.h"

enum {
    OPT_SERVER = 256,
    OPT_LAUNCHER,
    OPT_SIDE,
    OPT_HOST_NAME,
    OPT_OBSERVE,
    OPT_TOKEN,
    OPT_READER,
    OPT_SOCKET,
    OPT_GATE,
    OPT_HOSTS,
    OPT_GATE_STDIN,
    OPT_RANKS_HERE,
    OPT_FAMILY
};

struct arguments {
    const char *path, *rank, *reader, *hosts;
    char
        *families[WF_FAMILY_FILES_MAX]; /* absolute paths: what this process starts gets them too */
    uint32_t family_count;
    bool gate_stdin;
    uint32_t ranks_here;
    char token_file[WF_PATH_MAX];
    char server[WF_ADDRESS_MAX];
    struct wf_run_wish wish;
    enum wf_job_part side;
    struct wf_parent_options parent;
    struct wf_process_options process;
};

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "write the report to FILE as JSON (- is standard output)", 0},
    {"timeline", 't', "FILE.svg", 0, "draw what each rank did when, as a picture", 0},
    {"quiet", 'q', 0, 0, "no progress and no table", 0},
    {"verbose", 'v', 0, 0, "what each rank says of an aborted version, beside the one line for all",
     0},
    {"rank", 'r', "SIDE:R", 0,
     "be only this rank (train:0, infer:3); needs --server or the job's server.address", 0},
    {"server", OPT_SERVER, "ADDRESS", 0, "the MetaServer that this rank joins", 0},
    {"launcher", OPT_LAUNCHER, "NAME", 0,
     "be the rank that this launcher's environment says: auto, torchrun, openmpi, pmix, pmi, slurm "
     "or k8s; none: the whole job in any case (default: the job's run.launcher, else whichever is "
     "there and fits)",
     0},
    {"side", OPT_SIDE, "SIDE", 0,
     "what that launcher starts: all (train ranks first), train or infer (default: the job's "
     "run.side, else all)",
     0},
    {"host-name", OPT_HOST_NAME, "NAME", 0,
     "this host's name in the job; equal names are one host (default: $WEFT_HOST_NAME, else made "
     "from the system's)",
     0},
    {"family", OPT_FAMILY, "FILE", 0,
     "a file that describes a model family (docs/add-a-model.md), beside the job's families; may "
     "be "
     "repeated",
     0},
    {"observe", OPT_OBSERVE, 0, 0, "start nothing: watch a job that runs and write its report", 0},
    {"hosts", OPT_HOSTS, "FILE", 0,
     "start the ranks on the hosts that FILE lists, through ssh (or $WEFT_RSH): NAME [slots=N] "
     "[side=train|infer] [address=A]; program, job file and model are at the same paths there",
     0},
    {"token-file", OPT_TOKEN, "FILE", 0, "the job's token, as all its processes have it", 0},
    {"reader", OPT_READER, "ENGINE", OPTION_HIDDEN, 0, 0},
    {"reader-socket", OPT_SOCKET, "ADDRESS", OPTION_HIDDEN, 0, 0},
    {"gate", OPT_GATE, 0, OPTION_HIDDEN, 0, 0},
    {"gate-stdin", OPT_GATE_STDIN, 0, OPTION_HIDDEN, 0, 0},
    {"ranks-here", OPT_RANKS_HERE, "N", OPTION_HIDDEN, 0, 0},
    {0},
};

static bool parse_number(const char *text, uint32_t *number_out)
{
    if (strspn(text, "0123456789") != strlen(text) || text[0] == '\0' || strlen(text) > 6 ||
        (text[0] == '0' && text[1] != '\0')) {
        return false;
    }
    *number_out = (uint32_t)strtoul(text, NULL, 10);
    return true;
}

/* Which part of the job this process is. */
static error_t parse_place(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    struct wf_error error;
    switch (key) {
    case OPT_LAUNCHER:
        if (!wf_launcher_parse(argument, &arguments->wish.launcher)) {
            argp_error(state, "--launcher: expected %s, found \"%s\"", wf_launcher_words(),
                       argument);
        }
        return 0;
    case OPT_SIDE:
        if (!wf_job_part_parse(argument, &arguments->side)) {
            argp_error(state, "--side: expected all, train or infer, found \"%s\"", argument);
        }
        arguments->wish.part = &arguments->side;
        return 0;
    case OPT_HOST_NAME:
        if (wf_host_name_check(argument, &error) != WF_OK) {
            argp_error(state, "--host-name: %s", error.text);
        }
        setenv("WEFT_HOST_NAME", argument, 1); /* what this process starts inherits it */
        return 0;
    case OPT_OBSERVE:
        arguments->wish.observe = true;
        return 0;
    case OPT_FAMILY:
        if (arguments->family_count == WF_FAMILY_FILES_MAX) {
            argp_error(state, "--family: at most %d files", WF_FAMILY_FILES_MAX);
        }
        arguments->families[arguments->family_count] = realpath(argument, NULL);
        if (arguments->families[arguments->family_count++] == NULL) {
            argp_failure(state, WF_EXIT_FAILED, errno,
                         "--family: %s: expected a family file (docs/add-a-model.md)", argument);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What weft run tells the processes that it starts. */
static error_t parse_hidden(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case OPT_READER:
        arguments->reader = argument;
        return 0;
    case OPT_SOCKET:
        arguments->process.reader_socket = argument;
        return 0;
    case OPT_GATE:
        arguments->process.gate = true;
        return 0;
    case OPT_GATE_STDIN:
        arguments->gate_stdin = arguments->process.gate = true;
        return 0;
    case OPT_RANKS_HERE:
        if (!parse_number(argument, &arguments->ranks_here)) {
            argp_error(state, "--ranks-here is for weft run itself");
        }
        return 0;
    default:
        return parse_place(key, argument, state);
    }
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'j':
        arguments->parent.json = argument;
        return 0;
    case 't':
        arguments->parent.timeline = argument;
        return 0;
    case 'q':
        arguments->parent.quiet = true;
        return 0;
    case 'v':
        arguments->parent.verbose = arguments->process.verbose = true;
        return 0;
    case 'r':
        arguments->rank = argument;
        return 0;
    case OPT_SERVER:
        arguments->process.server = argument;
        return 0;
    case OPT_TOKEN:
        arguments->parent.token_file = arguments->process.token_file = argument;
        return 0;
    case OPT_HOSTS:
        arguments->hosts = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) {
            argp_error(state, "one job file, please; \"%s\" is a second one", argument);
        }
        arguments->path = argument;
        return 0;
    case ARGP_KEY_END:
        if (arguments->hosts != NULL && (arguments->rank != NULL || arguments->wish.observe)) {
            argp_error(state, "--hosts starts all ranks: no --rank or --observe beside it");
        }
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which job? give a job file");
        return 0;
    default:
        return parse_hidden(key, argument, state);
    }
}

/* "train:3" or "infer:0", within the job's worlds. */
static bool take_rank(const struct wf_run_setup *setup, const char *text,
                      struct wf_process_options *process)
{
    bool train = strncmp(text, "train:", 6) == 0;
    process->side = train ? WF_TRAIN : WF_INFER;
    uint32_t world = train ? setup->train_ranks : setup->infer_ranks;
    if ((!train && strncmp(text, "infer:", 6) != 0) || !parse_number(text + 6, &process->rank)) {
        fprintf(stderr, "weft run: --rank: expected train:R or infer:R, found \"%s\"\n", text);
        return false;
    }
    if (process->rank >= world) {
        fprintf(stderr, "weft run: --rank %s: the job has %u %s ranks (0 to %u)\n", text, world,
                train ? "train" : "infer", world - 1);
        return false;
    }
    return true;
}

/* The server's address with its scheme into arguments->server; false after a sentence. */
static bool complete_server(struct arguments *arguments)
{
    struct wf_error error;
    if (arguments->process.server == NULL) {
        return true;
    }
    if (wf_address_complete(arguments->process.server, arguments->server, &error) != WF_OK) {
        fprintf(stderr, "weft run: --server: %s\n", error.text);
        return false;
    }
    arguments->process.server = arguments->wish.server = arguments->server;
    return true;
}

/* `here`: how many ranks share this host's cores; 0 if that is not known. */
static int run_rank(struct wf_run_setup *setup, struct wf_process_options *process, uint32_t here)
{
    process->job = &setup->job;
    uint32_t ranks = here > 0 ? here : setup->train_ranks + setup->infer_ranks;
    process->crowded = ranks > (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (process->side == WF_TRAIN) {
        return wf_train_process(setup, process);
    }
    return wf_run_keeps(setup, wf_run_place(setup, process->rank).group)
               ? wf_keeper_process(setup, process)
               : wf_infer_process(setup, process);
}

/* A process that --rank or --reader names. */
static int run_process(struct wf_run_setup *setup, struct arguments *arguments)
{
    struct wf_process_options *process = &arguments->process;
    if (arguments->reader != NULL) {
        if (!parse_number(arguments->reader, &process->rank) || process->rank >= setup->engines ||
            process->reader_socket == NULL) {
            fprintf(stderr, "weft run: --reader is for weft run itself\n");
            return WF_EXIT_USAGE;
        }
        process->crowded =
            setup->train_ranks + setup->infer_ranks > (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
        return wf_reader_process(setup, process);
    }
    if (!take_rank(setup, arguments->rank, process)) {
        return WF_EXIT_USAGE;
    }
    if (process->server == NULL && setup->job.server.address[0] != '\0') {
        process->server = setup->job.server.address;
    }
    if (process->server == NULL) {
        fprintf(stderr, "weft run: --rank needs --server ADDRESS or the job's server.address\n");
        return WF_EXIT_USAGE;
    }
    return run_rank(setup, process, arguments->ranks_here);
}

/* Started by weft run --hosts from another host. */
static int run_far_process(struct wf_run_setup *setup, struct arguments *arguments)
{
    struct wf_error error;
    enum wf_status status = wf_far_take_gate(arguments->token_file, &error);
    if (status == WF_OK) {
        arguments->process.token_file = arguments->token_file;
        status = wf_run_setup_make(setup, &error);
    }
    if (status != WF_OK) {
        fprintf(stderr, "weft run: %s\n", error.text);
        return WF_EXIT_FAILED;
    }
    return run_process(setup, arguments);
}

/* A job over the hosts of a list; this process supervises it. */
static int run_hosts(struct wf_run_setup *setup, struct arguments *arguments)
{
    struct wf_hosts hosts = {0};
    struct wf_error error;
    enum wf_status status = wf_hosts_load(arguments->hosts, &hosts, &error);
    if (status == WF_OK) {
        status = wf_hosts_place(&hosts, setup, &error);
    }
    if (status != WF_OK) {
        fprintf(stderr, "weft run: --hosts: %s\n", error.text);
        wf_hosts_fini(&hosts);
        return status == WF_IO ? WF_EXIT_FAILED : WF_EXIT_USAGE;
    }
    arguments->parent.hosts = &hosts;
    int exit_status = wf_parent_run(setup, &arguments->parent);
    wf_hosts_fini(&hosts);
    return exit_status;
}

static const char *look_up(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* The whole job, or what the launcher that started this process wants of it. */
static int run_part(struct wf_run_setup *setup, struct arguments *arguments)
{
    struct wf_parent_options *parent = &arguments->parent;
    struct wf_run_part part;
    struct wf_error error;
    char listen[WF_ADDRESS_MAX];
    arguments->wish.token_file = parent->token_file;
    enum wf_status status = wf_run_part_find(setup, &arguments->wish, look_up, NULL, &part, &error);
    if (status == WF_OK && part.kind == WF_RUN_LEADER) {
        status = wf_reach_own(part.listen, listen, &error);
        parent->listen = listen;
    }
    if (status != WF_OK) {
        fprintf(stderr, "weft run: %s\n", error.text);
        return status == WF_INVALID ? WF_EXIT_USAGE : WF_EXIT_FAILED;
    }
    if (part.kind != WF_RUN_JOB) {
        parent->server = part.server;
        parent->scope = part.kind == WF_RUN_LEADER ? WF_PARENT_LEADER : WF_PARENT_OBSERVER;
    }
    if (part.kind != WF_RUN_RANK) {
        return wf_parent_run(setup, parent);
    }
    if (wf_run_setup_make(setup, &error) != WF_OK) {
        fprintf(stderr, "weft run: %s\n", error.text);
        return WF_EXIT_FAILED;
    }
    arguments->process.side = part.side;
    arguments->process.rank = part.rank;
    arguments->process.server = part.server;
    return run_rank(setup, &arguments->process, part.local_world);
}

static void free_families(struct arguments *arguments)
{
    while (arguments->family_count > 0) {
        free(arguments->families[--arguments->family_count]);
    }
}

int wf_cmd_run(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse_option,
        "JOB.yaml",
        "Runs a job: moves the weights of every published version from its trainer ranks to its "
        "inference ranks, checks them and reports. docs/job-file.md describes job files.\v"
        "Exit status: 0 if every version was committed and every element is right; 2 if the "
        "command line, the job file or a SPEC is wrong; 1 for everything else.",
        0,
        0,
        0};
    struct arguments arguments = {.wish = {.launcher = WF_LAUNCHER_UNSAID}};
    struct wf_error error;
    bool usage = false;
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char *)"weft run";
    argp_parse(&argp, argc, argv, 0, 0, &arguments);
    if (!complete_server(&arguments)) {
        free_families(&arguments);
        return WF_EXIT_USAGE;
    }
    struct wf_run_setup *setup = calloc(1, sizeof *setup);
    WF_ASSERT(setup != NULL);
    memcpy(setup->given, arguments.families, sizeof setup->given);
    setup->given_count = arguments.family_count;
    if (wf_run_setup_load(arguments.path, setup, &usage, &error) != WF_OK) {
        fprintf(stderr, "weft run: %s\n", error.text);
        free_families(&arguments);
        free(setup);
        return usage ? WF_EXIT_USAGE : WF_EXIT_FAILED;
    }
    bool one = arguments.rank != NULL || arguments.reader != NULL;
    int exit_status = one && arguments.gate_stdin ? run_far_process(setup, &arguments)
                      : one                       ? run_process(setup, &arguments)
                      : arguments.hosts != NULL   ? run_hosts(setup, &arguments)
                                                  : run_part(setup, &arguments);
    wf_run_setup_fini(setup);
    free_families(&arguments);
    free(setup);
    return exit_status;
}
