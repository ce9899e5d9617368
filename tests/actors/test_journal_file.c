/* test_journal_file.c - the journal on a simulated and on a real disk: deaths, locks, compaction,
 * full devices. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/journal_file.h"
#include "runtime/env_sim.h"

static enum wf_status append_term(struct wf_journal_file *file, uint64_t term)
{
    const struct wf_journal_record record = {.kind = WF_JOURNAL_TERM, .term = term, .epoch = 1};
    struct wf_error error = {0};
    return wf_journal_file_append(file, &record, &error);
}

/* --- simulated --------------------------------------------------------------------------------
 */
struct death {
    struct wf_loop *loop;
    struct wf_journal_file *file;
    enum wf_sim_write what;
    bool armed;
};

static enum wf_sim_write on_write(void *user, struct wf_loop *loop, const char *name,
                                  const void *bytes, size_t len)
{
    struct death *death = user;
    (void)loop, (void)name, (void)bytes, (void)len;
    return death->armed ? death->what : WF_SIM_WRITE_DONE;
}

/* In a turn of the rank, as deaths need. */
struct writer {
    struct wf_actor actor;
    struct death *death;
};
static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    (void)msg;
    struct death *death = ((struct writer *)self)->death;
    death->armed = true;
    append_term(death->file, 8);
    death->armed = false;
    return WF_FREE;
}
static void release(struct wf_msg *msg)
{
    (void)msg;
}

static struct writer writer;
static void teardown(void *user, struct wf_loop *loop)
{
    struct death *death = user;
    (void)loop;
    wf_journal_file_close(death->file);
    wf_actor_close(&writer.actor);
    wf_actor_fini(&writer.actor);
}

static const struct {
    const char *name;
    enum wf_sim_write what;
    uint64_t term_min, term_max;
} deaths[] = {
    {"before", WF_SIM_WRITE_DIES, 7, 7},
    {"in the middle", WF_SIM_WRITE_TORN, 7, 8}, /* 8: all of it had reached the disk */
    {"after", WF_SIM_WRITE_THEN_DIES, 8, 8},
};

Test(journal_file, what_a_writer_that_died_leaves)
{
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++) {
        for (uint64_t seed = 1; seed <= 40; seed++) {
            struct wf_sim *sim = wf_sim_new(seed, NULL);
            struct wf_error error = {0};
            struct death death = {.what = deaths[i].what};
            death.loop = wf_sim_rank_new(sim, "first", teardown, &death);
            wf_sim_on_write(sim, on_write, &death);
            cr_assert_eq(wf_journal_file_open(wf_loop_env(death.loop), "disk", "job", false,
                                              &death.file, &error),
                         WF_OK, "%s", error.text);
            cr_assert_eq(append_term(death.file, 7), WF_OK);
            struct wf_loop *next = wf_sim_rank_new(sim, "next", NULL, NULL);
            struct wf_journal_file *file = NULL;
            cr_expect_eq(
                wf_journal_file_open(wf_loop_env(next), "disk", "job", false, &file, &error),
                WF_REFUSED);
            cr_expect_not_null(strstr(error.text, "in use by process"), "%s", error.text);
            writer.death = &death;
            wf_actor_init(&writer.actor, death.loop, "writer", on_message);
            struct wf_msg msg = {.kind = 1, .release = release};
            wf_send(&writer.actor, &msg);
            wf_sim_run(sim, NULL, NULL, 1000000);
            cr_assert_eq(
                wf_journal_file_open(wf_loop_env(next), "disk", "job", false, &file, &error), WF_OK,
                "%s, seed %d: %s", deaths[i].name, (int)seed, error.text);
            uint64_t term = wf_journal_file_state(file)->term;
            cr_expect(term >= deaths[i].term_min && term <= deaths[i].term_max,
                      "%s, seed %d: term %d", deaths[i].name, (int)seed, (int)term);
            cr_expect_eq(append_term(file, 9), WF_OK);
            wf_journal_file_close(file);
            wf_sim_free(sim);
        }
    }
}

/* --- real -------------------------------------------------------------------------------------
 */
struct real {
    struct wf_loop *loop;
    struct wf_env *env;
    char folder[64], path[96];
};

static void real_open(struct real *real)
{
    struct wf_error error = {0};
    struct wf_loop_options options = {.poller = WF_POLLER_EPOLL, .spin_ns = 0};
    snprintf(real->folder, sizeof real->folder, "/tmp/weft-journal-XXXXXX");
    cr_assert_not_null(mkdtemp(real->folder));
    snprintf(real->path, sizeof real->path, "%s/j", real->folder);
    cr_assert_eq(wf_loop_new(&options, &real->loop, &error), WF_OK);
    cr_assert_eq(wf_env_real_new(real->loop, NULL, &real->env, &error), WF_OK);
    wf_loop_set_env(real->loop, real->env);
}

static void real_close(struct real *real)
{
    wf_env_real_free(real->env);
    wf_loop_free(real->loop);
    char command[120];
    snprintf(command, sizeof command, "rm -r %s", real->folder);
    cr_assert_eq(system(command), 0);
}

static mode_t mode_of(const char *folder, const char *name)
{
    char path[160];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(stat(path, &about), 0, "%s", path);
    return about.st_mode & 0777;
}

static size_t size_of(const char *folder, const char *name)
{
    char path[160];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(stat(path, &about), 0, "%s", path);
    return (size_t)about.st_size;
}

Test(journal_file, is_locked_private_and_read_again)
{
    struct real real;
    struct wf_journal_file *file = NULL, *other = NULL;
    struct wf_error error = {0};
    char pid[40];
    real_open(&real);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK,
                 "%s", error.text);
    cr_assert_eq(append_term(file, 7), WF_OK);
    cr_expect_eq(mode_of(real.folder, "j"), 0700);
    cr_expect_eq(mode_of(real.path, "journal"), 0600);
    cr_expect_eq(mode_of(real.path, "lock"), 0600);
    cr_expect_eq(wf_journal_file_open(real.env, real.path, "job", false, &other, &error),
                 WF_REFUSED);
    snprintf(pid, sizeof pid, "in use by process %d", (int)getpid());
    cr_expect_not_null(strstr(error.text, pid), "%s", error.text);
    wf_journal_file_close(file);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK,
                 "%s", error.text);
    cr_expect_eq(wf_journal_file_state(file)->term, 7);
    wf_journal_file_close(file);
    cr_expect_eq(wf_journal_file_open(real.env, real.path, "another", false, &file, &error),
                 WF_REFUSED);
    cr_expect_not_null(strstr(error.text, "is of job \"job\", not \"another\""), "%s", error.text);
    real_close(&real);
}

Test(journal_file, grows_and_is_compacted)
{
    struct real real;
    struct wf_journal_file *file = NULL;
    struct wf_error error = {0};
    enum { MEMBERS = 2000 };
    static struct wf_el_member members[MEMBERS];
    real_open(&real);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK);
    struct wf_journal_record open = {.kind = WF_JOURNAL_OPEN,
                                     .term = 7,
                                     .epoch = 1,
                                     .members = members,
                                     .member_count = MEMBERS};
    size_t largest = 0;
    for (uint64_t step = 1; step <= 50; step++) { /* 64 KB each */
        open.round = (struct wf_round_key){.term = 7, .version = {7, 1, step}, .attempt = 1};
        cr_assert_eq(wf_journal_file_append(file, &open, &error), WF_OK, "%s", error.text);
        size_t size = size_of(real.path, "journal");
        largest = size > largest ? size : largest;
    }
    cr_expect_leq(largest, WF_JOURNAL_COMPACT_BYTES);
    cr_expect_gt(largest, WF_JOURNAL_COMPACT_BYTES / 2);
    wf_journal_file_close(file);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK);
    cr_expect_eq(wf_journal_file_state(file)->round.version.step, 50);
    cr_expect_eq(wf_journal_file_state(file)->member_count, MEMBERS);
    wf_journal_file_close(file);
    real_close(&real);
}

/* A device that takes no more: nothing half written stays, and nothing is written after it. */
Test(journal_file, a_full_device)
{
    struct real real;
    struct wf_journal_file *file = NULL;
    struct wf_error error = {0};
    real_open(&real);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK);
    cr_assert_eq(append_term(file, 7), WF_OK);
    size_t before = size_of(real.path, "journal");
    struct rlimit limit, old;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = before + 20; /* less than a record */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const struct wf_journal_record record = {.kind = WF_JOURNAL_TERM, .term = 8, .epoch = 1};
    enum wf_status status = wf_journal_file_append(file, &record, &error);
    setrlimit(RLIMIT_FSIZE, &old);
    cr_expect_eq(status, WF_IO);
    cr_expect_not_null(strstr(error.text, "/journal: File too large"), "%s", error.text);
    cr_expect_eq(size_of(real.path, "journal"), before);
    cr_expect_eq(append_term(file, 9), WF_IO);
    wf_journal_file_close(file);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK,
                 "%s", error.text);
    cr_expect_eq(wf_journal_file_state(file)->term, 7);
    wf_journal_file_close(file);
    real_close(&real);
}

Test(journal_file, a_damaged_one_is_put_aside_by_order_only)
{
    struct real real;
    struct wf_journal_file *file = NULL;
    struct wf_error error = {0};
    real_open(&real);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error), WF_OK);
    append_term(file, 7);
    append_term(file, 8);
    wf_journal_file_close(file);
    char path[128];
    snprintf(path, sizeof path, "%s/journal", real.path);
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "xx", 2, 40), 2);
    close(fd);
    cr_expect_eq(wf_journal_file_open(real.env, real.path, "job", false, &file, &error),
                 WF_INVALID);
    cr_expect_not_null(strstr(error.text, "damaged at offset 0, in the middle"), "%s", error.text);
    cr_expect_not_null(strstr(error.text, "With --recover the server keeps this file as "
                                          "journal.damaged"),
                       "%s", error.text);
    cr_assert_eq(wf_journal_file_open(real.env, real.path, "job", true, &file, &error), WF_OK, "%s",
                 error.text);
    cr_expect_eq(wf_journal_file_state(file)->term, 0);
    cr_expect_gt(size_of(real.path, "journal.damaged"), 40);
    wf_journal_file_close(file);
    real_close(&real);
}
