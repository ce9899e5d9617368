/* host_name.c - a host's name in a job, made from what the system says of it. */
#include "config/host_name.h"

#include <stdio.h>
#include <string.h>

#include "models/hash.h"

enum { HASH_DIGITS = 6 };

static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~:-";

void wf_host_name_make(const char *host_name, const char *boot_id, const char *net_namespace,
                       char out[WF_HOST_MAX])
{
    struct wf_hasher hasher;
    char hash[WF_HASH_TEXT];
    wf_hasher_init(&hasher);
    wf_hasher_text(&hasher, boot_id, strlen(boot_id));
    wf_hasher_text(&hasher, net_namespace, strlen(net_namespace));
    wf_hash_format(wf_hasher_end(&hasher), hash);
    snprintf(out, WF_HOST_MAX, "%.*s~%.*s", WF_HOST_MAX - HASH_DIGITS - 2,
             host_name[0] != '\0' ? host_name : "localhost", HASH_DIGITS, hash);
}

enum wf_status wf_host_name_check(const char *name, struct wf_error *error)
{
    size_t len = strlen(name), good = strspn(name, allowed);
    if (len == 0 || len >= WF_HOST_MAX) {
        return wf_error_set(error, WF_INVALID, "expected a name of 1 to %d bytes, found %zu",
                            WF_HOST_MAX - 1, len);
    }
    if (good != len) {
        return wf_error_set(error, WF_INVALID,
                            "expected a name of letters, digits and \"._~:-\", found \"%s\"", name);
    }
    return WF_OK;
}
