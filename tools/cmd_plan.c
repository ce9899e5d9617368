/* cmd_plan.c - `weft plan`: a dry run without data, and `weft plan explain` of one parameter. */
#include <argp.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/job.h"
#include "config/units.h"
#include "runtime/nearest.h"
#include "tools/commands.h"
#include "tools/family_option.h"
#include "tools/files/atomic.h"
#include "tools/files/checkpoint.h"
#include "tools/plan_cuts.h"
#include "tools/plan_job.h"
#include "tools/plan_print.h"
#include "tools/run/placement.h"

enum { PER_HOST_DEFAULT = 8 };

struct arguments {
    const char *model, *train, *json, *param;
    struct wf_plan_job_infer infer[WF_PLAN_GROUPS_MAX - 1];
    struct wf_placement placements[WF_PLAN_GROUPS_MAX - 1]; /* of each infer group */
    struct wf_family_files families;
    uint32_t infer_count, per_host;
    double link_gbps;
    uint64_t transit_bytes;
    struct wf_plan_focus focus;
    bool explain;
};

enum { KEY_PARAM = 256, KEY_PER_HOST, KEY_PLACEMENT, KEY_TRANSIT };

static const struct argp_option options[] = {
    {"model", 'm', "CONFIG.json", 0, "the model: a config.json or a Hugging Face folder", 0},
    WF_FAMILY_OPTION,
    {"train", 't', "SPEC", 0, "the trainer, for example megatron:tp=4,pp=2,dp=2", 0},
    {"infer", 'i', "SPEC", 0,
     "engines, for example vllm:tp=2,engines=4; may be repeated: ranks are numbered in order", 0},
    {"placement", KEY_PLACEMENT, "FILE", 0,
     "where experts stand in the engines of the --infer before it (EPLB): a JSON file as "
     "infer.placements.table of a job has it",
     0},
    {"rank", 'r', "SIDE:R", 0, "only this rank's edges or boxes, for example infer:0", 0},
    {"link", 'l', "GBPS", 0,
     "what a host's link carries each way, in 10^9 bits per second: gives the lower bound of the "
     "time",
     0},
    {"per-host", KEY_PER_HOST, "N", 0,
     "ranks of one side that share a host and its link (default 8)", 0},
    {"transit-budget", KEY_TRANSIT, "SIZE", 0,
     "transport.transit_budget of the job: what a train rank prepares and casts once has to fit "
     "into it (default 64MiB)",
     0},
    {"param", KEY_PARAM, "NAME", 0, "explain: the parameter, by its Hugging Face name", 0},
    {"json", 'j', "FILE", 0, "write the figures to FILE as JSON (- is standard output)", 0},
    {0},
};

/* A number of digits alone, from 1 to max; 0 if it is none. */
static uint32_t parse_count(const char *text, uint32_t max)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long value = digits > 0 && digits < 10 && text[digits] == '\0' && text[0] != '0'
                              ? strtoul(text, NULL, 10)
                              : 0;
    return value <= max ? (uint32_t)value : 0;
}

static bool parse_rank(const char *text, struct wf_plan_focus *focus)
{
    bool train = strncmp(text, "train:", 6) == 0;
    if (!train && strncmp(text, "infer:", 6) != 0) {
        return false;
    }
    bool zero = strcmp(text + 6, "0") == 0;
    focus->all = false;
    focus->side = train ? WF_TRAIN : WF_INFER;
    focus->rank = parse_count(text + 6, WF_WORLD_MAX);
    return zero || focus->rank > 0;
}

static void parse_link(const char *text, struct arguments *arguments, struct argp_state *state)
{
    char *end;
    bool plain = strspn(text, "0123456789.eE+-") == strlen(text) && text[0] != '-';
    arguments->link_gbps = strtod(text, &end);
    if (!plain || *text == '\0' || *end != '\0' || !(arguments->link_gbps > 0) ||
        arguments->link_gbps > 1e9) {
        argp_error(state, "--link is a number of Gbit/s above 0, not \"%s\"", text);
    }
}

static void parse_transit(const char *text, struct arguments *arguments, struct argp_state *state)
{
    if (!wf_parse_bytes(text, &arguments->transit_bytes) ||
        arguments->transit_bytes < WF_TRANSIT_MIN || arguments->transit_bytes > WF_TRANSIT_MAX) {
        argp_error(state,
                   "--transit-budget is bytes such as 64MiB or 2GiB, from 1MiB to 1TiB, not \"%s\"",
                   text);
    }
}

/* Belongs to the --infer before it. */
static void load_placement(const char *path, struct arguments *arguments, struct argp_state *state)
{
    struct wf_error error = {0};
    if (arguments->infer_count == 0) {
        argp_error(state, "--placement %s: write it behind the --infer whose experts it places",
                   path);
        return;
    }
    uint32_t last = arguments->infer_count - 1;
    if (arguments->infer[last].placement != NULL) {
        argp_error(state, "--placement is given twice for --infer %s", arguments->infer[last].spec);
        return;
    }
    if (wf_run_placement_load(path, &arguments->placements[last], &error) != WF_OK) {
        argp_error(state, "--placement: %s", error.text);
        return;
    }
    arguments->infer[last].placement = &arguments->placements[last];
}

static error_t check_arguments(const struct arguments *arguments, struct argp_state *state)
{
    if (arguments->model == NULL || arguments->train == NULL || arguments->infer_count == 0) {
        argp_error(state, "--model, --train and --infer are needed");
    }
    if (arguments->explain && arguments->param == NULL) {
        argp_error(state, "which parameter? explain needs --param NAME");
    }
    if (!arguments->explain && arguments->param != NULL) {
        argp_error(state, "--param belongs to `weft plan explain`");
    }
    return 0;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'm':
        arguments->model = argument;
        return 0;
    case 't':
        if (arguments->train != NULL) {
            argp_error(state, "--train is given twice; there is one trainer");
        }
        arguments->train = argument;
        return 0;
    case 'i':
        if (arguments->infer_count == WF_PLAN_GROUPS_MAX - 1) {
            argp_error(state, "--infer is given more than %d times", WF_PLAN_GROUPS_MAX - 1);
        }
        arguments->infer[arguments->infer_count++].spec = argument;
        return 0;
    case 'r':
        if (!parse_rank(argument, &arguments->focus)) {
            argp_error(state, "--rank is train:R or infer:R, not \"%s\"", argument);
        }
        return 0;
    case WF_FAMILY_OPTION_KEY:
        wf_family_option_take(state, argument, &arguments->families);
        return 0;
    case 'l':
        parse_link(argument, arguments, state);
        return 0;
    case 'j':
        arguments->json = argument;
        return 0;
    case KEY_PER_HOST:
        arguments->per_host = parse_count(argument, WF_WORLD_MAX);
        if (arguments->per_host == 0) {
            argp_error(state, "--per-host is a number from 1 to %d, not \"%s\"", WF_WORLD_MAX,
                       argument);
        }
        return 0;
    case KEY_TRANSIT:
        parse_transit(argument, arguments, state);
        return 0;
    case KEY_PLACEMENT:
        load_placement(argument, arguments, state);
        return 0;
    case KEY_PARAM:
        arguments->param = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0 || strcmp(argument, "explain") != 0) {
            argp_error(state, "unknown word \"%s\"; did you mean \"explain\"?", argument);
        }
        arguments->explain = true;
        return 0;
    case ARGP_KEY_END:
        return check_arguments(arguments, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double over_mean(uint64_t max, uint64_t sum, uint32_t count)
{
    return sum > 0 ? (double)max * count / (double)sum : 1.0;
}

/* The busiest host's bytes, out or in, over its link. */
static double bound_seconds(const struct wf_plan_job *job, const struct wf_plan *plan,
                            const struct arguments *arguments)
{
    uint32_t hosts = job->members[job->input.member_count - 1].host + 1;
    uint64_t *bytes = calloc(hosts, sizeof *bytes), most = 0;
    for (uint32_t e = 0; bytes != NULL && e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        bytes[job->members[edge->src_rank].host] += edge->bytes;
        bytes[job->members[job->train_ranks + edge->dst_rank].host] += edge->bytes;
    }
    for (uint32_t h = 0; bytes != NULL && h < hosts; h++) {
        most = bytes[h] > most ? bytes[h] : most;
    }
    free(bytes);
    return (double)most * 8 / (arguments->link_gbps * 1e9);
}

/* What engines quantise themselves. */
static struct json_object *quantised_json(const struct wf_plan_job *job)
{
    char first[WF_PLAN_CUTS_TEXT];
    wf_plan_cuts_first(job, first);
    struct json_object *quantised = json_object_new_object();
    json_object_object_add(quantised, "matrices", json_object_new_uint64(job->cuts->count));
    json_object_object_add(quantised, "bytes_max", json_object_new_uint64(wf_plan_cuts_bytes(job)));
    json_object_object_add(quantised, "because", json_object_new_string(first));
    return quantised;
}

static enum wf_status write_json(const char *path, const struct wf_plan_job *job,
                                 const struct wf_plan *plan, const struct wf_plan_facts *facts,
                                 struct wf_error *error)
{
    char hash[WF_HASH_TEXT];
    wf_hash_format(plan->input_hash, hash);
    struct json_object *root = json_object_new_object();
    json_object_object_add(root, "hash", json_object_new_string(hash));
    json_object_object_add(root, "ops", json_object_new_uint64(plan->op_count));
    json_object_object_add(root, "bytes_unique", json_object_new_uint64(plan->bytes_unique));
    json_object_object_add(root, "bytes_moved", json_object_new_uint64(plan->bytes_moved));
    json_object_object_add(root, "egress_max_over_mean",
                           json_object_new_double(facts->egress_max_over_mean));
    json_object_object_add(root, "ingress_max_over_mean",
                           json_object_new_double(facts->ingress_max_over_mean));
    json_object_object_add(root, "build_seconds", json_object_new_double(facts->build_seconds));
    json_object_object_add(root, "cast_made_bytes", json_object_new_uint64(plan->cast_made_bytes));
    json_object_object_add(root, "cast_once_bytes", json_object_new_uint64(plan->cast_once_bytes));
    json_object_object_add(root, "cast_moving_bytes",
                           json_object_new_uint64(plan->cast_moving_bytes));
    json_object_object_add(root, "bound_seconds",
                           facts->link_gbps > 0 ? json_object_new_double(facts->bound_seconds)
                                                : NULL);
    json_object_object_add(root, "proof", json_object_new_string(facts->proof));
    json_object_object_add(root, "classes", json_object_new_uint64(plan->class_count));
    json_object_object_add(root, "quantised_by_engines",
                           job->cuts != NULL ? quantised_json(job) : NULL);
    json_object_object_add(root, "manifests_lack",
                           wf_manifest_lacks_json(job->lacks, job->lacks_count));
    char *text = NULL;
    int len =
        asprintf(&text, "%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY));
    json_object_put(root);
    if (len < 0) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the report");
    }
    enum wf_status status = WF_OK;
    if (strcmp(path, "-") != 0) {
        status = wf_atomic_write_file(path, text, (size_t)len, error);
    } else if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
        status = wf_error_set(error, WF_IO, "cannot write to standard output");
    }
    free(text);
    return status;
}

/* Builds and proves; what is wrong with the proof is a fact, not a failure to run. */
static enum wf_status make_plan(const struct wf_plan_job *job, const struct arguments *arguments,
                                struct wf_plan **plan_out, struct wf_plan_facts *facts,
                                struct wf_error *proof, struct wf_error *error)
{
    double start = now_seconds();
    enum wf_status status = wf_plan_build(&job->input, plan_out, error);
    if (status != WF_OK) {
        return status;
    }
    const struct wf_plan *plan = *plan_out;
    double built = now_seconds();
    status = wf_plan_prove(&job->input, plan, proof);
    facts->build_seconds = built - start;
    facts->prove_seconds = now_seconds() - built;
    facts->proof = status == WF_OK ? "ok" : proof->text;
    facts->per_host = arguments->per_host;
    facts->link_gbps = arguments->link_gbps;
    facts->bound_seconds = arguments->link_gbps > 0 ? bound_seconds(job, plan, arguments) : 0;
    facts->egress_max_over_mean =
        over_mean(plan->egress_max, plan->bytes_moved, plan->egress_ranks);
    facts->ingress_max_over_mean =
        over_mean(plan->ingress_max, plan->bytes_moved, plan->ingress_ranks);
    return WF_OK;
}

static int failed(const struct wf_error *error, int exit_status)
{
    fprintf(stderr, "weft plan: %s\n", error->text);
    return exit_status;
}

/* A part of a name is answered with the names that have it, a mistyped one with the nearest. */
static int wrong_param(const struct wf_model *model, const char *name)
{
    const char **names = calloc(model->param_count, sizeof *names);
    const char *first = NULL, *nearest = NULL;
    uint32_t having = 0;
    for (uint32_t p = 0; p < model->param_count; p++) {
        const char *own = model->params[p].name;
        if (*name != '\0' && strstr(own, name) != NULL) {
            first = having++ == 0 ? own : first;
        }
        if (names != NULL) {
            names[p] = own;
        }
    }
    if (names != NULL) {
        nearest = wf_nearest(name, strlen(name), names, model->param_count);
    }
    free(names);
    fprintf(stderr, "weft plan: the model has no parameter \"%s\"; ", name);
    if (having > 0) {
        fprintf(stderr, "%" PRIu32 " %s that in %s, the first is \"%s\"\n", having,
                having == 1 ? "has" : "have", having == 1 ? "its name" : "their names", first);
    } else if (nearest != NULL) {
        fprintf(stderr, "did you mean \"%s\"?\n", nearest);
    } else {
        fprintf(stderr, "expected a name of the checkpoint, such as \"%s\"\n",
                model->params[0].name);
    }
    return WF_EXIT_USAGE;
}

static int show_plan(const struct wf_plan_job *job, const struct arguments *arguments,
                     uint32_t param, double derive_seconds)
{
    struct wf_plan *plan = NULL;
    struct wf_plan_facts facts = {.derive_seconds = derive_seconds};
    struct wf_error proof, error;
    if (make_plan(job, arguments, &plan, &facts, &proof, &error) != WF_OK) {
        return failed(&error, WF_EXIT_FAILED);
    }
    int result = strcmp(facts.proof, "ok") == 0 ? WF_EXIT_OK : WF_EXIT_FAILED;
    bool table = arguments->json == NULL || strcmp(arguments->json, "-") != 0;
    if (table && arguments->explain) {
        wf_plan_explain(stdout, job, plan, param, &arguments->focus);
    } else if (table) {
        wf_plan_print(stdout, job, plan, &facts, &arguments->focus);
    }
    if (result != WF_EXIT_OK && (arguments->explain || !table)) {
        fprintf(stderr, "weft plan: the plan is wrong: %s\n", facts.proof);
    }
    if (arguments->json != NULL &&
        write_json(arguments->json, job, plan, &facts, &error) != WF_OK) {
        result = failed(&error, WF_EXIT_FAILED);
    }
    wf_plan_free(plan);
    return result;
}

static int show_job(const struct wf_plan_job *job, const struct arguments *arguments,
                    double derive_seconds)
{
    const struct wf_plan_focus *focus = &arguments->focus;
    uint32_t param = 0;
    if (arguments->explain) {
        param = wf_model_find(job->model, arguments->param, strlen(arguments->param));
        if (param == UINT32_MAX) {
            return wrong_param(job->model, arguments->param);
        }
    }
    if (!focus->all &&
        focus->rank >= (focus->side == WF_TRAIN ? job->train_ranks : job->infer_ranks)) {
        fprintf(stderr, "weft plan: --rank names rank %" PRIu32 ", but that side has %" PRIu32 "\n",
                focus->rank, focus->side == WF_TRAIN ? job->train_ranks : job->infer_ranks);
        return WF_EXIT_USAGE;
    }
    return show_plan(job, arguments, param, derive_seconds);
}

static int plan_job(const struct arguments *arguments, const struct wf_model *config)
{
    struct wf_plan_job job;
    struct wf_error error;
    double start = now_seconds();
    enum wf_status status = wf_plan_job_init(&job, config, arguments->train, arguments->infer,
                                             arguments->infer_count, arguments->per_host, &error);
    job.input.policy.cast_bytes_max = arguments->transit_bytes;
    int result = status == WF_OK
                     ? show_job(&job, arguments, now_seconds() - start)
                     : failed(&error, status == WF_NO_MEMORY ? WF_EXIT_FAILED : WF_EXIT_USAGE);
    wf_plan_job_fini(&job);
    return result;
}

static void drop_arguments(struct arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->infer_count; i++) {
        wf_run_placement_fini(&arguments->placements[i]);
    }
    wf_family_files_fini(&arguments->families);
}

int wf_cmd_plan(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "--model CONFIG.json --train SPEC --infer SPEC...\n"
                    "explain --param NAME ...",
        .doc =
            "Plans a job without data: which rank reads which boxes of which, how many bytes, "
            "how evenly, and whether every element arrives exactly once. With \"explain\" and the "
            "same options: every box of one parameter.\v"
            "--json gives hash, ops, bytes_unique, bytes_moved, egress_max_over_mean, "
            "ingress_max_over_mean, build_seconds, cast_made_bytes (by train ranks, once), "
            "cast_once_bytes (read from those), cast_moving_bytes, bound_seconds (null without "
            "--link), proof, classes and manifests_lack (what no rank of a group with manifests "
            "has). Hosts are imagined: no host has ranks of both sides.",
    };
    struct arguments arguments = {
        .per_host = PER_HOST_DEFAULT, .transit_bytes = WF_TRANSIT_DEFAULT, .focus = {.all = true}};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft plan"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    struct wf_model *model = NULL;
    struct wf_error error;
    if (wf_checkpoint_model(arguments.model, arguments.families.list, &model, &error) != WF_OK) {
        drop_arguments(&arguments);
        return failed(&error, WF_EXIT_FAILED);
    }
    int result = plan_job(&arguments, model);
    wf_model_free(model);
    drop_arguments(&arguments);
    return result;
}
