/* cmd_server.c - `weft server`: the MetaServer of one job as a process. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/journal_file.h"
#include "actors/meta_server.h"
#include "config/address.h"
#include "runtime/log.h"
#include "tools/commands.h"
#include "tools/run/hold.h"
#include "tools/run/setup.h"
#include "tools/run/signals.h"
#include "tools/run/stderr_log.h"
#include "tools/run/token_file.h"
#include "tools/watch/http.h"

enum { OPT_DESCRIBE = 256, OPT_PARENT, OPT_RECOVER, OPT_TOKEN, OPT_FAMILY };

struct server {
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_meta_server *server;
    struct wf_journal_file *journal; /* NULL: nothing survives this process */
    struct wf_hold hold;
    struct wf_stderr_log log;
    struct wf_token token;
    struct wf_http *http;       /* NULL: none */
    struct wf_server_note note; /* by which weft status finds this server */
    struct wf_signals signals;
    int exit_status;
};

struct arguments {
    const char *path, *listen, *journal, *token_file, *families[WF_FAMILY_FILES_MAX];
    uint32_t family_count;
    bool describe, recover;
};

static const struct argp_option options[] = {
    {"listen", 'l', "ADDRESS", 0,
     "where ranks reach it: HOST:PORT (port 0 picks one), or unix:PATH; default: the job's "
     "server.listen, else an abstract unix address",
     0},
    {"token-file", OPT_TOKEN, "FILE", 0,
     "the job's token (mode 0600), of which every process of the job needs a copy; default: the "
     "job's server.token_file, else one that is made; its path is printed",
     0},
    {"journal", 'j', "DIR", 0,
     "a folder for the server's memory: a server that was killed goes on from it; default: the "
     "job's server.journal",
     0},
    {"family", OPT_FAMILY, "FILE", 0,
     "a file that describes a model family, beside the job's families; may be repeated", 0},
    {"recover", OPT_RECOVER, 0, 0,
     "the journal is lost: rebuild it from the ranks that still run (waits a lease, and for every "
     "train rank)",
     0},
    {"describe-frames", OPT_DESCRIBE, 0, 0, "print the tables of docs/protocol.md and exit", 0},
    {"ends-with-parent", OPT_PARENT, 0, OPTION_HIDDEN, 0, 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'l':
        arguments->listen = argument;
        return 0;
    case 'j':
        arguments->journal = argument;
        return 0;
    case OPT_RECOVER:
        arguments->recover = true;
        return 0;
    case OPT_DESCRIBE:
        arguments->describe = true;
        return 0;
    case OPT_TOKEN:
        arguments->token_file = argument;
        return 0;
    case OPT_FAMILY:
        if (arguments->family_count == WF_FAMILY_FILES_MAX) {
            argp_error(state, "--family: at most %d files", WF_FAMILY_FILES_MAX);
        }
        arguments->families[arguments->family_count++] = argument;
        return 0;
    case OPT_PARENT:
        return 0; /* children of weft run die with it (tools/run/children.c) */
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) {
            argp_error(state, "one job file, please; \"%s\" is a second one", argument);
        }
        arguments->path = argument;
        return 0;
    case ARGP_KEY_END:
        if (arguments->path == NULL && !arguments->describe) {
            argp_error(state, "which job? give a job file");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void asked_to_end(void *user)
{
    struct server *s = user;
    s->exit_status = WF_EXIT_FAILED;
    if (s->journal != NULL) { /* the job goes on with the next server on this journal */
        wf_meta_server_stop(s->server, "the server was asked to end; the ranks wait for the next "
                                       "one on its journal");
    } else {
        wf_meta_server_close(s->server, "the server was asked to end");
    }
}

static void job_ended(void *user, const struct wf_error *why)
{
    struct server *s = user;
    if (why->status != WF_CLOSED) {
        fprintf(stderr, "weft: server: %s\n", why->text);
        s->exit_status = WF_EXIT_FAILED;
    }
    wf_loop_stop(s->loop);
}

static enum wf_status address_of(const struct arguments *arguments, const struct wf_job_file *job,
                                 char out[WF_ADDRESS_MAX], struct wf_error *error)
{
    const char *text = arguments->listen != NULL       ? arguments->listen
                       : job->server.listen[0] != '\0' ? job->server.listen
                                                       : "unix:@weft-server-*";
    enum wf_status status = wf_address_complete(text, out, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "--listen");
    }
    return status;
}

static void fill_status(void *user, uint32_t ranks_max, struct wf_frame_status *status_out)
{
    struct server *s = user;
    wf_meta_server_status(s->server, ranks_max, status_out);
}

/* Without it `weft status` needs the address; nothing else does. */
static void leave_note(struct server *s, const char *job, const char *bound)
{
    struct wf_error error;
    snprintf(s->note.job, sizeof s->note.job, "%s", job);
    snprintf(s->note.address, sizeof s->note.address, "%s", bound);
    if (wf_server_note_write(&s->note, &error) != WF_OK) {
        wf_log(wf_loop_log(s->loop), WF_LOG_WARN,
               "weft status will not find this server by its job's name: %s", error.text);
    }
}

static enum wf_status append(void *user, const struct wf_journal_record *record,
                             struct wf_error *error)
{
    return wf_journal_file_append(((struct server *)user)->journal, record, error);
}

static enum wf_status open_journal(struct server *s, const struct wf_run_setup *setup,
                                   const struct arguments *arguments, struct wf_error *error)
{
    const char *folder = arguments->journal != NULL             ? arguments->journal
                         : setup->job.server.journal[0] != '\0' ? setup->job.server.journal
                                                                : NULL;
    if (folder != NULL) {
        return wf_journal_file_open(s->env, folder, setup->job.name, arguments->recover,
                                    &s->journal, error);
    }
    if (arguments->recover) {
        return wf_error_set(error, WF_INVALID,
                            "--recover rebuilds a journal: say where it is, by --journal or the "
                            "job's server.journal");
    }
    return WF_OK;
}

static enum wf_status start(struct server *s, const struct wf_run_setup *setup,
                            const struct arguments *arguments, struct wf_error *error)
{
    char listen[WF_ADDRESS_MAX], bound[WF_ADDRESS_MAX], token_file[WF_PATH_MAX];
    uint32_t *engine_of = calloc(setup->infer_ranks, sizeof *engine_of);
    WF_ASSERT(engine_of != NULL);
    for (uint32_t i = 0; i < setup->infer_ranks; i++) {
        engine_of[i] = wf_run_place(setup, i).engine;
    }
    struct wf_server_options server = {.job = setup->job.name,
                                       .token = &s->token,
                                       .listen = listen,
                                       .train_ranks = setup->train_ranks,
                                       .infer_ranks = setup->infer_ranks,
                                       .engines = setup->engines,
                                       .engine_of = engine_of,
                                       .policy = setup->job.policy.commit,
                                       .every = setup->job.policy.every,
                                       .drop_to_latest = setup->job.policy.drop_to_latest,
                                       .validate_every = setup->job.policy.validate_every,
                                       .fill = setup->job.policy.fill,
                                       .timeouts = setup->job.timeouts,
                                       .ended = job_ended,
                                       .user = s};
    enum wf_status status = address_of(arguments, &setup->job, listen, error);
    if (status == WF_OK) {
        status = wf_token_of_job(arguments->token_file, &setup->job, setup->job.name, s->env,
                                 token_file, &s->token, error);
    }
    if (status == WF_OK) {
        status = open_journal(s, setup, arguments, error);
    }
    if (s->journal != NULL) {
        server.journal = append;
        server.found = wf_journal_file_state(s->journal);
        server.recover = arguments->recover;
    }
    if (status == WF_OK) {
        s->http = wf_http_new(s->loop, &(struct wf_http_options){
                                           .token = s->token, .status = fill_status, .user = s});
        server.foreign = wf_http_actor(s->http);
        status = wf_meta_server_new(s->loop, &server, bound, &s->server, error);
    }
    free(engine_of);
    if (status == WF_OK) {
        printf("listening on %s\ntoken in %s\n", bound, token_file);
        fflush(stdout);
        leave_note(s, setup->job.name, bound);
    }
    return status;
}

static int serve(const struct wf_run_setup *setup, const struct arguments *arguments)
{
    struct server s = {0};
    struct wf_error error;
    struct wf_loop_options loop_options = {.poller = WF_POLLER_LIBEVENT, .spin_ns = 0};
    struct wf_env_real_options env_options = {.workers = 1};
    enum wf_status status = wf_loop_new(&loop_options, &s.loop, &error);
    if (status == WF_OK) {
        status = wf_env_real_new(s.loop, &env_options, &s.env, &error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(s.loop, s.env);
        wf_hold_init(&s.hold, s.env, "server");
        wf_stderr_log_init(&s.log, s.loop, "server");
        status = wf_signals_open(&s.signals, s.loop, asked_to_end, &s, &error);
    }
    if (status == WF_OK) {
        status = start(&s, setup, arguments, &error);
    }
    if (status == WF_OK) {
        wf_loop_run(s.loop);
    } else {
        fprintf(stderr, "weft server: %s\n", error.text);
        s.exit_status = status == WF_INVALID ? WF_EXIT_USAGE : WF_EXIT_FAILED;
    }
    if (s.server != NULL) {
        wf_meta_server_free(s.server);
    }
    wf_http_free(s.http);
    wf_server_note_remove(&s.note);
    wf_token_wipe(&s.token);
    wf_journal_file_close(s.journal);
    wf_signals_close(&s.signals);
    if (s.env != NULL) {
        wf_env_real_free(s.env);
        wf_stderr_log_fini(&s.log);
    }
    if (s.loop != NULL) {
        wf_loop_free(s.loop);
    }
    return s.exit_status;
}

int wf_cmd_server(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse_option,
        "JOB.yaml",
        "Runs the MetaServer of a job, which its ranks join (weft run --rank). Prints "
        "\"listening on ADDRESS\" when they may come.",
        0,
        0,
        0};
    struct arguments arguments = {0};
    struct wf_error error;
    bool usage = false;
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char *)"weft server";
    argp_parse(&argp, argc, argv, 0, 0, &arguments);
    if (arguments.describe) {
        wf_frame_describe(stdout);
        return WF_EXIT_OK;
    }
    struct wf_run_setup *setup = calloc(1, sizeof *setup);
    WF_ASSERT(setup != NULL);
    memcpy(setup->given, arguments.families, sizeof setup->given);
    setup->given_count = arguments.family_count;
    if (wf_run_setup_load(arguments.path, setup, &usage, &error) != WF_OK) {
        fprintf(stderr, "weft server: %s\n", error.text);
        free(setup);
        return usage ? WF_EXIT_USAGE : WF_EXIT_FAILED;
    }
    int exit_status = serve(setup, &arguments);
    wf_run_setup_fini(setup);
    free(setup);
    return exit_status;
}
