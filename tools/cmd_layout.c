/* cmd_layout.c - `weft layout show`, `write`, `check`, `detect` and `family`. */
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
#include "tools/files/manifest_files.h"
#include "tools/layout/check.h"
#include "tools/layout/detect_files.h"
#include "tools/layout/family_print.h"
#include "tools/layout/show.h"
#include "tools/layout/spell.h"

enum { DIRS_MAX = 65536, BESIDE_MAX = 16 };

struct arguments {
    const char *action, *model, *spec, *json, *manifest, *out;
    const char *beside[BESIDE_MAX];
    uint32_t beside_count;
    struct wf_family_files families;
    bool rank_given;
    uint32_t rank;
    char **dirs;
    size_t dir_count;
};

enum { KEY_MANIFEST = 256, KEY_BESIDE };

static const struct argp_option options[] = {
    {"model", 'm', "CONFIG", 0, "show, write: a config.json or a Hugging Face folder", 0},
    {"spec", 's', "SPEC", 0, "show, write: for example megatron:tp=2,pp=2 or vllm:tp=2", 0},
    {"rank", 'r', "R", 0, "show: the rank (default 0); write: this rank alone", 0},
    {"manifest", KEY_MANIFEST, "FILE", 0,
     "show: a layout that was spelled out (docs/manifests.md) instead of a SPEC's; with --model it "
     "is checked too",
     0},
    {"out", 'o', "FILE", 0, "write: where to, with %d for the rank's number", 0},
    {"beside", KEY_BESIDE, "SPEC", 0,
     "show, write: another group of the job, where some hold fp8 and some do not; may be repeated",
     0},
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
    case KEY_MANIFEST:
        arguments->manifest = argument;
        return 0;
    case 'o':
        arguments->out = argument;
        return 0;
    case KEY_BESIDE:
        if (arguments->beside_count == BESIDE_MAX) {
            argp_error(state, "--beside is given more than %d times", BESIDE_MAX);
        }
        arguments->beside[arguments->beside_count++] = argument;
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
        argp_error(state, "show, write, check, detect or family?");
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

/* As in a job whose groups are this one and those beside it. */
static enum wf_status make_model(const struct arguments *arguments, const struct wf_model *config,
                                 struct wf_recipe *recipe, struct wf_model **model_out,
                                 struct wf_error *error)
{
    struct wf_recipe beside[BESIDE_MAX];
    const struct wf_recipe *recipes[1 + BESIDE_MAX] = {recipe};
    struct wf_model *model = NULL;
    enum wf_status status = wf_recipe_parse(arguments->spec, NULL, recipe, error);
    for (uint32_t i = 0; i < arguments->beside_count && status == WF_OK; i++) {
        recipes[1 + i] = &beside[i];
        status = wf_recipe_parse(arguments->beside[i], NULL, &beside[i], error);
    }
    if (status == WF_OK) {
        status = wf_model_for_job(config, recipes, 1 + arguments->beside_count, &model, error);
    }
    if (status == WF_OK) {
        status = wf_manifest_files_load(recipes, 1, NULL, model, error);
    }
    if (status == WF_OK) {
        status = wf_recipe_parse(arguments->spec, model, recipe, error);
    }
    if (status != WF_OK) {
        wf_model_free(model);
        return status;
    }
    *model_out = model;
    return WF_OK;
}

static int print_layout(const struct arguments *arguments, const struct wf_model *model,
                        const struct wf_recipe *recipe, const struct wf_layout *layout)
{
    struct wf_error error = {0};
    enum wf_status status = WF_OK;
    if (arguments->json) {
        struct json_object *root = wf_layout_to_json(model, recipe, arguments->rank, layout);
        status = write_json(arguments->json, root, &error);
        json_object_put(root);
    } else {
        wf_layout_print(stdout, model, recipe, arguments->rank, layout);
    }
    return status == WF_OK ? WF_EXIT_OK : fail(WF_EXIT_FAILED, &error);
}

static int check_rank(const struct arguments *arguments, const struct wf_recipe *recipe)
{
    struct wf_error error = {0};
    if (arguments->rank < wf_recipe_world(recipe)) {
        return WF_EXIT_OK;
    }
    wf_error_set(&error, WF_INVALID, "--rank %u: \"%s\" has ranks 0 to %u", arguments->rank,
                 arguments->spec, wf_recipe_world(recipe) - 1);
    return fail(WF_EXIT_USAGE, &error);
}

static int show_layout(const struct arguments *arguments, const struct wf_model *model,
                       const struct wf_recipe *recipe)
{
    struct wf_error error = {0};
    struct wf_layout *layout = NULL;
    if (wf_layout_derive(model, recipe, arguments->rank, &layout, &error) != WF_OK) {
        return fail(WF_EXIT_FAILED, &error);
    }
    int exit_status = print_layout(arguments, model, recipe, layout);
    wf_layout_free(layout);
    return exit_status;
}

static int write_layouts(const struct arguments *arguments, const struct wf_model *model,
                         const struct wf_recipe *recipe)
{
    struct wf_error error = {0};
    struct wf_spelt spelt;
    uint32_t first = arguments->rank_given ? arguments->rank : 0;
    uint32_t end = arguments->rank_given ? first + 1 : wf_recipe_ranks_per_engine(recipe);
    enum wf_status status =
        wf_layout_spell(model, recipe, first, end, arguments->out, &spelt, &error);
    if (status != WF_OK) {
        return fail(status == WF_INVALID ? WF_EXIT_USAGE : WF_EXIT_FAILED, &error);
    }
    printf("%s: %u manifests, %llu tensors, %llu bytes\n", arguments->out, spelt.manifests,
           (unsigned long long)spelt.tensors, (unsigned long long)spelt.bytes);
    return WF_EXIT_OK;
}

/* Without a model its parameters are names alone. */
static int show_manifest(const struct arguments *arguments, const struct wf_model *model)
{
    struct wf_error error = {0};
    struct wf_manifest manifest;
    int exit_status = WF_EXIT_FAILED;
    if (wf_manifest_file_read(arguments->manifest, model, &manifest, &error) != WF_OK) {
        fail(WF_EXIT_FAILED, &error);
    } else {
        const struct wf_model names = {.params = manifest.params,
                                       .param_count = manifest.param_count};
        exit_status = print_layout(arguments, model ? model : &names, NULL, manifest.layout);
    }
    wf_manifest_fini(&manifest);
    return exit_status;
}

static int run_manifest(const struct arguments *arguments)
{
    struct wf_error error = {0};
    struct wf_model *config = NULL, *model = NULL;
    const struct wf_recipe *recipes[BESIDE_MAX];
    struct wf_recipe beside[BESIDE_MAX];
    enum wf_status status = WF_OK;
    if (arguments->spec || arguments->rank_given || arguments->dir_count > 0 || arguments->out ||
        (arguments->beside_count > 0 && !arguments->model)) {
        wf_error_set(&error, WF_INVALID,
                     "show --manifest FILE goes with --model CONFIG (and --beside) at most");
        return fail(WF_EXIT_USAGE, &error);
    }
    if (!arguments->model) {
        return show_manifest(arguments, NULL);
    }
    for (uint32_t i = 0; i < arguments->beside_count && status == WF_OK; i++) {
        recipes[i] = &beside[i];
        status = wf_recipe_parse(arguments->beside[i], NULL, &beside[i], &error);
    }
    if (status != WF_OK) {
        return fail(WF_EXIT_USAGE, &error);
    }
    status = wf_checkpoint_model(arguments->model, arguments->families.list, &config, &error);
    if (status == WF_OK) {
        status = wf_model_for_job(config, recipes, arguments->beside_count, &model, &error);
    }
    int exit_status =
        status == WF_OK ? show_manifest(arguments, model) : fail(WF_EXIT_FAILED, &error);
    wf_model_free(model);
    wf_model_free(config);
    return exit_status;
}

/* What show and write have in common. */
static int with_model(const struct arguments *arguments,
                      int (*then)(const struct arguments *, const struct wf_model *,
                                  const struct wf_recipe *))
{
    struct wf_error error = {0};
    struct wf_model *config = NULL, *model = NULL;
    struct wf_recipe recipe;
    if (wf_checkpoint_model(arguments->model, arguments->families.list, &config, &error) != WF_OK) {
        return fail(WF_EXIT_FAILED, &error);
    }
    int exit_status = WF_EXIT_USAGE;
    if (make_model(arguments, config, &recipe, &model, &error) != WF_OK) {
        fail(exit_status, &error);
    } else {
        exit_status = check_rank(arguments, &recipe);
        exit_status = exit_status == WF_EXIT_OK ? then(arguments, model, &recipe) : exit_status;
    }
    wf_model_free(model);
    wf_model_free(config);
    return exit_status;
}

static int run_show(const struct arguments *arguments)
{
    struct wf_error error = {0};
    if (arguments->manifest) {
        return run_manifest(arguments);
    }
    if (!arguments->model || !arguments->spec || arguments->dir_count > 0 || arguments->out) {
        wf_error_set(&error, WF_INVALID,
                     "show needs --model CONFIG and --spec SPEC, or --manifest FILE, nothing else");
        return fail(WF_EXIT_USAGE, &error);
    }
    return with_model(arguments, show_layout);
}

static int run_write(const struct arguments *arguments)
{
    struct wf_error error = {0};
    if (!arguments->model || !arguments->spec || !arguments->out || arguments->manifest ||
        arguments->json || arguments->dir_count > 0) {
        wf_error_set(&error, WF_INVALID,
                     "write needs --model CONFIG, --spec SPEC and --out FILE, nothing else");
        return fail(WF_EXIT_USAGE, &error);
    }
    return with_model(arguments, write_layouts);
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
    } actions[] = {{"show", run_show},
                   {"write", run_write},
                   {"check", run_check},
                   {"detect", run_detect},
                   {"family", run_family}};
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(arguments->action, actions[i].name) == 0) {
            return actions[i].run(arguments);
        }
    }
    struct wf_error error = {0};
    wf_error_set(&error, WF_INVALID, "\"%.40s\": expected show, write, check, detect or family",
                 arguments->action);
    return fail(WF_EXIT_USAGE, &error);
}

int wf_cmd_layout(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc =
            "show --model CONFIG --spec SPEC [--rank R]\nshow --manifest FILE\nwrite --model "
            "CONFIG --spec SPEC --out FILE\ncheck DIR...\ndetect FILE|DIR...\nfamily NAME",
        .doc =
            "show: prints the tensors of one rank and what they hold of which parameter. write: "
            "spells out the same in manifests, one for each rank of an engine. check: "
            "derives the layouts of each DIR from its case.json and compares them with what the "
            "framework really made; one line a case, exit status 1 if one differs or is "
            "refused. detect: finds family, config and parallel sizes from the names and shapes "
            "of dumps (safetensors files, torch .pt files or lines of name, dtype and shape; each "
            "FILE is a rank, a DIR holds rank_NN files or the shards of one rank), or lists what "
            "fits alike; exit status 0 if one answer or several fit, 1 if none does. family: "
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
