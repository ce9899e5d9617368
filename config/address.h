/* address.h - addresses as people write them: HOST:PORT, tcp:HOST:PORT, unix:PATH, unix:@NAME.
 * Pure.
 */
#ifndef WEFT_CONFIG_ADDRESS_H
#define WEFT_CONFIG_ADDRESS_H

#include "runtime/env.h"
#include "runtime/status.h"

/* The address with its scheme, as the env takes it. INVALID with a sentence if there is none. */
enum wf_status wf_address_complete(const char *text, char out[WF_ADDRESS_MAX],
                                   struct wf_error *error);

#endif
