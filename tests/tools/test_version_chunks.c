/* test_version_chunks.c - versions whose file has several chunks: damage behind the first, which
 * opening does not look at, is found by whoever reads those bytes, and by nobody else. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/folder.h"
#include "tools/files/hf_folder.h"
#include "tools/files/version_folder.h"

static const char config[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"torch_dtype\": "
    "\"bfloat16\", \"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 96, \"vocab_size\": "
    "14000, \"tie_word_embeddings\": false, \"attention_bias\": false, \"rms_norm_eps\": 1e-06, "
    "\"rope_theta\": 1000000}";
static const struct wf_version version = {1, 1, 7};

static char base[FOLDER_PATH_MAX], place[2 * FOLDER_PATH_MAX], file[3 * FOLDER_PATH_MAX];
static struct wf_model *model;
static struct wf_layout *layout;
static void **tensors;
static uint64_t file_bytes;

static void make_tensors(void)
{
    uint64_t state = 88172645463325252u;
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

static void set_up(void)
{
    struct wf_error error = {0};
    struct wf_recipe recipe;
    struct stat info;
    folder_make(base);
    folder_join(place, base, "versions");
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s",
                 error.text);
    cr_assert_eq(wf_recipe_parse("hf:", model, &recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s", error.text);
    make_tensors();
    const struct wf_version_save save = {.place = place,
                                         .job = "tester",
                                         .version = version,
                                         .label = "",
                                         .config = config,
                                         .config_len = strlen(config),
                                         .layout = layout,
                                         .tensors = tensors,
                                         .keep = 1};
    cr_assert_eq(wf_version_write(&save, &error), WF_OK, "%s", error.text);
    snprintf(file, sizeof file, "%s/1.1.7/" WF_HF_SINGLE, place);
    cr_assert_eq(stat(file, &info), 0);
    file_bytes = (uint64_t)info.st_size;
    cr_assert(file_bytes > 3 * WF_VERSION_CHUNK_BYTES && file_bytes % WF_VERSION_CHUNK_BYTES != 0);
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        free(tensors[i]);
    }
    free(tensors);
    wf_layout_free(layout);
    wf_model_free(model);
    folder_remove(base);
}

TestSuite(version_chunks, .init = set_up, .fini = tear_down);

static void flip(uint64_t at)
{
    uint8_t byte;
    int fd = open(file, O_RDWR);
    cr_assert(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1, "%s", file);
    byte ^= 4;
    cr_assert_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

struct reads {
    uint32_t good, damaged; /* pieces */
    bool wrong;             /* bytes came that are not those that were written */
    char says[WF_ERROR_TEXT_MAX];
};

/* Every byte, in pieces that end at no particular place; a failure stops nothing. */
static enum wf_status read_all(struct reads *reads_out)
{
    struct wf_error error = {0};
    struct wf_store *store = NULL;
    struct wf_stored *stored = NULL;
    struct wf_store_window window = {0};
    const struct wf_store_wanted wanted = {.job = "tester", .version = version, .layout = layout};
    memset(reads_out, 0, sizeof *reads_out);
    cr_assert_eq(wf_version_store_new(place, &store, &error), WF_OK);
    enum wf_status status = store->ops->open(store, &wanted, &stored, &error);
    for (uint32_t i = 0; status == WF_OK && i < layout->tensor_count; i++) {
        for (uint64_t at = 0, len; at < layout->tensors[i].bytes; at += len) {
            const uint8_t *got = NULL;
            len = layout->tensors[i].bytes - at < 70001 ? layout->tensors[i].bytes - at : 70001;
            if (store->ops->read(stored, &window, i, at, len, &got, &error) == WF_OK) {
                reads_out->good++;
                reads_out->wrong =
                    reads_out->wrong || memcmp(got, (char *)tensors[i] + at, len) != 0;
            } else {
                cr_expect_eq(error.status, WF_DIGEST, "%s", error.text);
                reads_out->damaged++;
                memcpy(reads_out->says, error.text, sizeof reads_out->says);
            }
        }
    }
    free(window.memory);
    if (stored != NULL) {
        store->ops->close(stored);
    }
    wf_version_store_free(store);
    return status;
}

Test(version_chunks, what_was_written_is_read)
{
    struct reads reads;
    cr_assert_eq(read_all(&reads), WF_OK);
    cr_assert_eq(reads.damaged, 0, "%s", reads.says);
    cr_assert_not(reads.wrong);
}

static void expect_found(uint64_t at)
{
    struct reads reads;
    struct wf_version_info info;
    struct wf_error error = {0};
    char range[100];
    uint64_t first = at / WF_VERSION_CHUNK_BYTES * WF_VERSION_CHUNK_BYTES;
    uint64_t last = first + WF_VERSION_CHUNK_BYTES - 1;
    snprintf(range, sizeof range, "is damaged: bytes %" PRIu64 " to %" PRIu64 " are", first,
             last < file_bytes ? last : file_bytes - 1);
    cr_expect_eq(read_all(&reads), WF_OK, "opening looks at the header's chunk");
    cr_expect_not(reads.wrong, "byte %" PRIu64, at);
    cr_expect(reads.damaged > 0 && reads.good > reads.damaged, "byte %" PRIu64 ": %u of %u pieces",
              at, reads.damaged, reads.damaged + reads.good);
    cr_expect_not_null(strstr(reads.says, range), "not \"%s\": %s", range, reads.says);
    cr_expect_eq(wf_version_check(place, version, NULL, false, &info, &error), WF_OK, "%s",
                 error.text);
    cr_expect_eq(wf_version_check(place, version, NULL, true, &info, &error), WF_DIGEST);
    cr_expect_not_null(strstr(error.text, range), "not \"%s\": %s", range, error.text);
}

Test(version_chunks, damage_behind_the_first_is_found_by_who_reads_it)
{
    const uint64_t places[] = {WF_VERSION_CHUNK_BYTES, 2 * WF_VERSION_CHUNK_BYTES - 1,
                               file_bytes / WF_VERSION_CHUNK_BYTES * WF_VERSION_CHUNK_BYTES,
                               file_bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        flip(places[i]);
        expect_found(places[i]);
        flip(places[i]);
    }
}
