/* test_ucx_devices.c - which devices UCX is given on hosts that have bridges. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "transports/ucx_devices.h"

enum { MADE_MAX = 8, NAMES_MAX = 4 };

/* `made`: paths below /sys/class; "path=text" is a file, others are folders. */
static const struct row {
    const char *name;
    const char *made[MADE_MAX], *interfaces[NAMES_MAX];
    const char *list; /* NULL: all devices */
} rows[] = {
    {"no bridge", {"net/lo", "net/eth0/device"}, {"lo", "eth0"}, NULL},
    {"a bridge without ports", {"net/docker0/brif"}, {"lo", "docker0", "eth0"}, "lo,eth0"},
    {"a bridge of containers",
     {"net/docker0/brif/veth1", "net/veth1", "net/veth1/uevent=INTERFACE=veth1\nIFINDEX=9\n"},
     {"lo", "docker0"},
     "lo"},
    {"a bridge over hardware", {"net/br0/brif/eth0", "net/eth0/device"}, {"lo", "br0"}, NULL},
    {"a bridge over hardware with containers",
     {"net/br0/brif/veth1", "net/veth1", "net/br0/brif/eth0", "net/eth0/device"},
     {"lo", "br0"},
     NULL},
    {"a bridge over a bond", {"net/br0/brif/bond0", "net/bond0/lower_eth0"}, {"lo", "br0"}, NULL},
    {"a bridge over a tunnel",
     {"net/br0/brif/vx", "net/vx", "net/vx/uevent=DEVTYPE=vxlan\nINTERFACE=vx\n"},
     {"lo", "br0"},
     NULL},
    {"one of either kind",
     {"net/br0/brif/eth0", "net/eth0/device", "net/virbr0/brif/tap1", "net/tap1"},
     {"lo", "virbr0", "br0"},
     "lo,br0"},
    {"RDMA ports in use are kept",
     {"net/docker0/brif", "infiniband/mlx5_0/ports/1",
      "infiniband/mlx5_0/ports/1/state=4: ACTIVE\n", "infiniband/mlx5_0/ports/2",
      "infiniband/mlx5_0/ports/2/state=1: DOWN\n"},
     {"docker0", "ib0"},
     "ib0,mlx5_0:1"},
    {"nothing but a bridge", {"net/docker0/brif"}, {"docker0"}, NULL},
    {"a name that cannot be listed", {"net/docker0/brif"}, {"docker0", "a,b"}, NULL},
};

static void make(const char *folder, const char *what)
{
    char path[512];
    const char *text = strchr(what, '=');
    int len = text != NULL ? (int)(text - what) : (int)strlen(what);
    snprintf(path, sizeof path, "%s/%.*s", folder, len, what);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    if (text == NULL) {
        mkdir(path, 0700);
        return;
    }
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text + 1, file);
    fclose(file);
}

static int take_away(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

Test(ucx_devices, bridges_that_lead_nowhere_are_left_out)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        char folder[] = "/tmp/weft-devices-XXXXXX", list[UCX_DEVICES_TEXT];
        uint32_t count = 0;
        cr_assert_not_null(mkdtemp(folder));
        for (size_t m = 0; m < MADE_MAX && row->made[m] != NULL; m++) {
            make(folder, row->made[m]);
        }
        while (count < NAMES_MAX && row->interfaces[count] != NULL) {
            count++;
        }
        bool chosen = ucx_devices_list(folder, row->interfaces, count, list);
        nftw(folder, take_away, 16, FTW_DEPTH | FTW_PHYS);
        cr_expect_eq(chosen, row->list != NULL, "%s: %s", row->name, list);
        cr_expect(row->list == NULL || strcmp(list, row->list) == 0, "%s: %s", row->name, list);
    }
}

/* UCX ends the process when a list is longer. */
Test(ucx_devices, a_list_that_ucx_does_not_bear_is_none)
{
    char folder[] = "/tmp/weft-devices-XXXXXX", list[UCX_DEVICES_TEXT];
    char names[UCX_DEVICES_MAX + 1][16];
    const char *interfaces[UCX_DEVICES_MAX + 2] = {"docker0"};
    cr_assert_not_null(mkdtemp(folder));
    make(folder, "net/docker0/brif");
    for (uint32_t i = 0; i < UCX_DEVICES_MAX + 1; i++) {
        snprintf(names[i], sizeof names[i], "eth%u", i);
        interfaces[i + 1] = names[i];
    }
    cr_expect(ucx_devices_list(folder, interfaces, UCX_DEVICES_MAX + 1, list));
    cr_expect_not(ucx_devices_list(folder, interfaces, UCX_DEVICES_MAX + 2, list));
    nftw(folder, take_away, 16, FTW_DEPTH | FTW_PHYS);
}
