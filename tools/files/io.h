/* io.h - folders, and opening and reading regular files that others named, without surprises.
 *
 * Names come from people and from files: a FIFO must not hang us, a device must not be opened, a
 * file that shrinks while it is read must give an error and not a signal. So every open checks the
 * kind first, and reading is by pread into memory: nothing here maps a file (some mounts refuse to,
 * and a mapped file that shrinks kills the reader). Symbolic links are followed: download caches
 * are made of them. Thread-safe; blocks on the disk.
 */
#ifndef WEFT_TOOLS_FILES_IO_H
#define WEFT_TOOLS_FILES_IO_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/status.h"

/* Opens a folder for the functions below: its descriptor in *fd_out, to be closed by the caller. */
enum wf_status wf_folder_open(const char *path, int *fd_out, struct wf_error *error);
/* Makes the folder and those above it that are not there; `mode` is of each that it makes. */
enum wf_status wf_folder_make(const char *path, mode_t mode, struct wf_error *error);
/* Entries of the folder NAME in that folder (".": of itself), for readdir and closedir, by a
 * descriptor of its own: reading it moves nobody's place. NULL with errno; ELOOP for a link. */
DIR *wf_folder_entries(int folder_fd, const char *name);
/* Removes a folder that is ours with all that is in it, as far as it can; follows no link. */
void wf_folder_remove(const char *path);

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
 * not "." or "..", at most 255 bytes. */
bool wf_file_name_is_plain(const char *name, size_t len);

#endif
