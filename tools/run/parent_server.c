/* parent_server.c - the job's server: where it listens, its journal, starting it, and once again.
 *
 * Unless the job names a folder for it, the journal lives in the run folder for as long as the job:
 * it is there for a server that dies, not for a host that does.
 */
#include "tools/run/parent_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/token_file.h"

#define JOURNAL_END ".journal"
enum { SERVER_START_MS = 60000, ARGUMENTS_MAX = 12 + 2 * WF_FAMILY_FILES_MAX };

/* --- the journal's folder ----------------------------------------------------------------------
 */
static void remove_journal(const char *folder)
{
    static const char *const files[] = {"journal", "journal.new", "journal.damaged", "lock"};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    for (size_t i = 0; fd >= 0 && i < sizeof files / sizeof files[0]; i++) {
        unlinkat(fd, files[i], 0);
    }
    if (fd >= 0) {
        close(fd);
        rmdir(folder);
    }
}

/* What supervisors that were killed have left: JOB-PID.journal. */
static void remove_stale(const char *run_folder)
{
    DIR *dir = opendir(run_folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        const char *dash = strrchr(entry->d_name, '-');
        char *end;
        long pid = dash != NULL ? strtol(dash + 1, &end, 10) : 0;
        if (pid <= 0 || strcmp(end, JOURNAL_END) != 0 || kill((pid_t)pid, 0) == 0 ||
            errno != ESRCH) {
            continue;
        }
        char path[WF_PATH_MAX + NAME_MAX + 2];
        snprintf(path, sizeof path, "%s/%s", run_folder, entry->d_name);
        remove_journal(path);
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static enum wf_status name_journal(struct parent *p, struct wf_error *error)
{
    char folder[WF_PATH_MAX];
    if (p->setup->job.server.journal[0] != '\0' || p->journal[0] != '\0') {
        return WF_OK; /* the server reads the job file too */
    }
    enum wf_status status = wf_process_folder(folder, error);
    if (status == WF_OK) {
        remove_stale(folder);
        int len = snprintf(p->journal, sizeof p->journal, "%.900s/%s-%d" JOURNAL_END, folder,
                           p->setup->job.name, (int)getpid());
        WF_ASSERT(len < WF_PATH_MAX);
        remove_journal(p->journal); /* of an earlier process with this number */
    }
    return status;
}

void wf_parent_end_server(struct parent *p)
{
    if (p->journal[0] != '\0') {
        remove_journal(p->journal);
    }
}

/* --- starting ----------------------------------------------------------------------------------
 */
/* Reads the server's "listening on ADDRESS" line. */
static enum wf_status read_server_line(int fd, char address[WF_ADDRESS_MAX], struct wf_error *error)
{
    static const char head[] = "listening on ";
    char line[WF_ADDRESS_MAX + sizeof head - 1];
    size_t len = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (len + 1 < sizeof line && poll(&wait, 1, SERVER_START_MS) == 1) {
        ssize_t got = read(fd, line + len, 1);
        if (got <= 0 || line[len] == '\n') {
            break;
        }
        len++;
    }
    line[len] = '\0';
    if (strncmp(line, head, sizeof head - 1) != 0) {
        return wf_error_set(error, WF_CONNECTION,
                            "the server did not start to listen (waited up to %d s)",
                            SERVER_START_MS / 1000);
    }
    memcpy(address, line + sizeof head - 1, len + 2 - sizeof head);
    return WF_OK;
}

enum wf_status wf_parent_start_server(struct parent *p, struct wf_error *error)
{
    const struct wf_job_file *job = &p->setup->job;
    const struct wf_parent_options *options = p->options;
    const char *reached = options->server != NULL ? options->server : job->server.address;
    if (reached[0] != '\0') {
        snprintf(p->server, sizeof p->server, "%s", reached);
    }
    if (reached[0] != '\0' && options->scope != WF_PARENT_LEADER) {
        return WF_OK;
    }
    /* Whoever is connected knows where it was and tries until it is there: no time is lost waiting.
     */
    bool again = p->bound[0] != '\0';
    int out[2] = {-1, -1};
    if (!again && pipe2(out, O_CLOEXEC) != 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make a pipe: %s", strerror(errno));
    }
    char listen[WF_ADDRESS_MAX];
    const char *arguments[ARGUMENTS_MAX] = {"server", job->path, "--ends-with-parent",
                                            "--token-file", p->token_file};
    int n = 5;
    for (uint32_t i = 0; i < p->setup->given_count; i++) {
        arguments[n++] = "--family";
        arguments[n++] = p->setup->given[i];
    }
    enum wf_status status = name_journal(p, error);
    if (p->journal[0] != '\0') {
        arguments[n++] = "--journal";
        arguments[n++] = p->journal;
    }
    if (status == WF_OK) {
        status = wf_parent_far_listen(p, listen, error);
    }
    const char *at = again ? p->bound : options->listen != NULL ? options->listen : listen;
    if (status == WF_OK && at[0] != '\0') {
        arguments[n++] = "--listen";
        arguments[n++] = at;
    }
    if (status == WF_OK) {
        status = wf_child_start(&p->children, &p->children.children[0], arguments, out[1], error);
    }
    if (again) {
        return status;
    }
    close(out[1]);
    if (status == WF_OK) {
        status = read_server_line(out[0], p->bound, error);
    }
    if (status == WF_OK && reached[0] == '\0') {
        memcpy(p->server, p->bound, sizeof p->server);
        status = wf_parent_far_server(p, p->bound, error);
    }
    close(out[0]);
    return status;
}
