/* test_reach.c - which address a rank advertises, on whatever host this is. */
#include <criterion/criterion.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/reach.h"

Test(reach, listens_where_the_server_is_reached_from)
{
    static const struct {
        const char *server, *interfaces, *out; /* NULL: refused */
        const char *says;
    } rows[] = {
        {"unix:@weft-x", "", "tcp:127.0.0.1:0", NULL},
        {"tcp:127.0.0.1:7000", "", "tcp:127.0.0.1:0", NULL},
        {"tcp:localhost:7000", "", "tcp:127.0.0.1:0", NULL},
        {"tcp:127.0.0.1:7000", "lo", "tcp:127.0.0.1:0", NULL},
        {"tcp:127.0.0.1:7000", "127.0.0.0/8", "tcp:127.0.0.1:0", NULL},
        {"tcp:127.0.0.1:7000", "no-such0", NULL, "\"no-such0\" allows none"},
        {"tcp:127.0.0.1:7000", "no-such0", NULL, "lo 127.0.0.1"},
        {"tcp:127.0.0.1:7000", "10.0.0.0/99", NULL, "network such as"},
        {"tcp:no-such-host.invalid:7000", "", NULL, "no-such-host.invalid"},
        {"http:x", "", NULL, "expected tcp:"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[WF_ADDRESS_MAX] = "";
        struct wf_error error = {0};
        enum wf_status status = wf_reach_listen(rows[i].server, rows[i].interfaces, out, &error);
        cr_expect_eq(status == WF_OK, rows[i].out != NULL, "%s %s: %s", rows[i].server,
                     rows[i].interfaces, error.text);
        cr_expect_str_eq(out, rows[i].out != NULL ? rows[i].out : "", "%s", rows[i].server);
        cr_expect(rows[i].says == NULL || strstr(error.text, rows[i].says) != NULL, "%s: %s",
                  rows[i].server, error.text);
    }
}

Test(reach, devices_of_ucx)
{
    char out[WF_DEVICES_TEXT];
    struct wf_error error = {0};
    cr_expect_eq(wf_reach_devices("lo", out, &error), WF_OK, "%s", error.text);
    cr_expect_str_eq(out, "lo");
    cr_expect_eq(wf_reach_devices("127.0.0.0/8", out, &error), WF_OK, "%s", error.text);
    cr_expect_str_eq(out, "lo");
    cr_expect_eq(wf_reach_devices("no-such0, mlx5_99:1", out, &error), WF_NOT_FOUND);
    cr_expect(strstr(error.text, "no-such0") != NULL, "%s", error.text);
}

/* Debian writes 127.0.1.1 beside the host's own name into /etc/hosts. */
Test(reach, own_name_is_never_advertised_as_loopback)
{
    char host[200] = "", address[WF_ADDRESS_MAX], out[WF_ADDRESS_MAX] = "";
    struct wf_error error = {0};
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    cr_assert_eq(gethostname(host, sizeof host - 1), 0);
    if (getaddrinfo(host, "7000", &hints, &found) != 0) {
        return; /* a host that does not know its own name */
    }
    freeaddrinfo(found);
    snprintf(address, sizeof address, "tcp:%s:7000", host);
    for (int own = 0; own < 2; own++) {
        enum wf_status status =
            own ? wf_reach_own(address, out, &error) : wf_reach_listen(address, "", out, &error);
        cr_expect(status == WF_OK ? strstr(out, "127.") == NULL : status == WF_CONNECTION, "%s %s",
                  out, error.text);
        cr_expect(status == WF_OK || strstr(error.text, host) != NULL, "%s", error.text);
    }
}

Test(reach, listener_of_ones_own)
{
    static const char *const same[] = {"unix:@x", "tcp:127.0.0.1:0", "tcp:*:7000", "tcp:[::]:1",
                                       "tcp:localhost:7000"};
    char out[WF_ADDRESS_MAX];
    struct wf_error error;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        cr_expect_eq(wf_reach_own(same[i], out, &error), WF_OK, "%s: %s", same[i], error.text);
        cr_expect_str_eq(out, same[i]);
    }
    cr_expect_eq(wf_reach_own("tcp:no-such-host.invalid:1", out, &error), WF_CONNECTION);
    cr_expect(strstr(error.text, "no-such-host.invalid") != NULL, "%s", error.text);
}

Test(reach, host_name)
{
    char one[WF_HOST_MAX], two[WF_HOST_MAX];
    struct wf_error error;
    unsetenv("WEFT_HOST_NAME");
    cr_expect_eq(wf_reach_host_name(NULL, one, &error), WF_OK);
    cr_expect_eq(wf_reach_host_name(NULL, two, &error), WF_OK);
    cr_expect_str_eq(one, two, "the same process is on one host");
    setenv("WEFT_HOST_NAME", "node-a", 1);
    cr_expect_eq(wf_reach_host_name(NULL, one, &error), WF_OK);
    cr_expect_str_eq(one, "node-a");
    cr_expect_eq(wf_reach_host_name("node-b", one, &error), WF_OK);
    cr_expect_str_eq(one, "node-b", "the option goes first");
    setenv("WEFT_HOST_NAME", "node a", 1);
    cr_expect_eq(wf_reach_host_name(NULL, one, &error), WF_INVALID);
    cr_expect(strstr(error.text, "WEFT_HOST_NAME") != NULL, "%s", error.text);
    cr_expect_eq(wf_reach_host_name("", one, &error), WF_INVALID);
    cr_expect(strstr(error.text, "--host-name") != NULL, "%s", error.text);
}
