/* cmd_layout.c - `weft layout show`, `check`, `detect` and `family`. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/variant.h"
#include "tools/commands.h"
#include "tools/family_option.h"
#include "tools/files/atomic.h"
#include "tools/files/checkpoint.h"
#include "tools/layout/check.h"
#include "tools/layout/detect_files.h"
#include "tools/layout/family_print.h"
#include "tools/layout/show.h"

enum { DIRS_MAX = 65536 };

struct arguments {
    const char *action, *model, *spec, *json;
    struct wf_family_files families;
    bool rank_given;
    uint32_t rank;
    char **dirs;
    size_t dir_count;
};

static const struct argp_option options[] = {
    {"model", 'm', "CONFIG", 0, "show: a config.json or a Hugging Face folder", 0},
    {"spec", 's', "SPEC", 0, "show: for example megatron:tp=2,pp=2 or vllm:tp=2", 0},
    {"rank", 'r', "R", 0, "show: the rank (default 0)", 0},
    WF_FAMILY_OPTION,
    {"json", 'j', "FILE", 0, "write the result to FILE as JSON (- is standard output)", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'm':
        arguments->model = argument;
        return 0;
    case 's':
        arguments->spec = argument;
        return 0;
    case WF_FAMILY_OPTION_KEY:
        wf_family_option_take(state, argument, &arguments->families);
        return 0;
    case 'j':
        arguments->json = argument;
        return 0;
    case 'r': {
        size_t digits = strspn(argument, "0123456789");
        if (digits == 0 || digits > 6 || argument[digits] != '\0') {
            argp_error(state, "--rank is a whole number, not \"%s\"", argument);
        }
        arguments->rank = (uint32_t)strtoul(argument, NULL, 10);
        arguments->rank_given = true;
        return 0;
    }
    case ARGP_KEY_ARG:
        if (!arguments->action) {
            arguments->action = argument;
            return 0;
        }
        return ARGP_ERR_UNKNOWN; /* the rest, together */
    case ARGP_KEY_ARGS:
        arguments->dirs = state->argv + state->next;
        arguments->dir_count = (size_t)(state->argc - state->next);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "show, check, detect or family?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* "-" is standard output. */
static enum wf_status write_json(const char *path, struct json_object *root, struct wf_error *error)
{
    size_t len = 0;
    const char *text =
        root ? json_object_to_json_string_length(
                   root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE, &len)
             : NULL;
    if (!text) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the report");
    }
    if (strcmp(path, "-") != 0) {
        return wf_atomic_write_file(path, text, len, error);
    }
    if (fwrite(text, 1, len, stdout) != len || putchar('\n') == EOF || fflush(stdout) != 0) {
        return wf_error_set(error, WF_IO, "cannot write to standard output");
    }
    return WF_OK;
}

static int fail(int exit_status, const struct wf_error *error)
{
    fprintf(stderr, "weft layout: %s\n", error->text);
    return exit_status;
}

/* --- show ------------------------------------------------------------------------------------ */

/* As in a job whose only group this is. */
static enum wf_status make_model(const struct arguments *arguments, const struct wf_model *config,
                                 struct wf_recipe *recipe, struct wf_model **model_out,
                                 struct wf_error *error)
{
    const struct wf_recipe *recipes[] = {recipe};
    enum wf_status status = wf_recipe_parse(arguments->spec, NULL, recipe, error);
    if (status == WF_OK) {
        status = wf_model_for_job(config, recipes, 1, model_out, error);
    }
    return status == WF_OK ? wf_recipe_parse(arguments->spec, *model_out, recipe, error) : status;
}

static int show_layout(const struct arguments *arguments, const struct wf_model *model,
                       const struct wf_recipe *recipe)
{
    struct wf_error error = {0};
    struct wf_layout *layout = NULL;
    if (arguments->rank >= wf_recipe_world(recipe)) {
        wf_error_set(&error, WF_INVALID, "--rank %u: \"%s\" has ranks 0 to %u", arguments->rank,
                     arguments->spec, wf_recipe_world(recipe) - 1);
        return fail(WF_EXIT_USAGE, &error);
    }
    enum wf_status status = wf_layout_derive(model, recipe, arguments->rank, &layout, &error);
    if (status != WF_OK) {
        return fail(WF_EXIT_FAILED, &error);
    }
    if (arguments->json) {
        struct json_object *root = wf_layout_to_json(model, recipe, arguments->rank, layout);
        status = write_json(arguments->json, root, &error);
        json_object_put(root);
    } else {
        wf_layout_print(stdout, model, recipe, arguments->rank, layout);
    }
    wf_layout_free(layout);
    return status == WF_OK ? WF_EXIT_OK : fail(WF_EXIT_FAILED, &error);
}

static int run_show(const struct arguments *arguments)
{
    struct wf_error error = {0};
    struct wf_model *config = NULL, *model = NULL;
    struct wf_recipe recipe;
    if (!arguments->model || !arguments->spec || arguments->dir_count > 0) {
        wf_error_set(&error, WF_INVALID, "show needs --model CONFIG and --spec SPEC, nothing else");
        return fail(WF_EXIT_USAGE, &error);
    }
    if (wf_checkpoint_model(arguments->model, arguments->families.list, &config, &error) != WF_OK) {
        return fail(WF_EXIT_FAILED, &error);
    }
    int exit_status = make_model(arguments, config, &recipe, &model, &error) == WF_OK
                          ? show_layout(arguments, model, &recipe)
                          : fail(WF_EXIT_USAGE, &error);
    wf_model_free(model);
    wf_model_free(config);
    return exit_status;
}

/* --- check ----------------------------------------------------------------------------------- */

static const struct {
    const char *name, *sentence;
} kinds[] = {
    [WF_CASE_LAYOUT] = {"layout", NULL},
    [WF_CASE_ORACLE] = {"oracle", "an oracle of values; no layout to compare"},
    [WF_CASE_INVENTORY] = {"inventory", "an inventory of names and shapes; no layout to compare"},
};

static struct json_object *result_to_json(const struct wf_case_result *result)
{
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "case", json_object_new_string(result->name));
    json_object_object_add(object, "ok", json_object_new_boolean(result->ok));
    json_object_object_add(object, "tensors", json_object_new_uint64(result->tensors));
    json_object_object_add(object, "elements", json_object_new_uint64(result->elements));
    const char *difference = result->kind != WF_CASE_LAYOUT ? kinds[result->kind].sentence
                             : result->ok                   ? NULL
                                                            : result->difference.text;
    json_object_object_add(object, "first_difference",
                           difference ? json_object_new_string(difference) : NULL);
    return object;
}

static void print_result(FILE *out, const struct wf_case_result *result)
{
    if (result->kind != WF_CASE_LAYOUT) {
        fprintf(out, "%-8s %s: %s\n", kinds[result->kind].name, result->name,
                kinds[result->kind].sentence);
    } else if (result->ok) {
        fprintf(out, "ok       %s: %u ranks, %llu tensors, %llu elements\n", result->name,
                result->ranks, (unsigned long long)result->tensors,
                (unsigned long long)result->elements);
    } else {
        fprintf(out, "%s %s: %s\n", result->refused ? "refused " : "FAILED  ", result->name,
                result->difference.text);
    }
    fflush(out);
}

static int run_check(const struct arguments *arguments)
{
    struct wf_error error = {0};
    if (arguments->dir_count == 0 || arguments->dir_count > DIRS_MAX || arguments->model ||
        arguments->spec || arguments->rank_given) {
        wf_error_set(&error, WF_INVALID, "check needs folders of fixtures, and at most --json");
        return fail(WF_EXIT_USAGE, &error);
    }
    struct wf_case_tables tables = {.families = arguments->families.list};
    bool json_is_stdout = arguments->json && strcmp(arguments->json, "-") == 0;
    struct json_object *list = arguments->json ? json_object_new_array() : NULL;
    bool all_ok = true;
    for (size_t i = 0; i < arguments->dir_count; i++) {
        struct wf_case_result result;
        wf_case_check(arguments->dirs[i], &tables, &result);
        print_result(json_is_stdout ? stderr : stdout, &result);
        all_ok = all_ok && result.ok;
        if (list) {
            json_object_array_add(list, result_to_json(&result));
        }
    }
    enum wf_status status = list ? write_json(arguments->json, list, &error) : WF_OK;
    json_object_put(list);
    if (status != WF_OK) {
        return fail(WF_EXIT_FAILED, &error);
    }
    return all_ok ? WF_EXIT_OK : WF_EXIT_FAILED;
}

/* --- detect ---------------------------------------------------------------------------------- */

static int run_detect(const struct arguments *arguments)
{
    struct wf_error error = {0};
    struct wf_detect_files files = {0};
    struct wf_detected detected = {0};
    if (arguments->dir_count == 0 || arguments->dir_count > DIRS_MAX || arguments->model ||
        arguments->spec || arguments->rank_given) {
        wf_error_set(&error, WF_INVALID,
                     "detect needs files or folders of dumps, and at most --json");
        return fail(WF_EXIT_USAGE, &error);
    }
    enum wf_status status = wf_detect_read(arguments->dirs, arguments->dir_count, &files, &error);
    if (status == WF_OK) {
        status = wf_detect(files.dumps, files.count, NULL, &detected, &error);
    }
    bool json_is_stdout = arguments->json && strcmp(arguments->json, "-") == 0;
    if (status == WF_OK) {
        wf_detected_print(json_is_stdout ? stderr : stdout, &detected);
    }
    if (status == WF_OK && arguments->json) {
        struct json_object *root = wf_detected_to_json(&detected);
        status = write_json(arguments->json, root, &error);
        json_object_put(root);
    }
    bool found = detected.fit_count > 0;
    wf_detected_fini(&detected);
    wf_detect_files_fini(&files);
    if (status != WF_OK) {
        return fail(WF_EXIT_FAILED, &error);
    }
    return found ? WF_EXIT_OK : WF_EXIT_FAILED;
}

/* --- family ---------------------------------------------------------------------------------- */

static int run_family(const struct arguments *arguments)
{
    struct wf_error error = {0};
    if (arguments->dir_count != 1 || arguments->model || arguments->spec || arguments->rank_given ||
        arguments->json) {
        wf_error_set(&error, WF_INVALID, "family needs one NAME, and at most --family");
        return fail(WF_EXIT_USAGE, &error);
    }
    const struct wf_family *family = wf_family_named(&arguments->families, arguments->dirs[0]);
    if (!family) {
        char known[768] = "";
        for (const struct wf_family *const *f = wf_families; *f; f++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, " %s", (*f)->name);
        }
        wf_error_set(&error, WF_INVALID, "no family is called \"%.60s\"; this build knows:%s",
                     arguments->dirs[0], known);
        return fail(WF_EXIT_USAGE, &error);
    }
    wf_family_print(stdout, family);
    if (fflush(stdout) != 0) {
        wf_error_set(&error, WF_IO, "cannot write to standard output");
        return fail(WF_EXIT_FAILED, &error);
    }
    return WF_EXIT_OK;
}

static int run(const struct arguments *arguments)
{
    static const struct {
        const char *name;
        int (*run)(const struct arguments *);
    } actions[] = {
        {"show", run_show}, {"check", run_check}, {"detect", run_detect}, {"family", run_family}};
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(arguments->action, actions[i].name) == 0) {
            return actions[i].run(arguments);
        }
    }
    struct wf_error error = {0};
    wf_error_set(&error, WF_INVALID, "\"%.40s\": expected show, check, detect or family",
                 arguments->action);
    return fail(WF_EXIT_USAGE, &error);
}

int wf_cmd_layout(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "show --model CONFIG --spec SPEC [--rank R]\ncheck DIR...\ndetect FILE|DIR...",
        .doc =
            "show: prints the tensors of one rank and what they hold of which parameter. check: "
            "derives the layouts of each DIR from its case.json and compares them with what the "
            "framework really made; one line a case, exit status 1 if one differs or is "
            "refused. detect: finds family, config and parallel sizes from the names and shapes "
            "of dumps (safetensors files, torch .pt files or lines of name, dtype and shape; each "
            "FILE is a rank, a DIR holds rank_NN files or the shards of one rank), or lists what "
            "fits alike. family: "
            "prints a family's table as a family file, from which another can be made.",
    };
    struct arguments arguments = {0};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft layout"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    int exit_status = run(&arguments);
    wf_family_files_fini(&arguments.families);
    return exit_status;
}
