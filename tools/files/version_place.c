/* version_place.c - lists, locks and clears the folder that versions lie in. */
#include "tools/files/version_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/files/io.h"
#include "tools/files/version_folder.h"
#include "tools/files/version_manifest.h"

enum { STUCK_MAX = 999 }; /* left-overs of one version that cannot be removed */

enum wf_status wf_version_failed(const char *what, const char *name, struct wf_error *error)
{
    int number = errno;
    const char *advice = number == ENOSPC || number == EDQUOT ? "; make room"
                         : number == EFBIG ? "; a file-size limit is set (ulimit -f)"
                                           : wf_errno_advice(number);
    return wf_error_set(error, WF_IO, "%s %s failed: %s%s", what, name, strerror(number), advice);
}

bool wf_version_parse(const char *text, struct wf_version *version_out)
{
    struct wf_version version;
    char again[WF_VERSION_TEXT];
    if (sscanf(text, "%" SCNu64 ".%" SCNu64 ".%" SCNu64, &version.term, &version.counter,
               &version.step) != 3) {
        return false;
    }
    wf_version_format(version, again); /* no signs, no leading zeros, nothing behind */
    if (strcmp(text, again) != 0) {
        return false;
    }
    *version_out = version;
    return true;
}

/* --- removing --------------------------------------------------------------------------------- */
enum wf_status wf_version_place_remove(int place_fd, const char *name, struct wf_error *error)
{
    DIR *entries = wf_folder_entries(place_fd, name);
    if (entries == NULL && (errno == ELOOP || errno == ENOTDIR)) { /* somebody's link to one */
        return unlinkat(place_fd, name, 0) == 0 ? WF_OK
                                                : wf_version_failed("removing", name, error);
    }
    if (entries == NULL) {
        return errno == ENOENT ? WF_OK : wf_version_failed("opening", name, error);
    }
    enum wf_status status = WF_OK;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (!dots && unlinkat(dirfd(entries), entry->d_name, 0) != 0 && errno != ENOENT) {
            status = wf_version_failed("removing", entry->d_name, error);
        }
    }
    closedir(entries);
    if (status == WF_OK && unlinkat(place_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        status = wf_version_failed("removing", name, error);
    }
    return status;
}

static void note(const struct wf_version_notes *notes, const char *name, const struct wf_error *why)
{
    struct wf_error sentence;
    if (notes->say != NULL) {
        wf_error_set(&sentence, why->status, "%.100s stays where versions lie: %.800s", name,
                     why->text);
        notes->say(notes->user, sentence.text);
    }
}

static void remove_or_note(int place_fd, const char *name, const struct wf_version_notes *notes)
{
    struct wf_error why;
    if (wf_version_place_remove(place_fd, name, &why) != WF_OK) {
        note(notes, name, &why);
    }
}

void wf_version_place_name(int place_fd, struct wf_version version, const char *end,
                           char name_out[WF_VERSION_NAME_MAX])
{
    char text[WF_VERSION_TEXT];
    struct stat there;
    WF_ASSERT(name_out != NULL); /* gcc 12 with UBSan's own checks of NULL thinks that it may be */
    wf_version_format(version, text);
    snprintf(name_out, WF_VERSION_NAME_MAX, ".%s%s", text, end);
    for (unsigned i = 1; i <= STUCK_MAX; i++) {
        if (fstatat(place_fd, name_out, &there, AT_SYMLINK_NOFOLLOW) != 0) {
            return;
        }
        snprintf(name_out, WF_VERSION_NAME_MAX, ".%s%s-%u", text, end, i);
    }
}

enum wf_status wf_version_place_retire(int place_fd, struct wf_version version,
                                       const struct wf_version_notes *notes, struct wf_error *error)
{
    char name[WF_VERSION_TEXT], old[WF_VERSION_NAME_MAX];
    wf_version_format(version, name);
    wf_version_place_name(place_fd, version, WF_VERSION_OLD, old);
    if (renameat(place_fd, name, place_fd, old) != 0) {
        return errno == ENOENT ? WF_OK : wf_version_failed("renaming", name, error);
    }
    remove_or_note(place_fd, old, notes);
    return WF_OK;
}

/* ".VERSION.weft-partial" or ".VERSION.weft-old", perhaps with a number behind it: ours, and
 * nobody's while we have the lock. */
static bool is_left_over(const char *name)
{
    char text[WF_VERSION_NAME_MAX];
    struct wf_version version;
    static const char *const ends[] = {WF_VERSION_PARTIAL, WF_VERSION_OLD};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *end = strstr(name, ends[i]);
        if (name[0] == '.' && end > name && end - name < (ptrdiff_t)sizeof text) {
            const char *behind = end + strlen(ends[i]);
            bool numbered = behind[0] == '-' && behind[1] != '\0' &&
                            behind[1 + strspn(behind + 1, "0123456789")] == '\0';
            snprintf(text, sizeof text, "%.*s", (int)(end - name - 1), name + 1);
            return (behind[0] == '\0' || numbered) && wf_version_parse(text, &version);
        }
    }
    return false;
}

static enum wf_status clear_left_overs(int place_fd, const struct wf_version_notes *notes,
                                       struct wf_error *error)
{
    DIR *entries = wf_folder_entries(place_fd, ".");
    if (entries == NULL) {
        return wf_version_failed("reading", "the folder of versions", error);
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (is_left_over(entry->d_name)) {
            remove_or_note(place_fd, entry->d_name, notes);
        }
    }
    closedir(entries);
    return WF_OK;
}

enum wf_status wf_version_place_lock(const char *place, const struct wf_version_notes *notes,
                                     int *fd_out, struct wf_error *error)
{
    int fd = -1;
    if (mkdir(place, 0777) != 0 && errno != EEXIST) {
        return wf_version_failed("making the folder", place, error);
    }
    enum wf_status status = wf_folder_open(place, &fd, error);
    if (status != WF_OK) {
        return status;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status =
            errno == EWOULDBLOCK
                ? wf_error_set(error, WF_REFUSED,
                               "another process writes versions to %s; one job, one folder", place)
                : wf_version_failed("locking", place, error);
    }
    if (status == WF_OK) {
        status = clear_left_overs(fd, notes, error);
    }
    if (status != WF_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return WF_OK;
}

/* --- listing ---------------------------------------------------------------------------------- */
static int by_age(const void *a, const void *b)
{
    return wf_version_compare(*(const struct wf_version *)a, *(const struct wf_version *)b);
}

enum wf_status wf_version_place_list(int place_fd, struct wf_version **versions_out,
                                     uint32_t *count_out, struct wf_error *error)
{
    struct wf_version *versions = NULL, version;
    uint32_t count = 0;
    DIR *entries = wf_folder_entries(place_fd, ".");
    if (entries == NULL) {
        return wf_version_failed("reading", "the folder of versions", error);
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (!wf_version_parse(entry->d_name, &version)) {
            continue;
        }
        struct wf_version *more = realloc(versions, (count + 1) * sizeof *versions);
        if (more == NULL) {
            free(versions);
            closedir(entries);
            return wf_error_set(error, WF_NO_MEMORY, "no memory for %u versions", count + 1);
        }
        versions = more;
        versions[count++] = version;
    }
    closedir(entries);
    if (count > 0) {
        qsort(versions, count, sizeof *versions, by_age);
    }
    *versions_out = versions;
    *count_out = count;
    return WF_OK;
}

/* What weft_version.json says; false: it cannot be read, or is another's. */
static bool is_of_job(int place_fd, struct wf_version version, const char *job)
{
    struct wf_version_manifest manifest = {0};
    char path[WF_VERSION_NAME_MAX + sizeof WF_VERSION_FILE];
    wf_version_format(version, path);
    strcat(path, "/" WF_VERSION_FILE);
    bool same = wf_version_manifest_read(place_fd, path, &manifest, NULL) == WF_OK &&
                strcmp(manifest.job, job) == 0;
    wf_version_manifest_fini(&manifest);
    return same;
}

enum wf_status wf_version_place_claim(int place_fd, struct wf_version version, const char *job,
                                      struct wf_error *error)
{
    char name[WF_VERSION_TEXT];
    struct stat there;
    wf_version_format(version, name);
    if (fstatat(place_fd, name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
        is_of_job(place_fd, version, job)) {
        return WF_OK;
    }
    return wf_error_set(
        error, WF_REFUSED,
        "%s lies there and does not say that it is a version of job \"%s\": move it "
        "away, or name another folder",
        name, job);
}

void wf_version_place_prune(int place_fd, const struct wf_version_save *save)
{
    struct wf_version *versions = NULL;
    struct wf_error why;
    uint32_t count = 0, kept = 1; /* the one that was just written */
    if (wf_version_place_list(place_fd, &versions, &count, &why) != WF_OK) {
        note(&save->notes, "what is older", &why);
    }
    for (uint32_t i = count; i-- > 0;) {
        if (wf_version_compare(versions[i], save->version) != 0 &&
            is_of_job(place_fd, versions[i], save->job) && kept++ >= save->keep &&
            wf_version_place_retire(place_fd, versions[i], &save->notes, &why) != WF_OK) {
            note(&save->notes, "an old version", &why);
        }
    }
    free(versions);
}

enum wf_status wf_version_prepare(const char *place, const struct wf_version_notes *notes,
                                  struct wf_error *error)
{
    int fd = -1;
    enum wf_status status = wf_version_place_lock(place, notes, &fd, error);
    if (status == WF_OK && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        status = wf_version_failed("writing to", place, error);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
