/* test_version.c - versions as folders: whole or not there, and no byte that was not written. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tools/version_case.h"
#include "tools/files/checkpoint.h"

TestSuite(version, .init = set_up, .fini = tear_down);

Test(version, what_was_written_is_read_and_any_reader_takes_it)
{
    static const uint64_t shards[] = {0, 200000, 1};
    for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
        struct wf_version version = {1, 1, i + 1};
        struct wf_error error = {0};
        struct wf_checkpoint *checkpoint = NULL;
        const struct wf_checkpoint_options options = {.extras_refuse = true};
        save_well(version, shards[i]);
        cr_assert_eq(read_all("tester", version, &error), WF_OK, "shards of %llu: %s",
                     (unsigned long long)shards[i], error.text);
        cr_assert_eq(
            wf_checkpoint_open(version_path(version, ""), model, &options, &checkpoint, &error),
            WF_OK, "%s", error.text);
        cr_assert_eq(checkpoint->file_count == 1, shards[i] == 0);
        wf_checkpoint_free(checkpoint);
        cr_assert_eq(access(version_path(version, "config.json"), R_OK), 0);
    }
    cr_assert_eq(count_entries(), 2, "two are kept, and nothing else lies there");
}

Test(version, one_that_is_there_is_not_written_again)
{
    struct stat before, after;
    save_well(first, 0);
    cr_assert_eq(stat(version_path(first, WF_HF_SINGLE), &before), 0);
    save_well(first, 0);
    cr_assert_eq(stat(version_path(first, WF_HF_SINGLE), &after), 0);
    cr_assert_eq(before.st_ino, after.st_ino);
    cr_assert_eq(truncate(version_path(first, WF_HF_SINGLE), 100), 0);
    save_well(first, 0); /* not whole: anew */
    struct wf_error error = {0};
    cr_assert_eq(read_all("tester", first, &error), WF_OK, "%s", error.text);
    cr_assert_eq(count_entries(), 1);
}

Test(version, what_killed_writers_left_is_removed_and_nothing_else)
{
    char path[4 * FOLDER_PATH_MAX];
    static const char *const ours[] = {".1.1.3.weft-partial", ".1.1.2.weft-old",
                                       ".1.1.2.weft-old-12"};
    static const char *const others[] = {"notes", ".x.weft-partial", ".1.1.weft-old",
                                         ".1.1.2.weft-old-"};
    mkdir(place, 0777);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", place, ours[i]);
        mkdir(path, 0777);
        folder_write(path, "model.safetensors", "half", 4);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", place, others[i]);
        mkdir(path, 0777);
    }
    save_well(first, 0);
    cr_assert_eq(count_entries(), 1 + 4);
}

/* A folder in a version's: it cannot be removed. */
static void put_folder(const char *version_name)
{
    char path[4 * FOLDER_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", place, version_name);
    cr_assert(mkdir(path, 0777) == 0 || access(path, W_OK) == 0, "%s", path);
    folder_write(path, "model.safetensors", "half", 4);
    strcat(path, "/kept");
    cr_assert_eq(mkdir(path, 0777), 0, "%s", path);
}

static bool lies_there(const char *name)
{
    char path[4 * FOLDER_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return access(path, F_OK) == 0;
}

Test(version, an_old_one_that_cannot_be_removed_stops_nothing)
{
    struct wf_error error = {0};
    const struct wf_version third = {1764460800, 1, 9};
    save_well(first, 0);
    put_folder("1764460800.1.7");
    note_count = 0;
    cr_assert_eq(save(second, 0, 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(note_count, 1);
    cr_assert_not_null(strstr(noted, "kept failed"), "%s", noted);
    cr_assert_not(lies_there("1764460800.1.7"), "nobody opens it");
    cr_assert(lies_there(".1764460800.1.7.weft-old/kept"));
    cr_assert_not(lies_there(".1764460800.1.7.weft-old/model.safetensors"), "its bytes are gone");
    cr_assert_eq(save(third, 0, 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(read_all("tester", third, &error), WF_OK, "%s", error.text);
    cr_assert_eq(count_entries(), 2);
}

Test(version, one_that_is_not_whole_and_cannot_be_removed_is_written_anew)
{
    struct wf_error error = {0};
    save_well(first, 0);
    put_folder("1764460800.1.7"); /* its weights are cut too */
    note_count = 0;
    cr_assert_eq(save(first, 0, 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(note_count, 1);
    cr_assert_eq(read_all("tester", first, &error), WF_OK, "%s", error.text);
}

Test(version, left_overs_that_stay_are_in_nobodys_way)
{
    struct wf_error error = {0};
    const struct wf_version_notes notes = {.say = keep_note};
    cr_assert_eq(wf_version_prepare(place, &notes, &error), WF_OK, "%s", error.text);
    put_folder(".1764460800.1.7.weft-partial");
    put_folder(".1764460800.1.7.weft-old");
    put_folder(".1764460800.1.7.weft-old-1");
    note_count = 0;
    cr_assert_eq(wf_version_prepare(place, &notes, &error), WF_OK, "%s", error.text);
    cr_assert_eq(note_count, 3);
    cr_assert_eq(save(first, 0, 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(save(second, 0, 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(count_entries(), 3 + 1, "the old version is gone");
    cr_assert_eq(read_all("tester", second, &error), WF_OK, "%s", error.text);
}

static enum wf_status save_of_another(struct wf_version version, struct wf_error *error)
{
    const struct wf_version_save other = {.place = place,
                                          .job = "another",
                                          .version = version,
                                          .label = "",
                                          .config = config,
                                          .config_len = config_len,
                                          .layout = layout,
                                          .tensors = tensors,
                                          .keep = 1};
    return wf_version_write(&other, error);
}

Test(version, what_is_not_of_this_job_stays)
{
    struct wf_error error = {0};
    char path[4 * FOLDER_PATH_MAX];
    const struct wf_version others = {1, 1, 1};
    cr_assert_eq(save_of_another(others, &error), WF_OK, "%s", error.text);
    snprintf(path, sizeof path, "%s/1.1.2", place);
    cr_assert_eq(mkdir(path, 0777), 0); /* a name like a version's, and nothing else of one */
    for (uint64_t step = 3; step < 7; step++) {
        cr_assert_eq(save((struct wf_version){1, 1, step}, 0, 2, &error), WF_OK, "%s", error.text);
    }
    cr_assert_eq(count_entries(), 2 + 2);
    cr_assert_eq(read_all("another", others, &error), WF_OK, "%s", error.text);
    cr_assert_eq(read_all("tester", (struct wf_version){1, 1, 5}, &error), WF_OK, "%s", error.text);
}

static void put_another_job(void)
{
    struct wf_error error = {0};
    cr_assert_eq(save_of_another(first, &error), WF_OK, "%s", error.text);
}
static void put_no_version(void)
{
    mkdir(place, 0777);
    put_folder("1764460800.1.7");
}
static void put_file(void)
{
    mkdir(place, 0777);
    folder_write(place, "1764460800.1.7", "x", 1);
}

static const struct {
    const char *name;
    void (*put)(void);
} foreign[] = {
    {"another job's", put_another_job},
    {"no version", put_no_version},
    {"a file", put_file},
};

Test(version, what_is_not_of_this_job_is_not_written_over)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        struct wf_error error = {0};
        foreign[i].put();
        cr_expect_eq(save(first, 0, 1, &error), WF_REFUSED, "%s", foreign[i].name);
        cr_expect_not_null(strstr(error.text, "1764460800.1.7 lies there and does not say"), "%s",
                           error.text);
        cr_expect(lies_there("1764460800.1.7"), "%s", foreign[i].name);
        cr_expect_eq(count_entries(), 1, "%s", foreign[i].name);
        folder_remove(place);
    }
}

Test(version, what_was_just_written_stays_after_a_clock_that_went_back)
{
    struct wf_error error = {0};
    const struct wf_version earlier = {1764400000, 1, 1}, next = {1764400000, 1, 2};
    save_well(first, 0);
    save_well(second, 0);
    save_well(earlier, 0);
    cr_assert_eq(read_all("tester", earlier, &error), WF_OK, "%s", error.text);
    cr_assert_eq(read_all("tester", second, &error), WF_OK, "%s", error.text);
    cr_assert_eq(count_entries(), 2);
    cr_assert_eq(save(next, 0, 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(read_all("tester", next, &error), WF_OK, "%s", error.text);
    cr_assert_eq(count_entries(), 1);
}

Test(version, a_place_is_looked_at_before_it_is_needed)
{
    struct wf_error error = {0};
    char path[4 * FOLDER_PATH_MAX];
    const struct wf_version_notes nowhere = {0};
    cr_assert_eq(wf_version_prepare(place, &nowhere, &error), WF_OK, "%s", error.text);
    snprintf(path, sizeof path, "%s/no/such", place);
    cr_assert_eq(wf_version_prepare(path, &nowhere, &error), WF_IO);
    cr_assert_not_null(strstr(error.text, "making the folder"), "%s", error.text);
    snprintf(path, sizeof path, "%s/file", place);
    folder_write(place, "file", "x", 1);
    cr_assert_neq(wf_version_prepare(path, &nowhere, &error), WF_OK);
}

Test(version, a_second_writer_is_refused)
{
    struct wf_error error = {0};
    mkdir(place, 0777);
    int fd = open(place, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_assert_eq(save(first, 0, 1, &error), WF_REFUSED);
    cr_assert_not_null(strstr(error.text, "another process writes versions"), "%s", error.text);
    close(fd);
    save_well(first, 0);
}

/* In a child: a limit on files is for ever. */
static int save_limited(void)
{
    struct wf_error error = {0};
    const struct rlimit limit = {100000, 100000};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    bool told = save(second, 0, 1, &error) == WF_IO && strstr(error.text, "ulimit -f") != NULL;
    return told ? 0 : 1;
}

Test(version, a_full_device_leaves_the_old_version)
{
    struct wf_error error = {0};
    int status = 0;
    save_well(first, 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(save_limited());
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the failure was not told");
    cr_assert_eq(count_entries(), 1, "no part of the new one lies there");
    cr_assert_eq(read_all("tester", first, &error), WF_OK, "%s", error.text);
}

/* --- the newest ------------------------------------------------------------------------------- */
static void count_note(void *user, const char *sentence)
{
    (void)sentence;
    ++*(uint32_t *)user;
}

Test(version, the_newest_whole_one_is_found)
{
    struct wf_version found = {0};
    struct wf_error error = {0};
    uint32_t notes = 0;
    cr_assert_eq(wf_version_newest(place, "tester", layout, count_note, &notes, &found, &error),
                 WF_NOT_FOUND);
    save_well(first, 0);
    save_well(second, 0);
    cr_assert_eq(wf_version_newest(place, "tester", layout, count_note, &notes, &found, &error),
                 WF_OK);
    cr_assert_eq(found.step, 8);
    cr_assert_eq(unlink(version_path(second, WF_HF_SINGLE)), 0);
    cr_assert_eq(wf_version_newest(place, "tester", layout, count_note, &notes, &found, &error),
                 WF_OK);
    cr_assert_eq(found.step, 7);
    cr_assert_eq(notes, 1, "the damaged one is told");
}

static const struct {
    const char *text;
    bool good;
} names[] = {
    {"1.2.3", true},    {"1764460800.1.42", true}, {"1.2", false},
    {"1.2.3.4", false}, {"01.2.3", false},         {"1.2.3 ", false},
    {"-1.2.3", false},  {"+1.2.3", false},         {"", false},
    {"a.b.c", false},   {".1.2.3", false},         {"18446744073709551616.1.1", false},
};

Test(version, names_are_exact)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct wf_version version;
        cr_expect_eq(wf_version_parse(names[i].text, &version), names[i].good, "\"%s\"",
                     names[i].text);
    }
}
