/* io.h - opening and reading regular files that others named, without surprises.
 *
 * Names come from people and from files: a FIFO must not hang us, a device must not be opened, a
 * file that shrinks while it is read must give an error and not a signal. So every open checks the
 * kind first, and reading is by pread into memory: nothing here maps a file (some mounts refuse to,
 * and a mapped file that shrinks kills the reader). Symbolic links are followed: download caches
 * are made of them. Thread-safe; blocks on the disk.
 */
#ifndef WEFT_TOOLS_FILES_IO_H
#define WEFT_TOOLS_FILES_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

/* Opens a folder for the functions below: its descriptor in *fd_out, to be closed by the caller. */
enum wf_status wf_folder_open(const char *path, int *fd_out, struct wf_error *error);

/* Opens a regular file for reading. `folder_fd` is a folder or AT_FDCWD. NOT_FOUND if absent;
 * REFUSED if it is no regular file; IO otherwise. The sentence names `name`. */
enum wf_status wf_file_open(int folder_fd, const char *name, int *fd_out, uint64_t *bytes_out,
                            struct wf_error *error);

/* Reads exactly `len` bytes at `offset`; IO if the file is shorter (it was cut meanwhile). */
enum wf_status wf_file_pread(int fd, void *buffer, size_t len, uint64_t offset,
                             struct wf_error *error);

/* A whole file of at most `max_bytes`, with a NUL behind it that *len_out does not count. Gives
 * *text_out; free with free(). */
enum wf_status wf_file_read_all(int folder_fd, const char *name, size_t max_bytes, char **text_out,
                                size_t *len_out, struct wf_error *error);

/* True if `name` (len bytes) can only be a file directly in a folder: not empty, no '/', no NUL,
 * not
 * "." or "..", at most 255 bytes. */
bool wf_file_name_is_plain(const char *name, size_t len);

#endif
