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

#include "tests/tools/folder.h"
#include "tools/files/checkpoint.h"
#include "tools/files/hf_folder.h"
#include "tools/files/version_folder.h"

static char base[FOLDER_PATH_MAX], place[2 * FOLDER_PATH_MAX];
static struct wf_model *model;
static struct wf_layout *layout;
static void **tensors;
static char *config;
static size_t config_len;

static const struct wf_version first = {1764460800, 1, 7}, second = {1764460800, 1, 8};

static void set_up(void)
{
    struct wf_error error = {0};
    uint64_t state = 88172645463325252u;
    folder_make(base);
    folder_join(place, base, "versions");
    model = folder_model("tiny-qwen3.json");
    cr_assert_eq(
        wf_hf_config_read("tests/golden/models/tiny-qwen3.json", &config, &config_len, &error),
        WF_OK);
    struct wf_recipe recipe;
    cr_assert_eq(wf_recipe_parse("hf:", model, &recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s", error.text);
    tensors = calloc(layout->tensor_count, sizeof *tensors);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        uint8_t *bytes = tensors[i] = malloc(layout->tensors[i].bytes);
        for (uint64_t b = 0; b < layout->tensors[i].bytes; b++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes[b] = (uint8_t)(state >> 20);
        }
    }
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        free(tensors[i]);
    }
    free(tensors);
    free(config);
    wf_layout_free(layout);
    wf_model_free(model);
    folder_remove(base);
}

TestSuite(version, .init = set_up, .fini = tear_down);

static char noted[1000]; /* the newest */
static uint32_t note_count;

static void keep_note(void *user, const char *sentence)
{
    (void)user;
    snprintf(noted, sizeof noted, "%s", sentence);
    note_count++;
}

static enum wf_status save(struct wf_version version, uint64_t shard_bytes, uint32_t keep,
                           struct wf_error *error)
{
    const struct wf_version_save what = {.place = place,
                                         .job = "tester",
                                         .version = version,
                                         .label = "step-7",
                                         .config = config,
                                         .config_len = config_len,
                                         .layout = layout,
                                         .tensors = tensors,
                                         .shard_bytes = shard_bytes,
                                         .keep = keep,
                                         .notes = {.say = keep_note}};
    return wf_version_write(&what, error);
}

static void save_well(struct wf_version version, uint64_t shard_bytes)
{
    struct wf_error error = {0};
    cr_assert_eq(save(version, shard_bytes, 2, &error), WF_OK, "%s", error.text);
}

/* Opens and reads every byte, in pieces that end at no particular place. */
static enum wf_status read_all(const char *job, struct wf_version version, struct wf_error *error)
{
    struct wf_store *store = NULL;
    struct wf_stored *stored = NULL;
    struct wf_store_window window = {0};
    const struct wf_store_wanted wanted = {.job = job, .version = version, .layout = layout};
    cr_assert_eq(wf_version_store_new(place, &store, error), WF_OK);
    enum wf_status status = store->ops->open(store, &wanted, &stored, error);
    for (uint32_t i = 0; status == WF_OK && i < layout->tensor_count; i++) {
        uint64_t bytes = layout->tensors[i].bytes;
        for (uint64_t at = 0; status == WF_OK && at < bytes;) {
            uint64_t len = bytes - at < 70001 ? bytes - at : 70001;
            const uint8_t *got = NULL;
            status = store->ops->read(stored, &window, i, at, len, &got, error);
            cr_assert(status != WF_OK || memcmp(got, (char *)tensors[i] + at, len) == 0, "%s",
                      layout->tensors[i].name);
            at += len;
        }
    }
    free(window.memory);
    if (stored != NULL) {
        store->ops->close(stored);
    }
    wf_version_store_free(store);
    return status;
}

static char *version_path(struct wf_version version, const char *name)
{
    static char path[4 * FOLDER_PATH_MAX];
    char text[WF_VERSION_TEXT];
    wf_version_format(version, text);
    snprintf(path, sizeof path, "%s/%s/%s", place, text, name);
    return path;
}

static uint32_t count_entries(void)
{
    uint32_t count = 0;
    DIR *entries = opendir(place);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return count;
}

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

/* --- damage ----------------------------------------------------------------------------------- */
static void flip(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1, "%s", path);
    byte ^= 4;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void flip_data(void)
{
    struct stat info;
    char *path = version_path(first, WF_HF_SINGLE);
    cr_assert_eq(stat(path, &info), 0);
    flip(path, info.st_size - 100);
}
static void flip_header(void)
{
    flip(version_path(first, WF_HF_SINGLE), 40);
}
static void cut_file(void)
{
    cr_assert_eq(truncate(version_path(first, WF_HF_SINGLE), 5000), 0);
}
static void remove_weights(void)
{
    cr_assert_eq(unlink(version_path(first, WF_HF_SINGLE)), 0);
}
static void remove_manifest(void)
{
    cr_assert_eq(unlink(version_path(first, WF_VERSION_FILE)), 0);
}
static void change_manifest(void)
{
    char *path = version_path(first, WF_VERSION_FILE), text[8000] = "", *at = NULL;
    int fd = open(path, O_RDWR);
    ssize_t len = read(fd, text, sizeof text - 1);
    cr_assert(len > 0 && (at = strstr(text, "step-7")) != NULL);
    at[5] = '9';
    cr_assert_eq(pwrite(fd, text, (size_t)len, 0), len);
    close(fd);
}
static void cut_manifest(void)
{
    cr_assert_eq(truncate(version_path(first, WF_VERSION_FILE), 60), 0);
}
static void manifest_is_a_fifo(void)
{
    remove_manifest();
    cr_assert_eq(mkfifo(version_path(first, WF_VERSION_FILE), 0600), 0);
}
static void rename_version(void)
{
    char from[4 * FOLDER_PATH_MAX];
    snprintf(from, sizeof from, "%s", version_path(first, ""));
    from[strlen(from) - 1] = '\0';
    char *to = version_path(second, "");
    to[strlen(to) - 1] = '\0';
    cr_assert_eq(rename(from, to), 0);
}
static void nothing(void)
{
}
static void put_other_weights(void)
{
    static const char index[] = "{\"weight_map\": {\"x\": \"model.safetensors\"}}";
    folder_write(version_path(first, ""), WF_HF_INDEX, index, sizeof index - 1);
}

static const struct {
    const char *name;
    void (*damage)(void);
    const char *job;
    struct wf_version version;
    enum wf_status status;
    const char *says;
} damaged[] = {
    {"data", flip_data, "tester", first, WF_DIGEST, "is damaged: bytes"},
    {"header", flip_header, "tester", first, WF_INVALID, ""},
    {"cut", cut_file, "tester", first, WF_DIGEST, "has 5000 bytes, "},
    {"no weights", remove_weights, "tester", first, WF_REFUSED, "model.safetensors is missing"},
    {"no manifest", remove_manifest, "tester", first, WF_REFUSED, "not a version that Weft wrote"},
    {"changed manifest", change_manifest, "tester", first, WF_DIGEST, "it was changed since"},
    {"cut manifest", cut_manifest, "tester", first, WF_INVALID, "weft_version.json: "},
    {"a FIFO", manifest_is_a_fifo, "tester", first, WF_REFUSED, "is a FIFO"},
    {"another's name", rename_version, "tester", second, WF_REFUSED, "under another one's name"},
    {"another job", nothing, "other", first, WF_REFUSED, "of job \"tester\", not of \"other\""},
    {"not there", nothing, "tester", second, WF_NOT_FOUND, "version 1764460800.1.8 is not in"},
    {"other weights", put_other_weights, "tester", first, WF_REFUSED, ""},
};

Test(version, damage_is_found_and_named)
{
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct wf_error error = {0};
        save_well(first, 0);
        damaged[i].damage();
        enum wf_status status = read_all(damaged[i].job, damaged[i].version, &error);
        cr_expect(status == damaged[i].status || (damaged[i].says[0] == '\0' && status != WF_OK),
                  "%s: %s: %s", damaged[i].name, wf_status_name(status), error.text);
        cr_expect_not_null(strstr(error.text, damaged[i].says), "%s: %s", damaged[i].name,
                           error.text);
        folder_remove(place);
    }
}

Test(version, every_byte_of_a_file_is_looked_at)
{
    struct stat info;
    save_well(first, 0);
    char *path = version_path(first, WF_HF_SINGLE);
    cr_assert_eq(stat(path, &info), 0);
    for (off_t at = 0; at < info.st_size; at += 1 + info.st_size / 37) {
        struct wf_error error = {0};
        flip(path, at);
        cr_expect_neq(read_all("tester", first, &error), WF_OK, "byte %lld", (long long)at);
        flip(path, at);
    }
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
