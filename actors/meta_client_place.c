/* meta_client_place.c - tables of experts: this engine's own, and those that the server told. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_client_internal.h"

/* The rank's table is not the one that the plan in force was made with. */
bool wf_client_place_is_stale(const struct wf_meta_client *client)
{
    const struct wf_rank *rank = client->rank;
    if (rank->options.side != WF_INFER || client->agreed == NULL) {
        return false;
    }
    struct wf_hash planned =
        wf_table_hash(wf_tables_find(&client->agreed->tables, rank->options.engine));
    return !wf_hash_equal(planned, wf_table_hash(rank->table));
}

void wf_client_place_refuse(struct wf_meta_client *client, const struct wf_round_key *round)
{
    const struct wf_rank *rank = client->rank;
    char ours[WF_HASH_TEXT], planned[WF_HASH_TEXT], reason[WF_REASON_MAX];
    wf_hash_format(wf_table_hash(rank->table), ours);
    wf_hash_format(wf_table_hash(wf_tables_find(&client->agreed->tables, rank->options.engine)),
                   planned);
    snprintf(reason, sizeof reason,
             "stale placement of experts: the plan has table %.8s of engine %u, which has moved "
             "its experts by table %.8s; all ranks plan anew first",
             planned, rank->options.engine, ours);
    wf_client_vote_no(client, round, reason);
}

void wf_client_place_tell(struct wf_meta_client *client)
{
    const struct wf_rank *rank = client->rank;
    if (rank->options.side != WF_INFER || (rank->table == NULL && !client->placed)) {
        return; /* by rule, and never otherwise */
    }
    struct wf_frame_placement frame;
    wf_table_to_frame(rank->table, rank->options.engine, &frame);
    frame.layout = rank->layout->hash;
    wf_client_send(client, WF_FRAME_placement, &frame);
    free(frame.experts);
}

/* What the server believes of this rank; when a placement was lost or is newer, it is told again
 * and its list is not planned. */
bool wf_client_place_is_known(struct wf_meta_client *client, const struct wf_frame_members *members)
{
    const struct wf_rank *rank = client->rank;
    for (uint32_t i = 0; i < members->peers_count; i++) {
        const struct wf_el_peer *peer = &members->peers[i];
        if (peer->side != rank->options.side || peer->rank != rank->options.rank ||
            peer->incarnation != rank->incarnation) {
            continue;
        }
        bool open = wf_hash_equal(peer->layout, (struct wf_hash){0, 0}); /* it had not joined */
        if (!open && !wf_hash_equal(peer->layout, wf_rank_source(rank)->hash)) {
            wf_client_place_tell(client);
            return false;
        }
    }
    return true;
}

/* The plans of before have the layouts of before; there is a new one, which all parts know soon. */
void wf_client_place_planned(struct wf_meta_client *client)
{
    struct wf_rank *rank = client->rank;
    if (rank->layouts_before_count <= WF_LAYOUTS_BEFORE) {
        return;
    }
    uint32_t over = rank->layouts_before_count - WF_LAYOUTS_BEFORE;
    for (uint32_t i = 0; i < over; i++) {
        wf_layout_free(rank->layouts_before[i]);
    }
    rank->layouts_before_count -= over;
    memmove(rank->layouts_before, rank->layouts_before + over,
            rank->layouts_before_count * sizeof(struct wf_layout *));
}

static void keep_before(struct wf_rank *rank)
{
    struct wf_layout **more =
        realloc(rank->layouts_before, (rank->layouts_before_count + 1) * sizeof(*more));
    WF_ASSERT(more != NULL);
    rank->layouts_before = more;
    more[rank->layouts_before_count++] = rank->layout;
}

/* Nothing is being written to this rank's memory, nor held that would be. A table that nobody has
 * planned with yet may be replaced: other ranks of the engine may never have heard of it. */
static enum wf_status check_quiet(const struct wf_meta_client *client, struct wf_error *error)
{
    bool settled = client->state == WF_RANK_NONE || client->state == WF_RANK_FLIPPED;
    if (client->closing) {
        return wf_error_set(error, WF_CLOSED, "the rank has ended");
    }
    if (!settled || client->busy != WF_RECEIVER_FREE || client->host == WF_HOST_QUIESCING) {
        return wf_error_set(error, WF_AGAIN, "a round is under way: place experts when it is over");
    }
    return WF_OK;
}

/* The rank's table is this one from now on; takes its reference. */
static enum wf_status change_table(struct wf_meta_client *client, struct wf_table *table,
                                   struct wf_error *error)
{
    struct wf_rank *rank = client->rank;
    struct wf_layout *layout = NULL;
    struct wf_recipe recipe = rank->recipe;
    recipe.placement = table != NULL ? &table->placement : NULL;
    enum wf_status status =
        wf_layout_derive(rank->options.model, &recipe, rank->options.group_rank, &layout, error);
    if (status != WF_OK) {
        wf_table_release(table);
        return status;
    }
    /* Whoever fills its engine from this one reads weights that are about to move. */
    wf_client_fill_drop(client);
    client->moved = client->moved || (!wf_version_is_none(client->live) &&
                                      !wf_hash_equal(layout->hash, rank->layout->hash));
    client->writes[0]++;
    keep_before(rank);
    rank->layout = layout;
    wf_table_release(rank->table);
    rank->table = table;
    rank->recipe = recipe;
    client->placed = true;
    wf_client_place_tell(client);
    return WF_OK;
}

enum wf_status wf_client_place(struct wf_meta_client *client, const struct wf_placement *placement,
                               struct wf_error *error)
{
    struct wf_table *table = NULL;
    if (client->rank->options.side != WF_INFER) {
        return wf_error_set(error, WF_INVALID, "only infer ranks place experts");
    }
    enum wf_status status = check_quiet(client, error);
    if (status == WF_OK && placement != NULL) {
        status = wf_table_new(client->rank->options.engine, placement, &table, error);
    }
    if (status == WF_OK) {
        status = change_table(client, table, error);
    }
    client->placed_by_host = client->placed_by_host || status == WF_OK;
    return status;
}

/* The host agrees or the rank ends: with its own table it is of no use to its engine. */
static void take_table(struct wf_meta_client *client, struct wf_table *table)
{
    struct wf_rank *rank = client->rank;
    const struct wf_rank_hooks *hooks = &rank->options.hooks;
    struct wf_error error = {0};
    char ours[WF_HASH_TEXT], theirs[WF_HASH_TEXT];
    wf_hash_format(wf_table_hash(rank->table), ours);
    wf_hash_format(wf_table_hash(table), theirs);
    enum wf_status status =
        hooks->take_table == NULL
            ? wf_error_set(&error, WF_STALE, "its host takes no other: start it with that one")
            : hooks->take_table(rank->options.host, rank, table != NULL ? &table->placement : NULL,
                                &error);
    if (status == WF_OK) {
        status = change_table(client, table, &error);
    } else {
        wf_table_release(table);
    }
    if (status != WF_OK) {
        wf_error_prefix(&error,
                        "stale placement of experts: infer rank %" PRIu32
                        " was started with table %.8s, engine %" PRIu32 " has table %.8s by now",
                        rank->options.rank, ours, rank->options.engine, theirs);
        wf_client_end(client, status, error.text);
    }
}

void wf_client_place_told(struct wf_meta_client *client, const struct wf_frame_placement *frame)
{
    const struct wf_rank *rank = client->rank;
    struct wf_table *table = NULL;
    struct wf_error error = {0};
    if (wf_table_of_frame(frame, &table, &error) != WF_OK) {
        wf_client_drop_link(client, error.text);
        return;
    }
    if (!frame->take) {
        wf_tables_put(&client->tables, frame->engine, table);
        return;
    }
    bool ours = rank->options.side == WF_INFER && rank->options.engine == frame->engine &&
                !client->placed_by_host && wf_version_is_none(client->live) &&
                check_quiet(client, &error) == WF_OK;
    if (ours && !wf_hash_equal(wf_table_hash(table), wf_table_hash(rank->table))) {
        take_table(client, table);
    } else {
        wf_table_release(table);
    }
}
