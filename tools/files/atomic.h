/* atomic.h - writing a file that appears whole or not at all.
 *
 * The bytes go to ".NAME.weft-partial" beside the file, are synced, and are then renamed over the
 * final name, and the folder is synced. Whatever fails (write, sync, close, rename, a full device,
 * a size limit, kill -9), the final name shows the old file or the new one, never a part. A partial
 * file that a killed writer left is reused by the next writer of the same name. It is locked: a
 * second writer of the same file at the same time is refused.
 *
 * If the path is there and is no regular file (a pipe, /dev/stdout, /dev/null), it is written
 * straight: such a thing cannot be replaced and must not be. A symbolic link is followed, so the
 * file it points to is replaced and the link stays.
 *
 * The process must ignore SIGXFSZ and SIGPIPE to see those failures as errors. Not thread-safe for
 * one object; blocks on the disk.
 */
#ifndef WEFT_TOOLS_FILES_ATOMIC_H
#define WEFT_TOOLS_FILES_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

struct wf_atomic_file {
    int fd, folder_fd;
    bool open, direct, renamed;
    uint64_t bytes; /* written so far */
    char *path;     /* as given, for messages; owned */
    char *final;    /* name in the folder; owned */
    char *partial;  /* name in the folder; owned */
};

/* `file` is caller-owned memory. After OK end with commit or abort. */
enum wf_status wf_atomic_open(struct wf_atomic_file *file, const char *path,
                              struct wf_error *error);
/* Appends. After a failure only abort may follow. */
enum wf_status wf_atomic_write(struct wf_atomic_file *file, const void *bytes, size_t len,
                               struct wf_error *error);
/* Makes it durable and visible; ends the object whether it succeeds or not. */
enum wf_status wf_atomic_commit(struct wf_atomic_file *file, struct wf_error *error);
/* Removes the partial file; nothing if the object is not open (zeroed memory is fine). */
void wf_atomic_abort(struct wf_atomic_file *file);

/* A small file in one go. */
enum wf_status wf_atomic_write_file(const char *path, const void *bytes, size_t len,
                                    struct wf_error *error);

#endif
