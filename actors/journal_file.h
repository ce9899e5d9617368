/* journal_file.h - a MetaServer's journal on disk, through the env's files.
 *
 * The folder is locked for as long as the journal is open. Opening reads what is there, cuts a torn
 * tail off and writes the folded state as a new file; appending folds as well, and does the same
 * when the file has grown over WF_JOURNAL_COMPACT_BYTES and to twice what it was after the last
 * time.
 */
#ifndef WEFT_ACTORS_JOURNAL_FILE_H
#define WEFT_ACTORS_JOURNAL_FILE_H

#include "actors/journal.h"
#include "runtime/env.h"

enum { WF_JOURNAL_COMPACT_BYTES = 1 << 20 };

struct wf_journal_file;

/* The journal of `job` in the folder `path`, which is made if need be; blocks on the disk.
 * `recover`: a journal that cannot be read is put aside as "journal.damaged" and a new one begun,
 * instead of an error. REFUSED: in use, or another job's. */
enum wf_status wf_journal_file_open(struct wf_env *env, const char *path, const char *job,
                                    bool recover, struct wf_journal_file **file_out,
                                    struct wf_error *error);
/* Valid until the next append. */
const struct wf_journal_state *wf_journal_file_state(const struct wf_journal_file *file);
/* Durable when it returns OK; blocks on the disk. After a failure nothing more is written. Fits
 * wf_server_options.journal. */
enum wf_status wf_journal_file_append(struct wf_journal_file *file,
                                      const struct wf_journal_record *record,
                                      struct wf_error *error);
void wf_journal_file_close(struct wf_journal_file *file); /* NULL is fine */

#endif
