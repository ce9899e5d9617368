/* test_address.c - addresses as people write them. */
#include <criterion/criterion.h>
#include <string.h>

#include "config/address.h"

static const struct {
    const char *text, *whole; /* NULL: refused */
    const char *says;
} rows[] = {
    {"127.0.0.1:80", "tcp:127.0.0.1:80", NULL}, {"node-3:7000", "tcp:node-3:7000", NULL},
    {"[::1]:0", "tcp:[::1]:0", NULL},           {"tcp:a:1", "tcp:a:1", NULL},
    {"unix:/run/x", "unix:/run/x", NULL},       {"unix:@x-*", "unix:@x-*", NULL},
    {"127.0.0.1", NULL, "HOST:PORT"},           {"a:70000", NULL, "port"},
    {"unix:", NULL, "found no name"},           {"http://a:80", NULL, "HOST:PORT"},
};

Test(address, a_bare_host_and_port_is_tcp)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[WF_ADDRESS_MAX] = "";
        struct wf_error error = {0};
        enum wf_status status = wf_address_complete(rows[i].text, out, &error);
        cr_expect_eq(status, rows[i].whole != NULL ? WF_OK : WF_INVALID, "%s: %s", rows[i].text,
                     error.text);
        cr_expect_str_eq(out, rows[i].whole != NULL ? rows[i].whole : "", "%s", rows[i].text);
        cr_expect(rows[i].says == NULL || strstr(error.text, rows[i].says) != NULL, "%s: %s",
                  rows[i].text, error.text);
    }
    char text[2 * WF_ADDRESS_MAX], out[WF_ADDRESS_MAX];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    cr_expect_eq(wf_address_complete(text, out, NULL), WF_INVALID);
}
