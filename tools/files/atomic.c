/* atomic.c - a file that appears whole or not at all. */
#include "tools/files/atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void release(struct wf_atomic_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    if (file->folder_fd >= 0) {
        close(file->folder_fd);
    }
    free(file->path);
    free(file->final);
    free(file->partial);
    *file = (struct wf_atomic_file){.fd = -1, .folder_fd = -1};
}

static enum wf_status failed(struct wf_atomic_file *file, const char *what, struct wf_error *error)
{
    int reason = errno;
    const char *advice = reason == ENOSPC || reason == EDQUOT ? "; make room and run it again"
                         : reason == EFBIG ? "; a file-size limit is set (ulimit -f)"
                         : reason == ENOENT || reason == ENOTDIR
                             ? "; make the folder first, or name another file"
                         : reason == EISDIR ? "; name a file in it"
                                            : "";
    return wf_error_set(error, WF_IO, "%s %s failed: %s%s", what, file->path, strerror(reason),
                        advice);
}

/* Splits the path, links resolved, into folder_fd, final and partial. */
static enum wf_status find_place(struct wf_atomic_file *file, struct wf_error *error)
{
    if (file->path[0] == '\0') {
        return wf_error_set(error, WF_IO, "expected the name of a file to write, found \"\"");
    }
    char *real = realpath(file->path, NULL); /* NULL when the file is not there yet */
    char *for_folder = strdup(real != NULL ? real : file->path);
    char *for_name = strdup(real != NULL ? real : file->path);
    free(real);
    if (for_folder != NULL && for_name != NULL) {
        file->final = strdup(basename(for_name));
        if (asprintf(&file->partial, ".%s.weft-partial", basename(for_name)) < 0) {
            file->partial = NULL;
        }
        file->folder_fd = open(dirname(for_folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    int reason = errno;
    free(for_folder);
    free(for_name);
    if (file->final == NULL || file->partial == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to write %s", file->path);
    }
    if (file->folder_fd < 0) {
        errno = reason;
        return failed(file, "opening the folder of", error);
    }
    return WF_OK;
}

/* Opens and locks the partial file. Another writer may rename it between our open and our lock;
 * then the name shows another file (or none) and we begin again. */
static enum wf_status open_partial(struct wf_atomic_file *file, struct wf_error *error)
{
    enum { TRIES = 16 };
    for (int i = 0; i < TRIES; i++) {
        struct stat ours, named;
        file->fd = openat(file->folder_fd, file->partial,
                          O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (file->fd < 0) {
            return failed(file, "creating the partial file of", error);
        }
        if (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) {
                return wf_error_set(error, WF_REFUSED,
                                    "another process is writing %s now; wait for it", file->path);
            }
            return failed(file, "locking the partial file of", error);
        }
        if (fstat(file->fd, &ours) != 0) {
            return failed(file, "looking at the partial file of", error);
        }
        if (fstatat(file->folder_fd, file->partial, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            named.st_ino == ours.st_ino && named.st_dev == ours.st_dev && S_ISREG(ours.st_mode)) {
            if (ftruncate(file->fd, 0) != 0) {
                return failed(file, "emptying the partial file of", error);
            }
            return WF_OK;
        }
        close(file->fd);
        file->fd = -1;
    }
    return wf_error_set(error, WF_REFUSED, "other processes keep writing %s; wait for them",
                        file->path);
}

enum wf_status wf_atomic_open(struct wf_atomic_file *file, const char *path, struct wf_error *error)
{
    struct stat info;
    *file = (struct wf_atomic_file){.fd = -1, .folder_fd = -1, .path = strdup(path)};
    if (file->path == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to write %s", path);
    }
    enum wf_status status;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        file->direct = true;
        file->fd = open(path, O_WRONLY | O_CLOEXEC);
        status = file->fd >= 0 ? WF_OK : failed(file, "opening", error);
    } else {
        status = find_place(file, error);
        if (status == WF_OK) {
            status = open_partial(file, error);
        }
    }
    if (status != WF_OK) {
        release(file);
        return status;
    }
    file->open = true;
    return WF_OK;
}

enum wf_status wf_atomic_write(struct wf_atomic_file *file, const void *bytes, size_t len,
                               struct wf_error *error)
{
    WF_ASSERT(file->open);
    const char *at = bytes;
    while (len > 0) {
        ssize_t put = write(file->fd, at, len);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return failed(file, "writing", error);
        }
        at += put;
        len -= (size_t)put;
        file->bytes += (uint64_t)put;
    }
    return WF_OK;
}

enum wf_status wf_atomic_commit(struct wf_atomic_file *file, struct wf_error *error)
{
    WF_ASSERT(file->open);
    enum wf_status status = WF_OK;
    if (!file->direct) {
        if (fsync(file->fd) != 0) {
            status = failed(file, "syncing", error);
        } else if (renameat(file->folder_fd, file->partial, file->folder_fd, file->final) != 0) {
            status = failed(file, "renaming to", error);
        } else {
            /* Some file systems cannot sync a folder. A real failure is reported, though the new
             * file is in place: it is whole either way. */
            file->renamed = true;
            if (fsync(file->folder_fd) != 0 && errno != EINVAL) {
                status = failed(file, "syncing the folder of", error);
            }
        }
    }
    if (status == WF_OK && file->direct) {
        int fd = file->fd;
        file->fd = -1;
        if (close(fd) != 0) {
            status = failed(file, "closing", error);
        }
    }
    if (status == WF_OK) {
        release(file);
    } else {
        wf_atomic_abort(file);
    }
    return status;
}

void wf_atomic_abort(struct wf_atomic_file *file)
{
    if (!file->open) {
        return;
    }
    if (!file->direct && !file->renamed) { /* still locked, so the name is ours */
        unlinkat(file->folder_fd, file->partial, 0);
    }
    release(file);
}

enum wf_status wf_atomic_write_file(const char *path, const void *bytes, size_t len,
                                    struct wf_error *error)
{
    struct wf_atomic_file file;
    enum wf_status status = wf_atomic_open(&file, path, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_atomic_write(&file, bytes, len, error);
    if (status != WF_OK) {
        wf_atomic_abort(&file);
        return status;
    }
    return wf_atomic_commit(&file, error);
}
