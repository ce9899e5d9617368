/* messages.h - every frame of Weft: one table drives structs, encoding, decoding, bounds, docs.
 *
 * A frame is a msgpack array: [type, field, field, ...] in the table's order. Decoding checks the
 * count, the kind and the bound of each field and refuses anything else with a sentence that names
 * the message and the field; nothing received is executed or trusted. docs/protocol.md's tables are
 * printed from here (wf_frame_describe) and compared by a test.
 *
 * Field kinds: U64(name, max) TEXT(name, bytes with NUL) BYTES(name, max) HASH(name)
 * KEY(name) VERSION(name) CULPRIT(name) LIST(name, element schema, max elements).
 * Elements are schemas of their own (WF_ELEMENT_MAP).
 */
#ifndef WEFT_ACTORS_MESSAGES_H
#define WEFT_ACTORS_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#include "actors/round.h"
#include "actors/store.h"
#include "models/recipe.h"
#include "runtime/env.h"
#include "runtime/status.h"

enum { WF_PROTOCOL_MIN = 1, WF_PROTOCOL_MAX = 1, WF_PROOF_MAX = 64, WF_NONCE_MAX = 32 };
/* Of one source; places: its tensors, those that it prepares and casts ahead too. The largest known
 * case is FSDP of a model with 384 experts in 60 layers: 69,120 matrices of experts, each with
 * codes and scales beside it, 210,000 places; room for five times that. A reader allocates as many
 * as the layout has that it derived itself. PLACES_FRAME of at most 22 bytes each fit into a frame.
 */
enum { WF_REGIONS_MAX = 4096, WF_PLACES_MAX = 1 << 20, WF_PLACES_FRAME = 65536 };
enum { WF_PLACED_MAX = 1 << 19 };      /* slots of all layers in a table of experts */
enum { WF_REPLICA_GROUPS_MAX = 8192 }; /* that one rank is in (actors/replicas.h) */
enum { WF_ROLE_RANK, WF_ROLE_OBSERVER };
/* round_report.state, and status_round.state */
enum { WF_REPORT_COMMITTED, WF_REPORT_ABORTED, WF_REPORT_IN_DOUBT, WF_REPORT_RUNNING };
enum { WF_STATUS_ROUNDS = 64, WF_STATUS_WAITS = 256 };

/* clang-format off */
/* --- elements of lists ----------------------------------------------------------------------- */
#define WF_FIELDS_member(F)                                                   \
    F(U64, side, 1) F(U64, rank, WF_RANKS_MAX) F(U64, engine, WF_ENGINES_MAX) \
    F(U64, incarnation, UINT64_MAX)
#define WF_FIELDS_peer(F)                                                         \
    F(U64, side, 1) F(U64, rank, WF_RANKS_MAX) F(U64, engine, WF_ENGINES_MAX)     \
    F(U64, group, WF_ENGINES_MAX) F(U64, group_rank, WF_RANKS_MAX)                \
    F(U64, incarnation, UINT64_MAX) F(HASH, layout, 0) F(TEXT, host, WF_HOST_MAX) \
    F(TEXT, address, WF_ADDRESS_MAX)
#define WF_FIELDS_group(F) \
    F(TEXT, name, WF_LABEL_MAX) F(U64, side, 1) F(TEXT, spec, WF_SPEC_MAX) F(HASH, model, 0)
#define WF_FIELDS_unit(F) F(U64, engine, WF_ENGINES_MAX)
#define WF_FIELDS_slot(F) F(U64, expert, WF_EXPERTS_MAX)
#define WF_FIELDS_chunk(F) \
    F(U64, op, UINT32_MAX) F(U64, chunk, UINT32_MAX) F(U64, digest, UINT64_MAX)
#define WF_FIELDS_replica(F) F(U64, group, UINT32_MAX) F(U64, chunks, UINT32_MAX) F(HASH, sum, 0)
#define WF_FIELDS_place(F) \
    F(U64, region, WF_REGIONS_MAX) F(U64, offset, UINT64_MAX) F(U64, len_bytes, UINT64_MAX)
#define WF_FIELDS_span(F) F(TEXT, name, 32) F(U64, start_ns, UINT64_MAX) F(U64, end_ns, UINT64_MAX)
#define WF_FIELDS_transport(F) F(TEXT, name, 32) F(U64, edges, UINT32_MAX) F(U64, bytes, UINT64_MAX)

/* Of a status: times are ages at the server, "0 ns ago" is now. `presence` is enum wf_presence. */
#define WF_FIELDS_status_rank(F)                                                         \
    F(U64, side, 1) F(U64, rank, WF_RANKS_MAX) F(U64, engine, WF_ENGINES_MAX)            \
    F(U64, incarnation, UINT64_MAX) F(U64, pid, UINT32_MAX) F(TEXT, host, WF_HOST_MAX)   \
    F(U64, presence, 15) F(TEXT, doing, 24) F(U64, heard_ns, UINT64_MAX) /* ago */       \
    F(U64, lease_left_ns, UINT64_MAX) F(VERSION, live, 0) F(U64, serving, 1)             \
    F(U64, bytes_peak, UINT64_MAX) /* of its own memory, as it noted last */
#define WF_FIELDS_status_engine(F)                                                             \
    F(U64, engine, WF_ENGINES_MAX) F(U64, ranks, WF_RANKS_MAX) F(U64, serving, WF_RANKS_MAX) \
    F(VERSION, current, 0)
#define WF_FIELDS_status_round(F)                                                            \
    F(KEY, round, 0) F(TEXT, label, WF_LABEL_MAX) F(U64, fill, 1) F(U64, state, 3)           \
    F(CULPRIT, culprit, 0) F(U64, opened_ns, UINT64_MAX) /* ago */ F(U64, bytes, UINT64_MAX) \
    F(U64, grant_ns, UINT64_MAX) F(U64, transfer_ns, UINT64_MAX)                             \
    F(U64, verify_ns, UINT64_MAX) F(U64, decide_ns, UINT64_MAX) F(U64, flip_ns, UINT64_MAX)  \
    F(U64, total_ns, UINT64_MAX) F(U64, pause_ns, UINT64_MAX)                                \
    F(U64, digest_mismatches, UINT64_MAX) F(U64, engines, WF_ENGINES_MAX)                    \
    F(U64, source, WF_SOURCE_STORE) F(U64, replicas_checked, WF_RANKS_MAX)                   \
    F(U64, replicas_different, WF_RANKS_MAX) F(CULPRIT, other, 0) /* as in round_report */
/* "WHO waits for WHOM TO, SINCE of LIMIT"; side 2: nobody in particular; limit 0: none. */
#define WF_FIELDS_status_wait(F)                                                              \
    F(TEXT, who, 96) F(U64, side, 2) F(U64, rank, WF_RANKS_MAX) F(U64, engine, WF_ENGINES_MAX) \
    F(TEXT, host, WF_HOST_MAX) F(TEXT, what, 96) F(U64, since_ns, UINT64_MAX)                 \
    F(U64, limit_ns, UINT64_MAX)

#define WF_ELEMENT_MAP(X)                                                                   \
    X(member) X(peer) X(group) X(unit) X(slot) X(chunk) X(replica) X(place) X(span) X(transport)    \
    X(status_rank) X(status_engine) X(status_round) X(status_wait)

/* --- frames ---------------------------------------------------------------------------------- */
/* First frame of whoever accepted the connection. Without a token the nonce is empty. `term` is the
 * server's (0 from a peer): a rank that sees a new one stops its unfinished read, then says HELLO.
 */
#define WF_FIELDS_challenge(F)                                             \
    F(U64, proto_min, 255) F(U64, proto_max, 255) F(U64, term, WF_TERM_MAX) \
    F(BYTES, nonce, WF_NONCE_MAX)
/* The answer to a CHALLENGE with a nonce: I know the job's token (actors/handshake.h). */
#define WF_FIELDS_prove(F)                                                               \
    F(U64, proto_min, 255) F(U64, proto_max, 255) F(TEXT, job, WF_JOB_NAME_MAX)          \
    F(U64, channel, 1) /* enum wf_channel */ F(U64, role, 1) F(U64, side, 1)             \
    F(U64, rank, WF_RANKS_MAX) F(U64, incarnation, UINT64_MAX) /* as the hello has it */ \
    F(BYTES, nonce, WF_NONCE_MAX) F(BYTES, proof, WF_PROOF_MAX)
/* So do I. */
#define WF_FIELDS_proven(F) F(BYTES, proof, WF_PROOF_MAX)
/* Who I am and all that I remember. */
#define WF_FIELDS_hello(F)                                                                     \
    F(U64, proto_min, 255) F(U64, proto_max, 255) F(TEXT, job, WF_JOB_NAME_MAX)                \
    F(U64, role, 1) F(U64, side, 1) F(U64, rank, WF_RANKS_MAX)                                 \
    F(U64, engine, WF_ENGINES_MAX) F(U64, incarnation, UINT64_MAX) F(TEXT, host, WF_HOST_MAX)  \
    F(U64, pid, UINT32_MAX) F(TEXT, address, WF_ADDRESS_MAX) /* where peers reach this rank */ \
    F(TEXT, group, WF_LABEL_MAX) F(U64, group_rank, WF_RANKS_MAX) F(TEXT, spec, WF_SPEC_MAX)   \
    F(HASH, model, 0) F(HASH, layout, 0) F(U64, term, WF_TERM_MAX) /* highest adopted */        \
    F(U64, state, 15) /* enum wf_rank_state or wf_train_state */                               \
    F(KEY, round, 0) /* rk, or the trainer's tk */                                             \
    F(LIST, members, member, WF_RANKS_MAX) /* of that round */                                 \
    F(VERSION, live, 0) /* what the rank holds; the trainer: what its weights are */           \
    F(VERSION, committed, 0) /* com or tcom: newest it was told is committed */                \
    F(KEY, aborted, 0) /* trainer: tab */                                                      \
    F(U64, mode, 1) /* infer: enum wf_update_mode */
/* `clean`: the rank was fenced, is new, or the term is: it stops reads, flips the committed version
 * if it holds that staged, drops all else, and answers JOINED. Otherwise only the connection is
 * new: it answers JOINED as it is. `committed` is its engine's; `round` the newest round there is.
 */
#define WF_FIELDS_welcome(F)                                                             \
    F(U64, term, WF_TERM_MAX) F(U64, epoch, UINT64_MAX) F(U64, clean, 1) F(KEY, round, 0) \
    F(VERSION, committed, 0) F(U64, lease_ns, UINT64_MAX)                                \
    F(U64, sent_ns, UINT64_MAX) /* of the newest heartbeat heard; 0: the HELLO */        \
    F(U64, drop_to_latest, 1)
/* The answer to WELCOME: that is done. `serving`: the host may use the weights. */
#define WF_FIELDS_joined(F)                                                          \
    F(U64, epoch, UINT64_MAX) F(U64, state, 15) F(KEY, round, 0) F(VERSION, live, 0) \
    F(VERSION, committed, 0) F(U64, serving, 1)
#define WF_FIELDS_refused(F) F(U64, status, 255) F(TEXT, text, WF_ERROR_TEXT_MAX)
#define WF_FIELDS_members(F)                                                                  \
    F(U64, term, WF_TERM_MAX) F(U64, epoch, UINT64_MAX) F(LIST, groups, group, WF_ENGINES_MAX) \
    F(LIST, peers, peer, WF_RANKS_MAX)
#define WF_FIELDS_planned(F)                                                                 \
    F(U64, epoch, UINT64_MAX) F(U64, status, 255) F(TEXT, text, WF_ERROR_TEXT_MAX)           \
    F(HASH, input, 0) F(HASH, edge_sum, 0) F(U64, edges, UINT32_MAX) F(U64, ops, UINT64_MAX) \
    F(U64, bytes_unique, UINT64_MAX) F(U64, bytes_moved, UINT64_MAX)                         \
    F(U64, egress_max, UINT64_MAX) F(U64, egress_ranks, UINT32_MAX)                          \
    F(U64, ingress_max, UINT64_MAX) F(U64, build_ns, UINT64_MAX)                             \
    F(U64, cast_made_bytes, UINT64_MAX) F(U64, cast_once_bytes, UINT64_MAX)                  \
    F(U64, cast_moving_bytes, UINT64_MAX) F(U64, cut_matrices, UINT32_MAX)
/* `members` is the epoch of the newest MEMBERS and `round` the newest round that the rank has, so that
 * what it has is not repeated. */
#define WF_FIELDS_heartbeat(F)                               \
    F(U64, sequence, UINT64_MAX) F(U64, sent_ns, UINT64_MAX) \
    F(U64, members, UINT64_MAX) F(KEY, round, 0)
#define WF_FIELDS_lease(F)                                                          \
    F(U64, term, WF_TERM_MAX) F(U64, epoch, UINT64_MAX) F(U64, sequence, UINT64_MAX) \
    F(U64, sent_ns, UINT64_MAX) /* the heartbeat's, echoed: the lease counts from it */
/* To train ranks: versions published from now on belong to it, and publishing may begin. `step`:
 * the newest step any train rank has published. Answered by TOLD with version (generation, 0). */
#define WF_FIELDS_generation(F)                                                              \
    F(U64, term, WF_TERM_MAX) F(U64, generation_term, WF_TERM_MAX) F(U64, counter, UINT64_MAX) \
    F(U64, step, UINT64_MAX)
#define WF_FIELDS_publish(F)                                               \
    F(VERSION, version, 0) F(TEXT, label, WF_LABEL_MAX) F(HASH, layout, 0) \
    F(U64, models, UINT64_MAX)
/* The trainer has no more to publish; its weights stay at `version` and may serve fills. */
#define WF_FIELDS_idle(F) F(VERSION, version, 0)
#define WF_FIELDS_open(F)                                                           \
    F(KEY, round, 0) F(TEXT, label, WF_LABEL_MAX) F(U64, policy, 3) F(U64, fill, 1) \
    F(U64, deadline_ns, UINT64_MAX) /* from receipt */                              \
    F(LIST, members, member, WF_RANKS_MAX)                                          \
    /* of a fill: 0 the train side, n + 1 engine n, WF_SOURCE_STORE each reader's own store */ \
    F(U64, source, WF_SOURCE_STORE)
/* To the in_place members of a unit, when all of them are paused: reading may begin. */
#define WF_FIELDS_permit(F) F(KEY, round, 0) F(U64, deadline_ns, UINT64_MAX) /* from receipt */
/* Train ranks vote only no: "what this round wants to read is gone". */
#define WF_FIELDS_vote(F)                                                                      \
    F(KEY, round, 0) F(U64, yes, 1) F(CULPRIT, culprit, 0) F(U64, bytes, UINT64_MAX)           \
    F(U64, grant_ns, UINT64_MAX) F(U64, transfer_ns, UINT64_MAX) F(U64, verify_ns, UINT64_MAX) \
    F(U64, digest_mismatches, UINT64_MAX) F(LIST, transports, transport, 16)
#define WF_FIELDS_decide(F) F(KEY, round, 0) F(LIST, engines, unit, WF_ENGINES_MAX)
#define WF_FIELDS_quiesced(F) F(KEY, round, 0)
#define WF_FIELDS_flip(F) F(KEY, round, 0)
#define WF_FIELDS_flipped(F) F(KEY, round, 0) F(VERSION, live, 0) F(U64, flip_ns, UINT64_MAX)
#define WF_FIELDS_resume(F) F(KEY, round, 0) F(VERSION, version, 0)
#define WF_FIELDS_resumed(F) F(KEY, round, 0) F(U64, pause_ns, UINT64_MAX)
#define WF_FIELDS_abort(F) F(KEY, round, 0) F(CULPRIT, culprit, 0)
/* Nothing can land any more; `live` is what the rank's memory is then: in place it may be none. */
#define WF_FIELDS_aborted(F) F(KEY, round, 0) F(VERSION, live, 0)
/* To train ranks. The hold of round.version ends; `version` is the newest committed one. A version
 * that the policy skips is released with attempt 0 and no engines. Answered by TOLD. */
#define WF_FIELDS_released(F) \
    F(KEY, round, 0) F(VERSION, version, 0) F(LIST, engines, unit, WF_ENGINES_MAX)
/* To train ranks, after the barrier. `again`: the hold stays, because the server will try this version
 * once more, or because a train rank was lost and the same weights are published anew under the next
 * GENERATION. Otherwise it ends. Answered by TOLD. */
#define WF_FIELDS_round_aborted(F) F(KEY, round, 0) F(U64, again, 1) F(CULPRIT, culprit, 0)
#define WF_FIELDS_told(F) F(KEY, round, 0)
/* From a rank that puts versions where fills may read them (actors/store.h): `version` lies there
 * now, or (`writing`) is being written; none: nothing does. */
#define WF_FIELDS_stored(F) F(VERSION, version, 0) F(U64, writing, 1)
/* Compares what several ranks of a side hold alike (actors/replicas.h). To train ranks in a round,
 * about the version that it reads; to infer ranks after it, about what they serve. `count` 0: the
 * sums of all their groups; else that of chunks [first, first + count) of one group, or, with
 * `elements`, of so many elements of the one chunk, from its element `within` on. */
#define WF_FIELDS_replicas_request(F)                                                              \
    F(KEY, round, 0) F(U64, group, UINT32_MAX) F(U64, first, UINT32_MAX) F(U64, count, UINT32_MAX) \
    F(U64, within, UINT32_MAX) F(U64, elements, UINT32_MAX)
/* `object`: of all groups, where the rank's own copies of something differ from each other; of a
 * single chunk, or of elements in it, what that is. `holds`: elements of the single chunk. `failed`:
 * the rank could not compare, for what `object` says, and there are no sums. */
#define WF_FIELDS_replicas(F)                                                                      \
    F(KEY, round, 0) F(U64, group, UINT32_MAX) F(U64, first, UINT32_MAX) F(U64, count, UINT32_MAX) \
    F(U64, within, UINT32_MAX) F(U64, elements, UINT32_MAX) F(U64, holds, UINT32_MAX)              \
    F(U64, failed, 1)                                                                              \
    F(HASH, plan, 0) /* whose layouts the groups follow from */                                    \
    F(TEXT, object, WF_OBJECT_MAX) F(LIST, sums, replica, WF_REPLICA_GROUPS_MAX)
/* A rank's own account of a version: phases for the timeline, counts of the demo's checks. `text`: how
 * an infer rank's transports move bytes; of a train rank, what became of the version. */
#define WF_FIELDS_note(F)                                                                       \
    F(U64, side, 2) F(U64, rank, WF_RANKS_MAX) F(U64, engine, WF_ENGINES_MAX)                   \
    F(VERSION, version, 0) F(U64, attempt, UINT64_MAX) F(U64, elements_checked, UINT64_MAX)     \
    F(U64, elements_wrong, UINT64_MAX) F(U64, torn_reads, UINT64_MAX) F(U64, reads, UINT64_MAX) \
    F(U64, own_bytes_peak, UINT64_MAX) F(TEXT, text, WF_OBJECT_MAX) F(LIST, spans, span, 64)
/* To observers: the plan once, then every end of a round, with seconds at the server. `engines` are
 * those that serve the version by then: a decided one that lost a rank does not. */
#define WF_FIELDS_plan_report(F)                                                             \
    F(HASH, input, 0) F(U64, train_ranks, WF_RANKS_MAX) F(U64, infer_ranks, WF_RANKS_MAX)    \
    F(U64, ops, UINT64_MAX) F(U64, bytes_unique, UINT64_MAX) F(U64, bytes_moved, UINT64_MAX) \
    F(U64, egress_max, UINT64_MAX) F(U64, egress_ranks, UINT32_MAX)                          \
    F(U64, ingress_max, UINT64_MAX) F(U64, build_ns, UINT64_MAX)                             \
    F(U64, cast_made_bytes, UINT64_MAX) F(U64, cast_once_bytes, UINT64_MAX)                  \
    F(U64, cast_moving_bytes, UINT64_MAX) F(U64, cut_matrices, UINT32_MAX)
#define WF_FIELDS_round_report(F)                                                              \
    F(KEY, round, 0) F(TEXT, label, WF_LABEL_MAX) F(U64, fill, 1) F(U64, state, 2)             \
    F(CULPRIT, culprit, 0) F(U64, bytes, UINT64_MAX) F(U64, opened_ns, UINT64_MAX) /* ago */   \
    F(U64, grant_ns, UINT64_MAX) F(U64, transfer_ns, UINT64_MAX) F(U64, verify_ns, UINT64_MAX) \
    F(U64, decide_ns, UINT64_MAX) F(U64, flip_ns, UINT64_MAX) F(U64, total_ns, UINT64_MAX)     \
    F(U64, pause_ns, UINT64_MAX) F(U64, digest_mismatches, UINT64_MAX)                         \
    F(LIST, transports, transport, 16) F(LIST, engines, unit, WF_ENGINES_MAX)                  \
    F(U64, source, WF_SOURCE_STORE) /* as in OPEN */                                           \
    F(U64, replicas_checked, WF_RANKS_MAX) /* ranks whose copies were compared */              \
    F(U64, replicas_different, WF_RANKS_MAX) /* of which these hold other bytes than most */      \
    F(CULPRIT, other, 0) /* `culprit` is one of two copies that differ, and it may be this one */
/* To observers: one line of what is going on now (progress). */
#define WF_FIELDS_progress(F)                                                           \
    F(TEXT, phase, 32) F(KEY, round, 0) F(U64, done, UINT64_MAX) F(U64, of, UINT64_MAX) \
    F(TEXT, text, WF_REASON_MAX)
/* To observers: a rank was fenced (`away`), or is heard again or has joined. */
#define WF_FIELDS_presence(F) F(U64, away, 1) F(CULPRIT, who, 0)
/* From an observer, any time; answered by STATUS. */
#define WF_FIELDS_status_request(F) F(U64, ranks, WF_RANKS_MAX) /* how many it wants at most */
/* What the server knows, at one moment. Sums are since its start; times in rounds as in
 * round_report. `state`: recovering, idle, opened, closing, ending. */
#define WF_FIELDS_status(F)                                                                     \
    F(TEXT, weft_version, 32) F(TEXT, job, WF_JOB_NAME_MAX) F(TEXT, state, 24)                  \
    F(U64, term, WF_TERM_MAX) F(U64, epoch, UINT64_MAX) F(U64, generation, UINT64_MAX)           \
    F(U64, up_ns, UINT64_MAX) F(U64, agreed, 1) F(HASH, plan, 0) F(U64, plan_ops, UINT64_MAX)   \
    F(U64, plan_bytes, UINT64_MAX) F(VERSION, committed, 0)                                     \
    F(VERSION, stored, 0) /* the newest of which a rank said that it lies in files */           \
    F(U64, train_ranks, WF_RANKS_MAX) F(U64, infer_ranks, WF_RANKS_MAX)                         \
    F(U64, rounds_committed, UINT64_MAX) F(U64, rounds_aborted, UINT64_MAX)                     \
    F(U64, fills, UINT64_MAX) /* among the committed */                                         \
    F(U64, versions_committed, UINT64_MAX) F(U64, bytes_moved, UINT64_MAX)                      \
    F(U64, grant_ns, UINT64_MAX) F(U64, transfer_ns, UINT64_MAX) F(U64, verify_ns, UINT64_MAX)  \
    F(U64, decide_ns, UINT64_MAX) F(U64, flip_ns, UINT64_MAX) F(U64, total_ns, UINT64_MAX)      \
    F(U64, pause_ns, UINT64_MAX) F(U64, pause_max_ns, UINT64_MAX)                               \
    F(U64, digest_mismatches, UINT64_MAX)                                                       \
    F(U64, replicas_different, UINT64_MAX) /* as in round_report, over all rounds */            \
    F(U64, connections, UINT32_MAX)                                                             \
    F(U64, connections_refused, UINT64_MAX) F(U64, ranks_lost, UINT64_MAX)                      \
    F(LIST, engines, status_engine, WF_ENGINES_MAX) F(LIST, ranks, status_rank, WF_RANKS_MAX)   \
    F(LIST, rounds, status_round, WF_STATUS_ROUNDS) /* oldest first; one may be going on */     \
    F(LIST, waits, status_wait, WF_STATUS_WAITS)
/* An observer wants to see what ranks hold (docs/protocol.md, "Looking at live weights"). To the
 * server, with nothing but the protocol's versions: answered by PLACEMENTs and MEMBERS, or REFUSED
 * (AGAIN) while there is no plan. To a rank, as which it must know it: the first is answered by
 * PEER_PLACES and PEER_REGIONs for each slot, each by HELD. */
#define WF_FIELDS_look(F)                                                       \
    F(U64, proto_min, 255) F(U64, proto_max, 255) F(TEXT, job, WF_JOB_NAME_MAX) \
    F(U64, side, 1) F(U64, rank, WF_RANKS_MAX) F(U64, incarnation, UINT64_MAX)  \
    F(TEXT, transports, 256)
/* What the rank's memory is now: `version`, in `slot`, by `layout`; or no version, and why. Two
 * HELDs with one version and one number of `writes` say that nothing was written in between. */
#define WF_FIELDS_held(F)                                                         \
    F(VERSION, version, 0) F(U64, writes, UINT64_MAX) F(U64, slot, 1)             \
    F(HASH, layout, 0) F(TEXT, why, WF_REASON_MAX) /* the rest of a sentence */
/* Which expert each slot of an engine holds, layer by layer; without layers: by its recipe's rule
 * again. From an infer rank, before JOINED and whenever it changes: `layout` is its own by this
 * table, and it votes no in rounds of plans with another one. From the server, before MEMBERS: that
 * of an engine whose ranks agree; `layout` is none. With `take`: to a rank that began with another
 * table than its engine has by now. */
#define WF_FIELDS_placement(F)                                                               \
    F(U64, engine, WF_ENGINES_MAX) F(HASH, layout, 0) F(U64, layers, WF_LAYERS_MAX)          \
    F(U64, slots, WF_EXPERTS_MAX) F(LIST, experts, slot, WF_PLACED_MAX) \
    F(U64, take, 1)
/* A clean goodbye: a rank that leaves, or the server that ends the job. */
#define WF_FIELDS_leave(F) F(TEXT, reason, WF_REASON_MAX)
/* --- between plan peers: a reader (infer rank) and a source (train rank) --------------------- */
#define WF_FIELDS_peer_hello(F)                                                                \
    F(U64, proto_min, 255) F(U64, proto_max, 255) F(TEXT, job, WF_JOB_NAME_MAX)                \
    F(U64, rank, WF_RANKS_MAX) F(U64, incarnation, UINT64_MAX)                                 \
    F(U64, source_rank, WF_RANKS_MAX) F(U64, source_incarnation, UINT64_MAX) F(HASH, input, 0) \
    F(HASH, edge, 0) F(TEXT, transports, 256)
/* One frame a region, its fd beside it; the last has `last` = 1. */
#define WF_FIELDS_peer_region(F)                                                     \
    F(U64, index, WF_REGIONS_MAX) F(U64, slot, 1) F(TEXT, transport, 32) F(BYTES, handle, 1024) \
    F(U64, len_bytes, UINT64_MAX) F(U64, last, 1)
/* Where the source's tensors are: one `place` for each tensor of its layout, those from `first` on; the
 * last frame of a slot's has `last` = 1. `slots`: how many the source has; each comes with its places
 * and then its regions. */
#define WF_FIELDS_peer_places(F)                                                              \
    F(U64, slot, 1) F(U64, first, WF_PLACES_MAX) F(LIST, places, place, WF_PLACES_FRAME) \
    F(U64, last, 1) F(U64, slots, 2)
#define WF_FIELDS_grant_request(F) F(KEY, round, 0)
/* `prepare_ns`: how long the source worked on what it gives, after its own GRANT. */
#define WF_FIELDS_grant(F) F(KEY, round, 0) F(U64, slot, 1) F(U64, prepare_ns, UINT64_MAX)
#define WF_FIELDS_digest_request(F) F(KEY, round, 0)
/* Sum of H(op, chunk, digest) over the edge. */
#define WF_FIELDS_digest(F) F(KEY, round, 0) F(U64, chunks, UINT64_MAX) F(HASH, sum, 0)
#define WF_FIELDS_chunks_request(F) \
    F(KEY, round, 0) F(U64, first_op, UINT32_MAX) F(U64, first_chunk, UINT32_MAX)
#define WF_FIELDS_chunks(F) F(KEY, round, 0) F(LIST, chunks, chunk, 65536) F(U64, last, 1)
#define WF_FIELDS_peer_refused(F) F(KEY, round, 0) F(U64, status, 255) F(TEXT, text, WF_REASON_MAX)

/* X(name, type number). Numbers are the wire's: only append. */
#define WF_FRAME_MAP(X)                                                                         \
    X(challenge, 1) X(hello, 2) X(welcome, 3) X(refused, 4) X(members, 5) X(planned, 6)         \
    X(heartbeat, 7) X(lease, 8) X(generation, 9) X(publish, 10) X(idle, 11) X(open, 12)         \
    X(vote, 13) X(decide, 14) X(quiesced, 15) X(flip, 16) X(flipped, 17) X(resume, 18)          \
    X(resumed, 19) X(abort, 20) X(aborted, 21) X(released, 22) X(round_aborted, 23) X(note, 24) \
    X(plan_report, 25) X(round_report, 26) X(progress, 27) X(leave, 28) X(joined, 29)           \
    X(told, 30) X(prove, 31) X(proven, 32) X(permit, 33) X(stored, 34) X(placement, 35)         \
    X(replicas_request, 36) X(look, 37) X(held, 38) X(replicas, 39)                             \
    X(peer_hello, 40) X(peer_region, 41) X(peer_places, 42) X(grant_request, 43)                \
    X(grant, 44) X(digest_request, 45) X(digest, 46) X(chunks_request, 47) X(chunks, 48)        \
    X(peer_refused, 49) X(presence, 60) X(status_request, 70) X(status, 71)
/* clang-format on */

/* --- structs: struct wf_frame_hello { uint64_t proto_min; ... } and struct wf_el_member --------
 */
#define WF_STRUCT_U64(name, bound) uint64_t name;
#define WF_STRUCT_TEXT(name, bound) char name[bound];
#define WF_STRUCT_BYTES(name, bound) \
    uint32_t name##_len;             \
    uint8_t name[bound];
#define WF_STRUCT_HASH(name, bound) struct wf_hash name;
#define WF_STRUCT_KEY(name, bound) struct wf_round_key name;
#define WF_STRUCT_VERSION(name, bound) struct wf_version name;
#define WF_STRUCT_CULPRIT(name, bound) struct wf_culprit name;
#define WF_STRUCT_LIST(name, element, bound) \
    struct wf_el_##element *name;            \
    uint32_t name##_count;
#define WF_STRUCT_FIELD(kind, ...) WF_STRUCT_##kind(__VA_ARGS__)

#define WF_ELEMENT_STRUCT(name)           \
    struct wf_el_##name {                 \
        WF_FIELDS_##name(WF_STRUCT_FIELD) \
    };
WF_ELEMENT_MAP(WF_ELEMENT_STRUCT)
#undef WF_ELEMENT_STRUCT

#define WF_FRAME_STRUCT(name, number)     \
    struct wf_frame_##name {              \
        WF_FIELDS_##name(WF_STRUCT_FIELD) \
    };
WF_FRAME_MAP(WF_FRAME_STRUCT)
#undef WF_FRAME_STRUCT

enum wf_frame_type {
    WF_FRAME_TYPE_NONE = 0,
#define WF_FRAME_ENUM(name, number) WF_FRAME_##name = number,
    WF_FRAME_MAP(WF_FRAME_ENUM)
#undef WF_FRAME_ENUM
};

/* A decoded frame; `memory` holds the lists. */
struct wf_frame {
    enum wf_frame_type type;
    void *memory;
    union {
#define WF_FRAME_MEMBER(name, number) struct wf_frame_##name name;
        WF_FRAME_MAP(WF_FRAME_MEMBER)
#undef WF_FRAME_MEMBER
    };
};

/* Encodes the struct of `type` (a struct wf_frame_NAME) into malloc'd bytes (gives). NO_RESOURCE
 * if it would be longer than WF_FRAME_MAX; our own bad field (over its bound) is INVALID. */
enum wf_status wf_frame_encode(enum wf_frame_type type, const void *fields, uint8_t **bytes_out,
                               size_t *len_out, struct wf_error *error);
/* PROTOCOL with a sentence on anything unexpected, and then nothing to free. */
enum wf_status wf_frame_decode(const void *bytes, size_t len, struct wf_frame *frame_out,
                               struct wf_error *error);
void wf_frame_fini(struct wf_frame *frame);
/* The type that bytes begin with, nothing else looked at; 0: they are no frame. */
int wf_frame_peek(const void *bytes, size_t len);
const char *wf_frame_name(int type); /* "hello"; "unknown" */
/* Encodes and sends on a connection of `env`; `fd` or -1. */
enum wf_status wf_frame_send(struct wf_env *env, uint64_t conn, enum wf_frame_type type,
                             const void *fields, int fd);
/* The encoded frame for many connections (env's send_shared), with one reference; errors as
 * wf_frame_encode. */
enum wf_status wf_frame_payload(enum wf_frame_type type, const void *fields,
                                struct wf_payload **payload_out, struct wf_error *error);
/* Writes the tables of docs/protocol.md as Markdown. */
#include <stdio.h>
void wf_frame_describe(FILE *out);

#endif
