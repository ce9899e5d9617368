/* test_wire_address.c - address strings: what is understood, what is refused and how. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "runtime/wire_address.h"

static const struct {
    const char *text;
    const char *inline_text; /* the first target written back; NULL: a name to look up */
} good_rows[] = {
    {"tcp:127.0.0.1:80", "tcp:127.0.0.1:80"},
    {"tcp:localhost:65535", "tcp:127.0.0.1:65535"},
    {"tcp:[::1]:0", "tcp:[::1]:0"},
    {"tcp:[127.0.0.1]:1", "tcp:127.0.0.1:1"},
    {"tcp:*:7", NULL},
    {"tcp:node-7.cluster:7000", NULL},
    {"tcp:10gate:7000", NULL},
    {"unix:/run/weft/x.sock", "unix:/run/weft/x.sock"},
    {"unix:relative", "unix:relative"},
    {"unix:@weft-1", "unix:@weft-1"},
    {"unix:@weft-*", "unix:@weft-"},
};

Test(wire_address, good_ones_come_back)
{
    for (size_t i = 0; i < sizeof good_rows / sizeof good_rows[0]; i++) {
        struct wf_wire_address address;
        struct wf_wire_targets targets;
        struct wf_error error = {0};
        char text[WF_ADDRESS_MAX];
        cr_assert_eq(wf_wire_address_parse(good_rows[i].text, &address, &error), WF_OK, "%s: %s",
                     good_rows[i].text, error.text);
        enum wf_status status = wf_wire_address_inline(&address, false, &targets);
        cr_assert_eq(status == WF_NOT_FOUND, good_rows[i].inline_text == NULL, "%s",
                     good_rows[i].text);
        if (status == WF_OK) {
            wf_wire_address_format(&targets.target[0].any, targets.target[0].len, text);
            cr_assert_str_eq(text, good_rows[i].inline_text);
        }
    }
}

static const struct {
    const char *text, *says;
} bad_rows[] = {
    {"", "tcp:HOST:PORT"},
    {"http://x:1", "tcp:HOST:PORT"},
    {"tcp:", "tcp:HOST:PORT"},
    {"tcp:host", "tcp:HOST:PORT"},
    {"tcp::80", "tcp:HOST:PORT"},
    {"tcp:[::1]", "tcp:HOST:PORT"},
    {"tcp:http://host:80", "tcp:HOST:PORT"},
    {"tcp:[]:80", "host name"},
    {"tcp:host:", "port"},
    {"tcp:host:65536", "port"},
    {"tcp:host:99999999999999999999", "port"},
    {"tcp:host:-1", "port"},
    {"tcp:host: 80", "port"},
    {"tcp:host:0x50", "port"},
    {"tcp:::1:80", "brackets"},
    {"tcp:[::1:80", "brackets"},
    {"tcp:[host]:80", "looks like a number"},
    {"tcp:10.1:80", "looks like a number"},
    {"tcp:1234:80", "looks like a number"},
    {"tcp:0x7f000001:80", "looks like a number"},
    {"tcp:256.1.1.1:80", "looks like a number"},
    {"unix:", "no name"},
    {"unix:@", "no name"},
    {"unix:/01234567890123456789012345678901234567890123456789012345678901234567890123456789"
     "0123456789012345678901234567890123456789",
     "at most 107 bytes, found 121"},
};

Test(wire_address, bad_ones_are_refused_with_a_sentence)
{
    for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
        struct wf_wire_address address;
        struct wf_error error = {0};
        cr_assert_eq(wf_wire_address_parse(bad_rows[i].text, &address, &error), WF_INVALID, "%s",
                     bad_rows[i].text);
        cr_assert(strstr(error.text, bad_rows[i].says) != NULL, "%s: %s", bad_rows[i].text,
                  error.text);
    }
}

Test(wire_address, listening_knows_all_interfaces_and_one_localhost)
{
    struct wf_wire_address address;
    struct wf_wire_targets targets;
    char text[WF_ADDRESS_MAX];
    cr_assert_eq(wf_wire_address_parse("tcp:*:9", &address, NULL), WF_OK);
    cr_assert_eq(wf_wire_address_inline(&address, true, &targets), WF_OK);
    wf_wire_address_format(&targets.target[0].any, targets.target[0].len, text);
    cr_assert_str_eq(text, "tcp:0.0.0.0:9");
    cr_assert_eq(wf_wire_address_parse("tcp:localhost:9", &address, NULL), WF_OK);
    cr_assert_eq(wf_wire_address_inline(&address, true, &targets), WF_OK);
    cr_assert_eq(targets.count, 1);
    cr_assert_eq(wf_wire_address_inline(&address, false, &targets), WF_OK);
    cr_assert_eq(targets.count, 2, "a connect tries both families");
}

Test(wire_address, an_unprintable_name_is_written_safely)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char text[WF_ADDRESS_MAX];
    memset(un.sun_path, 0x1b, sizeof un.sun_path);
    wf_wire_address_format((struct sockaddr *)&un, sizeof un, text);
    cr_assert_eq(strlen(text), 5 + sizeof un.sun_path);
    cr_assert_null(strchr(text, 0x1b));
    wf_wire_address_format((struct sockaddr *)&un, offsetof(struct sockaddr_un, sun_path), text);
    cr_assert_str_eq(text, "unix:");
}

Test(wire_address, a_name_that_cannot_exist_does_not_resolve)
{
    struct wf_wire_address address;
    struct wf_wire_targets targets;
    struct wf_error error = {0};
    /* A label of more than 63 bytes: refused before anybody is asked. */
    cr_assert_eq(
        wf_wire_address_parse("tcp:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaa.x:1",
                              &address, NULL),
        WF_OK);
    cr_assert_eq(wf_wire_address_resolve(&address, &targets, &error), WF_NOT_FOUND);
    cr_assert(strstr(error.text, "aaaa.x") != NULL, "%s", error.text);
}
