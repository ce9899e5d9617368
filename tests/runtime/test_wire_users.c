/* test_wire_users.c - abstract names of unix sockets belong to whoever comes first: other users'
 * processes are not talked to, whichever side they are on. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/wire_address.h"
#include "tests/contract/wire_world.h"

#define GREETING "WFT1\0\0\0\0"

static bool client_closed(struct wire_world *w)
{
    return w->client.closed > 0;
}

/* A process of another user: connects to `address` (or listens there) and ends with 0 when the
 * other side has hung up without a word. */
static pid_t other_user(const char *address, bool listens, int ready_fd)
{
    enum { NOBODY = 65534 };
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    struct wf_wire_address parsed;
    struct wf_wire_targets targets;
    char byte;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = setuid(NOBODY) == 0 && wf_wire_address_parse(address, &parsed, NULL) == WF_OK &&
                wf_wire_address_inline(&parsed, listens, &targets) == WF_OK;
    const struct wf_wire_target *target = &targets.target[0];
    if (good && listens) {
        good = bind(fd, &target->any, target->len) == 0 && listen(fd, 1) == 0;
    } else if (good) {
        good = connect(fd, &target->any, target->len) == 0 &&
               send(fd, GREETING, sizeof GREETING - 1, MSG_NOSIGNAL) > 0;
    }
    good = write(ready_fd, "r", 1) == 1 && good;
    fd = good && listens ? accept(fd, NULL, NULL) : fd;
    ssize_t got = good ? recv(fd, &byte, 1, 0) : 1;
    _exit(got == 0 || (got < 0 && errno == ECONNRESET) ? 0 : 1);
}

static void await_other_user(int ready_fd)
{
    char byte;
    cr_assert_eq(read(ready_fd, &byte, 1), 1);
}

static void check_other_user(pid_t pid, const char *name)
{
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %d", name, status);
}

Test(wire_users, other_users_are_not_talked_to)
{
    if (geteuid() != 0) {
        cr_skip("only root can become another user");
    }
    int ready[2];
    cr_assert_eq(pipe(ready), 0);
    struct wire_world *w = malloc(sizeof *w);
    wire_world_real(w, "unix:@weft-test-*", "unix:@weft-test-*", WF_POLLER_EPOLL, NULL);
    cr_assert_eq(w->env[0]->ops->listen(w->env[0], &w->server.actor, w->address, w->bound,
                                        &w->listener, NULL),
                 WF_OK);
    pid_t comes = other_user(w->bound, false, ready[1]);
    await_other_user(ready[0]);
    wire_world_settle(w);
    cr_assert_eq(w->server.count, 0, "one who comes");
    check_other_user(comes, "one who comes");
    char name[64];
    snprintf(name, sizeof name, "unix:@weft-test-taken-%d", (int)getpid());
    pid_t waits = other_user(name, true, ready[1]);
    await_other_user(ready[0]);
    uint64_t conn = 0;
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, name, &conn, NULL), WF_OK);
    cr_assert(wire_world_run(w, client_closed));
    cr_assert(strstr(witness_last(&w->client, WF_WIRE_CLOSED)->text, "another user") != NULL, "%s",
              witness_last(&w->client, WF_WIRE_CLOSED)->text);
    check_other_user(waits, "one who took the name");
    close(ready[0]);
    close(ready[1]);
    wire_world_fini(w);
    free(w);
}
