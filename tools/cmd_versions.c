/* cmd_versions.c - `weft versions`: which versions lie in a folder, and whether they are whole. */
#include <argp.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/family_option.h"
#include "tools/files/atomic.h"
#include "tools/files/version_folder.h"

enum { OPTION_QUICK = 0x100 };

struct arguments {
    const char *place, *json;
    bool quick;
    struct wf_family_files families;
};

static const struct argp_option options[] = {
    WF_FAMILY_OPTION,
    {"quick", OPTION_QUICK, 0, 0, "look at names, sizes and headers only, not at every byte", 0},
    {"json", 'j', "FILE", 0, "write the list to FILE as JSON (- is standard output)", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case OPTION_QUICK:
        arguments->quick = true;
        return 0;
    case WF_FAMILY_OPTION_KEY:
        wf_family_option_take(state, argument, &arguments->families);
        return 0;
    case 'j':
        arguments->json = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) {
            argp_error(state, "one folder, please; \"%s\" is a second one", argument);
        }
        arguments->place = argument;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which folder? give a job's files.folder");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void put_text(struct json_object *to, const char *key, const char *text)
{
    json_object_object_add(to, key, text != NULL ? json_object_new_string(text) : NULL);
}

static void put_number(struct json_object *to, const char *key, uint64_t value)
{
    json_object_object_add(to, key, json_object_new_uint64(value));
}

static struct json_object *describe(const struct wf_version_info *info, const char *why)
{
    struct json_object *entry = json_object_new_object();
    char version[WF_VERSION_TEXT];
    wf_version_format(info->version, version);
    put_text(entry, "version", version);
    json_object_object_add(entry, "ok", json_object_new_boolean(why == NULL));
    put_text(entry, "why", why);
    put_text(entry, "job", info->job);
    put_text(entry, "label", info->label);
    put_number(entry, "files", info->files);
    put_number(entry, "tensors", info->tensors);
    put_number(entry, "bytes", info->bytes);
    return entry;
}

static void print(FILE *out, const struct wf_version_info *info, const char *why)
{
    char version[WF_VERSION_TEXT];
    wf_version_format(info->version, version);
    fprintf(out, "%-22s %-16s %-16s %6" PRIu32 " %8" PRIu32 " %9.3f  %s\n", version, info->job,
            info->label, info->files, info->tensors, (double)info->bytes * 1e-9,
            why != NULL ? why : "whole");
}

/* Looks at all of them; true if none is to be complained about. */
static bool check_all(const struct arguments *arguments, const struct wf_version *versions,
                      uint32_t count, FILE *out, struct json_object *list)
{
    bool good = true, terminal = isatty(STDERR_FILENO) != 0;
    if (count > 0) {
        fprintf(out, "%-22s %-16s %-16s %6s %8s %9s\n", "version", "job", "label", "files",
                "tensors", "GB");
    }
    for (uint32_t i = 0; i < count; i++) {
        struct wf_version_info info = {0};
        struct wf_error error = {0};
        if (terminal) {
            fprintf(stderr, "\r\033[Klooking at version %" PRIu32 " of %" PRIu32, i + 1, count);
        }
        enum wf_status status =
            wf_version_check(arguments->place, versions[i], arguments->families.list,
                             !arguments->quick, &info, &error);
        fputs(terminal ? "\r\033[K" : "", stderr);
        const char *why = status == WF_OK ? NULL : error.text;
        print(out, &info, why);
        json_object_array_add(list, describe(&info, why));
        good = good && status == WF_OK;
    }
    return good;
}

static bool write_list(const char *path, struct json_object *list)
{
    struct wf_error error;
    size_t len = 0;
    const char *text = json_object_to_json_string_length(
        list, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE, &len);
    if (strcmp(path, "-") == 0) {
        return printf("%s\n", text) >= 0 && fflush(stdout) == 0;
    }
    if (wf_atomic_write_file(path, text, len, &error) != WF_OK) {
        fprintf(stderr, "weft versions: %s\n", error.text);
        return false;
    }
    return true;
}

int wf_cmd_versions(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "FOLDER",
        "Lists the versions that a job has put into its files.folder and looks at every byte of "
        "them (docs/operations.md).\vExit status: 0 if all are whole; 1 if not, or if there is "
        "none.",
        0,
        0,
        0};
    struct arguments arguments = {0};
    struct wf_version *versions = NULL;
    struct wf_error error;
    uint32_t count = 0;
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char *)"weft versions";
    argp_parse(&argp, argc, argv, 0, 0, &arguments);
    if (wf_version_list(arguments.place, &versions, &count, &error) != WF_OK) {
        fprintf(stderr, "weft versions: %s; expected a job's files.folder (docs/operations.md)\n",
                error.text);
        wf_family_files_fini(&arguments.families);
        return WF_EXIT_FAILED;
    }
    bool to_stdout = arguments.json != NULL && strcmp(arguments.json, "-") == 0;
    struct json_object *list = json_object_new_array();
    bool good = check_all(&arguments, versions, count, to_stdout ? stderr : stdout, list);
    if (count == 0) {
        fprintf(stderr, "weft versions: there is no version in %s\n", arguments.place);
        good = false;
    }
    good = (arguments.json == NULL || write_list(arguments.json, list)) && good;
    json_object_put(list);
    free(versions);
    wf_family_files_fini(&arguments.families);
    return good ? WF_EXIT_OK : WF_EXIT_FAILED;
}
