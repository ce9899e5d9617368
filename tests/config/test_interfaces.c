/* test_interfaces.c - rules for network interfaces. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

#include "config/interfaces.h"

static bool allowed(const char *text, const char *interface, const char *address)
{
    struct wf_interface_rules rules;
    struct wf_error error = {0};
    cr_assert_eq(wf_interfaces_parse(text, &rules, &error), WF_OK, "%s: %s", text, error.text);
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at = {.any = {.sa_family = AF_INET}};
    if (inet_pton(AF_INET, address, &at.in.sin_addr) != 1) {
        at.any.sa_family = AF_INET6;
        cr_assert_eq(inet_pton(AF_INET6, address, &at.in6.sin6_addr), 1, "%s", address);
    }
    return wf_interfaces_allow(&rules, interface, &at.any);
}

Test(interfaces, allow)
{
    static const struct {
        const char *rules, *interface, *address;
        bool allowed;
    } rows[] = {
        {"eth0", "eth0", "10.1.2.3", true},
        {"eth0", "eth01", "10.1.2.3", false},
        {"eth0", "eth", "10.1.2.3", false},
        {"eth*", "eth12", "10.1.2.3", true},
        {"*", "anything", "10.1.2.3", true},
        {"ib0, eth1", "eth1", "10.1.2.3", true},
        {"10.1.0.0/16", "eth0", "10.1.255.3", true},
        {"10.1.0.0/16", "eth0", "10.2.0.1", false},
        {"10.1.2.4/30", "x", "10.1.2.7", true},
        {"10.1.2.4/30", "x", "10.1.2.8", false},
        {"10.1.2.4/32", "x", "10.1.2.4", true},
        {"0.0.0.0/0", "x", "1.2.3.4", true},
        {"0.0.0.0/0", "x", "::1", false},
        {"fd00::/8", "x", "fd12::1", true},
        {"fd00::/8", "x", "fe12::1", false},
        {"2001:db8::/33", "x", "2001:db8:7fff::1", true},
        {"2001:db8::/33", "x", "2001:db8:8000::1", false},
        {"ib0,10.0.0.0/8", "eth0", "10.9.9.9", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_eq(allowed(rows[i].rules, rows[i].interface, rows[i].address), rows[i].allowed,
                     "\"%s\" %s %s", rows[i].rules, rows[i].interface, rows[i].address);
    }
}

Test(interfaces, refused)
{
    static const char *const rows[] = {"",
                                       ",",
                                       "eth0,",
                                       "eth0,,eth1",
                                       "10.1.0.0/33",
                                       "10.1.0.1/16",
                                       "10.1/16",
                                       "fd00::/129",
                                       "fd00::1/8",
                                       "/8",
                                       "10.1.0.0/",
                                       "10.1.0.0/x",
                                       "10.1.0.0/-1",
                                       "abcdefghijklmnopqrstuvwxyzabcdefghijkl",
                                       "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_interface_rules rules;
        struct wf_error error = {0};
        cr_expect_eq(wf_interfaces_parse(rows[i], &rules, &error), WF_INVALID, "\"%s\"", rows[i]);
        cr_expect_neq(error.text[0], '\0', "\"%s\"", rows[i]);
    }
    struct wf_interface_rules none = {.count = 0};
    struct sockaddr any = {.sa_family = AF_INET};
    cr_expect(wf_interfaces_allow(&none, "eth0", &any), "no rules allow everything");
}
