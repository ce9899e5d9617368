/* read_check.h - what every transport does with a read before its first byte. Private to
 * transports/.
 */
#ifndef WEFT_TRANSPORTS_READ_CHECK_H
#define WEFT_TRANSPORTS_READ_CHECK_H

#include <stdbool.h>

#include "transports/transport.h"

/* Writes a failure into the read's results; the first one counts. */
void wf_read_fail(struct wf_read *read, enum wf_status status, uint32_t op, const char *text);
/* Clears the results and checks every op against its two buffers, and the deadline against
 * `now_ns`. False: there is nothing to move, because a check failed (that is written) or because
 * there are no ops; `done` is then to be sent. */
bool wf_read_begin(const struct wf_transport *transport, struct wf_read *read, uint64_t now_ns);

#endif
