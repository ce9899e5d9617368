/* planned.h - what Converter and Planner share: names of members, and telling the rank's parts.
 * Private to actors/. After the Converter, agreed->members.members.peers stand in member order:
 * train ranks, then infer ranks.
 */
#ifndef WEFT_ACTORS_PLANNED_H
#define WEFT_ACTORS_PLANNED_H

#include "actors/local.h"

enum { WF_WHO_MAX = 160 };
/* "train rank 3 (host b)", "infer rank 3 (host b, engine 1)" */
void wf_peer_who(const struct wf_el_peer *peer, char text_out[WF_WHO_MAX]);
/* The number-th of its addresses, from 0, to be tried from `host`: unix sockets first, and only on
 * the host that they are on. False: there are no more. (receiver_route.c) */
bool wf_peer_address(const struct wf_el_peer *peer, const char *host, uint32_t number,
                     char out[WF_ADDRESS_MAX]);
/* Sends PLANNED to Sender, Receiver and MetaClient, each with its own reference to `agreed`; the
 * round's term and epoch are those of the member list. `error`: NULL, or why the rank must not use
 * agreed->plan. */
void wf_planned_tell(struct wf_rank *rank, struct wf_actor *from, struct wf_agreed *agreed,
                     const struct wf_error *error);

/* --- plan_targets.c ------------------------------------------------------------------------------
 */
/* Puts in layouts[] and bases[] of the targets what they are planned with, given everybody's own,
 * and in `assemble` how `rank` makes what is made there. Pool thread: reads options of the rank. */
enum wf_status wf_agreed_plan_targets(struct wf_agreed *agreed, const struct wf_rank *rank,
                                      struct wf_error *error);
/* Like layouts[], the layouts of members' own tensors (of train ranks: as sources), which is what
 * others read or compare of them. */
struct wf_layout *const *wf_agreed_owns(const struct wf_agreed *agreed);

/* --- fill_plan.c ---------------------------------------------------------------------------------
 */
/* Where a rank stands in a plan, among the sources (role WF_TRAIN) or the targets; UINT32_MAX:
 * nowhere. In the job's own plan that is its number. */
uint32_t wf_agreed_position(const struct wf_agreed *agreed, enum wf_side role, uint64_t side,
                            uint64_t rank);
/* What a fill from infer engine `engine` is planned from: its ranks as sources, the other listed
 * members as targets. `job`: what MEMBERS gave; held as long as the result, which has one
 * reference and no plan yet. */
struct wf_agreed *wf_agreed_for_fill(struct wf_agreed *job, uint64_t engine,
                                     const struct wf_el_member *members, uint32_t member_count);
/* What a fill of rank `rank` from its store is planned from: the store as the only source, in the
 * layout of a Hugging Face folder (made by the Planner), that rank as the only target. */
struct wf_agreed *wf_agreed_for_store(struct wf_agreed *job, uint64_t rank);
/* Whoever fills gives the values that the trainers would give, or none: UNSUPPORTED if an op of the
 * plan would cast what was rounded before (the trainers hold it in a dtype that the source's does
 * not keep). */
enum wf_status wf_fill_plan_check(const struct wf_agreed *agreed, const struct wf_model *model,
                                  struct wf_error *error);

#endif
