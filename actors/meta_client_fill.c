/* meta_client_fill.c - a fill from a replica: the plan of its own that both ends make, and the part
 * of the engine that is read from; and a fill from the store, which only has readers.
 *
 * A source rank does not read, vote yes, pause or flip in such a round; it only lets its live
 * memory be read. It may do so until it hears of another round: until then nothing it would obey
 * changes that memory, and the server opens none before every reader has flipped, dropped what it
 * has, or is gone. What a source's own round is (rk, state) is not touched.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_client_internal.h"
#include "actors/planned.h"
#include "actors/store.h"

bool wf_client_fill_is_source(const struct wf_meta_client *client, const struct wf_frame_open *open)
{
    return open->source == (uint64_t)client->rank->options.engine + 1;
}

void wf_client_fill_drop(struct wf_meta_client *client)
{
    struct wf_client_fill *fill = &client->fill;
    if (fill->granted) {
        wf_client_local(client, wf_sender_actor(client->rank->sender), WF_LOCAL_REVOKE,
                        &fill->round, 0, 0);
    }
    free(fill->members);
    wf_agreed_release(fill->agreed);
    memset(fill, 0, sizeof *fill);
}

void wf_client_fill_want(struct wf_meta_client *client, const struct wf_frame_open *open)
{
    struct wf_client_fill *fill = &client->fill;
    size_t bytes = open->members_count * sizeof open->members[0];
    wf_client_fill_drop(client);
    fill->wanted = true;
    fill->round = open->round;
    fill->from_store = open->source == WF_SOURCE_STORE;
    fill->engine = open->source - 1;
    fill->members = malloc(bytes + 1);
    WF_ASSERT(fill->members != NULL);
    if (bytes > 0) {
        memcpy(fill->members, open->members, bytes);
    }
    fill->member_count = open->members_count;
    if (fill->from_store && client->rank->options.store == NULL) {
        wf_error_set(&fill->error, WF_UNSUPPORTED,
                     "was told of no folder in which versions lie: give files.folder");
        fill->planned = true;
        fill->wanted = false;
    }
    wf_client_fill_plan(client);
}

void wf_client_fill_plan(struct wf_meta_client *client)
{
    struct wf_client_fill *fill = &client->fill;
    if (!fill->wanted || client->planning || client->fill_planning || client->agreed == NULL) {
        return;
    }
    struct wf_local_msg *local = wf_local_msg_new(WF_LOCAL_PLAN_FILL, &client->actor);
    local->agreed =
        fill->from_store
            ? wf_agreed_for_store(client->agreed, client->rank->options.rank)
            : wf_agreed_for_fill(client->agreed, fill->engine, fill->members, fill->member_count);
    fill->wanted = false;
    client->fill_planning = true;
    wf_send(wf_planner_actor(client->rank->planner), &local->msg);
}

static void grant(struct wf_meta_client *client)
{
    struct wf_client_fill *fill = &client->fill;
    struct wf_local_msg *local = wf_local_msg_new(WF_LOCAL_GRANT, &client->actor);
    local->round = fill->round;
    local->agreed = wf_agreed_hold(fill->agreed);
    fill->granted = true;
    wf_send(wf_sender_actor(client->rank->sender), &local->msg);
}

void wf_client_fill_planned(struct wf_meta_client *client, struct wf_local_msg *local)
{
    struct wf_client_fill *fill = &client->fill;
    if (fill->member_count == 0 || fill->wanted || fill->planned) {
        return; /* of one that is over */
    }
    fill->planned = true;
    fill->error = local->error;
    fill->agreed = local->status == WF_OK ? wf_agreed_hold(local->agreed) : NULL;
    if (!fill->source) {
        wf_client_infer_planned(client);
    } else if (fill->agreed != NULL) {
        grant(client);
    } else {
        wf_client_vote_no(client, &fill->round, fill->error.text);
    }
}

void wf_client_fill_serve(struct wf_meta_client *client, const struct wf_frame_open *open)
{
    struct wf_client_fill *fill = &client->fill;
    int order = wf_round_key_compare(&open->round, &fill->round);
    if (order == 0 && fill->planned && fill->agreed == NULL) {
        wf_client_vote_no(client, &fill->round, fill->error.text); /* it was not heard */
    }
    if (order <= 0) {
        return; /* what a repeat asks for is on its way */
    }
    if (wf_version_compare(open->round.version, client->live) != 0) {
        char reason[WF_REASON_MAX], version[WF_VERSION_TEXT];
        wf_version_format(open->round.version, version);
        snprintf(reason, sizeof reason, "no longer holds version %s", version);
        wf_client_vote_no(client, &open->round, reason);
        return;
    }
    if (client->moved) {
        wf_client_vote_no(client, &open->round,
                          "is moving its experts: its weights are nobody's source before the next "
                          "version");
        return;
    }
    if (client->rank->options.packs) {
        wf_client_vote_no(
            client, &open->round,
            "packs its tensors: what they hold is not what their layout says, so they "
            "are nobody's source");
        return;
    }
    wf_client_fill_want(client, open);
    fill->source = true;
}
