/* meta_client_doubt.c - a trainer's own deadline for a version: when it passes, its host is told
 * that the version is in doubt.
 *
 * Nothing else follows from it. The hold stays (rule 15 of the protocol): readers may be at the
 * buffers, and the server may be committing. The outcome comes later, as without a deadline; only
 * what the host is then told settles the doubt, or a new generation, which takes the version back.
 */
#include "actors/meta_client_internal.h"

static void deadline_passed(struct wf_timer *timer)
{
    struct wf_client_doubt *doubt =
        (struct wf_client_doubt *)((char *)timer - offsetof(struct wf_client_doubt, timer));
    struct wf_meta_client *client = doubt->client;
    const struct wf_rank_options *o = &client->rank->options;
    struct wf_version version = doubt->version;
    doubt->version = (struct wf_version){0};
    if (!client->closing && o->hooks.in_doubt != NULL) {
        o->hooks.in_doubt(o->host, client->rank, version);
    }
}

void wf_client_doubt_watch(struct wf_meta_client *client, uint32_t slot, struct wf_version version,
                           uint64_t within_ns)
{
    struct wf_client_doubt *doubt = &client->doubts[slot];
    wf_timer_cancel(client->loop, &doubt->timer); /* what was in the slot is over, or dropped */
    doubt->version = (struct wf_version){0};
    if (within_ns == 0) {
        return;
    }
    doubt->client = client;
    doubt->version = version;
    doubt->timer.fire = deadline_passed;
    doubt->timer.name = "a version's outcome, by its trainer's own deadline";
    wf_timer_arm(client->loop, &doubt->timer, wf_client_now(client) + within_ns);
}

void wf_client_doubt_settle(struct wf_meta_client *client, struct wf_version version)
{
    for (int i = 0; i < WF_SLOTS; i++) {
        struct wf_client_doubt *doubt = &client->doubts[i];
        if (!wf_version_is_none(doubt->version) &&
            wf_version_compare(doubt->version, version) <= 0) {
            wf_timer_cancel(client->loop, &doubt->timer);
            doubt->version = (struct wf_version){0};
        }
    }
}

void wf_client_doubt_end(struct wf_meta_client *client)
{
    for (int i = 0; i < WF_SLOTS; i++) {
        wf_timer_cancel(client->loop, &client->doubts[i].timer);
        client->doubts[i].version = (struct wf_version){0};
    }
}
