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

#include "tests/tools/version_case.h"

static const char config_text[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"torch_dtype\": "
    "\"bfloat16\", \"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 96, \"vocab_size\": "
    "14000, \"tie_word_embeddings\": false, \"attention_bias\": false, \"rms_norm_eps\": 1e-06, "
    "\"rope_theta\": 1000000}";
static uint64_t file_bytes;

static void set_up_chunks(void)
{
    struct stat info;
    set_up_model(strdup(config_text), strlen(config_text));
    save_well(first, 0);
    cr_assert_eq(stat(version_path(first, WF_HF_SINGLE), &info), 0);
    file_bytes = (uint64_t)info.st_size;
    cr_assert(file_bytes > 3 * WF_VERSION_CHUNK_BYTES && file_bytes % WF_VERSION_CHUNK_BYTES != 0);
}

TestSuite(version_chunks, .init = set_up_chunks, .fini = tear_down);

static void flip(uint64_t at)
{
    uint8_t byte;
    int fd = open(version_path(first, WF_HF_SINGLE), O_RDWR);
    cr_assert(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= 4;
    cr_assert_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

Test(version_chunks, what_was_written_is_read)
{
    struct wf_error error = {0};
    cr_assert_eq(read_all("tester", first, &error), WF_OK, "%s", error.text);
}

static void expect_found(uint64_t at)
{
    struct reads reads;
    struct wf_version_info info;
    struct wf_error error = {0};
    char range[100];
    uint64_t begin = at / WF_VERSION_CHUNK_BYTES * WF_VERSION_CHUNK_BYTES;
    uint64_t last = begin + WF_VERSION_CHUNK_BYTES - 1;
    snprintf(range, sizeof range, "is damaged: bytes %" PRIu64 " to %" PRIu64 " are", begin,
             last < file_bytes ? last : file_bytes - 1);
    cr_expect_eq(read_pieces("tester", first, &reads, &error), WF_OK,
                 "opening looks at the header's chunk");
    cr_expect(reads.damaged > 0 && reads.good > reads.damaged, "byte %" PRIu64 ": %u of %u pieces",
              at, reads.damaged, reads.damaged + reads.good);
    cr_expect_eq(reads.failed.status, WF_DIGEST);
    cr_expect_not_null(strstr(reads.failed.text, range), "not \"%s\": %s", range,
                       reads.failed.text);
    cr_expect_eq(wf_version_check(place, first, NULL, false, &info, &error), WF_OK, "%s",
                 error.text);
    cr_expect_eq(wf_version_check(place, first, NULL, true, &info, &error), WF_DIGEST);
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
