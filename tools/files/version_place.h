/* version_place.h - the folder that versions lie in: names, the lock, what is removed. Private to
 * tools/files/version_*.c. Blocks on the disk.
 */
#ifndef WEFT_TOOLS_FILES_VERSION_PLACE_H
#define WEFT_TOOLS_FILES_VERSION_PLACE_H

#include "actors/round.h"
#include "runtime/status.h"
#include "tools/files/version_folder.h"
#include "tools/files/version_manifest.h"

enum { WF_VERSION_NAME_MAX = WF_VERSION_TEXT + 24 };

/* Makes the place if it is not there, opens it and locks it for one writer until the descriptor is
 * closed; removes what killed writers left, so far as it can. REFUSED: another process has it. */
enum wf_status wf_version_place_lock(const char *place, const struct wf_version_notes *notes,
                                     int *fd_out, struct wf_error *error);
/* The versions in a place by their folders' names, oldest first. Gives *versions_out; free(). */
enum wf_status wf_version_place_list(int place_fd, struct wf_version **versions_out,
                                     uint32_t *count_out, struct wf_error *error);
/* ".VERSION" with that end, or with a number behind it where what bears that name could not be
 * removed. */
void wf_version_place_name(int place_fd, struct wf_version version, const char *end,
                           char name_out[WF_VERSION_NAME_MAX]);
/* Removes a folder and the files in it, or a link; nothing if it is not there. Of a folder that has
 * to stay, for what else is in it, the files go all the same. */
enum wf_status wf_version_place_remove(int place_fd, const char *name, struct wf_error *error);
/* Takes a version away: no reader opens it from here on. Nothing if it is not there. That its bytes
 * cannot be removed is noted, no failure. */
enum wf_status wf_version_place_retire(int place_fd, struct wf_version version,
                                       const struct wf_version_notes *notes,
                                       struct wf_error *error);
/* REFUSED: what bears that version's name does not say that it is of that job. */
enum wf_status wf_version_place_claim(int place_fd, struct wf_version version, const char *job,
                                      struct wf_error *error);
/* Retires all of save->job but save->version and the newest save->keep - 1 of the others, so far as
 * it can: where the clock went back, the newest by name are not those written last. Whatever does
 * not say that it is the job's stays. */
void wf_version_place_prune(int place_fd, const struct wf_version_save *save);
/* One file against what weft_version.json says of it: that it is there, its size, and (`whole`)
 * every byte of it. In version_read.c. */
enum wf_status wf_version_file_check(int folder_fd, const struct wf_version_file *file, bool whole,
                                     struct wf_error *error);
/* "writing NAME failed: no space left on device; make room": from errno. */
enum wf_status wf_version_failed(const char *what, const char *name, struct wf_error *error);

#endif
