/* cmd_make_checkpoint.c - `weft make-checkpoint`: a Hugging Face folder of known values. */
#include <argp.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/family_file.h"
#include "models/config.h"
#include "runtime/nearest.h"
#include "tools/commands.h"
#include "tools/files/atomic.h"
#include "tools/files/make_checkpoint.h"

enum { OPTION_LAYERS = 0x100, OPTION_DTYPE, OPTION_SHARDS, OPTION_FORCE };

struct arguments {
    struct wf_make_options make;
    struct wf_family_files families;
    const char *json;
};

static const struct argp_option options[] = {
    {"model", 'm', "CONFIG.json", 0, "the model: a config.json or a Hugging Face folder (needed)",
     0},
    {"out", 'o', "DIR", 0, "the folder to make (needed)", 0},
    {"family", 'f', "FILE", 0,
     "a file that describes a model family (docs/add-a-model.md), beside the built-in ones; may be "
     "repeated",
     0},
    {"layers", OPTION_LAYERS, "N", 0, "N layers instead of as many as the config says", 0},
    {"dtype", OPTION_DTYPE, "D", 0, "f32, f16 or bf16 (default: the config's)", 0},
    {"shards", OPTION_SHARDS, "N", 0, "this many files and an index (default 1: one file)", 0},
    {"force", OPTION_FORCE, NULL, 0, "write over a folder that holds something else", 0},
    {"json", 'j', "FILE", 0, "write what was made to FILE as JSON (- is standard output)", 0},
    {0},
};

/* Digits only: no sign, no suffix, no other base, nothing that wraps. */
static uint64_t parse_number(struct argp_state *state, const char *option, const char *text,
                             uint64_t max)
{
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits < 10 && text[digits] == '\0') {
        value = strtoull(text, NULL, 10);
    }
    if (value < 1 || value > max) {
        argp_error(state, "%s is a number from 1 to %" PRIu64 ", not \"%s\"", option, max, text);
    }
    return value;
}

static enum wf_dtype parse_dtype(struct argp_state *state, const char *text)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            return wf_dtype_from_name(text, strlen(text));
        }
    }
    const char *nearest = wf_nearest(text, strlen(text), names, sizeof names / sizeof names[0]);
    argp_error(state, "--dtype is f32, f16 or bf16, not \"%s\"%s%s%s", text,
               nearest != NULL ? " (did you mean " : "", nearest != NULL ? nearest : "",
               nearest != NULL ? "?)" : "");
    return WF_DTYPE_NONE;
}

static void set_once(struct argp_state *state, const char **text, const char *option,
                     const char *argument)
{
    if (*text != NULL) {
        argp_error(state, "%s is given twice", option);
    }
    if (*argument == '\0') {
        argp_error(state, "%s is empty", option);
    }
    *text = argument;
}

static void load_family(struct argp_state *state, struct arguments *arguments, const char *path)
{
    struct wf_error error = {0};
    if (wf_family_files_load(&arguments->families, path, &error) != WF_OK) {
        argp_error(state, "--family: %s", error.text);
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'm':
        set_once(state, &arguments->make.config, "--model", argument);
        return 0;
    case 'o':
        set_once(state, &arguments->make.folder, "--out", argument);
        return 0;
    case 'f':
        load_family(state, arguments, argument);
        return 0;
    case 'j':
        set_once(state, &arguments->json, "--json", argument);
        return 0;
    case OPTION_LAYERS:
        arguments->make.layers = parse_number(state, "--layers", argument, WF_LAYERS_MAX);
        return 0;
    case OPTION_DTYPE:
        arguments->make.dtype = parse_dtype(state, argument);
        return 0;
    case OPTION_SHARDS:
        arguments->make.shards =
            (uint32_t)parse_number(state, "--shards", argument, WF_MAKE_SHARDS_MAX);
        return 0;
    case OPTION_FORCE:
        arguments->make.force = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", argument);
        return 0;
    case ARGP_KEY_END:
        if (arguments->make.config == NULL || arguments->make.folder == NULL) {
            argp_error(state, "%s is needed", arguments->make.config == NULL ? "--model" : "--out");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One line on a terminal, a new figure each whole percent. */
static void show_progress(void *user, uint64_t done, uint64_t total)
{
    unsigned *shown = user, percent = (unsigned)(done * 100 / total);
    if (percent != *shown) {
        fprintf(stderr, "\rmake-checkpoint: %u %% of %.2f GB%s", percent, (double)total / 1e9,
                percent == 100 ? "\n" : "");
        *shown = percent;
    }
}

static enum wf_status write_json(const struct arguments *arguments,
                                 const struct wf_make_report *report, struct wf_error *error)
{
    char text[512];
    struct json_object *folder = json_object_new_string(arguments->make.folder);
    char *all = NULL;
    snprintf(text, sizeof text,
             "\"tensors\": %u,\n  \"files\": %u,\n  \"elements\": %" PRIu64
             ",\n  \"bytes\": %" PRIu64 ",\n  \"files_written\": %u\n}\n",
             report->tensors, report->files, report->elements, report->bytes,
             report->files_written);
    int len = folder != NULL
                  ? asprintf(&all, "{\n  \"ok\": true,\n  \"folder\": %s,\n  %s",
                             json_object_to_json_string_ext(
                                 folder, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE),
                             text)
                  : -1;
    json_object_put(folder);
    if (len < 0) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the report");
    }
    enum wf_status status = WF_OK;
    if (strcmp(arguments->json, "-") != 0) {
        status = wf_atomic_write_file(arguments->json, all, (size_t)len, error);
    } else if (fwrite(all, 1, (size_t)len, stdout) != (size_t)len || fflush(stdout) != 0) {
        status = wf_error_set(error, WF_IO, "writing the report to standard output failed");
    }
    free(all);
    return status;
}

int wf_cmd_make_checkpoint(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Writes a Hugging Face folder with the exact names and shapes of a model, filled "
               "with values that follow from tensor name and index (docs/checkpoint-values.md). "
               "What is there already and equal is kept.",
    };
    unsigned shown = 0;
    struct arguments arguments = {.make = {.shards = 1}};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft make-checkpoint"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    if (isatty(STDERR_FILENO)) {
        arguments.make.progress = show_progress;
        arguments.make.user = &shown;
    }
    struct wf_make_report report;
    struct wf_error error = {0};
    arguments.make.families = arguments.families.list;
    enum wf_status status = wf_make_checkpoint(&arguments.make, &report, &error);
    if (status == WF_OK && arguments.json != NULL) {
        status = write_json(&arguments, &report, &error);
    }
    wf_family_files_fini(&arguments.families);
    if (status != WF_OK) {
        fprintf(stderr, "weft make-checkpoint: %s\n", error.text);
        return WF_EXIT_FAILED;
    }
    if (arguments.json == NULL || strcmp(arguments.json, "-") != 0) {
        printf("%s: %u tensors, %" PRIu64 " elements, %" PRIu64 " bytes in %u file%s%s\n",
               arguments.make.folder, report.tensors, report.elements, report.bytes, report.files,
               report.files == 1 ? "" : "s", report.files_written == 0 ? " (was there)" : "");
    }
    return WF_EXIT_OK;
}
