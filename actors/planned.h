/* planned.h - what Converter and Planner share: names of members, and telling the rank's parts.
 * Private to actors/. After the Converter, agreed->members.members.peers stand in member order:
 * train ranks, then infer ranks.
 */
#ifndef WEFT_ACTORS_PLANNED_H
#define WEFT_ACTORS_PLANNED_H

#include "actors/local.h"

enum { WF_WHO_MAX = 160 };
const char *wf_side_name(uint64_t side); /* "train", "infer" */
/* "train rank 3 (host b)", "infer rank 3 (host b, engine 1)" */
void wf_peer_who(const struct wf_el_peer *peer, char text_out[WF_WHO_MAX]);
/* Sends PLANNED to Sender, Receiver and MetaClient, each with its own reference to `agreed`; the
 * round's term and epoch are those of the member list. `error`: NULL, or why the rank must not use
 * agreed->plan. */
void wf_planned_tell(struct wf_rank *rank, struct wf_actor *from, struct wf_agreed *agreed,
                     const struct wf_error *error);

#endif
