/* cmd_bench.c - `weft bench NAME`: one benchmark with its limit in the same run. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/nearest.h"
#include "tools/bench/bench.h"
#include "tools/commands.h"
#include "tools/files/atomic.h"

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
    const char *name, *json, *address, *peer;
    unsigned pairs;
};

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0,
     "write samples, medians and limits to FILE as JSON (- is standard output)", 0},
    {"pairs", 'n', "N", 0, "measure N interleaved pairs (1 to 1000, default 15)", 0},
    {"address", 'a', "HOST:PORT", 0, "stream: be the source, for a reader on another host", 0},
    {"peer", 'p', "HOST:PORT", 0, "stream: read from the source that serves there", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'j':
        arguments->json = argument;
        return 0;
    case 'a':
        arguments->address = argument;
        return 0;
    case 'p':
        arguments->peer = argument;
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

/* Where the JSON report goes. A file is opened before measuring: a path that cannot be written
 * should not cost a benchmark. */
struct report {
    bool is_wanted, is_stdout;
    struct wf_atomic_file file;
};

static enum wf_status open_report(struct report *report, const char *path, struct wf_error *error)
{
    *report = (struct report){.is_wanted = path != NULL};
    report->is_stdout = path != NULL && strcmp(path, "-") == 0;
    return path == NULL || report->is_stdout ? WF_OK : wf_atomic_open(&report->file, path, error);
}

static enum wf_status write_report(struct report *report, const char *text, struct wf_error *error)
{
    if (text == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the JSON report");
    }
    if (report->is_stdout) {
        return puts(text) >= 0 && fflush(stdout) == 0
                   ? WF_OK
                   : wf_error_set(error, WF_IO, "cannot write the JSON report to standard output");
    }
    enum wf_status status = wf_atomic_write(&report->file, text, strlen(text), error);
    if (status == WF_OK) {
        status = wf_atomic_write(&report->file, "\n", 1, error);
    }
    return status == WF_OK ? wf_atomic_commit(&report->file, error) : status;
}

static enum wf_status measure(const struct benchmark *benchmark, const struct arguments *arguments,
                              struct wf_error *error)
{
    struct report report;
    enum wf_status status = open_report(&report, arguments->json, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_bench *bench = wf_bench_new(arguments->pairs, report.is_stdout);
    if (bench != NULL) {
        wf_bench_set_hosts(bench, arguments->address, arguments->peer);
    }
    status = bench != NULL ? benchmark->run(bench, error)
                           : wf_error_set(error, WF_NO_MEMORY, "no memory");
    if (status == WF_OK && report.is_wanted) {
        status = write_report(&report, wf_bench_json(bench), error);
    }
    wf_atomic_abort(&report.file); /* nothing after a commit */
    wf_bench_free(bench);
    return status;
}

int wf_cmd_bench(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "NAME",
        .doc = "Runs one benchmark and, where it has one, measures its physical limit in the same "
               "run.\v",
        .help_filter = list_benchmarks,
    };
    struct arguments arguments = {0};
    struct wf_error error = {0};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft bench"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    const struct benchmark *benchmark = find(arguments.name);
    if (benchmark == NULL) {
        return WF_EXIT_USAGE;
    }
    if (measure(benchmark, &arguments, &error) != WF_OK) {
        fprintf(stderr, "weft bench: %s\n", error.text);
        return WF_EXIT_FAILED;
    }
    return WF_EXIT_OK;
}
