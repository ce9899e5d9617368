/* cmd_dump.c - `weft dump`: the files that ranks of a framework would write of a checkpoint. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/family_file.h"
#include "tools/commands.h"
#include "tools/compare/dump_write.h"
#include "tools/family_option.h"

struct arguments {
    struct wf_dump_write_options dump;
    struct wf_family_files families;
};

static const struct argp_option options[] = {
    {"spec", 's', "SPEC", 0, "for example megatron:tp=2,pp=2 or vllm:tp=2", 0},
    {"out", 'o', "DIR", 0, "where to write; made if absent", 0},
    {"family", 'f', "FILE", 0,
     "a file that describes a model family (docs/add-a-model.md), beside the built-in ones; may be "
     "repeated",
     0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 's':
        arguments->dump.spec = argument;
        return 0;
    case 'o':
        arguments->dump.folder = argument;
        return 0;
    case 'f':
        wf_family_option_take(state, argument, &arguments->families);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) {
            argp_error(state, "one folder, please; \"%s\" is a second one", argument);
        }
        arguments->dump.model = argument;
        return 0;
    case ARGP_KEY_END:
        if (arguments->dump.model == NULL || arguments->dump.spec == NULL ||
            arguments->dump.folder == NULL) {
            argp_error(state, "a Hugging Face folder, --spec and --out are needed");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void show_progress(void *user, uint32_t done, uint32_t total)
{
    (void)user;
    fprintf(stderr, "\r\033[Kwrote rank %" PRIu32 " of %" PRIu32 "%s", done, total,
            done == total ? "\r\033[K" : "");
}

int wf_cmd_dump(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "MODEL",
        .doc =
            "Writes a dump: recipe.json and, for each rank of SPEC, rank_NN.safetensors with the "
            "tensors that it would hold of the Hugging Face folder MODEL, under the framework's "
            "own names (docs/compare.md).",
    };
    struct arguments arguments = {0};
    struct wf_dump_written written;
    struct wf_error error = {0};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char[]){"weft dump"}; /* the name in argp's messages */
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    arguments.dump.families = arguments.families.list;
    arguments.dump.progress = isatty(STDERR_FILENO) ? show_progress : NULL;
    enum wf_status status = wf_dump_write(&arguments.dump, &written, &error);
    wf_family_files_fini(&arguments.families);
    if (status != WF_OK) {
        fprintf(stderr, "weft dump: %s\n", error.text);
        return status == WF_INVALID ? WF_EXIT_USAGE : WF_EXIT_FAILED;
    }
    printf("%s: %" PRIu32 " %s, %" PRIu64 " tensors, %" PRIu64 " bytes\n", arguments.dump.folder,
           written.ranks, written.ranks == 1 ? "rank" : "ranks", written.tensors, written.bytes);
    return WF_EXIT_OK;
}
