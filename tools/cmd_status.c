/* cmd_status.c - `weft status`: what a running job is doing, and who waits for whom. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/files/atomic.h"
#include "tools/run/token_file.h"
#include "tools/target.h"
#include "tools/watch/ask.h"
#include "tools/watch/print.h"
#include "tools/watch/status_json.h"

enum { OPT_TOKEN = 256, OPT_SECRET, OPT_TIMEOUT };
#define TIMEOUT_DEFAULT_NS UINT64_C(5000000000)

struct arguments {
    const char *target, *token_file, *json;
    bool waits, secret;
    uint64_t timeout_ns;
};

static const struct argp_option options[] = {
    {"waits", 'w', 0, 0, "only who waits for whom", 0},
    {"json", 'j', "FILE", 0, "write the status to FILE as JSON (- is standard output)", 0},
    {"token-file", OPT_TOKEN, "FILE", 0,
     "the job's token; default: the job's server.token_file, WEFT_TOKEN_FILE, or what the server "
     "made on this host",
     0},
    {"secret", OPT_SECRET, 0, 0,
     "print the secret by which other hosts may watch the job over HTTP, and ask nobody", 0},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0, "how long to wait for the answer (5)", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    char *end = NULL;
    double seconds;
    switch (key) {
    case 'w':
        arguments->waits = true;
        return 0;
    case 'j':
        arguments->json = argument;
        return 0;
    case OPT_TOKEN:
        arguments->token_file = argument;
        return 0;
    case OPT_SECRET:
        arguments->secret = true;
        return 0;
    case OPT_TIMEOUT:
        seconds = strtod(argument, &end);
        if (*end != '\0' || !(seconds > 0 && seconds <= 3600)) {
            argp_error(state,
                       "--timeout: expected more than 0 and up to 3600 seconds, found \"%s\"",
                       argument);
        }
        arguments->timeout_ns = (uint64_t)(seconds * 1e9);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) {
            argp_error(state, "one job, please; \"%s\" is a second one", argument);
        }
        arguments->target = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- telling ---------------------------------------------------------------------------------- */
static enum wf_status write_json(const char *path, const struct wf_frame_status *status,
                                 struct wf_error *error)
{
    size_t len = 0;
    char *text = wf_status_json(status, &len);
    enum wf_status result = WF_OK;
    text[len++] = '\n'; /* where its zero was */
    if (strcmp(path, "-") == 0) {
        bool written = fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
        if (!written && errno != EPIPE) {
            result =
                wf_error_set(error, WF_IO, "cannot write to standard output: %s", strerror(errno));
        }
    } else {
        result = wf_atomic_write_file(path, text, len, error);
    }
    free(text);
    return result;
}

static enum wf_status tell(const struct arguments *arguments, const struct wf_frame_status *status,
                           struct wf_error *error)
{
    enum wf_status result = WF_OK;
    if (arguments->json != NULL) {
        result = write_json(arguments->json, status, error);
    } else if (arguments->waits) {
        wf_status_print_waits(status, stdout);
    } else {
        wf_status_print(status, stdout);
    }
    if (result == WF_OK && fflush(stdout) != 0 && errno != EPIPE) {
        result = wf_error_set(error, WF_IO, "cannot write to standard output: %s", strerror(errno));
    }
    return result;
}

static void tell_secret(const struct wf_token *token)
{
    struct wf_token secret;
    char text[WF_TOKEN_TEXT];
    wf_token_derive(token, WF_TOKEN_FOR_WATCHING, &secret);
    wf_token_format(&secret, text);
    printf("%s\n", text);
    wf_token_wipe(&secret);
    explicit_bzero(text, sizeof text);
}

/* --- the whole -------------------------------------------------------------------------------- */
static enum wf_status ask(struct wf_loop *loop, const struct arguments *arguments,
                          struct wf_target *target, struct wf_error *error)
{
    char path[WF_PATH_MAX];
    struct wf_frame frame;
    enum wf_status status = wf_token_of_job(arguments->token_file, target->file, target->job, NULL,
                                            path, &target->token, error);
    bool without = status == WF_INVALID && !arguments->secret && arguments->token_file == NULL;
    if (status != WF_OK && !without) {
        return status;
    }
    struct wf_error no_token = *error; /* a server that is down is the better news */
    if (arguments->secret) {
        tell_secret(&target->token);
        return WF_OK;
    }
    status = wf_ask_status(loop, target->address, target->job, &target->token,
                           arguments->timeout_ns, &frame, error);
    if (status == WF_CONNECTION || status == WF_TIMED_OUT) {
        wf_error_prefix(error, "no server answers at %s (has the job ended?)", target->address);
    } else if (status == WF_REFUSED && without) {
        *error = no_token;
    } else if (status != WF_OK) {
        wf_error_prefix(error, "%s", target->address);
    } else {
        status = tell(arguments, &frame.status, error);
        wf_frame_fini(&frame);
    }
    return status;
}

static enum wf_status run(const struct arguments *arguments, struct wf_target *target,
                          struct wf_error *error)
{
    struct wf_loop *loop = NULL;
    struct wf_env *env = NULL;
    enum wf_status status =
        wf_loop_new(&(struct wf_loop_options){.poller = WF_POLLER_EPOLL}, &loop, error);
    if (status == WF_OK) {
        status = wf_env_real_new(loop, NULL, &env, error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(loop, env);
        status = ask(loop, arguments, target, error);
    }
    wf_env_real_free(env);
    if (loop != NULL) {
        wf_loop_free(loop);
    }
    return status;
}

int wf_cmd_status(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse_option,
        "[ADDRESS|JOB.yaml]",
        "Says what a running job is doing: its versions, ranks, leases and last rounds. Without an "
        "argument it is the job whose server started last on this host.\v"
        "Exit status: 0 if the server answered; 1 if it is not there or refuses; 2 if the command "
        "line or the job file is wrong.",
        0,
        0,
        0};
    struct arguments arguments = {.timeout_ns = TIMEOUT_DEFAULT_NS};
    struct wf_target target = {0};
    struct wf_error error = {0};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char *)"weft status";
    argp_parse(&argp, argc, argv, 0, 0, &arguments);
    enum wf_status status = wf_target_find(arguments.target, &target, &error);
    bool usage = status == WF_INVALID || status == WF_UNSUPPORTED;
    if (status == WF_OK) {
        status = run(&arguments, &target, &error);
    }
    if (status != WF_OK) {
        fprintf(stderr, "weft status: %s\n", error.text);
    }
    wf_target_fini(&target);
    return status == WF_OK ? WF_EXIT_OK : usage ? WF_EXIT_USAGE : WF_EXIT_FAILED;
}
