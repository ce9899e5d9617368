/* io.c - folders; opens and reads regular files by pread, refusing everything else. */
#include "tools/files/io.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum wf_status wf_folder_open(const char *path, int *fd_out, struct wf_error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return wf_error_set(error, errno == ENOENT ? WF_NOT_FOUND : WF_IO,
                            "cannot open the folder %s: %s", path, strerror(errno));
    }
    *fd_out = fd;
    return WF_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum wf_status wf_folder_make(const char *path, mode_t mode, struct wf_error *error)
{
    char partial[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof partial) {
        return wf_error_set(error, WF_INVALID, "the path %.100s... is too long", path);
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(partial, path, i);
            partial[i] = '\0';
            int why = mkdir(partial, mode) != 0 ? errno : 0;
            if (why != 0 && !is_folder(partial)) {
                return wf_error_set(error, WF_IO, "cannot make the folder %s: %s", partial,
                                    strerror(why));
            }
        }
    }
    return WF_OK;
}

DIR *wf_folder_entries(int folder_fd, const char *name)
{
    int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (entries == NULL && fd >= 0) {
        close(fd);
    }
    return entries;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void wf_folder_remove(const char *path)
{
    enum { OPEN_AT_ONCE = 16 };
    nftw(path, remove_one, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

static enum wf_status check_regular(const struct stat *info, const char *name,
                                    struct wf_error *error)
{
    if (!S_ISREG(info->st_mode)) {
        return wf_error_set(error, WF_REFUSED, "%s is %s; expected a regular file", name,
                            S_ISDIR(info->st_mode)    ? "a folder"
                            : S_ISFIFO(info->st_mode) ? "a FIFO"
                            : S_ISSOCK(info->st_mode) ? "a socket"
                                                      : "a device");
    }
    return WF_OK;
}

enum wf_status wf_file_open(int folder_fd, const char *name, int *fd_out, uint64_t *bytes_out,
                            struct wf_error *error)
{
    struct stat info;
    /* Looked at before it is opened: opening alone can act on a device. */
    if (fstatat(folder_fd, name, &info, 0) != 0) {
        return wf_error_set(error, errno == ENOENT ? WF_NOT_FOUND : WF_IO, "cannot open %s: %s",
                            name, strerror(errno));
    }
    enum wf_status status = check_regular(&info, name, error);
    if (status != WF_OK) {
        return status;
    }
    int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return wf_error_set(error, errno == ENOENT ? WF_NOT_FOUND : WF_IO, "cannot open %s: %s",
                            name, strerror(errno));
    }
    if (fstat(fd, &info) != 0) {
        status = wf_error_set(error, WF_IO, "cannot look at %s: %s", name, strerror(errno));
    } else {
        status = check_regular(&info, name, error);
    }
    if (status != WF_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    *bytes_out = (uint64_t)info.st_size;
    return WF_OK;
}

enum wf_status wf_file_pread(int fd, void *buffer, size_t len, uint64_t offset,
                             struct wf_error *error)
{
    uint8_t *at = buffer;
    while (len > 0) {
        ssize_t got = pread(fd, at, len, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return wf_error_set(error, WF_IO, "reading at byte %" PRIu64 " failed: %s", offset,
                                strerror(errno));
        }
        if (got == 0) {
            return wf_error_set(error, WF_IO,
                                "the file ends at byte %" PRIu64
                                ", %zu bytes too early: it was cut while it was read",
                                offset, len);
        }
        at += got;
        offset += (uint64_t)got;
        len -= (size_t)got;
    }
    return WF_OK;
}

enum wf_status wf_file_read_all(int folder_fd, const char *name, size_t max_bytes, char **text_out,
                                size_t *len_out, struct wf_error *error)
{
    int fd = -1;
    uint64_t bytes = 0;
    enum wf_status status = wf_file_open(folder_fd, name, &fd, &bytes, error);
    if (status != WF_OK) {
        return status;
    }
    char *text = NULL;
    if (bytes > max_bytes) {
        status = wf_error_set(error, WF_INVALID,
                              "%s has %" PRIu64 " bytes; at most %zu are expected of such a file",
                              name, bytes, max_bytes);
        goto close_fd;
    }
    text = malloc((size_t)bytes + 1);
    if (text == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for the %" PRIu64 " bytes of %s",
                              bytes, name);
        goto close_fd;
    }
    status = wf_file_pread(fd, text, (size_t)bytes, 0, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", name);
        free(text);
        goto close_fd;
    }
    text[bytes] = '\0';
    *text_out = text;
    *len_out = (size_t)bytes;
close_fd:
    close(fd);
    return status;
}

bool wf_file_name_is_plain(const char *name, size_t len)
{
    return len > 0 && len <= NAME_MAX && memchr(name, '/', len) == NULL &&
           memchr(name, '\0', len) == NULL && !(len == 1 && name[0] == '.') &&
           !(len == 2 && memcmp(name, "..", 2) == 0);
}
