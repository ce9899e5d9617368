/* test_ucx_library.c - finding UCX, copies of it, and its options. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transports/job_env.h"
#include "transports/ucx.h"

static enum wf_status try_new(const struct wf_transport_ucx_options *options, char *said,
                              struct wf_error *error)
{
    struct job_env env = {.env.ops = &job_env_ops};
    struct wf_loop *loop;
    struct wf_transport *transport;
    cr_assert_eq(wf_loop_new(NULL, &loop, NULL), WF_OK);
    wf_loop_set_env(loop, &env.env);
    enum wf_status status = wf_transport_ucx_new(loop, options, &transport, error);
    if (status == WF_OK) {
        snprintf(said, 2000, "%s", transport->ops->describe(transport));
        transport->ops->close(transport);
    }
    wf_loop_free(loop);
    return status;
}

static const struct wf_transport_ucx_option strange[] = {{"TLS", "tcp"}, {"UCX_NO_SUCH", "1"}},
                                            nameless[] = {{"UCX_", "x"}}, empty[] = {{"", "x"}},
                                            wrong[] = {{"RNDV_SCHEME", "by pigeon"}},
                                            nothing[] = {{"TLS", "no_such_transport"}},
                                            known[] = {{"UCX_TLS", "tcp"},
                                                       {"TCP_TX_SEG_SIZE", "16k"},
                                                       {"RNDV_THRESH", "64k"}};

static const struct option_row {
    const char *name;
    struct wf_transport_ucx_options options;
    enum wf_status status;
    const char *said;
} option_rows[] = {
    {"its own options", {.options = known, .option_count = 3}, WF_OK, "ucx 1."},
    {"an unknown option", {.options = strange, .option_count = 2}, WF_INVALID, "NO_SUCH"},
    {"a prefix without a name", {.options = nameless, .option_count = 1}, WF_INVALID, "no name"},
    {"no name at all", {.options = empty, .option_count = 1}, WF_INVALID, "no name"},
    {"a value it refuses", {.options = wrong, .option_count = 1}, WF_INVALID, "RNDV_SCHEME"},
    {"no such transport", {.options = nothing, .option_count = 1}, WF_UNSUPPORTED, "TLS"},
    {"too many lanes", {.lanes = WF_UCX_LANES_MAX + 1}, WF_INVALID, "lanes"},
    {"small chunks", {.chunk_bytes = 100}, WF_INVALID, "chunks of 100 bytes"},
    {"a budget for less than two chunks", {.transit_bytes = 1 << 20}, WF_INVALID, "two chunks"},
    {"no library there", {.library = "/nowhere"}, WF_UNSUPPORTED, "/nowhere"},
    {"a file that is no library", {.library = "/etc/hostname"}, WF_UNSUPPORTED, "/etc/hostname"},
};

Test(ucx_library, options_are_checked)
{
    for (size_t i = 0; i < sizeof option_rows / sizeof option_rows[0]; i++) {
        const struct option_row *row = &option_rows[i];
        struct wf_error error = {.text = ""};
        char said[2000] = "";
        cr_assert_eq(try_new(&row->options, said, &error), row->status, "%s: %s", row->name,
                     error.text);
        cr_assert_not_null(strstr(row->status == WF_OK ? said : error.text, row->said),
                           "%s: '%s%s'", row->name, said, error.text);
    }
}

Test(ucx_library, a_copy_that_the_process_has_is_named)
{
    struct wf_error error = {.text = ""};
    char said[2000] = "", folder[] = "/tmp/weft-ucx-XXXXXX", path[64];
    unsetenv("WEFT_UCX_LIBRARY");
    cr_assert_not_null(dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL));
    cr_assert_eq(try_new(NULL, said, &error), WF_OK, "%s", error.text);
    cr_assert_not_null(strstr(said, "had loaded it already"), "%s", said);
    /* Another copy beside it would run with the first one's parts. */
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/libucp.so.0", folder);
    FILE *file = fopen(path, "w");
    fclose(file);
    const struct wf_transport_ucx_options options = {.library = folder};
    cr_assert_eq(try_new(&options, said, &error), WF_UNSUPPORTED);
    cr_assert_not_null(strstr(error.text, folder), "%s", error.text);
    cr_assert_not_null(strstr(error.text, "has loaded another"), "%s", error.text);
    unlink(path);
    rmdir(folder);
}

/* UCX lists the devices when a context is made and fails when one of them is gone later. */
Test(ucx_library, an_interface_that_went_away_does_not_matter)
{
    struct job_env env = {.env.ops = &job_env_ops};
    const struct wf_transport_ucx_option tcp = {"TLS", "tcp"};
    const struct wf_transport_ucx_options options = {.options = &tcp, .option_count = 1};
    struct wf_loop *loop;
    struct wf_transport *transport;
    struct wf_handle handle;
    struct wf_error error = {.text = ""};
    char byte = 1;
    const struct wf_region region = {.address = &byte, .len_bytes = 1, .fd = -1};
    /* UCX looks for interfaces in /sys, which shows those of the namespace that mounted it. */
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
        system("mount --make-rprivate / && mount -t sysfs weft /sys && ip link set lo up && ip "
               "link add weft0 type veth peer name weft1 && "
               "ip addr add 10.99.0.1/24 dev weft0 && ip link set weft0 up") != 0) {
        cr_skip_test("no interface can be made here");
    }
    cr_assert_eq(wf_loop_new(NULL, &loop, NULL), WF_OK);
    cr_assert_eq(wf_jobs_new(1, &env.jobs, NULL), WF_OK);
    wf_loop_set_env(loop, &env.env);
    cr_assert_eq(wf_transport_ucx_new(loop, &options, &transport, &error), WF_OK, "%s", error.text);
    cr_assert_eq(system("ip link del weft0"), 0);
    cr_assert_eq(transport->ops->export_region(transport, &region, &handle, &error), WF_OK, "%s",
                 error.text);
    transport->ops->close(transport);
    wf_jobs_free(env.jobs);
    wf_loop_free(loop);
}

/* With what UCX would choose by itself there is TCP over the loopback interface. */
Test(ucx_library, devices_that_its_own_file_names_are_kept)
{
    const struct wf_transport_ucx_option tcp = {"TLS", "tcp"};
    const struct wf_transport_ucx_options options = {.options = &tcp, .option_count = 1};
    char said[2000] = "", folder[] = "/tmp/weft-ucx-XXXXXX", path[64];
    struct wf_error error = {.text = ""};
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/ucx.conf", folder);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs("UCX_NET_DEVICES=weft_none\n", file);
    fclose(file);
    setenv("UCX_CONFIG_DIR", folder, 1); /* read as UCX is loaded */
    enum wf_status status = try_new(&options, said, &error);
    unlink(path);
    rmdir(folder);
    cr_assert_eq(status, WF_UNSUPPORTED, "%s", said);
    cr_assert_not_null(strstr(error.text, "finds nothing to use"), "%s", error.text);
}
