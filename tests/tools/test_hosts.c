/* test_hosts.c - lists of hosts, and where a job's ranks go. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run/hosts.h"

Test(hosts, refused)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no host"},
        {"# nothing\n\n", "no host"},
        {"a\nb slots=0\n", "line 2: slots"},
        {"a slots=99999\n", "slots"},
        {"a slots=2x\n", "slots"},
        {"a side=both\n", "line 1: expected slots=N"},
        {"a gpu=2\n", "gpu=2"},
        {"a\nb\na\n", "line 3: a is named a second time"},
        {"-oProxyCommand=x\n", "no host's name"},
        {"a address=-oProxyCommand=x\n", "address="},
        {"a address=\n", "address="},
        {"a;rm\n", "letters, digits"},
        {"$(x)\n", "letters, digits"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_hosts hosts;
        struct wf_error error = {0};
        cr_expect_eq(wf_hosts_parse(rows[i].text, strlen(rows[i].text), &hosts, &error), WF_INVALID,
                     "\"%s\"", rows[i].text);
        cr_expect(strstr(error.text, rows[i].says) != NULL, "\"%s\": %s", rows[i].text, error.text);
    }
    struct wf_hosts hosts;
    struct wf_error error = {0};
    cr_expect_eq(wf_hosts_parse("a\0b", 3, &hosts, &error), WF_INVALID, "a NUL");
    cr_expect_eq(wf_hosts_load("/nonexistent/hosts", &hosts, &error), WF_IO);
    cr_expect(strstr(error.text, "/nonexistent/hosts") != NULL, "%s", error.text);
}

/* Two groups: engines of `tp` ranks, and one of 3. */
static struct wf_run_setup *setup_of(uint32_t train, uint32_t engines, uint32_t tp, bool second)
{
    struct wf_run_setup *setup = calloc(1, sizeof *setup);
    cr_assert(setup != NULL);
    setup->train_ranks = train;
    setup->job.infer_count = 1 + second;
    char spec[64];
    snprintf(spec, sizeof spec, "vllm:tp=%u,engines=%u", tp, engines);
    cr_assert_eq(wf_recipe_parse(spec, NULL, &setup->infer[0], NULL), WF_OK);
    cr_assert_eq(wf_recipe_parse("vllm:tp=3", NULL, &setup->infer[1], NULL), WF_OK);
    setup->infer_ranks = tp * engines + (second ? 3 : 0);
    setup->engines = engines + second;
    return setup;
}

Test(hosts, placed)
{
    static const struct {
        const char *name, *text;
        uint32_t train, engines, tp;
        bool second;
        const char *where; /* the host of each rank, train | infer; or what the refusal says */
    } rows[] = {
        {"one host", "a\n", 2, 2, 2, false, "aa|aaaa"},
        {"equal shares", "a\nb\n", 3, 2, 2, false, "aab|bbaa"},
        {"slots fill in order", "a slots=4\nb slots=4\n", 4, 2, 2, false, "aaaa|bbbb"},
        {"engines stay whole", "a slots=3\nb slots=3\n", 2, 1, 3, false, "aa|bbb"},
        {"unless none has room", "a slots=3\nb slots=3\n", 2, 2, 2, false, "aa|bbab"},
        {"sides apart", "a side=train\nb side=infer\nc side=infer\n", 2, 2, 2, false, "aa|bbcc"},
        {"a side over several", "a side=train\nb side=train\nc side=infer\n", 3, 1, 2, false,
         "aab|cc"},
        {"two groups", "a slots=2\nb\nc\n", 2, 2, 2, true, "aa|bbccbbb"},
        {"comments, tabs, no end of line", "# x\n\ta\tslots=9 # y\r\n\nb side=infer", 2, 1, 2,
         false, "aa|bb"},
        {"too few slots", "a slots=2\nb slots=3\n", 2, 2, 2, false, "3 of the 4 inference"},
        {"hosts that a side does not need", "a slots=2 side=train\nb\n", 1, 1, 1, false, "a|b"},
        {"no host for a side", "a side=infer\n", 1, 1, 1, false, "0 of the 1 train"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_run_setup *setup =
            setup_of(rows[i].train, rows[i].engines, rows[i].tp, rows[i].second);
        struct wf_hosts hosts = {0};
        struct wf_error error = {0};
        char where[80] = "";
        size_t len = 0;
        cr_assert_eq(wf_hosts_parse(rows[i].text, strlen(rows[i].text), &hosts, &error), WF_OK,
                     "%s: %s", rows[i].name, error.text);
        if (wf_hosts_place(&hosts, setup, &error) == WF_OK) {
            for (uint32_t r = 0; r < setup->train_ranks; r++) {
                where[len++] = hosts.hosts[hosts.train[r]].name[0];
            }
            where[len++] = '|';
            for (uint32_t r = 0; r < setup->infer_ranks; r++) {
                where[len++] = hosts.hosts[hosts.infer[r]].name[0];
            }
            cr_expect_str_eq(where, rows[i].where, "%s", rows[i].name);
        } else {
            cr_expect(strstr(error.text, rows[i].where) != NULL, "%s: %s", rows[i].name,
                      error.text);
        }
        wf_hosts_fini(&hosts);
        free(setup);
    }
}

Test(hosts, engines_and_addresses)
{
    static const char text[] = "localhost slots=1\na slots=3 address=admin@10.0.0.1\nb slots=2\n";
    struct wf_run_setup *setup = setup_of(1, 2, 2, false);
    struct wf_hosts hosts = {0};
    struct wf_error error = {0};
    cr_assert_eq(wf_hosts_parse(text, sizeof text - 1, &hosts, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_hosts_place(&hosts, setup, &error), WF_OK, "%s", error.text);
    cr_expect(hosts.hosts[0].local && !hosts.hosts[1].local);
    cr_expect_str_eq(hosts.hosts[1].address, "admin@10.0.0.1");
    cr_expect_str_eq(hosts.hosts[2].address, "b");
    cr_expect_str_eq(wf_hosts_engine(&hosts, setup, 0)->name, "a");
    cr_expect_str_eq(wf_hosts_engine(&hosts, setup, 1)->name, "b");
    hosts.infer[1] = 2;
    cr_expect_eq(wf_hosts_engine(&hosts, setup, 0), NULL, "an engine on two hosts has none");
    wf_hosts_fini(&hosts);
    free(setup);
}

Test(hosts, the_example_is_one)
{
    struct wf_run_setup *setup = setup_of(4, 2, 4, false);
    struct wf_hosts hosts = {0};
    struct wf_error error = {0};
    cr_assert_eq(wf_hosts_load("config/examples/launchers/hosts", &hosts, &error), WF_OK, "%s",
                 error.text);
    cr_assert_eq(wf_hosts_place(&hosts, setup, &error), WF_OK, "%s", error.text);
    cr_expect_str_eq(wf_hosts_engine(&hosts, setup, 0)->name, "node2");
    cr_expect_str_eq(wf_hosts_engine(&hosts, setup, 1)->address, "admin@10.0.0.3");
    wf_hosts_fini(&hosts);
    free(setup);
}
