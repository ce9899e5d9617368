/* meta_server_waits.h - who waits for whom, and since when. Private to actors/meta_server*.c. */
#ifndef WEFT_ACTORS_META_SERVER_WAITS_H
#define WEFT_ACTORS_META_SERVER_WAITS_H

#include "actors/meta_server_internal.h"

/* Writes what the server waits for now, at most WF_STATUS_WAITS; gives how many. */
uint32_t wf_server_waits(const struct wf_meta_server *server,
                         struct wf_el_status_wait waits_out[WF_STATUS_WAITS]);

#endif
