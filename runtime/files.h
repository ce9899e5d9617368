/* files.h - the real env's folders and files: locked, written through to the disk.
 *
 * The functions are entries of struct wf_env_ops (env.h has their contract). The folder is locked
 * by flock on its file "lock", which names the process that holds it; the kernel ends the lock with
 * the process. A file is replaced by way of "NAME.new", synced, then renamed, then the folder is
 * synced; appends are synced before they return, and cut off again if they fail.
 */
#ifndef WEFT_RUNTIME_FILES_H
#define WEFT_RUNTIME_FILES_H

#include "runtime/env.h"

enum wf_status wf_files_open(struct wf_env *env, const char *path, struct wf_folder **folder_out,
                             struct wf_error *error);
enum wf_status wf_files_read(struct wf_env *env, struct wf_folder *folder, const char *name,
                             uint8_t **bytes_out, size_t *len_out, struct wf_error *error);
enum wf_status wf_files_append(struct wf_env *env, struct wf_folder *folder, const char *name,
                               const void *bytes, size_t len_bytes, struct wf_error *error);
enum wf_status wf_files_replace(struct wf_env *env, struct wf_folder *folder, const char *name,
                                const void *bytes, size_t len_bytes, struct wf_error *error);
void wf_files_close(struct wf_env *env, struct wf_folder *folder);

#endif
