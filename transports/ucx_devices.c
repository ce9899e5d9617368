/* ucx_devices.c - lists a host's network devices without the bridges that lead nowhere. */
#include "transports/ucx_devices.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { PATH_BYTES = 1024 };

/* --- bridges -----------------------------------------------------------------------------------
 */

/* Hardware, or something that stands on another interface (a bond, a VLAN), or a tunnel of a kind
 * that says so. What is left are the near ends of containers and virtual machines. */
static bool leads_out(const char *folder, const char *port)
{
    char path[PATH_BYTES], line[256];
    bool found = false;
    snprintf(path, sizeof path, "%s/net/%s", folder, port);
    DIR *entries = opendir(path);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        found |= strcmp(entry->d_name, "device") == 0 || strncmp(entry->d_name, "lower_", 6) == 0;
    }
    if (entries != NULL) {
        closedir(entries);
    }
    snprintf(path, sizeof path, "%s/net/%s/uevent", folder, port);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        found |= strncmp(line, "DEVTYPE=", 8) == 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool is_inner_bridge(const char *folder, const char *interface)
{
    char path[PATH_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%s/net/%s/brif", folder, interface);
    DIR *ports = opendir(path);
    if (ports == NULL) {
        return false; /* no bridge */
    }
    for (struct dirent *port; (port = readdir(ports)) != NULL;) {
        found |= port->d_name[0] != '.' && leads_out(folder, port->d_name);
    }
    closedir(ports);
    return !found;
}

/* --- the list ----------------------------------------------------------------------------------
 */

struct list {
    char *out;
    uint32_t count;
    bool fits;
};

static void add(struct list *list, const char *name)
{
    size_t len = strlen(list->out), room = UCX_DEVICES_TEXT - len;
    list->fits &=
        strchr(name, ',') == NULL && strlen(name) + 2 <= room && ++list->count <= UCX_DEVICES_MAX;
    if (list->fits) {
        snprintf(list->out + len, room, "%s%s", len > 0 ? "," : "", name);
    }
}

/* UCX warns of a device that it is given and that is not in use. */
static bool is_active(const char *ports, const char *port)
{
    char path[PATH_BYTES], state[32] = "";
    snprintf(path, sizeof path, "%.600s/%.100s/state", ports, port);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        char *line = fgets(state, sizeof state, file);
        fclose(file);
        return line != NULL && strstr(line, "ACTIVE") != NULL;
    }
    return false;
}

static void add_rdma(struct list *list, const char *folder)
{
    char path[PATH_BYTES], name[PATH_BYTES];
    snprintf(path, sizeof path, "%.300s/infiniband", folder);
    DIR *devices = opendir(path);
    for (struct dirent *device; devices != NULL && (device = readdir(devices)) != NULL;) {
        snprintf(path, sizeof path, "%.300s/infiniband/%.200s/ports", folder, device->d_name);
        DIR *ports = device->d_name[0] != '.' ? opendir(path) : NULL;
        for (struct dirent *port; ports != NULL && (port = readdir(ports)) != NULL;) {
            if (port->d_name[0] != '.' && is_active(path, port->d_name)) {
                snprintf(name, sizeof name, "%s:%s", device->d_name, port->d_name);
                add(list, name);
            }
        }
        if (ports != NULL) {
            closedir(ports);
        }
    }
    if (devices != NULL) {
        closedir(devices);
    }
}

bool ucx_devices_list(const char *folder, const char *const *interfaces, uint32_t count,
                      char out[static UCX_DEVICES_TEXT])
{
    struct list list = {.out = out, .fits = true};
    bool any_left_out = false;
    out[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        if (is_inner_bridge(folder, interfaces[i])) {
            any_left_out = true;
        } else {
            add(&list, interfaces[i]);
        }
    }
    add_rdma(&list, folder);
    return any_left_out && list.fits && list.count > 0;
}

/* As UCX sees it: up, with an address that is no link's own. */
static bool has_address(const struct ifaddrs *one)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)one->ifa_addr;
    if (six == NULL || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_RUNNING) == 0) {
        return false;
    }
    return six->sin6_family == AF_INET ||
           (six->sin6_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) &&
            !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr));
}

bool ucx_devices_now(char out[static UCX_DEVICES_TEXT])
{
    struct ifaddrs *all = NULL;
    const char *names[UCX_DEVICES_MAX];
    uint32_t count = 0;
    bool fits = getifaddrs(&all) == 0;
    for (const struct ifaddrs *one = all; one != NULL && fits; one = one->ifa_next) {
        uint32_t i = 0;
        while (i < count && strcmp(names[i], one->ifa_name) != 0) {
            i++;
        }
        if (i < count || !has_address(one)) {
            continue;
        }
        fits = count < UCX_DEVICES_MAX;
        if (fits) {
            names[count++] = one->ifa_name;
        }
    }
    bool chosen = fits && ucx_devices_list("/sys/class", names, count, out);
    freeifaddrs(all);
    return chosen;
}

uint64_t ucx_devices_stamp(void)
{
    struct ifaddrs *all = NULL;
    uint64_t stamp = 0;
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (has_address(one)) {
            bool six = one->ifa_addr->sa_family == AF_INET6;
            size_t len = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
            stamp = XXH3_64bits_withSeed(one->ifa_name, strlen(one->ifa_name), stamp);
            stamp = XXH3_64bits_withSeed(one->ifa_addr, len, stamp);
        }
    }
    freeifaddrs(all);
    return stamp;
}
