/* torch_zip.c - finds the stored entries of a zip archive, by the layout that APPNOTE.TXT (PKWARE,
 * 6.3.10, section 4.3) gives: little-endian records, the end record last. */
#include "tools/files/torch_zip.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20, /* of zip64's end record */
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    END_MAGIC = 0x06054b50,
    LOCATOR_MAGIC = 0x07064b50,
    END64_MAGIC = 0x06064b50,
    ENTRY_MAGIC = 0x02014b50,
    LOCAL_MAGIC = 0x04034b50,
    EXTRA_ZIP64 = 1,
    FLAG_ENCRYPTED = 1,
};

static uint32_t u16(const void *at)
{
    const uint8_t *bytes = at;
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t u32(const void *at)
{
    const uint8_t *bytes = at;
    return u16(bytes) | u16(bytes + 2) << 16;
}

static uint64_t u64(const void *at)
{
    const uint8_t *bytes = at;
    return u32(bytes) | (uint64_t)u32(bytes + 4) << 32;
}

/* Where the directory lies, as the end records say. */
struct where {
    uint64_t count, bytes, offset, end; /* end: where the first end record begins */
};

/* --- the end --------------------------------------------------------------------------------- */

static enum wf_status read_end64(const struct wf_zip_source *source, uint64_t locator_at,
                                 struct where *where, struct wf_error *error)
{
    uint8_t locator[LOCATOR_BYTES], end[END64_BYTES];
    enum wf_status status = source->read(source->user, locator, sizeof locator, locator_at, error);
    if (status != WF_OK || u32(locator) != LOCATOR_MAGIC) {
        return status; /* no zip64 */
    }
    if (locator_at < END64_BYTES || u64(locator + 8) != locator_at - END64_BYTES ||
        u32(locator + 4) != 0 || u32(locator + 16) > 1) {
        return wf_error_set(error, WF_INVALID,
                            "the zip64 end record is not where the archive's end says it is");
    }
    where->end = locator_at - END64_BYTES;
    status = source->read(source->user, end, sizeof end, where->end, error);
    if (status != WF_OK) {
        return status;
    }
    if (u32(end) != END64_MAGIC || u64(end + 4) != END64_BYTES - 12 || u32(end + 16) != 0 ||
        u32(end + 20) != 0 || u64(end + 24) != u64(end + 32)) {
        return wf_error_set(error, WF_INVALID, "the zip64 end record is damaged");
    }
    const uint64_t short_count = where->count, short_bytes = where->bytes,
                   short_offset = where->offset;
    where->count = u64(end + 32);
    where->bytes = u64(end + 40);
    where->offset = u64(end + 48);
    if ((short_count != UINT16_MAX && short_count != where->count) ||
        (short_bytes != UINT32_MAX && short_bytes != where->bytes) ||
        (short_offset != UINT32_MAX && short_offset != where->offset)) {
        return wf_error_set(error, WF_INVALID, "the archive's two end records disagree");
    }
    return WF_OK;
}

static enum wf_status find_directory(const struct wf_zip_source *source, struct where *where,
                                     struct wf_error *error)
{
    uint8_t end[END_BYTES];
    if (source->bytes < END_BYTES) {
        return wf_error_set(error, WF_INVALID, "the archive is cut short");
    }
    uint64_t at = source->bytes - END_BYTES;
    enum wf_status status = source->read(source->user, end, sizeof end, at, error);
    if (status != WF_OK) {
        return status;
    }
    if (u32(end) != END_MAGIC || u16(end + 20) != 0) {
        return wf_error_set(error, WF_INVALID,
                            "the file does not end with a zip archive's end record; it is cut "
                            "short, or something stands behind it");
    }
    if (u16(end + 4) != 0 || u16(end + 6) != 0 || u16(end + 8) != u16(end + 10)) {
        return wf_error_set(error, WF_UNSUPPORTED, "the archive has several disks");
    }
    *where = (struct where){u16(end + 10), u32(end + 12), u32(end + 16), at};
    if (at >= LOCATOR_BYTES) {
        status = read_end64(source, at - LOCATOR_BYTES, where, error);
    }
    if (status != WF_OK) {
        return status;
    }
    if (where->count > WF_ZIP_ENTRIES_MAX || where->bytes > WF_ZIP_DIRECTORY_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu64 " entries in a directory of %" PRIu64
                            " bytes; at most %d and %d are read",
                            where->count, where->bytes, WF_ZIP_ENTRIES_MAX, WF_ZIP_DIRECTORY_MAX);
    }
    if (where->offset > where->end || where->end - where->offset != where->bytes ||
        where->count * ENTRY_BYTES > where->bytes) {
        return wf_error_set(error, WF_INVALID,
                            "the directory (%" PRIu64 " bytes at %" PRIu64
                            ") does not end where the end record begins (%" PRIu64 ")",
                            where->bytes, where->offset, where->end);
    }
    return WF_OK;
}

/* --- the directory --------------------------------------------------------------------------- */

/* Sizes and offset of 64 bits, which stand in an extra field for those that are all ones. */
static bool take_zip64(const uint8_t *extra, size_t len, uint32_t *const *narrow,
                       uint64_t *const *wide)
{
    bool found = false;
    for (size_t at = 0; at < len;) {
        if (len - at < 4 || u16(extra + at + 2) > len - at - 4) {
            return false;
        }
        size_t field = u16(extra + at + 2), used = 0;
        if (u16(extra + at) == EXTRA_ZIP64) {
            for (size_t i = 0; i < 3; i++) {
                if (*narrow[i] != UINT32_MAX) {
                    continue;
                }
                if (found || field - used < 8) {
                    return false;
                }
                *wide[i] = u64(extra + at + 4 + used);
                used += 8;
            }
            found = true;
        }
        at += 4 + field;
    }
    return true;
}

/* The entry at `at`; gives the bytes that it takes, 0 if it is damaged. */
static size_t take_entry(const uint8_t *at, size_t left, struct wf_zip_entry *entry,
                         enum wf_status *why_out)
{
    *why_out = WF_INVALID;
    if (left < ENTRY_BYTES || u32(at) != ENTRY_MAGIC) {
        return 0;
    }
    uint32_t packed = u32(at + 20), whole = u32(at + 24), header = u32(at + 42);
    uint64_t packed_bytes = packed;
    size_t name_len = u16(at + 28), extra = u16(at + 30), comment = u16(at + 32);
    *entry =
        (struct wf_zip_entry){(const char *)at + ENTRY_BYTES, (uint32_t)name_len, header, whole, 0};
    if (name_len == 0 || name_len > WF_ZIP_NAME_MAX ||
        ENTRY_BYTES + name_len + extra + comment > left || u16(at + 34) != 0 ||
        memchr(entry->name, '\0', name_len) != NULL ||
        !take_zip64(at + ENTRY_BYTES + name_len, extra, (uint32_t *[]){&whole, &packed, &header},
                    (uint64_t *[]){&entry->bytes, &packed_bytes, &entry->header})) {
        return 0;
    }
    if (u16(at + 10) != 0 || (u16(at + 8) & FLAG_ENCRYPTED) != 0 || packed_bytes != entry->bytes) {
        *why_out = WF_UNSUPPORTED;
        return 0;
    }
    return ENTRY_BYTES + name_len + extra + comment;
}

static enum wf_status take_entries(struct wf_zip *zip, const struct where *where,
                                   struct wf_error *error)
{
    const uint8_t *at = (const uint8_t *)zip->directory, *end = at + where->bytes;
    for (uint64_t i = 0; i < where->count; i++) {
        enum wf_status why = WF_OK;
        size_t used = take_entry(at, (size_t)(end - at), &zip->entries[i], &why);
        if (used == 0) {
            return wf_error_set(error, why, "entry %" PRIu64 " of the archive %s", i,
                                why == WF_INVALID ? "is damaged"
                                                  : "is packed or encrypted; torch stores plainly");
        }
        at += used;
        zip->count++;
    }
    return at == end ? WF_OK
                     : wf_error_set(error, WF_INVALID,
                                    "the archive's directory holds more than its entries");
}

static int by_header(const void *a, const void *b)
{
    const struct wf_zip_entry *x = a, *y = b;
    return x->header < y->header ? -1 : x->header > y->header;
}

static int by_name(const void *a, const void *b)
{
    const struct wf_zip_entry *x = a, *y = b;
    uint32_t common = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, common);
    return order != 0 ? order : x->name_len < y->name_len ? -1 : x->name_len > y->name_len;
}

/* Entries follow each other before the directory; their names differ. */
static enum wf_status check_entries(struct wf_zip *zip, uint64_t directory, struct wf_error *error)
{
    struct wf_zip_entry *entries = zip->entries;
    if (zip->count > 0) {
        qsort(entries, zip->count, sizeof *entries, by_header);
    }
    for (uint32_t i = 0; i < zip->count; i++) {
        struct wf_zip_entry *entry = &entries[i];
        entry->end = i + 1 < zip->count ? entries[i + 1].header : directory;
        uint64_t least = LOCAL_BYTES + entry->name_len;
        if (entry->header > entry->end || entry->end > directory ||
            entry->end - entry->header < least ||
            entry->end - entry->header - least < entry->bytes) {
            return wf_error_set(error, WF_INVALID,
                                "%.*s (%" PRIu64 " bytes) reaches into what comes behind it",
                                (int)entry->name_len, entry->name, entry->bytes);
        }
    }
    if (zip->count > 0) {
        qsort(entries, zip->count, sizeof *entries, by_name);
    }
    for (uint32_t i = 1; i < zip->count; i++) {
        if (by_name(&entries[i - 1], &entries[i]) == 0) {
            return wf_error_set(error, WF_INVALID, "%.*s is in the archive twice",
                                (int)entries[i].name_len, entries[i].name);
        }
    }
    return WF_OK;
}

enum wf_status wf_zip_open(const struct wf_zip_source *source, struct wf_zip *zip_out,
                           struct wf_error *error)
{
    struct where where = {0};
    *zip_out = (struct wf_zip){0};
    enum wf_status status = find_directory(source, &where, error);
    if (status != WF_OK) {
        return status;
    }
    zip_out->directory = malloc(where.bytes + 1);
    zip_out->entries = calloc(where.count + 1, sizeof *zip_out->entries);
    if (zip_out->directory == NULL || zip_out->entries == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a directory of %" PRIu64 " bytes",
                            where.bytes);
    }
    status =
        source->read(source->user, zip_out->directory, (size_t)where.bytes, where.offset, error);
    status = status == WF_OK ? take_entries(zip_out, &where, error) : status;
    return status == WF_OK ? check_entries(zip_out, where.offset, error) : status;
}

void wf_zip_fini(struct wf_zip *zip)
{
    free(zip->entries);
    free(zip->directory);
    *zip = (struct wf_zip){0};
}

const struct wf_zip_entry *wf_zip_find(const struct wf_zip *zip, const char *name, size_t len)
{
    const struct wf_zip_entry key = {.name = name, .name_len = (uint32_t)len};
    return zip->count > 0 && len <= WF_ZIP_NAME_MAX
               ? bsearch(&key, zip->entries, zip->count, sizeof *zip->entries, by_name)
               : NULL;
}

enum wf_status wf_zip_data(const struct wf_zip_source *source, const struct wf_zip_entry *entry,
                           uint64_t *offset_out, struct wf_error *error)
{
    uint8_t local[LOCAL_BYTES + WF_ZIP_NAME_MAX];
    enum wf_status status =
        source->read(source->user, local, LOCAL_BYTES + entry->name_len, entry->header, error);
    if (status != WF_OK) {
        return status;
    }
    /* Sizes may be 0 here: torch writes them behind the data. */
    uint64_t data = LOCAL_BYTES + entry->name_len + u16(local + 28);
    if (u32(local) != LOCAL_MAGIC || u16(local + 8) != 0 || u16(local + 26) != entry->name_len ||
        memcmp(local + LOCAL_BYTES, entry->name, entry->name_len) != 0 ||
        entry->end - entry->header < data || entry->end - entry->header - data < entry->bytes) {
        return wf_error_set(error, WF_INVALID,
                            "the header before %.*s says other things than the archive's directory",
                            (int)entry->name_len, entry->name);
    }
    *offset_out = entry->header + data;
    return WF_OK;
}
