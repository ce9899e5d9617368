/* meta_client_replicas.c - the server asks what this rank holds that others hold too: the Sender
 * looks, if the rank has the version that is asked about and nothing changes it meanwhile. */
#include "actors/meta_client_internal.h"

/* What is asked about is what the rank has, and it stays as it is. */
static bool has_it(const struct wf_meta_client *client, const struct wf_round_key *round)
{
    if (client->rank->options.side == WF_TRAIN) {
        return client->granted && wf_round_key_equal(round, &client->round);
    }
    return wf_version_compare(client->live, round->version) == 0 && !client->welcome_waits &&
           client->busy != WF_RECEIVER_FLIPPING;
}

/* Its tensors have the layout's bytes: the host moves no experts and packs nothing in place. */
static bool is_by_layout(const struct wf_meta_client *client)
{
    return !client->moved && !client->rank->options.packs && !wf_client_place_is_stale(client);
}

void wf_client_replicas_asked(struct wf_meta_client *client,
                              const struct wf_frame_replicas_request *request)
{
    const struct wf_frame_replicas asked = {.round = request->round,
                                            .group = request->group,
                                            .first = request->first,
                                            .count = request->count,
                                            .within = request->within,
                                            .elements = request->elements};
    if (client->closing || client->agreed == NULL || !has_it(client, &request->round)) {
        return; /* the server asks again, while it wants to know */
    }
    if (!is_by_layout(client)) {
        wf_client_send(client, WF_FRAME_replicas, &asked); /* nothing to compare */
        return;
    }
    struct wf_local_msg *local = wf_local_msg_new(WF_LOCAL_REPLICAS, &client->actor);
    local->agreed = wf_agreed_hold(client->agreed);
    local->replicas = asked;
    wf_send(wf_sender_actor(client->rank->sender), &local->msg);
}

void wf_client_replicas_done(struct wf_meta_client *client, const struct wf_local_msg *local)
{
    if (has_it(client, &local->replicas.round) && is_by_layout(client)) {
        wf_client_send(client, WF_FRAME_replicas, &local->replicas);
    }
}
