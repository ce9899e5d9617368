/* test_atomic.c - files that appear whole or not at all, whatever fails. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/folder.h"
#include "tools/files/atomic.h"

static void expect_text(const char *path, const char *text)
{
    char found[64] = "";
    FILE *in = fopen(path, "rb");
    cr_assert_not_null(in, "%s is not there", path);
    found[fread(found, 1, sizeof found - 1, in)] = '\0';
    fclose(in);
    cr_assert_str_eq(found, text);
}

static uint32_t count_files(const char *folder)
{
    uint32_t count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(entries);
    return count;
}

static char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX];

static void set_up(void)
{
    folder_make(folder);
    folder_join(path, folder, "file");
}

static void tear_down(void)
{
    folder_remove(folder);
}

TestSuite(atomic, .init = set_up, .fini = tear_down);

Test(atomic, appears_only_at_commit)
{
    struct wf_atomic_file file;
    cr_assert_eq(wf_atomic_write_file(path, "old", 3, NULL), WF_OK);
    cr_assert_eq(wf_atomic_open(&file, path, NULL), WF_OK);
    cr_assert_eq(wf_atomic_write(&file, "newer", 5, NULL), WF_OK);
    expect_text(path, "old");
    cr_assert_eq(wf_atomic_commit(&file, NULL), WF_OK);
    expect_text(path, "newer");
    cr_assert_eq(count_files(folder), 1, "nothing else is left");
}

Test(atomic, abort_leaves_the_old_file)
{
    struct wf_atomic_file file;
    cr_assert_eq(wf_atomic_write_file(path, "old", 3, NULL), WF_OK);
    cr_assert_eq(wf_atomic_open(&file, path, NULL), WF_OK);
    cr_assert_eq(wf_atomic_write(&file, "new", 3, NULL), WF_OK);
    wf_atomic_abort(&file);
    wf_atomic_abort(&file); /* nothing to do any more */
    expect_text(path, "old");
    cr_assert_eq(count_files(folder), 1);
}

Test(atomic, second_writer_is_refused_and_harms_nothing)
{
    struct wf_atomic_file first, second;
    struct wf_error error;
    cr_assert_eq(wf_atomic_open(&first, path, NULL), WF_OK);
    cr_assert_eq(wf_atomic_write(&first, "first", 5, NULL), WF_OK);
    cr_assert_eq(wf_atomic_open(&second, path, &error), WF_REFUSED);
    cr_assert_not_null(strstr(error.text, "another process"), "%s", error.text);
    cr_assert_eq(wf_atomic_commit(&first, NULL), WF_OK);
    expect_text(path, "first");
}

Test(atomic, what_a_killed_writer_left_is_reused)
{
    folder_write(folder, ".file.weft-partial", "half of something longer", 24);
    cr_assert_eq(wf_atomic_write_file(path, "whole", 5, NULL), WF_OK);
    expect_text(path, "whole");
    cr_assert_eq(count_files(folder), 1);
}

Test(atomic, a_link_stays_a_link)
{
    char target[2 * FOLDER_PATH_MAX];
    struct stat info;
    folder_write(folder, "target", "old", 3);
    cr_assert_eq(symlink(folder_join(target, folder, "target"), path), 0);
    cr_assert_eq(wf_atomic_write_file(path, "new", 3, NULL), WF_OK);
    cr_assert_eq(lstat(path, &info), 0);
    cr_assert(S_ISLNK(info.st_mode));
    expect_text(target, "new");
}

Test(atomic, a_device_is_written_and_never_replaced)
{
    struct stat info;
    struct wf_error error;
    cr_assert_eq(wf_atomic_write_file("/dev/null", "x", 1, &error), WF_OK, "%s", error.text);
    cr_assert_eq(stat("/dev/null", &info), 0);
    cr_assert(S_ISCHR(info.st_mode));
    cr_assert_eq(wf_atomic_write_file("/dev/full", "x", 1, &error), WF_IO);
    cr_assert_not_null(strstr(error.text, "make room"), "%s", error.text);
}

Test(atomic, paths_that_cannot_be_written)
{
    static const char *const names[] = {"", "/nowhere/file", "/proc/file"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct wf_error error = {0};
        cr_assert_neq(wf_atomic_write_file(names[i], "x", 1, &error), WF_OK, "\"%s\"", names[i]);
        cr_assert_neq(error.text[0], '\0');
        cr_assert(i > 0 || strstr(error.text, "the name of a file") != NULL, "%s", error.text);
    }
    cr_assert_neq(wf_atomic_write_file(folder, "x", 1, NULL), WF_OK, "a folder");
}

Test(atomic, a_size_limit_leaves_nothing)
{
    struct rlimit limit = {.rlim_cur = 1000, .rlim_max = RLIM_INFINITY};
    struct wf_atomic_file file;
    struct wf_error error;
    char block[600] = {0};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(wf_atomic_open(&file, path, NULL), WF_OK);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum wf_status first = wf_atomic_write(&file, block, sizeof block, NULL);
    enum wf_status second = wf_atomic_write(&file, block, sizeof block, &error);
    wf_atomic_abort(&file);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_assert_eq(first, WF_OK);
    cr_assert_eq(second, WF_IO);
    cr_assert_not_null(strstr(error.text, "file-size limit"), "%s", error.text);
    cr_assert_eq(count_files(folder), 0);
}

/* A file system of 64 KiB of our own; where that is not allowed the case is skipped. */
Test(atomic, a_full_disk_leaves_the_old_file)
{
    static char block[128 << 10];
    struct wf_error error;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, "size=64k") != 0) {
        cr_skip_test("no permission to mount");
    }
    enum wf_status small = wf_atomic_write_file(path, "old", 3, NULL);
    enum wf_status large = wf_atomic_write_file(path, block, sizeof block, &error);
    cr_assert_eq(small, WF_OK);
    cr_assert_eq(large, WF_IO);
    cr_assert_not_null(strstr(error.text, "make room"), "%s", error.text);
    expect_text(path, "old");
    cr_assert_eq(count_files(folder), 1);
    umount2(folder, MNT_DETACH);
}
