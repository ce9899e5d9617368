/* ucx_selected.c - parses UCX's description of a connection. */
#include "transports/ucx_selected.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Transports whose get is done by hardware, by their names in UCX. ud and tcp have none: UCX
 * emulates it there. */
static bool is_native(const char *transport)
{
    static const char *const names[] = {"rc_verbs", "rc_mlx5", "rc",  "rc_x", "rcx",
                                        "dc_mlx5",  "dc",      "dcx", "dc_x"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(transport, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Copies up to `end` (exclusive) and cuts what does not fit. */
static void copy_part(char *into, size_t room, const char *from, const char *end)
{
    size_t len = (size_t)(end - from);
    len = len < room - 1 ? len : room - 1;
    memcpy(into, from, len);
    into[len] = '\0';
}

/* " rma_bw#0 am am_bw#0": a number may follow a role. */
static bool has_role(const char *roles, const char *role)
{
    size_t len = strlen(role);
    for (const char *at = roles; *(at += strspn(at, " ")) != '\0'; at += strcspn(at, " ")) {
        if (strncmp(at, role, len) == 0 && (at[len] == '#' || at[len] == ' ' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool parse_lane(const char *line, struct ucx_selected_lane *lane_out)
{
    const char *end = line + strcspn(line, "\n");
    const char *colon = memchr(line, ':', (size_t)(end - line)); /* of "lane[0]:" */
    if (colon == NULL) {
        return false;
    }
    const char *at = colon + 1;
    while (*at == ' ') {
        at++;
    }
    at += strspn(at, "0123456789");
    const char *slash = *at == ':' ? memchr(at, '/', (size_t)(end - at)) : NULL;
    const char *stop = slash != NULL ? slash + strcspn(slash, " \n") : end;
    if (slash == NULL || stop > end) {
        return false;
    }
    struct ucx_selected_lane lane = {.bulk = false};
    copy_part(lane.transport, sizeof lane.transport, at + 1, slash);
    /* "mlx5_0:1.0": the number after the dot is a path of the device. */
    const char *dot = stop;
    while (dot > slash && *dot != '.') {
        dot--;
    }
    copy_part(lane.device, sizeof lane.device, slash + 1, dot > slash ? dot : stop);
    char roles[256];
    copy_part(roles, sizeof roles, stop, end);
    lane.get = has_role(roles, "rma_bw") || has_role(roles, "rma") || has_role(roles, "rkey_ptr");
    lane.bulk = lane.get || has_role(roles, "am_bw");
    lane.am = has_role(roles, "am");
    *lane_out = lane;
    return true;
}

struct ucx_selected ucx_selected_parse(const char *text)
{
    struct ucx_selected selected = {0};
    unsigned gets = 0, others = 0;
    for (const char *at = text; (at = strstr(at, "lane[")) != NULL; at++) {
        struct ucx_selected_lane *lane = &selected.lane[selected.lanes];
        if (selected.lanes == UCX_SELECTED_LANES || !parse_lane(at, lane)) {
            selected.native_get = false;
            return selected;
        }
        gets += lane->get;
        others += lane->bulk && !is_native(lane->transport);
        selected.lanes++;
    }
    selected.native_get = gets > 0 && others == 0;
    return selected;
}

static bool is_repeated(const struct ucx_selected *selected, unsigned index)
{
    const struct ucx_selected_lane *lane = &selected->lane[index];
    unsigned i = 0;
    while (i < index && (strcmp(selected->lane[i].transport, lane->transport) != 0 ||
                         strcmp(selected->lane[i].device, lane->device) != 0)) {
        i++;
    }
    return i < index;
}

bool ucx_selected_is_bulk(const struct ucx_selected *selected, const char *transport)
{
    unsigned bulk = 0, others = 0, am = 0;
    for (unsigned i = 0; i < selected->lanes; i++) {
        const struct ucx_selected_lane *lane = &selected->lane[i];
        bool same = strcmp(lane->transport, transport) == 0;
        bulk += lane->bulk;
        am += lane->am && same;
        others += (lane->bulk || lane->am) && !same;
    }
    return others == 0 && (bulk > 0 || am > 0);
}

bool ucx_selected_is_listed(const char *list, const char *text)
{
    size_t len = strlen(text);
    const char *at = list;
    while ((at = strstr(at, "; ")) != NULL) {
        at += 2;
        if (strncmp(at, text, len) == 0 && (at[len] == ';' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

void ucx_selected_text(const struct ucx_selected *selected, char *text_out, size_t room)
{
    size_t len = 0;
    text_out[0] = '\0';
    for (unsigned i = 0; i < selected->lanes && len < room; i++) {
        const struct ucx_selected_lane *lane = &selected->lane[i];
        if (!is_repeated(selected, i)) {
            len += (size_t)snprintf(text_out + len, room - len, "%s%s/%s", len > 0 ? ", " : "",
                                    lane->transport, lane->device);
        }
    }
    if (len == 0) {
        snprintf(text_out, room, "a transport that ucx does not name");
    } else if (len < room) {
        snprintf(text_out + len, room - len, selected->native_get ? " (one-sided)" : "");
    }
}
