/* plain_ucx.h - UCX's own way to move large memory between two processes: active messages by
 * rendezvous, with UCX's own defaults, from and into memory that is walked over and not used again
 * soon. What a program with nothing but UCX would reach.
 *
 * One thread at a time. In a build without UCX nothing can be made (UNSUPPORTED).
 */
#ifndef WEFT_TOOLS_MEASURE_PLAIN_UCX_H
#define WEFT_TOOLS_MEASURE_PLAIN_UCX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum { WF_PLAIN_UCX_ADDRESS_MAX = 2048, WF_PLAIN_UCX_MESSAGE_BYTES = 1 << 20 };

struct wf_plain_ucx;

/* `memory`: `bytes` (whole messages) to receive into, or to send from; borrowed. `tls`: UCX's
 * transports, or NULL: what the environment says, else UCX's choice. */
enum wf_status wf_plain_ucx_new(uint8_t *memory, uint64_t bytes, const char *tls,
                                struct wf_plain_ucx **ucx_out, struct wf_error *error);
void wf_plain_ucx_free(struct wf_plain_ucx *ucx); /* NULL is fine */
/* For the other process's connect; borrowed. */
const void *wf_plain_ucx_address(const struct wf_plain_ucx *ucx, size_t *len_out);
enum wf_status wf_plain_ucx_connect(struct wf_plain_ucx *ucx, const void *address,
                                    struct wf_error *error);
/* Send, or receive, `bytes` (whole messages); false when it does not end within 20 s, or when
 * something can be read from `control` meanwhile: the other process is gone. Blocks. */
bool wf_plain_ucx_send(struct wf_plain_ucx *ucx, uint64_t bytes, int control);
bool wf_plain_ucx_receive(struct wf_plain_ucx *ucx, uint64_t bytes, int control);

#endif
