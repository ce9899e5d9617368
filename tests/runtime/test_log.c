/* test_log.c - levels, cutting, repetition, and sinks whose reader is gone. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/log.h"
#include "tests/runtime/clock_env.h"

struct memory_sink {
    struct wf_log_sink sink;
    unsigned lines;
    char last[WF_LOG_LINE_MAX + 1];
};

static void keep_line(struct wf_log_sink *sink, enum wf_log_level level, const char *line,
                      size_t len)
{
    (void)level;
    struct memory_sink *memory = (struct memory_sink *)sink;
    cr_assert_leq(len, WF_LOG_LINE_MAX);
    memory->lines++;
    memcpy(memory->last, line, len);
    memory->last[len] = '\0';
}

static uint64_t wall_s(struct wf_env *env)
{
    (void)env;
    return 3723; /* 01:02:03 */
}

static const struct wf_env_ops log_env_ops = {.now_ns = clock_env_set_now, .wall_s = wall_s};

struct fixture {
    struct clock_env env;
    struct memory_sink sink;
    struct wf_log log;
};

static void prepare(struct fixture *f, enum wf_log_level level)
{
    *f = (struct fixture){.env.env.ops = &log_env_ops, .sink.sink.write = keep_line};
    wf_log_init(&f->log, &f->sink.sink, &f->env.env, level, "infer rank 2");
}

Test(log, a_line_says_when_who_and_what)
{
    struct fixture f;
    prepare(&f, WF_LOG_INFO);
    wf_log(&f.log, WF_LOG_WARN, "tensor %d is slow", 17);
    cr_assert_str_eq(f.sink.last, "01:02:03 warn  infer rank 2: tensor 17 is slow\n");
}

Test(log, levels_above_are_not_even_evaluated)
{
    struct fixture f;
    prepare(&f, WF_LOG_INFO);
    int evaluated = 0;
    wf_log(&f.log, WF_LOG_DEBUG, "%d", ++evaluated);
    wf_log((struct wf_log *)NULL, WF_LOG_ERROR, "%d", ++evaluated);
    cr_assert_eq(evaluated, 0);
    cr_assert_eq(f.sink.lines, 0);
}

Test(log, level_names_are_parsed)
{
    enum wf_log_level level;
    struct wf_error error;
    for (int i = WF_LOG_ERROR; i <= WF_LOG_TRACE; i++) {
        cr_assert_eq(wf_log_level_parse(wf_log_level_name((enum wf_log_level)i), &level, NULL),
                     WF_OK);
        cr_assert_eq((int)level, i);
    }
    cr_assert_eq(wf_log_level_parse("loud", &level, &error), WF_INVALID);
    cr_assert(strstr(error.text, "expected error, warn") != NULL, "%s", error.text);
}

static const struct text_row {
    const char *name, *text, *expected;
} text_rows[] = {
    {"escapes and newlines", "a\x1b[2J\nb", ": a?[2J?b\n"},
    {"bytes above 127 stay", "\xc3\xa9", ": \xc3\xa9\n"},
    {"empty", "", ": \n"},
};

Test(log, one_line_stays_one_line)
{
    for (size_t i = 0; i < sizeof text_rows / sizeof text_rows[0]; i++) {
        struct fixture f;
        prepare(&f, WF_LOG_INFO);
        wf_log(&f.log, WF_LOG_INFO, "%s", text_rows[i].text);
        size_t end = strlen(text_rows[i].expected), len = strlen(f.sink.last);
        cr_assert_str_eq(f.sink.last + len - end, text_rows[i].expected, "%s: %s",
                         text_rows[i].name, f.sink.last);
    }
}

Test(log, a_long_line_is_cut_visibly)
{
    struct fixture f;
    prepare(&f, WF_LOG_INFO);
    wf_log(&f.log, WF_LOG_INFO, "%3000d", 1);
    size_t len = strlen(f.sink.last);
    cr_assert_leq(len, WF_LOG_LINE_MAX);
    cr_assert_str_eq(f.sink.last + len - 4, "...\n");
}

Test(log, repetition_is_held_back_and_counted)
{
    struct fixture f;
    prepare(&f, WF_LOG_INFO);
    for (int i = 0; i < 100; i++) {
        f.env.set_ns = (uint64_t)i;
        wf_log(&f.log, WF_LOG_WARN, "accept failed");
    }
    cr_assert_eq(f.sink.lines, WF_LOG_BURST);
    wf_log(&f.log, WF_LOG_WARN, "something else");
    cr_assert_eq(f.sink.lines, WF_LOG_BURST + 1, "other texts are not held back");
    f.env.set_ns = WF_LOG_WINDOW_NS;
    wf_log(&f.log, WF_LOG_WARN, "accept failed");
    cr_assert_eq(f.sink.lines, WF_LOG_BURST + 2);
    cr_assert(strstr(f.sink.last, "accept failed (95 more like this left out)") != NULL, "%s",
              f.sink.last);
    wf_log(&f.log, WF_LOG_WARN, "accept failed");
    cr_assert(strstr(f.sink.last, "left out") == NULL, "%s", f.sink.last);
}

/* --- descriptors -------------------------------------------------------------------------------
 */

static int closed_fd(void)
{
    int fd = open("/dev/null", O_WRONLY);
    close(fd);
    return fd;
}

static int pipe_without_reader(void)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    close(ends[0]);
    return ends[1];
}

static int full_pipe(void)
{
    int ends[2];
    char block[4096] = {0};
    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], block, sizeof block) > 0) {
    }
    return ends[1];
}

static int full_device(void)
{
    return open("/dev/full", O_WRONLY);
}

static const struct fd_row {
    const char *name;
    int (*make)(void);
} fd_rows[] = {
    {"closed before", closed_fd},
    {"reader gone", pipe_without_reader},
    {"pipe full", full_pipe},
    {"disk full", full_device},
};

/* SIGPIPE has its default action here: it would end the test. */
Test(log, what_cannot_be_written_is_dropped)
{
    for (size_t i = 0; i < sizeof fd_rows / sizeof fd_rows[0]; i++) {
        struct fixture f;
        struct wf_log_fd to;
        prepare(&f, WF_LOG_INFO);
        wf_log_fd_init(&to, fd_rows[i].make());
        wf_log_init(&f.log, &to.sink, &f.env.env, WF_LOG_INFO, "x");
        wf_log(&f.log, WF_LOG_INFO, "one");
        wf_log(&f.log, WF_LOG_INFO, "two");
        cr_assert_eq(to.dropped, 2, "%s", fd_rows[i].name);
        sigset_t pending;
        sigpending(&pending);
        cr_assert(!sigismember(&pending, SIGPIPE), "%s", fd_rows[i].name);
        wf_log_fd_fini(&to);
    }
}

Test(log, a_number_used_again_is_not_written_to)
{
    struct fixture f;
    struct wf_log_fd to;
    int log_ends[2], data_ends[2];
    char text[256] = "";
    prepare(&f, WF_LOG_INFO);
    cr_assert_eq(pipe(log_ends), 0);
    wf_log_fd_init(&to, log_ends[1]);
    close(log_ends[1]);
    cr_assert_eq(pipe2(data_ends, O_NONBLOCK), 0);
    wf_log_init(&f.log, &to.sink, &f.env.env, WF_LOG_INFO, "x");
    wf_log(&f.log, WF_LOG_INFO, "hello");
    cr_assert_gt(read(log_ends[0], text, sizeof text - 1), 0);
    cr_assert(strstr(text, "x: hello\n") != NULL, "%s", text);
    cr_assert_lt(read(data_ends[0], text, sizeof text), 0, "nothing came to the other pipe");
    wf_log_fd_fini(&to);
}
