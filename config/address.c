/* address.c - puts the scheme before a bare HOST:PORT, and looks at the whole. */
#include "config/address.h"

#include <stdio.h>
#include <string.h>

#include "runtime/wire_address.h"

enum wf_status wf_address_complete(const char *text, char out[WF_ADDRESS_MAX],
                                   struct wf_error *error)
{
    char whole[WF_ADDRESS_MAX];
    struct wf_wire_address address;
    bool scheme = strncmp(text, "tcp:", 4) == 0 || strncmp(text, "unix:", 5) == 0;
    if (snprintf(whole, sizeof whole, "%s%s", scheme ? "" : "tcp:", text) >= WF_ADDRESS_MAX) {
        return wf_error_set(error, WF_INVALID, "the address is longer than %d bytes",
                            WF_ADDRESS_MAX - 1);
    }
    enum wf_status status = wf_wire_address_parse(whole, &address, error);
    if (status == WF_OK) {
        memcpy(out, whole, sizeof whole);
    }
    return status;
}
