/* test_host_name.c - which hosts count as one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "config/host_name.h"

Test(host_name, equal_only_where_memory_can_be_shared)
{
    static const struct {
        const char *name;
        const char *host[2], *boot[2], *net[2];
        bool equal;
    } rows[] = {
        {"the same host", {"n", "n"}, {"b", "b"}, {"net:[1]", "net:[1]"}, true},
        {"containers of two machines called alike", {"n", "n"}, {"b", "c"}, {"i", "i"}, false},
        {"two namespaces of one machine", {"n", "n"}, {"b", "b"}, {"net:[1]", "net:[2]"}, false},
        {"two names", {"n", "m"}, {"b", "b"}, {"i", "i"}, false},
        {"parts are not run together", {"n", "n"}, {"ab", "a"}, {"c", "bc"}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char a[WF_HOST_MAX], b[WF_HOST_MAX];
        wf_host_name_make(rows[i].host[0], rows[i].boot[0], rows[i].net[0], a);
        wf_host_name_make(rows[i].host[1], rows[i].boot[1], rows[i].net[1], b);
        cr_expect_eq(strcmp(a, b) == 0, rows[i].equal, "%s: %s %s", rows[i].name, a, b);
    }
}

Test(host_name, is_readable_and_fits)
{
    char out[WF_HOST_MAX], name[200];
    struct wf_error error;
    wf_host_name_make("node1", "b", "n", out);
    cr_expect_eq(strncmp(out, "node1~", 6), 0, "%s", out);
    cr_expect_eq(strlen(out), 12, "%s", out);
    wf_host_name_make("", "", "", out);
    cr_expect_eq(strncmp(out, "localhost~", 10), 0, "%s", out);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    wf_host_name_make(name, "b", "n", out);
    cr_expect_eq(strlen(out), WF_HOST_MAX - 1);
    cr_expect_neq(strchr(out, '~'), NULL, "the hash is never cut: %s", out);
    cr_expect_eq(wf_host_name_check(out, &error), WF_OK);
}

Test(host_name, given_ones_are_checked)
{
    static const struct {
        const char *name;
        bool good;
    } rows[] = {
        {"node-1.example", true}, {"10.0.0.1", true}, {"fd00::1", true}, {"a~b", true}, {"", false},
        {"a b", false},           {"a\n", false},     {"a/b", false}};
    struct wf_error error;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_eq(wf_host_name_check(rows[i].name, &error), rows[i].good ? WF_OK : WF_INVALID,
                     "\"%s\"", rows[i].name);
    }
    char name[WF_HOST_MAX + 1];
    memset(name, 'x', sizeof name);
    name[WF_HOST_MAX] = '\0';
    cr_expect_eq(wf_host_name_check(name, &error), WF_INVALID);
    name[WF_HOST_MAX - 1] = '\0';
    cr_expect_eq(wf_host_name_check(name, &error), WF_OK);
}
