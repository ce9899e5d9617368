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
    lane.get = strstr(roles, " rma_bw") != NULL || strstr(roles, " rma#") != NULL ||
               strstr(roles, " rma ") != NULL || strstr(roles, " rkey_ptr") != NULL;
    lane.bulk = lane.get || strstr(roles, " am_bw") != NULL || strstr(roles, " am ") != NULL ||
                strstr(roles, " am\0") != NULL;
    *lane_out = lane;
    return true;
}

struct ucx_selected ucx_selected_parse(const char *text)
{
    struct ucx_selected selected = {0};
    unsigned gets = 0, native = 0;
    for (const char *at = text; (at = strstr(at, "lane[")) != NULL; at++) {
        struct ucx_selected_lane *lane = &selected.lane[selected.lanes];
        if (selected.lanes == UCX_SELECTED_LANES || !parse_lane(at, lane)) {
            selected.native_get = false;
            return selected;
        }
        gets += lane->get;
        native += lane->get && is_native(lane->transport);
        selected.lanes++;
    }
    selected.native_get = gets > 0 && gets == native;
    return selected;
}

void ucx_selected_text(const struct ucx_selected *selected, char *text_out, size_t room)
{
    size_t len = 0;
    text_out[0] = '\0';
    for (unsigned i = 0; i < selected->lanes && len < room; i++) {
        const struct ucx_selected_lane *lane = &selected->lane[i];
        char one[80];
        snprintf(one, sizeof one, "%s/%s", lane->transport, lane->device);
        if (strstr(text_out, one) == NULL) {
            len += (size_t)snprintf(text_out + len, room - len, "%s%s", len > 0 ? ", " : "", one);
        }
    }
    if (len == 0) {
        snprintf(text_out, room, "a transport that ucx does not name");
    } else if (len < room) {
        snprintf(text_out + len, room - len, selected->native_get ? " (one-sided)" : "");
    }
}
