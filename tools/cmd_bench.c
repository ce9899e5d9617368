/* cmd_bench.c - `weft bench NAME`: one benchmark with its limit in the same run. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/nearest.h"
#include "tools/bench/bench.h"
#include "tools/commands.h"

enum { PAIRS_LIMIT = 1000 };

struct benchmark {
    const char *name;
    enum wf_status (*run)(struct wf_bench *bench, struct wf_error *error);
    const char *help;
};

static const struct benchmark benchmarks[] = {
#define BENCH_ROW(name, function, help) {name, function, help},
    WF_BENCH_MAP(BENCH_ROW)
#undef BENCH_ROW
};

enum { BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0] };

struct arguments {
    const char *name, *json;
    unsigned pairs;
};

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "write samples, medians and limits to FILE (- is standard output)", 0},
    {"pairs", 'n', "N", 0, "measure N interleaved pairs (1 to 1000, default 15)", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'j':
        arguments->json = argument;
        return 0;
    case 'n': {
        char *end;
        long pairs = strtol(argument, &end, 10);
        if (*argument == '\0' || *end != '\0' || pairs < 1 || pairs > PAIRS_LIMIT) {
            argp_error(state, "--pairs is a number from 1 to %d, not \"%s\"", PAIRS_LIMIT,
                       argument);
        }
        arguments->pairs = (unsigned)pairs;
        return 0;
    }
    case ARGP_KEY_ARG:
        if (arguments->name != NULL) {
            argp_error(state, "one benchmark at a time; \"%s\" is one too many", argument);
        }
        arguments->name = argument;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which benchmark?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* argp prints the list of benchmarks at the end of --help; the text is freed by argp. */
static char *list_benchmarks(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)text;
    }
    char *list = NULL;
    size_t size;
    FILE *out = open_memstream(&list, &size);
    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "Benchmarks:\n");
    for (size_t i = 0; i < BENCHMARKS; i++) {
        fprintf(out, "  %-12s %s\n", benchmarks[i].name, benchmarks[i].help);
    }
    fclose(out);
    return list;
}

static const struct benchmark *find(const char *name)
{
    const char *names[BENCHMARKS];
    for (size_t i = 0; i < BENCHMARKS; i++) {
        names[i] = benchmarks[i].name;
        if (strcmp(name, names[i]) == 0) {
            return &benchmarks[i];
        }
    }
    const char *nearest = wf_nearest(name, strlen(name), names, BENCHMARKS);
    fprintf(stderr, "weft bench: unknown benchmark \"%s\"%s%s%s; `weft bench --help` lists them\n",
            name, nearest != NULL ? ", did you mean \"" : "", nearest != NULL ? nearest : "",
            nearest != NULL ? "\"?" : "");
    return NULL;
}

int wf_cmd_bench(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "NAME",
        .doc = "Runs one benchmark and, where there is one, its physical limit in the same run.\v",
        .help_filter = list_benchmarks,
    };
    struct arguments arguments = {0};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft bench"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    const struct benchmark *benchmark = find(arguments.name);
    if (benchmark == NULL) {
        return WF_EXIT_USAGE;
    }
    bool json_is_stdout = arguments.json != NULL && strcmp(arguments.json, "-") == 0;
    struct wf_bench *bench = wf_bench_new(arguments.pairs, json_is_stdout);
    struct wf_error error = {0};
    enum wf_status status = bench != NULL ? benchmark->run(bench, &error)
                                          : wf_error_set(&error, WF_NO_MEMORY, "no memory");
    if (status == WF_OK && arguments.json != NULL) {
        status = wf_bench_write_json(bench, arguments.json, &error);
    }
    wf_bench_free(bench);
    if (status != WF_OK) {
        fprintf(stderr, "weft bench: %s\n", error.text);
        return WF_EXIT_FAILED;
    }
    return WF_EXIT_OK;
}
