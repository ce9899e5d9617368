/* live.h - the memory of running ranks, read like files: an observer of a job (docs/protocol.md,
 * "Looking at live weights").
 *
 * The server is asked once who holds what; each rank that is looked at is connected, and its
 * regions are read by one of the transports. Nothing waits for this process: what was read is one
 * version if the rank says so before and after, which wf_live_read asks now and then and
 * wf_live_check at the end. Calls block, at most for the time given, and turn the loop themselves;
 * one thread.
 */
#ifndef WEFT_TOOLS_LIVE_LIVE_H
#define WEFT_TOOLS_LIVE_LIVE_H

#include "actors/messages.h"
#include "actors/placement.h"
#include "actors/token.h"
#include "runtime/loop.h"
#include "transports/transport.h"

struct wf_live;
struct wf_live_rank;

struct wf_live_options {
    struct wf_loop *loop; /* with an env; borrows, as the rest */
    const char *address;  /* of the server */
    const char *job;      /* "": whichever is there */
    const struct wf_token *token;
    const char *host;                       /* this host's name in the job */
    struct wf_transport *const *transports; /* in order of preference */
    uint32_t transport_count;
    uint64_t timeout_ns; /* of each answer, and of each read */
};

/* Asks the server. Gives *live_out; free with wf_live_free. CONNECTION: nobody answers; REFUSED:
 * not to us; AGAIN: the job has no plan yet; TIMED_OUT. */
enum wf_status wf_live_open(const struct wf_live_options *options, struct wf_live **live_out,
                            struct wf_error *error);
void wf_live_free(struct wf_live *live); /* NULL is fine */

/* What the server said. Borrowed. */
const struct wf_frame_members *wf_live_members(const struct wf_live *live);
const struct wf_tables *wf_live_tables(const struct wf_live *live);

/* Connects to a rank, whose layout is `layout`, as MEMBERS' peers have it, with `tensor_count`
 * tensors, and imports its memory. CONNECTION: it cannot be reached; REFUSED: not to us, or too
 * many observers; UNSUPPORTED: no transport that both have works here; PROTOCOL, TIMED_OUT. The
 * rank is freed with `live`. */
enum wf_status wf_live_connect(struct wf_live *live, const struct wf_el_peer *peer,
                               struct wf_hash layout, uint32_t tensor_count,
                               struct wf_live_rank **rank_out, struct wf_error *error);
/* All ranks are connected: waits until they hold one version, and gives it. STALE: they do not
 * within the time, or one has another layout than it was connected with. */
enum wf_status wf_live_begin(struct wf_live *live, struct wf_version *version_out,
                             struct wf_error *error);

/* --- after wf_live_begin --------------------------------------------------------------------- */

/* "infer rank 3 (host b, engine 1)" */
const char *wf_live_rank_who(const struct wf_live_rank *rank);
uint32_t wf_live_rank_regions(const struct wf_live_rank *rank);
/* In which a tensor lies; WF_LIVE_NOWHERE: its host does not list it. */
#define WF_LIVE_NOWHERE UINT32_MAX
uint32_t wf_live_rank_place(const struct wf_live_rank *rank, uint32_t tensor, uint64_t *offset_out,
                            uint64_t *bytes_out);
uint64_t wf_live_rank_region_bytes(const struct wf_live_rank *rank, uint32_t region);

/* Bytes [offset, offset + len) of a region, inside it. STALE, with a sentence, as soon as it is
 * known that the rank's memory is no longer what it was: then nothing that was read counts. */
enum wf_status wf_live_read(struct wf_live_rank *rank, uint32_t region, uint64_t offset, void *out,
                            size_t len, struct wf_error *error);
/* Everything that was read so far, of all ranks, was the version of wf_live_begin; else STALE. */
enum wf_status wf_live_check(struct wf_live *live, struct wf_error *error);

#endif
