/* status_json.h - a status as JSON: the body of /v1/status and the output of weft status --json.
 * docs/watching.md has its keys. */
#ifndef WEFT_TOOLS_WATCH_STATUS_JSON_H
#define WEFT_TOOLS_WATCH_STATUS_JSON_H

#include "actors/messages.h"

/* Gives malloc'd text (takes no line end); its length in *len_out. */
char *wf_status_json(const struct wf_frame_status *status, size_t *len_out);

/* "round 1.1.7 waits for infer rank 3 (host b, engine 1) to vote, 2.1 s of 5.0 s" */
enum { WF_WAIT_TEXT = 512 };
void wf_wait_text(const struct wf_el_status_wait *wait, char text_out[WF_WAIT_TEXT]);
/* "absent", "joining", "present", "lost", "left" */
const char *wf_presence_word(uint64_t presence);
/* "committed", "aborted", "in_doubt", "running" */
const char *wf_round_state_word(uint64_t state);

#endif
