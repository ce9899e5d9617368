/* commands.h - the commands of the one program `weft`.
 *
 * Each command is one file tools/cmd_NAME.c with one function; `argc` and `argv` begin with the
 * command's own name. Options are parsed with argp. Exit status: 0 success; 2 the command line, a
 * SPEC or a job file is wrong and nothing was started; 1 everything else.
 */
#ifndef WEFT_TOOLS_COMMANDS_H
#define WEFT_TOOLS_COMMANDS_H

enum { WF_EXIT_OK = 0, WF_EXIT_FAILED = 1, WF_EXIT_USAGE = 2 };

/* X(name on the command line, function, one line of help), one a line, in the order of
 * `weft --help`. */
/* clang-format off */
#define WF_COMMAND_MAP(X) \
    X("run", wf_cmd_run, "run a whole job on this host, or one rank of it") \
    X("server", wf_cmd_server, "run the MetaServer of a job") \
    X("status", wf_cmd_status, "say what a running job is doing, and who waits for whom") \
    X("plan", wf_cmd_plan, "plan a job without data: boxes, bytes, balance, proof") \
    X("layout", wf_cmd_layout, "show what a rank holds, or check layouts against fixtures") \
    X("compare", wf_cmd_compare, "compare two sets of weights tensor by tensor, and say why they differ") \
    X("dump", wf_cmd_dump, "write what ranks of a framework would hold of a checkpoint") \
    X("bench", wf_cmd_bench, "measure one thing beside its physical limit") \
    X("doctor", wf_cmd_doctor, "say what this host offers, and what would be slow and why") \
    X("versions", wf_cmd_versions, "say which versions lie in a folder, and whether they are whole") \
    X("make-checkpoint", wf_cmd_make_checkpoint, "write a Hugging Face folder of known values") \
    /* end */
/* clang-format on */

#define WF_COMMAND_PROTO(name, function, help) int function(int argc, char **argv);
WF_COMMAND_MAP(WF_COMMAND_PROTO)
#undef WF_COMMAND_PROTO

#endif
