/* files.c - folders and files that survive the process: locks, appends, atomic replacement. */
#include "runtime/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 64, PID_TEXT = 32 };

struct wf_folder {
    char *path;
    int fd, lock;
    /* the file that was appended to last */
    int appended;
    char appended_name[NAME_MAX_BYTES];
};

static enum wf_status failed(struct wf_error *error, const char *what,
                             const struct wf_folder *folder, const char *name)
{
    return wf_error_set(error, WF_IO, "cannot %s %.300s/%s: %s%s", what, folder->path, name,
                        strerror(errno), wf_errno_advice(errno));
}

/* Who holds the lock, as far as the file says. */
static long read_holder(int lock)
{
    char text[PID_TEXT] = "";
    ssize_t got = pread(lock, text, sizeof text - 1, 0);
    return got > 0 ? strtol(text, NULL, 10) : 0;
}

static enum wf_status take_lock(struct wf_folder *folder, struct wf_error *error)
{
    folder->lock = openat(folder->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (folder->lock < 0) {
        return failed(error, "open", folder, "lock");
    }
    if (flock(folder->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) {
            return failed(error, "lock", folder, "lock");
        }
        char who[PID_TEXT + 16] = "another process";
        long pid = read_holder(folder->lock);
        if (pid > 0) {
            snprintf(who, sizeof who, "process %ld", pid);
        }
        return wf_error_set(error, WF_REFUSED,
                            "%.300s is in use by %s: end that one first, or use another folder",
                            folder->path, who);
    }
    char text[PID_TEXT];
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(folder->lock, 0) != 0 || pwrite(folder->lock, text, (size_t)len, 0) != len) {
        return failed(error, "write", folder, "lock");
    }
    return WF_OK;
}

enum wf_status wf_files_open(struct wf_env *env, const char *path, struct wf_folder **folder_out,
                             struct wf_error *error)
{
    struct wf_folder *folder = calloc(1, sizeof *folder);
    WF_ASSERT(folder != NULL);
    folder->path = strdup(path);
    WF_ASSERT(folder->path != NULL);
    folder->lock = folder->appended = -1;
    bool made = mkdir(path, 0700) == 0;
    folder->fd = made || errno == EEXIST ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    enum wf_status status = WF_OK;
    if (folder->fd < 0) {
        status = wf_error_set(error, WF_IO, "cannot use the folder %.300s: %s%s", path,
                              strerror(errno), wf_errno_advice(errno));
    } else {
        status = take_lock(folder, error);
    }
    if (status != WF_OK) {
        wf_files_close(env, folder);
        return status;
    }
    *folder_out = folder;
    return WF_OK;
}

static enum wf_status read_all(const struct wf_folder *folder, int fd, const char *name,
                               uint8_t **bytes_out, size_t *len_out, struct wf_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return failed(error, "read", folder, name);
    }
    if (!S_ISREG(about.st_mode) || about.st_size > WF_FILE_MAX) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "%.300s/%s is no regular file of at most %d bytes", folder->path, name,
                            WF_FILE_MAX);
    }
    size_t len = 0, size = (size_t)about.st_size;
    uint8_t *bytes = malloc(size + 1);
    WF_ASSERT(bytes != NULL);
    while (len < size) {
        ssize_t got = pread(fd, bytes + len, size - len, (off_t)len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            free(bytes);
            return failed(error, "read", folder, name);
        }
        if (got == 0) {
            break; /* it became shorter meanwhile */
        }
        len += (size_t)got;
    }
    *bytes_out = bytes;
    *len_out = len;
    return WF_OK;
}

enum wf_status wf_files_read(struct wf_env *env, struct wf_folder *folder, const char *name,
                             uint8_t **bytes_out, size_t *len_out, struct wf_error *error)
{
    (void)env;
    int fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        return wf_error_set(error, WF_NOT_FOUND, "%.300s/%s is not there", folder->path, name);
    }
    if (fd < 0) {
        return failed(error, "open", folder, name);
    }
    enum wf_status status = read_all(folder, fd, name, bytes_out, len_out, error);
    close(fd);
    return status;
}

static bool write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        bytes += put;
        len -= (size_t)put;
    }
    return true;
}

static void forget_appended(struct wf_folder *folder)
{
    if (folder->appended >= 0) {
        close(folder->appended);
        folder->appended = -1;
    }
}

enum wf_status wf_files_append(struct wf_env *env, struct wf_folder *folder, const char *name,
                               const void *bytes, size_t len_bytes, struct wf_error *error)
{
    (void)env;
    WF_ASSERT(strlen(name) < sizeof folder->appended_name);
    if (folder->appended < 0 || strcmp(folder->appended_name, name) != 0) {
        forget_appended(folder);
        folder->appended = openat(folder->fd, name, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
        if (folder->appended < 0) {
            return failed(error, "open", folder, name);
        }
        snprintf(folder->appended_name, sizeof folder->appended_name, "%s", name);
    }
    off_t before = lseek(folder->appended, 0, SEEK_END);
    if (before < 0) {
        return failed(error, "write", folder, name);
    }
    if (!write_all(folder->appended, bytes, len_bytes)) {
        int why = errno;
        bool cut = ftruncate(folder->appended, before) == 0; /* nothing half written stays */
        errno = why;
        return cut ? failed(error, "write", folder, name)
                   : failed(error, "write, nor cut off what was written to,", folder, name);
    }
    return fdatasync(folder->appended) == 0 ? WF_OK : failed(error, "sync", folder, name);
}

enum wf_status wf_files_replace(struct wf_env *env, struct wf_folder *folder, const char *name,
                                const void *bytes, size_t len_bytes, struct wf_error *error)
{
    (void)env;
    char partial[NAME_MAX_BYTES + 8];
    WF_ASSERT(strlen(name) < NAME_MAX_BYTES);
    snprintf(partial, sizeof partial, "%s.new", name);
    forget_appended(folder);
    int fd =
        openat(folder->fd, partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return failed(error, "make", folder, partial);
    }
    bool good = write_all(fd, bytes, len_bytes) && fsync(fd) == 0;
    int why = errno;
    good = close(fd) == 0 && good; /* its error is reported like any other */
    if (good && renameat(folder->fd, partial, folder->fd, name) == 0) {
        return fsync(folder->fd) == 0 ? WF_OK : failed(error, "sync", folder, ".");
    }
    errno = good ? errno : why;
    enum wf_status status = failed(error, "write", folder, partial);
    unlinkat(folder->fd, partial, 0);
    return status;
}

void wf_files_close(struct wf_env *env, struct wf_folder *folder)
{
    (void)env;
    if (folder == NULL) {
        return;
    }
    forget_appended(folder);
    if (folder->lock >= 0) {
        close(folder->lock); /* which unlocks it */
    }
    if (folder->fd >= 0) {
        close(folder->fd);
    }
    free(folder->path);
    free(folder);
}
