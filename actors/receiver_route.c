/* receiver_route.c - how a source is reached: which of its addresses, which of this rank's
 * transports.
 *
 * A source's address is a list of addresses apart by spaces, tried in the order unix, tcp; unix
 * only where its host has this rank's host name. A transport that maps memory needs the same host
 * too. Of the transports that may do the source takes the first that it has itself; one that turns
 * out not to work is barred, with its reason, for as long as this life of the source is known, or
 * until all are: then the next try begins anew.
 */
#include <stdio.h>
#include <string.h>

#include "actors/receiver.h"
#include "runtime/log.h"

static bool same_host(const struct receiver_source *source)
{
    return strcmp(source->peer.host, source->receiver->rank->options.host_name) == 0;
}

/* --- addresses --------------------------------------------------------------------------------
 */

/* The number-th address of the kind in the list. */
static bool find_address(const char *list, bool is_unix, uint32_t number, char out[WF_ADDRESS_MAX])
{
    while (*list != '\0') {
        size_t len = strcspn(list, " ");
        if (len > 0 && (strncmp(list, "unix:", 5) == 0) == is_unix && number-- == 0) {
            snprintf(out, WF_ADDRESS_MAX, "%.*s", (int)len, list);
            return true;
        }
        list += len + (list[len] == ' ');
    }
    return false;
}

bool wf_peer_address(const struct wf_el_peer *peer, const char *host, uint32_t number,
                     char out[WF_ADDRESS_MAX])
{
    uint32_t unix_count = 0;
    while (strcmp(peer->host, host) == 0 && find_address(peer->address, true, unix_count, out)) {
        if (unix_count++ == number) {
            return true;
        }
    }
    return find_address(peer->address, false, number - unix_count, out);
}

bool receiver_route_address(const struct receiver_source *source, uint32_t number,
                            char out[WF_ADDRESS_MAX])
{
    return wf_peer_address(&source->peer, source->receiver->rank->options.host_name, number, out);
}

/* --- transports -------------------------------------------------------------------------------
 */
static bool may_do(const struct receiver_source *source, uint32_t index)
{
    const struct wf_transport *transport = source->receiver->rank->options.transports[index];
    return (source->barred & 1U << index) == 0 &&
           ((transport->ops->caps & WF_CAP_MAP) == 0 || same_host(source));
}

bool receiver_route_transports(const struct receiver_source *source,
                               char names_out[WF_TRANSPORT_NAMES_MAX])
{
    const struct wf_rank_options *options = &source->receiver->rank->options;
    size_t len = 0;
    names_out[0] = '\0';
    for (uint32_t i = 0; i < options->transport_count; i++) {
        if (may_do(source, i)) {
            len += (size_t)snprintf(names_out + len, WF_TRANSPORT_NAMES_MAX - len, "%s%s",
                                    len > 0 ? " " : "", options->transports[i]->ops->name);
        }
    }
    return len > 0;
}

struct wf_transport *receiver_route_find(const struct receiver_source *source, const char *name)
{
    const struct wf_rank_options *options = &source->receiver->rank->options;
    for (uint32_t i = 0; i < options->transport_count; i++) {
        if (may_do(source, i) && strcmp(options->transports[i]->ops->name, name) == 0) {
            return options->transports[i];
        }
    }
    return NULL;
}

bool receiver_route_bar(struct receiver_source *source, const struct wf_transport *transport,
                        const char *why)
{
    const struct wf_rank_options *options = &source->receiver->rank->options;
    const char *name = transport->ops->name;
    for (uint32_t i = 0; i < options->transport_count; i++) {
        if (options->transports[i] == transport) {
            source->barred |= 1U << i;
        }
    }
    size_t len = strlen(source->barred_why);
    snprintf(source->barred_why + len, sizeof source->barred_why - len, "%s%s: %s",
             len > 0 ? "; " : "", name, why);
    char left[WF_TRANSPORT_NAMES_MAX], who[WF_WHO_MAX];
    if (!receiver_route_transports(source, left)) {
        return false;
    }
    wf_peer_who(&source->peer, who);
    wf_log(wf_loop_log(source->receiver->rank->loop), WF_LOG_WARN,
           "%s cannot be read by %s (%s); trying %s", who, name, why, left);
    return true;
}

void receiver_route_forget(struct receiver_source *source)
{
    source->barred = 0;
    source->barred_why[0] = '\0';
}
