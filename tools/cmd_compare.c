/* cmd_compare.c - `weft compare`: two sets of files, or files and a running job, tensor by tensor
 * in canonical names. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/family_file.h"
#include "tools/commands.h"
#include "tools/compare/report.h"
#include "tools/family_option.h"
#include "tools/files/atomic.h"
#include "tools/live_option.h"

enum {
    OPTION_LAYERS = 0x100,
    OPTION_TOLERANCE,
    OPTION_LIVE,
    OPTION_TOKEN,
    OPTION_MODEL,
    OPTION_TIMEOUT
};
#define TIMEOUT_DEFAULT_NS UINT64_C(10000000000)

struct arguments {
    const char *sides[WF_SIDES], *json;
    struct wf_compare_options compare;
    struct wf_family_files families;
    struct wf_live_request live; /* `where` NULL: two sides of files */
    unsigned percent;            /* shown */
};

static const struct argp_option options[] = {
    {"max-layers", OPTION_LAYERS, "N", 0,
     "compare layers 0 to N-1 of each stack, and what is outside of layers", 0},
    {"tolerance", OPTION_TOLERANCE, "DTYPE=X", 0,
     "values compared as DTYPE are equal if |a - b| <= X (default 0; of f8_e4m3 codes beside plain "
     "values: half a step of the code); may be repeated",
     0},
    {"against-live", OPTION_LIVE, "WHERE", 0,
     "B is what ranks of a running job hold now: WHERE is the server's ADDRESS, or JOB.yaml, then "
     "/engine:N (default: engine 0), /infer:R (one rank) or /train; numbers are from 0",
     0},
    {"token-file", OPTION_TOKEN, "FILE", 0,
     "with --against-live: the job's token (default as weft status)", 0},
    {"model", OPTION_MODEL, "CONFIG", 0,
     "with --against-live: the job's config.json (default: the job file's, else A's)", 0},
    {"timeout", OPTION_TIMEOUT, "SECONDS", 0,
     "with --against-live: for each answer, and for ranks to hold one version (10)", 0},
    {"family", 'f', "FILE", 0,
     "a file that describes a model family (docs/add-a-model.md), beside the built-in ones; may be "
     "repeated",
     0},
    {"json", 'j', "FILE", 0, "write the report to FILE as JSON (- is standard output)", 0},
    {0},
};

static void parse_tolerance(struct argp_state *state, struct wf_compare_options *compare,
                            const char *argument)
{
    const char *equals = strchr(argument, '=');
    enum wf_dtype dtype =
        equals != NULL ? wf_dtype_from_name(argument, (size_t)(equals - argument)) : WF_DTYPE_NONE;
    char *end = NULL;
    double value = equals != NULL ? strtod(equals + 1, &end) : -1;
    if (dtype == WF_DTYPE_NONE || end == equals + 1 || *end != '\0' || !isfinite(value) ||
        value < 0) {
        argp_error(state,
                   "--tolerance: expected DTYPE=X, a type that weights have (f32, f16, bf16, "
                   "f8_e4m3) and a number of 0 or more, for example bf16=0.01; found \"%s\"",
                   argument);
    }
    if (compare->tolerance_given[dtype]) {
        argp_error(state, "--tolerance of %s is given twice", wf_dtype_name(dtype));
    }
    compare->tolerance[dtype] = value;
    compare->tolerance_given[dtype] = true;
}

static uint64_t parse_timeout(struct argp_state *state, const char *argument)
{
    char *end = NULL;
    double seconds = strtod(argument, &end);
    if (*end != '\0' || !(seconds > 0 && seconds <= 3600)) {
        argp_error(state, "--timeout: expected more than 0 and up to 3600 seconds, found \"%s\"",
                   argument);
    }
    return (uint64_t)(seconds * 1e9);
}

static void check_sides(struct argp_state *state, const struct arguments *arguments)
{
    const struct wf_live_request *live = &arguments->live;
    if (live->where == NULL && state->arg_num < WF_SIDES) {
        argp_error(state, "which two folders? A and B are Hugging Face folders or dumps");
    }
    if (live->where != NULL && state->arg_num != 1) {
        argp_error(state, "with --against-live there is one folder, A; B is the running job");
    }
    if (live->where == NULL && (live->token_file != NULL || live->model != NULL)) {
        argp_error(state, "--token-file and --model belong to --against-live");
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case OPTION_LAYERS: {
        size_t digits = strspn(argument, "0123456789");
        if (digits == 0 || digits > 6 || argument[digits] != '\0') {
            argp_error(state, "--max-layers: expected a whole number up to 999999, found \"%s\"",
                       argument);
        }
        arguments->compare.max_layers = (uint32_t)strtoul(argument, NULL, 10);
        return 0;
    }
    case OPTION_TOLERANCE:
        parse_tolerance(state, &arguments->compare, argument);
        return 0;
    case 'f':
        wf_family_option_take(state, argument, &arguments->families);
        return 0;
    case 'j':
        arguments->json = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num >= WF_SIDES) {
            argp_error(state, "two folders, please; \"%s\" is a third one", argument);
        }
        arguments->sides[state->arg_num] = argument;
        return 0;
    case ARGP_KEY_END:
        check_sides(state, arguments);
        return 0;
    case OPTION_LIVE:
        arguments->live.where = argument;
        return 0;
    case OPTION_TOKEN:
        arguments->live.token_file = argument;
        return 0;
    case OPTION_MODEL:
        arguments->live.model = argument;
        return 0;
    case OPTION_TIMEOUT:
        arguments->live.timeout_ns = parse_timeout(state, argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One line on a terminal, a new figure each whole percent. */
static void show_progress(void *user, uint64_t done, uint64_t total)
{
    struct arguments *arguments = user;
    unsigned percent = total > 0 ? (unsigned)((double)done / (double)total * 100) : 100;
    if (percent != arguments->percent) {
        fprintf(stderr, "\r\033[Kcompared %u %%%s", percent, percent == 100 ? "\r\033[K" : "");
        arguments->percent = percent;
    }
}

static enum wf_status write_json(const char *path, const struct wf_compare *compare,
                                 struct wf_error *error)
{
    size_t len = 0;
    struct json_object *root = wf_compare_to_json(compare);
    const char *text =
        root != NULL ? json_object_to_json_string_length(
                           root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE, &len)
                     : NULL;
    enum wf_status status = WF_OK;
    if (text == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for the report");
    } else if (strcmp(path, "-") != 0) {
        status = wf_atomic_write_file(path, text, len, error);
    } else if (fwrite(text, 1, len, stdout) != len || putchar('\n') == EOF || fflush(stdout) != 0) {
        status = wf_error_set(error, WF_IO, "cannot write to standard output");
    }
    json_object_put(root);
    return status;
}

static enum wf_status run(struct arguments *arguments, struct wf_live_session *session,
                          struct wf_compare *compare, bool *usage_out, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    if (arguments->live.where != NULL) {
        status =
            wf_live_session_open(&arguments->live, &arguments->families, session, usage_out, error);
        arguments->compare.live = &session->side;
    }
    arguments->compare.families = arguments->families.list;
    if (status == WF_OK) {
        status = wf_compare_run(arguments->sides[WF_A], arguments->sides[WF_B], &arguments->compare,
                                compare, error);
    }
    if (status == WF_OK) {
        bool to_stdout = arguments->json != NULL && strcmp(arguments->json, "-") == 0;
        wf_compare_print(to_stdout ? stderr : stdout, compare);
        status = arguments->json != NULL ? write_json(arguments->json, compare, error) : WF_OK;
    }
    return status;
}

int wf_cmd_compare(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "A B\nA --against-live WHERE",
        .doc = "Compares two sets of weights, parameter by parameter under their canonical names: "
               "Hugging Face folders and dumps of ranks (recipe.json and rank_00.safetensors), any "
               "against any, or against what a running job's ranks hold "
               "(docs/compare.md).\vExit status: 0 if they are equal; 1 if not, or if "
               "something cannot be read; 2 if the command line is wrong.",
    };
    struct arguments arguments = {.compare = {.max_layers = WF_NONE},
                                  .live = {.timeout_ns = TIMEOUT_DEFAULT_NS}};
    struct wf_live_session session = {0};
    struct wf_compare compare = {0};
    struct wf_error error = {0};
    bool usage = false;
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft compare"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    if (isatty(STDERR_FILENO)) {
        arguments.compare.progress = show_progress;
        arguments.compare.user = &arguments;
    }
    enum wf_status status = run(&arguments, &session, &compare, &usage, &error);
    bool ok = status == WF_OK && compare.ok;
    if (status != WF_OK) {
        fprintf(stderr, "weft compare: %s\n", error.text);
    }
    wf_compare_fini(&compare);
    wf_live_session_close(&session);
    wf_family_files_fini(&arguments.families);
    return ok ? WF_EXIT_OK : usage ? WF_EXIT_USAGE : WF_EXIT_FAILED;
}
