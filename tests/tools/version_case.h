/* version_case.h - a model with bytes of its own, a place, and versions saved and read there: what
 * the tests of versions share. */
#ifndef WEFT_TESTS_TOOLS_VERSION_CASE_H
#define WEFT_TESTS_TOOLS_VERSION_CASE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout.h"
#include "tests/tools/folder.h"
#include "tools/files/hf_folder.h"
#include "tools/files/version_folder.h"

static char base[FOLDER_PATH_MAX], place[2 * FOLDER_PATH_MAX];
static struct wf_model *model;
static struct wf_layout *layout;
static void **tensors;
static char *config;
static size_t config_len;

static const struct wf_version first = {1764460800, 1, 7}, second = {1764460800, 1, 8};

/* Takes `text`, the model's config. */
static inline void set_up_model(char *text, size_t len)
{
    struct wf_error error = {0};
    struct wf_recipe recipe;
    uint64_t state = 88172645463325252u;
    config = text;
    config_len = len;
    folder_make(base);
    folder_join(place, base, "versions");
    cr_assert_eq(wf_model_parse(config, config_len, NULL, &model, &error), WF_OK, "%s", error.text);
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

static inline void set_up(void)
{
    struct wf_error error = {0};
    char *text = NULL;
    size_t len = 0;
    cr_assert_eq(wf_hf_config_read("tests/golden/models/tiny-qwen3.json", &text, &len, &error),
                 WF_OK, "%s", error.text);
    set_up_model(text, len);
}

static inline void tear_down(void)
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

static char noted[1000]; /* the newest */
static uint32_t note_count;

static inline void keep_note(void *user, const char *sentence)
{
    (void)user;
    snprintf(noted, sizeof noted, "%s", sentence);
    note_count++;
}

static inline enum wf_status save(struct wf_version version, uint64_t shard_bytes, uint32_t keep,
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

static inline void save_well(struct wf_version version, uint64_t shard_bytes)
{
    struct wf_error error = {0};
    cr_assert_eq(save(version, shard_bytes, 2, &error), WF_OK, "%s", error.text);
}

struct reads {
    uint32_t good, damaged; /* pieces */
    struct wf_error failed; /* the last that is damaged */
};

/* Opens, and reads every byte in pieces that end at no particular place; a damaged one stops
 * nothing. Gives the status of opening. */
static inline enum wf_status read_pieces(const char *job, struct wf_version version,
                                         struct reads *reads_out, struct wf_error *error)
{
    struct wf_store *store = NULL;
    struct wf_stored *stored = NULL;
    struct wf_store_window window = {0};
    const struct wf_store_wanted wanted = {.job = job, .version = version, .layout = layout};
    *reads_out = (struct reads){0};
    cr_assert_eq(wf_version_store_new(place, &store, error), WF_OK);
    enum wf_status status = store->ops->open(store, &wanted, &stored, error);
    for (uint32_t i = 0; status == WF_OK && i < layout->tensor_count; i++) {
        uint64_t bytes = layout->tensors[i].bytes;
        for (uint64_t at = 0, len; at < bytes; at += len) {
            const uint8_t *got = NULL;
            len = bytes - at < 70001 ? bytes - at : 70001;
            if (store->ops->read(stored, &window, i, at, len, &got, &reads_out->failed) != WF_OK) {
                reads_out->damaged++;
                continue;
            }
            reads_out->good++;
            cr_assert(memcmp(got, (char *)tensors[i] + at, len) == 0, "%s",
                      layout->tensors[i].name);
        }
    }
    free(window.memory);
    if (stored != NULL) {
        store->ops->close(stored);
    }
    wf_version_store_free(store);
    return status;
}

/* The same, of which all must be good. */
static inline enum wf_status read_all(const char *job, struct wf_version version,
                                      struct wf_error *error)
{
    struct reads reads;
    enum wf_status status = read_pieces(job, version, &reads, error);
    if (status == WF_OK && reads.damaged > 0) {
        *error = reads.failed;
    }
    return status == WF_OK && reads.damaged > 0 ? error->status : status;
}

static inline char *version_path(struct wf_version version, const char *name)
{
    static char path[4 * FOLDER_PATH_MAX];
    char text[WF_VERSION_TEXT];
    wf_version_format(version, text);
    snprintf(path, sizeof path, "%s/%s/%s", place, text, name);
    return path;
}

static inline uint32_t count_entries(void)
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

#endif
