/* weft.c - the program's entrance: picks a command from the table, nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/commands.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
#define COMMAND_ROW(name, function, help) {name, function, help},
    WF_COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
};

static void print_help(FILE *out)
{
    fprintf(
        out,
        "Usage: weft COMMAND [OPTION...]\n\n"
        "Moves model weights from trainer ranks to inference ranks, one version at a time.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(out, "  %-16s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(out,
            "\n`weft COMMAND --help` says more; `weft --version` prints the version.\n"
            "Exit status: 0 for success; 2 if the command line, a SPEC or a job file is wrong and\n"
            "nothing was started; 1 for everything else.\n");
}

/* Descriptors 0 to 2 that are closed would be given to files and sockets, and our messages to
 * those. */
static void claim_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

/* One connection a rank, and strangers: the usual soft limit of 1,024 is for programs that use
 * select(), which nothing here does. */
static void raise_descriptors(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* refused: the soft limit stays */
    }
}

/* What a command printed and could not be written must not look like success; a reader that went
 * away has had what it wanted. */
static int end(const char *name, int exit_status)
{
    struct pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT};
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    bool gone = poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0;
    if (written || gone || exit_status != WF_EXIT_OK) {
        return exit_status;
    }
    fprintf(stderr, "weft %s: cannot write to standard output%s%s\n", name, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return WF_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    claim_standard_descriptors();
    /* A reader of our output that goes away, and a limit of file sizes, come as errors of write. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return WF_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return WF_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("weft %s\n", WEFT_VERSION);
        return WF_EXIT_OK;
    }
    raise_descriptors();
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return end(commands[i].name, commands[i].run(argc - 1, argv + 1));
        }
    }
    fprintf(stderr, "weft: unknown command \"%s\"; `weft --help` lists them\n", argv[1]);
    return WF_EXIT_USAGE;
}
