/* meta_client_tell.c - tells a trainer's host that its buffers are its own again, when no work of
 * this rank reads them any more.
 *
 * A digest may still be under way when a round ends. So every REVOKE is answered by the Sender, and
 * what the host is to be told waits, in order, for the answers that are out: milliseconds. Until
 * then it may not publish: it does not know yet what it would publish under.
 */
#include "actors/meta_client_internal.h"

static void deliver(struct wf_meta_client *client, const struct wf_client_tell *tell)
{
    const struct wf_rank_options *o = &client->rank->options;
    if (client->ended) {
        return;
    }
    switch (tell->kind) {
    case WF_TELL_READY:
        wf_client_doubt_end(client);
        if (o->hooks.ready != NULL) {
            o->hooks.ready(o->host, client->rank, tell->restarted, tell->step);
        }
        break;
    case WF_TELL_RELEASED:
        wf_client_doubt_settle(client, tell->version);
        if (o->hooks.released != NULL) {
            o->hooks.released(o->host, client->rank, tell->version, tell->engines);
        }
        break;
    case WF_TELL_ABORTED:
        if (!tell->again) {
            wf_client_doubt_settle(client, tell->version);
        }
        if (o->hooks.aborted != NULL) {
            o->hooks.aborted(o->host, client->rank, tell->version, tell->attempt, tell->again,
                             &tell->culprit);
        }
        break;
    }
}

void wf_client_tell(struct wf_meta_client *client, const struct wf_client_tell *tell)
{
    if (client->revokes_out == 0 && client->tell_count == 0) {
        deliver(client, tell);
    } else if (client->tell_count < WF_TELLS_MAX) {
        client->tells[client->tell_count++] = *tell;
    } else {
        wf_client_drop_link(client, "the server ended more rounds at once than there can be");
    }
}

void wf_client_revoke(struct wf_meta_client *client)
{
    if (client->granted) {
        client->granted = false;
        client->revokes_out++;
        wf_client_local(client, wf_sender_actor(client->rank->sender), WF_LOCAL_REVOKE,
                        &client->round, client->granted_slot, 0);
    }
}

void wf_client_revoked(struct wf_meta_client *client)
{
    WF_ASSERT(client->revokes_out > 0);
    client->revokes_out--;
    /* Taken out first: a hook may publish, which is refused while anything waits. */
    while (client->revokes_out == 0 && client->tell_count > 0) {
        struct wf_client_tell first = client->tells[0];
        client->tell_count--;
        for (uint32_t i = 0; i < client->tell_count; i++) {
            client->tells[i] = client->tells[i + 1];
        }
        deliver(client, &first);
    }
}
