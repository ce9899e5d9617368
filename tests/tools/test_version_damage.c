/* test_version_damage.c - versions that are damaged, cut, another's, or of another model: found,
 * and said in words that help. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/version_case.h"
#include "tools/files/version_manifest.h"

TestSuite(version_damage, .init = set_up, .fini = tear_down);

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
static void flip_config(void)
{
    flip(version_path(first, WF_HF_CONFIG), 40);
}
static void add_to_config(void)
{
    int fd = open(version_path(first, WF_HF_CONFIG), O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, " ", 1), 1);
    close(fd);
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
static void replace_in_manifest(const char *what, char last)
{
    char *path = version_path(first, WF_VERSION_FILE), text[8000] = "", *at = NULL;
    int fd = open(path, O_RDWR);
    ssize_t len = read(fd, text, sizeof text - 1);
    cr_assert(len > 0 && (at = strstr(text, what)) != NULL, "%s", text);
    at[strlen(what) - 1] = last;
    cr_assert_eq(pwrite(fd, text, (size_t)len, 0), len);
    close(fd);
}
static void change_manifest(void)
{
    replace_in_manifest("step-7", '9');
}
static void older_format(void)
{
    replace_in_manifest("\"format\":2", '1');
}
static void newer_format(void)
{
    replace_in_manifest("\"format\":2", '3');
}
/* As nobody writes it, but right by its own digest. */
static void config_is_not_listed(void)
{
    struct wf_version_manifest manifest;
    struct wf_error error = {0};
    char *path = version_path(first, WF_VERSION_FILE), text[8000] = "", *made = NULL;
    size_t made_len = 0;
    int fd = open(path, O_RDWR);
    ssize_t len = read(fd, text, sizeof text - 1);
    cr_assert_eq(wf_version_manifest_parse(text, (size_t)len, &manifest, &error), WF_OK, "%s",
                 error.text);
    struct wf_version_file config_file = manifest.files[--manifest.file_count];
    cr_assert_str_eq(config_file.name, WF_HF_CONFIG);
    cr_assert_eq(wf_version_manifest_format(&manifest, &made, &made_len, &error), WF_OK);
    cr_assert_eq(pwrite(fd, made, made_len, 0), (ssize_t)made_len);
    cr_assert_eq(ftruncate(fd, (off_t)made_len), 0);
    close(fd);
    free(made);
    free(config_file.name);
    free(config_file.chunks);
    wf_version_manifest_fini(&manifest);
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
    {"config", flip_config, "tester", first, WF_DIGEST, "config.json is damaged: bytes"},
    {"a longer config", add_to_config, "tester", first, WF_DIGEST, "config.json has "},
    {"an unlisted config", config_is_not_listed, "tester", first, WF_REFUSED,
     "config.json is not of this version"},
    {"older", older_format, "tester", first, WF_UNSUPPORTED, "write the version anew"},
    {"newer", newer_format, "tester", first, WF_UNSUPPORTED, "update it"},
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

Test(version_damage, damage_is_found_and_named)
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

Test(version_damage, every_byte_of_a_file_is_looked_at)
{
    static const char *const files[] = {WF_HF_CONFIG, WF_HF_INDEX,
                                        "model-00001-of-00002.safetensors"};
    save_well(first, layout->bytes * 2 / 3);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat info;
        char *path = version_path(first, files[i]);
        cr_assert_eq(stat(path, &info), 0, "%s", path);
        for (off_t at = 0; at < info.st_size; at += 1 + info.st_size / 37) {
            struct wf_version_info said;
            struct wf_error error = {0};
            flip(path, at);
            cr_expect_neq(read_all("tester", first, &error), WF_OK, "%s: byte %lld", files[i],
                          (long long)at);
            cr_expect_neq(wf_version_check(place, first, NULL, true, &said, &error), WF_OK,
                          "%s: byte %lld", files[i], (long long)at);
            cr_expect_not_null(strstr(error.text, files[i]), "%s", error.text);
            flip(path, at);
        }
    }
}

/* --- another model's
 * ------------------------------------------------------------------------------
 */
static const struct {
    const char *name, *what, *with; /* of the job's config, beside the version's */
    const char *says[3];
} others[] = {
    {"fewer layers",
     "\"num_hidden_layers\": 4",
     "\"num_hidden_layers\": 3",
     {"tensor \"model.layers.3.", "the job's model has no such tensor"}},
    {"more layers",
     "\"num_hidden_layers\": 4",
     "\"num_hidden_layers\": 5",
     {"tensor \"model.layers.4.", "of the job's model is in no file"}},
    {"wider",
     "\"intermediate_size\": 96",
     "\"intermediate_size\": 192",
     {"is [96, 64] of BF16", "the job's model has [192, 64] of BF16"}},
    {"another dtype",
     "\"torch_dtype\": \"bfloat16\"",
     "\"torch_dtype\": \"float16\"",
     {"] of BF16, the job's model has [", "] of F16"}},
};

static struct wf_layout *layout_of(const char *text)
{
    struct wf_error error = {0};
    struct wf_model *other = NULL;
    struct wf_recipe recipe;
    struct wf_layout *made = NULL;
    cr_assert_eq(wf_model_parse(text, strlen(text), NULL, &other, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_recipe_parse("hf:", other, &recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(other, &recipe, 0, &made, &error), WF_OK, "%s", error.text);
    wf_model_free(other);
    return made;
}

Test(version_damage, another_model_is_told_by_what_differs)
{
    save_well(first, 0);
    struct wf_layout *own = layout;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct wf_error error = {0};
        char *text = NULL, *at = strstr(config, others[i].what);
        cr_assert_not_null(at, "%s", config);
        cr_assert_gt(asprintf(&text, "%.*s%s%s", (int)(at - config), config, others[i].with,
                              at + strlen(others[i].what)),
                     0);
        layout = layout_of(text);
        cr_expect_eq(read_all("tester", first, &error), WF_MISMATCH, "%s", others[i].name);
        for (int s = 0; s < 3 && others[i].says[s] != NULL; s++) {
            cr_expect_not_null(strstr(error.text, others[i].says[s]), "%s: no \"%s\" in \"%s\"",
                               others[i].name, others[i].says[s], error.text);
        }
        cr_expect_not_null(strstr(error.text, "by a job of another model?"), "%s", error.text);
        wf_layout_free(layout);
        free(text);
    }
    layout = own;
}

static const struct {
    const char *files, *says;
} manifests[] = {
    {"{}", "\"files\": expected a list, found object"},
    {"null", "\"files\": expected a list, found nothing"},
    {"[]", "\"files\": expected 1 to 4098, found 0"},
    {"[{\"name\": \"a\", \"bytes\": 0, \"chunks\": \"\"}, 7]",
     "\"files\"[1]: expected an object, found int"},
    {"[{\"name\": \"../a\"}]", "\"files\"[0]: \"name\": expected a file's name without a folder, "
                               "found \"../a\""},
    {"[{\"name\": [1]}]", "\"files\"[0]: \"name\": expected a text, found array"},
    {"[{\"name\": \"a\\u0000b\"}]", "found 3 with one"},
    {"[{\"name\": \"a\", \"bytes\": 1}]",
     "\"files\"[0]: \"chunks\": expected a text, found nothing"},
};

Test(version_damage, a_manifest_is_told_by_what_was_found)
{
    for (size_t i = 0; i < sizeof manifests / sizeof manifests[0]; i++) {
        struct wf_version_manifest manifest;
        struct wf_error error = {0};
        char *text = NULL;
        int len = asprintf(&text,
                           "{\"format\": 2, \"chunk_bytes\": 1048576, \"job\": \"a\", "
                           "\"version\": \"1.1.1\", \"label\": \"\", \"digest\": \"\", "
                           "\"files\": %s}",
                           manifests[i].files);
        cr_assert_gt(len, 0);
        cr_expect_neq(wf_version_manifest_parse(text, (size_t)len, &manifest, &error), WF_OK, "%s",
                      manifests[i].files);
        cr_expect_not_null(strstr(error.text, manifests[i].says), "no \"%s\" in \"%s\"",
                           manifests[i].says, error.text);
        cr_expect_not_null(strstr(error.text, "restore it, or use another version"), "%s",
                           error.text);
        free(text);
    }
}
