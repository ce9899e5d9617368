/* Archives of torch.save: what torch itself wrote, element by element; what is refused, by name;
 * and damaged and hostile ones. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/dump_private.h"
#include "tools/files/io.h"
#include "tools/files/torch_pickle.h"

#define GOLDEN "tests/golden/torch/"

static void count_note(void *count, const char *sentence)
{
    cr_expect_not_null(strstr(sentence, "passed over"), "%s", sentence);
    ++*(uint32_t *)count;
}

static char *read_text(const char *path, size_t *len_out)
{
    char *text = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_file_read_all(AT_FDCWD, path, 1 << 20, &text, len_out, &error), WF_OK, "%s",
                 error.text);
    return text;
}

/* "2x3" of `count` numbers; "-" for none. */
static void expect_numbers(const char *what, const char *text, uint32_t count,
                           const int64_t *numbers)
{
    char found[128] = "-";
    for (uint32_t d = 0, at = 0; d < count; d++) {
        at += (uint32_t)snprintf(found + at, sizeof found - at, "%s%lld", d > 0 ? "x" : "",
                                 (long long)numbers[d]);
    }
    cr_expect_str_eq(found, text, "%s: %s, expected %s", what, found, text);
}

/* One line of a .tsv: name, dtype, shape, strides, bytes in row-major order. */
static void expect_tensor(const char *file, const struct wf_dump_rank *rank, char *line)
{
    char *fields[5] = {0}, *at = line;
    for (size_t i = 0; i < 5; i++) {
        fields[i] = strsep(&at, "\t");
        cr_assert_not_null(fields[i], "%s: %s", file, line);
    }
    const struct wf_dump_tensor *tensor = wf_dump_rank_find(rank, fields[0]);
    cr_assert_not_null(tensor, "%s: no %s", file, fields[0]);
    cr_expect_str_eq(wf_dtype_torch(tensor->dtype), fields[1], "%s: %s", file, fields[0]);
    int64_t shape[WF_SHAPE_MAX];
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        shape[d] = (int64_t)tensor->shape[d];
    }
    expect_numbers(fields[0], fields[2], tensor->ndim, shape);
    expect_numbers(fields[0], fields[3], tensor->ndim, tensor->strides);
    size_t bytes = (size_t)tensor->elements * wf_dtype_bytes(tensor->dtype);
    cr_assert_eq(strlen(fields[4]), 2 * bytes, "%s: %s", file, fields[0]);
    uint8_t *got = malloc(bytes + 1);
    struct wf_error error = {0};
    cr_assert_eq(wf_dump_rank_read(rank, tensor, NULL, 0, tensor->elements, got, &error), WF_OK,
                 "%s", error.text);
    for (size_t i = 0; i < bytes; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", got[i]);
        cr_assert_eq(memcmp(digits, fields[4] + 2 * i, 2), 0, "%s: %s: byte %zu", file, fields[0],
                     i);
    }
    free(got);
}

Test(dump_torch, files_of_torch)
{
    static const struct {
        const char *name;
        uint32_t notes;
    } rows[] = {{"flat", 0}, {"strided", 0},   {"module", 0}, {"nested", 5},
                {"many", 0}, {"protocol4", 1}, {"stages", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[256];
        size_t len = 0;
        uint32_t lines = 0, notes = 0;
        struct wf_dump_rank rank = {0};
        struct wf_error error = {0};
        const struct wf_dump_options options = {.note = count_note, .user = &notes};
        snprintf(path, sizeof path, GOLDEN "%s.pt", rows[i].name);
        cr_assert_eq(wf_dump_rank_add(&rank, path, &options, &error), WF_OK, "%s: %s", rows[i].name,
                     error.text);
        cr_assert_eq(wf_dump_rank_sort(&rank, &error), WF_OK, "%s", error.text);
        snprintf(path, sizeof path, GOLDEN "%s.tsv", rows[i].name);
        char *text = read_text(path, &len), *at = text;
        for (char *line = strsep(&at, "\n"); line != NULL && *line != '\0';
             line = strsep(&at, "\n")) {
            expect_tensor(rows[i].name, &rank, line);
            lines++;
        }
        cr_expect_eq(rank.count, lines, "%s: %u tensors", rows[i].name, rank.count);
        cr_expect_eq(notes, rows[i].notes, "%s: %u notes", rows[i].name, notes);
        free(text);
        wf_dump_rank_fini(&rank);
    }
}

Test(dump_torch, refused)
{
    static const struct {
        const char *name, *says;
    } rows[] = {
        {"namespace", "argparse.Namespace"},
        {"call", ".system"},
        {"legacy", "before 1.6"},
        {"no_dict", "dict"},
        {"list", "dict"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[256];
        struct wf_dump_rank rank = {0};
        struct wf_error error = {0};
        snprintf(path, sizeof path, GOLDEN "%s.pt", rows[i].name);
        cr_expect_neq(wf_dump_rank_add(&rank, path, NULL, &error), WF_OK, "%s", rows[i].name);
        cr_expect_not_null(strstr(error.text, rows[i].says), "%s: %s", rows[i].name, error.text);
        cr_expect_not_null(strstr(error.text, path), "%s: %s", rows[i].name, error.text);
        wf_dump_rank_fini(&rank);
    }
}

struct memory {
    const char *bytes;
    size_t len;
};

static enum wf_status read_memory(void *user, void *buffer, size_t len, uint64_t offset,
                                  struct wf_error *error)
{
    const struct memory *memory = user;
    (void)error;
    cr_assert(offset <= memory->len && len <= memory->len - offset);
    memcpy(buffer, memory->bytes + offset, len);
    return WF_OK;
}

/* Cut at every length, and with each byte changed: refused, or read without a step outside (the
 * sanitizers see that). A cut one is never read. */
Test(dump_torch, damaged)
{
    size_t len = 0;
    char *whole = read_text(GOLDEN "module.pt", &len);
    for (size_t i = 0; i < 2 * len; i++) {
        struct wf_dump_rank rank = {0};
        struct wf_error error = {0};
        bool cut = i < len;
        struct memory memory = {whole, cut ? i : len};
        const struct wf_zip_source source = {read_memory, &memory, memory.len};
        const char change = cut ? 0 : (char)(1 << i % 8);
        whole[i % len] ^= change;
        enum wf_status status = wf_dump_add_torch(&rank, &source, 0, NULL, &error);
        whole[i % len] ^= change;
        cr_assert(!cut || status != WF_OK, "cut at %zu", i);
        cr_assert(status == WF_OK || error.text[0] != '\0');
        wf_dump_rank_fini(&rank);
    }
    free(whole);
}

static enum wf_status take_tensor(void *user, const char *name, size_t name_len,
                                  const struct wf_pickle_tensor *tensor, struct wf_error *error)
{
    (void)user, (void)name, (void)name_len, (void)tensor, (void)error;
    return WF_OK;
}

#define STORAGE                                        \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" \
    "0X\3\0\0\0cpuK\10tQ"
/* Pickles by hand, without the NUL that C puts behind them. */
#define TEXT(literal) literal, sizeof literal - 1

Test(dump_torch, pickles)
{
#define REBUILD "}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
#define REST "\x89}tRs."
    static const struct {
        const char *name, *pickle;
        size_t len;
        const char *says; /* NULL: it is read */
    } rows[] = {
        {"a tensor", TEXT("\x80\2" REBUILD STORAGE "K\0(K\2K\4tK\4K\1\x86" REST), NULL},
        {"an empty dict", TEXT("\x80\2}."), NULL},
        {"outside its storage", TEXT(REBUILD STORAGE "K\1(K\2K\4tK\4K\1\x86" REST), "outside"},
        {"sizes that wrap",
         TEXT(REBUILD STORAGE
              "K\0\x8a\10\0\0\0\0\0\0\0\x40\x8a\10\0\0\0\0\0\0\0\x40\x86K\0K\0\x86" REST),
         "outside"},
        {"a negative stride", TEXT(REBUILD STORAGE "K\7K\2\x85J\xff\xff\xff\xff\x85" REST),
         "whole numbers"},
        {"a negative offset", TEXT(REBUILD STORAGE "J\xff\xff\xff\xffK\2\x85K\1\x85" REST),
         "_rebuild_tensor_v2"},
        {"fewer strides", TEXT(REBUILD STORAGE "K\0K\2K\2\x86K\1\x85" REST), "each dimension"},
        {"six dimensions", TEXT(REBUILD STORAGE "K\0(K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1t" REST),
         "6 dimensions"},
        {"a call of a class", TEXT("\x80\2ctorch\nFloatStorage\n)R."), "FloatStorage"},
        {"another module", TEXT("cos\nsystem\nX\4\0\0\0true\x85R."),
         "byte 0 of the pickle: it names os.system"},
        {"by text", TEXT("}\x8c\2os\x8c\6system\x93."), "STACK_GLOBAL: byte 13"},
        {"an opcode of old", TEXT("(ios\nsystem\n."), "INST"},
        {"an unknown opcode", TEXT("\xff."), "0xff"},
        {"nothing", TEXT(""), "cut short"},
        {"a text that is too long", TEXT("X\xff\xff\xff\x7f."), "cut short"},
        {"bytes of 2^64", TEXT("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), "cut short"},
        {"a memo of 2^32", TEXT("}r\xff\xff\xff\xff."), "memo 4294967295"},
        {"a memo that is not there", TEXT("h\7."), "never put"},
        {"an empty stack", TEXT("s."), "not on the stack"},
        {"below a mark", TEXT("}(s."), "not on the stack"},
        {"no mark", TEXT("t."), "mark"},
        {"items of nothing", TEXT("(K\1u."), "anything to put them in"},
        {"half an item", TEXT("}(K\1u."), "dict"},
        {"items of a tuple", TEXT(")K\1a."), "list"},
        {"a whole number of 9 bytes",
         TEXT("\x8a\11"
              "123456789."),
         "9 bytes"},
        {"bytes behind the end", TEXT("}..."), "left"},
        {"two objects", TEXT("}}."), "2 objects"},
        {"itself", TEXT("}q\0X\1\0\0\0ah\0s."), "two places"},
        {"a key that is a dict", TEXT("}}K\1s."), "a key"},
        {"a key with a NUL", TEXT("}X\1\0\0\0\0K\1s."), "a key"},
        {"two models", TEXT("}X\5\0\0\0model}sX\6\0\0\0module}s."), "save one"},
        {"another persistent id", TEXT("X\1\0\0\0xQ."), "storage"},
    };
    const struct wf_pickle_sink sink = {.tensor = take_tensor};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_error error = {0};
        uint8_t *exact = malloc(rows[i].len + 1); /* a step behind its end is seen */
        memcpy(exact, rows[i].pickle, rows[i].len);
        enum wf_status status = wf_pickle_read(exact, rows[i].len, &sink, &error);
        cr_expect_eq(status == WF_OK, rows[i].says == NULL, "%s: %s", rows[i].name, error.text);
        cr_expect(rows[i].says == NULL || strstr(error.text, rows[i].says), "%s: %s", rows[i].name,
                  error.text);
        free(exact);
    }
}

/* Dicts in dicts, each by one byte more: refused before the stack of C is used up. */
Test(dump_torch, nesting)
{
    enum { DEPTH = 1 << 20 };
    const struct wf_pickle_sink sink = {.tensor = take_tensor};
    struct wf_error error = {0};
    uint8_t *pickle = malloc(4 * DEPTH + 2);
    size_t len = 0;
    for (size_t i = 0; i < DEPTH; i++) {
        memcpy(pickle + len, "}K\1", 3);
        len += 3;
    }
    pickle[len++] = '}';
    memset(pickle + len, 's', DEPTH);
    len += DEPTH;
    pickle[len++] = '.';
    cr_expect_eq(wf_pickle_read(pickle, len, &sink, &error), WF_INVALID);
    cr_expect_not_null(strstr(error.text, "deep"), "%s", error.text);
    free(pickle);
}
