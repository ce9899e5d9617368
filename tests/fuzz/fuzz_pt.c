/* fuzz_pt.c - archives of torch.save and the pickles in them: any bytes are refused with a
 * sentence, or give tensors that lie inside the file.
 *
 * Input: 'z' and a whole archive, or 'p' and a pickle, which is put into an archive with storages
 * "0" and "1" of 64 bytes each.
 */
#include <string.h>

#include "fuzz.h"
#include "tools/files/dump_private.h"

enum {
    STORAGE_BYTES = 64,
    ARCHIVE_MORE = 2048, /* what an archive has beside its pickle */
    MODE_BYTES = 1,
};

/* --- an archive ------------------------------------------------------------------------------ */

struct archive {
    uint8_t *bytes;
    size_t len;
    uint8_t directory[ARCHIVE_MORE / 2];
    size_t directory_len;
    uint32_t count;
};

static size_t put(uint8_t *at, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        at[i] = i < sizeof value ? (uint8_t)(value >> (8 * i)) : 0;
    }
    return width;
}

/* A local header or, with the offset of one, an entry of the directory. */
static size_t put_header(uint8_t *at, const char *name, size_t bytes, bool local, size_t offset)
{
    size_t len = put(at, local ? 0x04034b50 : 0x02014b50, 4), name_len = strlen(name);
    if (!local) {
        len += put(at + len, 0, 2); /* made by */
    }
    len += put(at + len, 0, 2 + 2 + 2 + 4 + 4); /* version, flags, stored, time, CRC */
    len += put(at + len, bytes, 4);
    len += put(at + len, bytes, 4);
    len += put(at + len, name_len, 2);
    len += put(at + len, 0, 2); /* extra */
    if (!local) {
        len += put(at + len, 0, 2 + 2 + 2 + 4); /* comment, disk, attributes */
        len += put(at + len, offset, 4);
    }
    memcpy(at + len, name, name_len);
    return len + name_len;
}

static void add_entry(struct archive *archive, const char *name, const uint8_t *data, size_t len)
{
    archive->directory_len +=
        put_header(archive->directory + archive->directory_len, name, len, false, archive->len);
    archive->len += put_header(archive->bytes + archive->len, name, len, true, 0);
    memcpy(archive->bytes + archive->len, data, len);
    archive->len += len;
    archive->count++;
}

/* `bytes` has room for the pickle and ARCHIVE_MORE. */
static size_t make_archive(const uint8_t *pickle, size_t len, uint8_t *bytes)
{
    static const uint8_t storage[STORAGE_BYTES] = {1, 2, 3};
    struct archive archive = {.bytes = bytes};
    add_entry(&archive, "a/data.pkl", pickle, len);
    add_entry(&archive, "a/byteorder", (const uint8_t *)"little", 6);
    add_entry(&archive, "a/data/0", storage, sizeof storage);
    add_entry(&archive, "a/data/1", storage, sizeof storage);
    size_t offset = archive.len;
    memcpy(bytes + offset, archive.directory, archive.directory_len);
    archive.len += archive.directory_len;
    uint8_t *end = bytes + archive.len;
    size_t at = put(end, 0x06054b50, 4);
    at += put(end + at, 0, 4);
    at += put(end + at, archive.count, 2);
    at += put(end + at, archive.count, 2);
    at += put(end + at, archive.directory_len, 4);
    at += put(end + at, offset, 4);
    at += put(end + at, 0, 2);
    return archive.len + at;
}

/* --- the target ------------------------------------------------------------------------------ */

struct memory {
    const uint8_t *bytes;
    size_t len;
};

static enum wf_status read_memory(void *user, void *buffer, size_t len, uint64_t offset,
                                  struct wf_error *error)
{
    const struct memory *memory = user;
    (void)error;
    WF_ASSERT(offset <= memory->len && len <= memory->len - offset);
    memcpy(buffer, memory->bytes + offset, len);
    return WF_OK;
}

static void check_tensor(const struct wf_dump_tensor *tensor, uint64_t file_bytes)
{
    uint64_t elem = wf_dtype_bytes(tensor->dtype), end = tensor->offset, elements = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        WF_ASSERT(tensor->strides[d] >= 0);
        elements = tensor->shape[d] == 0 || elements == 0 ? 0 : elements * tensor->shape[d];
        end += tensor->shape[d] == 0 ? 0
                                     : (tensor->shape[d] - 1) * (uint64_t)tensor->strides[d] * elem;
    }
    WF_ASSERT(elements == tensor->elements);
    WF_ASSERT(elements == 0 || elem == 0 || end + elem <= file_bytes);
}

static void ignore_note(void *user, const char *sentence)
{
    (void)user;
    WF_ASSERT(sentence[0] != '\0');
}

static enum wf_status try_archive(const uint8_t *bytes, size_t len)
{
    struct wf_dump_rank rank = {0};
    struct wf_error error = {0};
    struct memory memory = {bytes, len};
    const struct wf_zip_source source = {read_memory, &memory, len};
    const struct wf_dump_options options = {.note = ignore_note};
    enum wf_status status = wf_dump_add_torch(&rank, &source, 0, &options, &error);
    WF_ASSERT(status == WF_OK || error.text[0] != '\0');
    for (uint32_t i = 0; i < rank.count && status == WF_OK; i++) {
        check_tensor(&rank.tensors[i], len);
    }
    wf_dump_rank_fini(&rank);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < MODE_BYTES) {
        return 0;
    }
    bool pickle = data[0] == 'p';
    data += MODE_BYTES;
    size -= MODE_BYTES;
    uint8_t *exact = malloc(size + (pickle ? ARCHIVE_MORE : 1)); /* a step beyond its end is seen */
    WF_ASSERT(exact != NULL);
    size_t len = size;
    if (pickle) {
        len = make_archive(data, size, exact);
        exact = realloc(exact, len);
        WF_ASSERT(exact != NULL);
    } else {
        memcpy(exact, data, size);
    }
    try_archive(exact, len);
    free(exact);
    return 0;
}

/* --- examples -------------------------------------------------------------------------------- */

#define STORAGE(class, key, count) \
    "(X\7\0\0\0storagectorch\n" class "\nX\1\0\0\0" key "X\3\0\0\0cpu" count "tQ"
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n("
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n("
#define TEXT(literal)                  \
    {                                  \
        (literal), sizeof(literal) - 1 \
    }

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static const struct {
        const char *text;
        size_t len;
    } examples[] = {
        TEXT("\x80\2}q\0(X\1\0\0\0wq\1" V2 STORAGE(
            "FloatStorage", "0",
            "K\x10") "K\2(K\2K\3tq\2K\3K\1\x86\x89}tRq\3X\1\0\0\0vh\3u}X\5\0\0\0_meta}sb."),
        TEXT("\x80\2}X\5\0\0\0model}(X\1\0\0\0a" V2 STORAGE(
            "BFloat16Storage", "1", "M\x20\0") "K\0K\x20\x85K\1\x85\x89"
                                               "ccollections\nOrderedDict\n)RtRX\1\0\0\0bNus."),
        TEXT("\x80\4}\x94(\x8c\6model0\x94}\x94\x8c\1w\x94\x8c\014torch._utils\x8c\022_rebuild_"
             "tensor_v3\x93("
             "(\x8c\7storage\x8c\015torch.storage\x8c\016UntypedStorage\x93\x8c\0010\x8c\3cpuK\x40"
             "tQ"
             "K\0K\4K\4\x86K\4K\1\x86\x89}ctorch\nfloat8_e4m3fn\ntRs\x8c\1xG\0\0\0\0\0\0\0\0u."),
        TEXT("}X\1\0\0\0p"
             "ctorch._utils\n_rebuild_parameter\n(" V2 STORAGE(
                 "ByteStorage", "1", "K\x40") "J\0\0\0\0)r\5\0\0\0j\5\0\0\0\x89}tR\x88}"
                                              "tRsX\1\0\0\0ec_io\nBytesIO\n)\x81(C\3abcK\0Ntbs."),
        TEXT("}X\1\0\0\0l](K\1\x8a\2\1\1\x8b\1\0\0\0\7eK\2as."),
    };
    const uint32_t count = sizeof examples / sizeof examples[0];
    if (index >= 2 * count) {
        return 0;
    }
    const char *text = examples[index % count].text;
    size_t len = examples[index % count].len;
    WF_ASSERT(len + ARCHIVE_MORE < cap);
    out[0] = index < count ? 'p' : 'z';
    if (index < count) {
        memcpy(out + MODE_BYTES, text, len);
        return MODE_BYTES + len;
    }
    len = make_archive((const uint8_t *)text, len, out + MODE_BYTES);
    WF_ASSERT(try_archive(out + MODE_BYTES, len) == WF_OK);
    return MODE_BYTES + len;
}
