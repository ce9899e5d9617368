/* reach.c - asks the kernel which of this host's addresses leads to the server. */
#include "tools/run/reach.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/host_name.h"
#include "config/interfaces.h"
#include "runtime/wire_address.h"

enum { LIST_MAX = 200 };

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_storage storage;
};

/* --- who ------------------------------------------------------------------------------------- */
static void read_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(out, (int)size, file) == NULL) {
        out[0] = '\0';
    }
    out[strcspn(out, "\n")] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

enum wf_status wf_reach_host_name(const char *given, char out[WF_HOST_MAX], struct wf_error *error)
{
    const char *variable = getenv("WEFT_HOST_NAME");
    const char *name = given != NULL                             ? given
                       : variable != NULL && variable[0] != '\0' ? variable
                                                                 : NULL;
    if (name != NULL) {
        enum wf_status status = wf_host_name_check(name, error);
        if (status != WF_OK) {
            wf_error_prefix(error, given != NULL ? "--host-name" : "WEFT_HOST_NAME");
            return status;
        }
        snprintf(out, WF_HOST_MAX, "%s", name);
        return WF_OK;
    }
    char host[256] = "", boot_id[64] = "", net[64] = "";
    if (gethostname(host, sizeof host - 1) != 0) {
        host[0] = '\0';
    }
    read_line("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
    ssize_t len = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[len > 0 ? len : 0] = '\0';
    wf_host_name_make(host, boot_id, net, out);
    return WF_OK;
}

/* --- where ------------------------------------------------------------------------------------ */
static bool is_loopback(const struct sockaddr *any)
{
    const union address *address = (const union address *)any;
    return any->sa_family == AF_INET
               ? (ntohl(address->in.sin_addr.s_addr) >> 24) == 127
               : any->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->in6.sin6_addr);
}

static bool is_link_local(const struct sockaddr *any)
{
    const union address *address = (const union address *)any;
    return any->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address->in6.sin6_addr);
}

/* The address without its port, as a listener takes it: "tcp:HOST:PORT". */
static void format(union address *address, unsigned short port, char out[WF_ADDRESS_MAX])
{
    if (address->any.sa_family == AF_INET) {
        address->in.sin_port = htons(port);
    } else {
        address->in6.sin6_port = htons(port);
    }
    wf_wire_address_format(&address->any, sizeof address->storage, out);
}

/* What `address` means, by name if need be. */
static enum wf_status targets_of(const struct wf_wire_address *address,
                                 struct wf_wire_targets *targets, bool *by_name_out,
                                 struct wf_error *error)
{
    *by_name_out = false;
    if (wf_wire_address_inline(address, false, targets) == WF_OK) {
        return WF_OK;
    }
    *by_name_out = true;
    enum wf_status status = wf_wire_address_resolve(address, targets, error);
    return status == WF_OK ? WF_OK : WF_CONNECTION;
}

static enum wf_status refuse_loopback(const char *host, const struct sockaddr *found,
                                      struct wf_error *error)
{
    char text[WF_ADDRESS_MAX];
    union address address;
    memcpy(&address, found, found->sa_family == AF_INET ? sizeof address.in : sizeof address.in6);
    format(&address, 0, text);
    return wf_error_set(error, WF_CONNECTION,
                        "the name \"%s\" is a loopback address on this host (%.60s), which ranks "
                        "on other hosts cannot reach; write the host's address in the network, or "
                        "127.0.0.1 if the whole job is here",
                        host, text);
}

/* The kernel's choice of a source address towards `target`; nothing is sent. */
static bool source_towards(const struct wf_wire_target *target, union address *source_out)
{
    int fd = socket(target->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof *source_out;
    memset(source_out, 0, sizeof *source_out);
    bool good = fd >= 0 && connect(fd, &target->any, target->len) == 0 &&
                getsockname(fd, &source_out->any, &len) == 0;
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = saved;
    return good;
}

static void list_address(char list[LIST_MAX], const struct ifaddrs *one)
{
    char text[INET6_ADDRSTRLEN] = "";
    const union address *address = (const union address *)one->ifa_addr;
    const void *bytes = address->any.sa_family == AF_INET ? (const void *)&address->in.sin_addr
                                                          : (const void *)&address->in6.sin6_addr;
    inet_ntop(address->any.sa_family, bytes, text, sizeof text);
    size_t len = strlen(list);
    snprintf(list + len, LIST_MAX - len, "%s%s %s", len > 0 ? ", " : "", one->ifa_name, text);
}

static bool same_host_part(const struct sockaddr *a, const struct sockaddr *b)
{
    const union address *one = (const union address *)a, *other = (const union address *)b;
    return a->sa_family == b->sa_family &&
           (a->sa_family == AF_INET
                ? one->in.sin_addr.s_addr == other->in.sin_addr.s_addr
                : memcmp(&one->in6.sin6_addr, &other->in6.sin6_addr, sizeof(struct in6_addr)) == 0);
}

/* 0: not allowed; otherwise the better the larger: the route's own source, then its family. */
static int rate(const struct wf_interface_rules *rules, const struct ifaddrs *one,
                const union address *source)
{
    bool usable = one->ifa_addr != NULL && (one->ifa_flags & IFF_UP) != 0 &&
                  (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6) &&
                  !is_link_local(one->ifa_addr);
    if (!usable || !wf_interfaces_allow(rules, one->ifa_name, one->ifa_addr)) {
        return 0;
    }
    return same_host_part(one->ifa_addr, &source->any)         ? 3
           : one->ifa_addr->sa_family == source->any.sa_family ? 2
                                                               : 1;
}

/* Reads the rules, then this host's interfaces: freeifaddrs. */
static enum wf_status list_interfaces(const char *interfaces, struct wf_interface_rules *rules,
                                      struct ifaddrs **all_out, struct wf_error *error)
{
    enum wf_status status = wf_interfaces_parse(interfaces, rules, error);
    if (status == WF_OK && getifaddrs(all_out) != 0) {
        status =
            wf_error_set(error, WF_IO, "cannot list this host's interfaces: %s", strerror(errno));
    }
    return status;
}

/* Replaces *source by the best address that the rules allow. */
static enum wf_status narrow(const char *interfaces, union address *source, struct wf_error *error)
{
    struct wf_interface_rules rules;
    struct ifaddrs *all = NULL;
    const struct ifaddrs *best = NULL;
    char list[LIST_MAX] = "";
    enum wf_status status = list_interfaces(interfaces, &rules, &all, error);
    if (status != WF_OK) {
        return status;
    }
    int rated = 0;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        int now = rate(&rules, one, source);
        if (now > rated) {
            rated = now;
            best = one;
        }
        if (one->ifa_addr != NULL &&
            (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6)) {
            list_address(list, one);
        }
    }
    if (best == NULL) {
        status = wf_error_set(error, WF_NOT_FOUND,
                              "transport.interfaces \"%.80s\" allows none of this host's addresses "
                              "(%s)",
                              interfaces, list);
    } else {
        memcpy(source, best->ifa_addr,
               best->ifa_addr->sa_family == AF_INET ? sizeof source->in : sizeof source->in6);
    }
    freeifaddrs(all);
    return status;
}

enum wf_status wf_reach_listen(const char *server, const char *interfaces, char out[WF_ADDRESS_MAX],
                               struct wf_error *error)
{
    struct wf_wire_address address;
    struct wf_wire_targets targets;
    union address source;
    bool by_name = false, found = false;
    enum wf_status status = wf_wire_address_parse(server, &address, error);
    if (status == WF_OK && address.is_unix) {
        snprintf(out, WF_ADDRESS_MAX, "tcp:127.0.0.1:0");
        return WF_OK;
    }
    if (status == WF_OK) {
        status = targets_of(&address, &targets, &by_name, error);
    }
    if (status != WF_OK) {
        return status;
    }
    /* Of several addresses of a name, one that others may know too. */
    for (unsigned i = 0; i < targets.count && (!found || is_loopback(&source.any)); i++) {
        union address other;
        if (source_towards(&targets.target[i], &other) && (!found || !is_loopback(&other.any))) {
            source = other;
            found = true;
        }
    }
    if (!found) {
        return wf_error_set(error, WF_CONNECTION, "no route leads to the server at %s: %s", server,
                            strerror(errno));
    }
    if (interfaces[0] != '\0') {
        status = narrow(interfaces, &source, error);
    } else if (by_name && is_loopback(&source.any)) {
        status = refuse_loopback(address.host, &source.any, error);
    }
    if (status == WF_OK) {
        format(&source, 0, out);
    }
    return status;
}

/* --- devices of UCX --------------------------------------------------------------------------- */
struct devices {
    const struct wf_interface_rules *rules;
    const struct ifaddrs *all;
    char *out;
    bool too_many; /* for `out` */
};

static void add_device(struct devices *devices, const char *name)
{
    size_t len = strlen(devices->out), room = WF_DEVICES_TEXT - len;
    if (strlen(name) + 2 <= room) {
        snprintf(devices->out + len, room, "%s%s", len > 0 ? "," : "", name);
    } else {
        devices->too_many = true;
    }
}

static bool is_allowed(const struct devices *devices, const char *interface)
{
    for (const struct ifaddrs *one = devices->all; one != NULL; one = one->ifa_next) {
        bool ip = one->ifa_addr != NULL &&
                  (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6);
        if (ip && (one->ifa_flags & IFF_UP) != 0 && strcmp(one->ifa_name, interface) == 0 &&
            wf_interfaces_allow(devices->rules, interface, one->ifa_addr)) {
            return true;
        }
    }
    return false;
}

/* True if `visit` is for one of the folder's entries. */
static bool any_entry(const char *path, struct devices *devices, const char *device,
                      bool (*visit)(struct devices *devices, const char *device, const char *name))
{
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        found = (entry->d_name[0] != '.' && visit(devices, device, entry->d_name)) || found;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

static bool behind_allowed(struct devices *devices, const char *device, const char *interface)
{
    (void)device;
    return is_allowed(devices, interface);
}

static bool take_port(struct devices *devices, const char *device, const char *port)
{
    char name[WF_DEVICES_TEXT], path[WF_DEVICES_TEXT];
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    snprintf(name, sizeof name, "%.100s:%.20s", device, port);
    snprintf(path, sizeof path, "/sys/class/infiniband/%.100s/device/net", device);
    bool wanted = wf_interfaces_allow(devices->rules, name, &none) ||
                  wf_interfaces_allow(devices->rules, device, &none) ||
                  any_entry(path, devices, device, behind_allowed);
    if (wanted) {
        add_device(devices, name);
    }
    return wanted;
}

static bool take_rdma(struct devices *devices, const char *unused, const char *device)
{
    char path[WF_DEVICES_TEXT];
    (void)unused;
    snprintf(path, sizeof path, "/sys/class/infiniband/%.100s/ports", device);
    return any_entry(path, devices, device, take_port);
}

static bool take_interface(struct devices *devices, const char *unused, const char *interface)
{
    (void)unused;
    if (is_allowed(devices, interface)) {
        add_device(devices, interface);
        return true;
    }
    return false;
}

enum wf_status wf_reach_devices(const char *interfaces, char out[WF_DEVICES_TEXT],
                                struct wf_error *error)
{
    struct wf_interface_rules rules;
    struct ifaddrs *all = NULL;
    out[0] = '\0';
    enum wf_status status = list_interfaces(interfaces, &rules, &all, error);
    if (status != WF_OK) {
        return status;
    }
    struct devices devices = {&rules, all, out, false};
    any_entry("/sys/class/net", &devices, NULL, take_interface);
    any_entry("/sys/class/infiniband", &devices, NULL, take_rdma);
    freeifaddrs(all);
    if (devices.too_many) {
        return wf_error_set(
            error, WF_INVALID,
            "transport.interfaces \"%.80s\" allows more of this host's devices than "
            "fit into a list of %d bytes: name fewer",
            interfaces, WF_DEVICES_TEXT);
    }
    return out[0] != '\0' ? WF_OK
                          : wf_error_set(error, WF_NOT_FOUND,
                                         "transport.interfaces \"%.80s\" allows none of this "
                                         "host's devices",
                                         interfaces);
}

enum wf_status wf_reach_own(const char *text, char out[WF_ADDRESS_MAX], struct wf_error *error)
{
    struct wf_wire_address address;
    struct wf_wire_targets targets;
    bool by_name = false;
    enum wf_status status = wf_wire_address_parse(text, &address, error);
    if (status != WF_OK || address.is_unix || strcmp(address.host, "*") == 0) {
        snprintf(out, WF_ADDRESS_MAX, "%s", text);
        return status;
    }
    status = targets_of(&address, &targets, &by_name, error);
    if (status != WF_OK || !by_name) {
        snprintf(out, WF_ADDRESS_MAX, "%s", text);
        return status;
    }
    for (unsigned i = 0; i < targets.count; i++) {
        if (!is_loopback(&targets.target[i].any)) {
            wf_wire_address_format(&targets.target[i].any, targets.target[i].len, out);
            return WF_OK;
        }
    }
    return refuse_loopback(address.host, &targets.target[0].any, error);
}
