/* test_hold.c - a process stops itself at the Nth frame of a name; one that it repeats is no other.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/messages.h"
#include "tools/run/hold.h"

enum { SENDS_MAX = 6 };

static enum wf_status nothing(struct wf_env *env, uint64_t conn, const void *bytes,
                              size_t len_bytes, int fd)
{
    (void)env;
    (void)conn;
    (void)bytes;
    (void)len_bytes;
    (void)fd;
    return WF_OK;
}

static const struct {
    const char *name, *when;
    struct {
        uint64_t conn, step;
    } votes[SENDS_MAX]; /* about step, in turn; conn 0: no more */
    int stops_at;       /* sends that were over */
} rows[] = {
    {"before the second", "before", {{1, 1}, {1, 2}}, 1},
    {"after the second", "after", {{1, 1}, {1, 2}}, 2},
    {"a repetition", "before", {{1, 1}, {1, 1}, {1, 1}, {1, 2}}, 3},
    {"the same to another", "before", {{1, 1}, {2, 1}}, 1},
    {"a late repetition", "before", {{1, 1}, {1, 1}, {2, 1}, {1, 2}}, 2},
};

/* The child: says each send that is over by a byte, and how many there were by its status. */
static void send_votes(size_t row, int over)
{
    struct wf_env_ops ops = {.send = nothing};
    struct wf_env env = {.ops = &ops};
    struct wf_hold hold;
    wf_hold_init(&hold, &env, "infer:1");
    for (int i = 0; i < SENDS_MAX && rows[row].votes[i].conn != 0; i++) {
        const struct wf_frame_vote vote = {.round.version.step = rows[row].votes[i].step};
        if (wf_frame_send(&env, rows[row].votes[i].conn, WF_FRAME_vote, &vote, -1) != WF_OK ||
            write(over, "", 1) != 1) {
            _exit(1);
        }
    }
    _exit(0);
}

Test(hold, the_nth_frame_is_no_repetition)
{
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        char folder[] = "/tmp/weft-hold-XXXXXX", fifo[64], asks[128], bytes[SENDS_MAX];
        cr_assert_not_null(mkdtemp(folder));
        snprintf(fifo, sizeof fifo, "%s/held", folder);
        cr_assert_eq(mkfifo(fifo, 0600), 0);
        int reader = open(fifo, O_RDWR | O_NONBLOCK), over[2], status = 0;
        snprintf(asks, sizeof asks, "infer:1,%s,vote,2,%s", rows[row].when, fifo);
        cr_assert(reader >= 0 && pipe(over) == 0 && setenv("WEFT_TEST_HOLD", asks, 1) == 0);
        pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0) {
            send_votes(row, over[1]);
        }
        cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
        cr_expect(WIFSTOPPED(status), "%s: it never stops", rows[row].name);
        close(over[1]);
        fcntl(over[0], F_SETFL, O_NONBLOCK);
        ssize_t sends = read(over[0], bytes, sizeof bytes);
        int expected = rows[row].stops_at - (strcmp(rows[row].when, "after") == 0);
        cr_expect_eq(sends > 0 ? sends : 0, expected, "%s: stops after %zd", rows[row].name, sends);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        close(over[0]);
        close(reader);
        unlink(fifo);
        rmdir(folder);
    }
}
