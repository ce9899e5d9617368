/* network.c - interfaces, names, what TCP reaches inside this host, RDMA devices. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/run/reach.h"

enum {
    BUFFER_BYTES = 1 << 20,
    TCP_PASSES = 192,
    WARM_PASSES = 32,
    INTERFACES_MAX = 64,
    ANY_PORT = 22
};

#define SLOW_BUFFER_BYTES (UINT64_C(4) << 20)

/* --- interfaces ------------------------------------------------------------------------------- */
static void add_address(char *list, size_t size, const struct sockaddr *any)
{
    char text[INET6_ADDRSTRLEN] = "";
    const void *bytes = any->sa_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)any)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)any)->sin6_addr;
    inet_ntop(any->sa_family, bytes, text, sizeof text);
    size_t len = strlen(list);
    snprintf(list + len, size - len, "%s%s", len > 0 ? ", " : "", text);
}

static void look_at_interface(struct wf_doctor *doctor, const char *name, const char *addresses)
{
    char path[120], id[WF_DOCTOR_ID], speed[40] = "speed not told", line[40];
    uint64_t megabits = 0, mtu = 0;
    snprintf(path, sizeof path, "/sys/class/net/%.30s/speed", name);
    bool known = wf_look_number(path, &megabits) && megabits > 0;
    if (known) {
        snprintf(speed, sizeof speed, "%g Gbit/s", (double)megabits * 1e-3);
    }
    snprintf(path, sizeof path, "/sys/class/net/%.30s/mtu", name);
    wf_look_number(path, &mtu);
    snprintf(path, sizeof path, "/sys/class/net/%.30s/operstate", name);
    wf_look_line(path, line, sizeof line);
    bool slow = known && megabits < 10000;
    snprintf(id, sizeof id, "nic.%.30s", name);
    struct wf_finding *finding = wf_doctor_add(
        doctor, id, slow ? WF_DOCTOR_SLOW : WF_DOCTOR_OK, "%s: %s, MTU %llu, %s; %s", name,
        line[0] != '\0' ? line : "state unknown", (unsigned long long)mtu, speed, addresses);
    if (known) {
        wf_doctor_value(finding, (double)megabits * 1e-3, "Gbit/s");
        wf_doctor_costs(finding, "at best %.2f GB/s: 100 GB take %.0f s", (double)megabits / 8000,
                        100 / ((double)megabits / 8000));
    }
    if (!slow) {
        finding->costs[0] = '\0';
    }
}

static bool is_shown(const struct ifaddrs *one)
{
    return one->ifa_addr != NULL && (one->ifa_flags & IFF_UP) != 0 &&
           (one->ifa_flags & IFF_LOOPBACK) == 0 &&
           (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6);
}

static void look_at_interfaces(struct wf_doctor *doctor)
{
    struct ifaddrs *all = NULL;
    unsigned shown = 0;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        char addresses[200] = "";
        bool first = is_shown(one);
        for (const struct ifaddrs *before = all; first && before != one;
             before = before->ifa_next) {
            first = !is_shown(before) || strcmp(before->ifa_name, one->ifa_name) != 0;
        }
        for (const struct ifaddrs *same = one; first && same != NULL; same = same->ifa_next) {
            if (is_shown(same) && strcmp(same->ifa_name, one->ifa_name) == 0) {
                add_address(addresses, sizeof addresses, same->ifa_addr);
            }
        }
        if (first && shown++ < INTERFACES_MAX) {
            look_at_interface(doctor, one->ifa_name, addresses);
        }
    }
    freeifaddrs(all);
    if (shown == 0) {
        struct wf_finding *finding = wf_doctor_add(doctor, "nic", WF_DOCTOR_MISSING,
                                                   "no interface with an address but loopback");
        wf_doctor_costs(finding, "jobs of this host only");
    }
}

/* Asks what a server asks that is told to listen at this host's name. */
static void look_at_name(struct wf_doctor *doctor)
{
    char host[256] = "", listen[300], reached[WF_ADDRESS_MAX];
    struct wf_error error;
    gethostname(host, sizeof host - 1);
    snprintf(listen, sizeof listen, "tcp:%s:%d", host, ANY_PORT);
    bool good = wf_reach_own(listen, reached, &error) == WF_OK;
    if (good) {
        *strrchr(reached, ':') = '\0'; /* the port means nothing here */
        wf_doctor_add(doctor, "host_name", WF_DOCTOR_OK, "this host's name %s is %s", host,
                      reached + strlen("tcp:"));
        return;
    }
    struct wf_finding *finding = wf_doctor_add(doctor, "host_name", WF_DOCTOR_SLOW,
                                               "this host's name %s: %s", host, error.text);
    wf_doctor_costs(finding, "a server that is told to listen at that name is refused");
    wf_doctor_remedy(finding, "write the address in the network into server.listen, or correct "
                              "/etc/hosts");
}

/* --- TCP -------------------------------------------------------------------------------------- */
static _Noreturn void drain(int listener, uint8_t *buffer)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    while (fd >= 0 && read(fd, buffer, BUFFER_BYTES) > 0) {
    }
    _exit(0);
}

/* Bytes a second, the first MBs apart. */
static double push(int fd, const uint8_t *buffer)
{
    uint64_t start = 0;
    for (int i = 0; i < WARM_PASSES + TCP_PASSES; i++) {
        if (i == WARM_PASSES) {
            start = wf_look_now_ns();
        }
        for (size_t sent = 0; sent < BUFFER_BYTES;) {
            ssize_t got = write(fd, buffer + sent, BUFFER_BYTES - sent);
            if (got <= 0) {
                return 0;
            }
            sent += (size_t)got;
        }
    }
    return (double)TCP_PASSES * BUFFER_BYTES / ((double)(wf_look_now_ns() - start) * 1e-9);
}

/* One stream over loopback to a child; `congestion` NULL: the system's choice. 0: failed, and errno
 * says why. */
static double loopback_rate(const char *congestion)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    uint8_t *buffer = calloc(1, BUFFER_BYTES);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    double rate = 0;
    bool good = buffer != NULL && listener >= 0 && fd >= 0 &&
                bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)&at, &len) == 0;
    if (good && congestion != NULL) {
        good = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion,
                          (socklen_t)strlen(congestion)) == 0;
    }
    pid_t pid = good ? fork() : -1;
    if (pid == 0) {
        close(fd); /* or it would wait for its own end */
        drain(listener, buffer);
    }
    if (pid > 0 && connect(fd, (struct sockaddr *)&at, len) == 0) {
        rate = push(fd, buffer);
    }
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (listener >= 0) {
        close(listener);
    }
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    free(buffer);
    errno = saved;
    return rate;
}

static void look_at_tcp(struct wf_doctor *doctor)
{
    char chosen[40] = "unknown", line[120];
    wf_look_line("/proc/sys/net/ipv4/tcp_congestion_control", chosen, sizeof chosen);
    double rate = loopback_rate(NULL);
    int saved = errno;
    double cubic = strcmp(chosen, "cubic") != 0 ? loopback_rate("cubic") : 0;
    bool slow = cubic * 0.85 > rate;
    if (rate <= 0) {
        struct wf_finding *finding = wf_doctor_add(doctor, "tcp", WF_DOCTOR_MISSING,
                                                   "TCP over loopback: %s", strerror(saved));
        wf_doctor_costs(finding, "jobs over unix sockets only");
        return;
    }
    struct wf_finding *finding = wf_doctor_add(
        doctor, "tcp", slow ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
        "TCP over loopback, one stream: %.1f GB/s (congestion control %s)", rate * 1e-9, chosen);
    wf_doctor_value(finding, rate * 1e-9, "GB/s");
    if (slow) {
        wf_doctor_costs(finding, "cubic reaches %.1f GB/s here", cubic * 1e-9);
        wf_doctor_remedy(finding, "compare on your links: sysctl net.ipv4.tcp_congestion_control");
    }
    unsigned long long least, middle, most;
    if (wf_look_line("/proc/sys/net/ipv4/tcp_rmem", line, sizeof line) &&
        sscanf(line, "%llu %llu %llu", &least, &middle, &most) == 3) {
        char size[32];
        wf_look_bytes(most, size);
        bool small = most < SLOW_BUFFER_BYTES;
        finding = wf_doctor_add(doctor, "tcp_buffer", small ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                                "TCP receive buffer grows to %s", size);
        wf_doctor_value(finding, (double)most, "bytes");
        if (small) {
            wf_doctor_costs(finding, "one stream gets at most %.1f GB/s at 1 ms round trip",
                            (double)most * 1e-6);
            wf_doctor_remedy(finding, "sysctl net.ipv4.tcp_rmem=\"4096 131072 33554432\"");
        }
    }
}

/* --- RDMA ------------------------------------------------------------------------------------- */
static void look_at_port(struct wf_doctor *doctor, const char *device, const char *port)
{
    char path[300], state[60], rate[60], layer[40], id[WF_DOCTOR_ID];
    const struct {
        const char *file;
        char *out;
        size_t size;
    } reads[] = {{"state", state, sizeof state},
                 {"rate", rate, sizeof rate},
                 {"link_layer", layer, sizeof layer}};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "/sys/class/infiniband/%.60s/ports/%.20s/%s", device, port,
                 reads[i].file);
        wf_look_line(path, reads[i].out, reads[i].size);
    }
    bool active = strstr(state, "ACTIVE") != NULL;
    snprintf(id, sizeof id, "rdma.%.20s:%.4s", device, port);
    struct wf_finding *finding =
        wf_doctor_add(doctor, id, active ? WF_DOCTOR_OK : WF_DOCTOR_SLOW,
                      "RDMA %s port %s: %s, %s, %s", device, port, layer, state, rate);
    if (!active) {
        wf_doctor_costs(finding, "UCX does not use it");
    }
}

static void each_entry(const char *path, struct wf_doctor *doctor, const char *device,
                       void (*visit)(struct wf_doctor *doctor, const char *device,
                                     const char *name))
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            visit(doctor, device, entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static void look_at_device(struct wf_doctor *doctor, const char *unused, const char *device)
{
    char path[120];
    (void)unused;
    snprintf(path, sizeof path, "/sys/class/infiniband/%.60s/ports", device);
    each_entry(path, doctor, device, look_at_port);
}

static void look_at_rdma(struct wf_doctor *doctor)
{
    uint32_t before = doctor->count;
    each_entry("/sys/class/infiniband", doctor, NULL, look_at_device);
    if (doctor->count == before) {
        struct wf_finding *finding =
            wf_doctor_add(doctor, "rdma", WF_DOCTOR_MISSING, "RDMA: no device");
        wf_doctor_costs(finding, "between hosts weights go by TCP, through both kernels");
    } else if (access("/dev/infiniband", R_OK | X_OK) != 0) {
        struct wf_finding *finding = wf_doctor_add(doctor, "rdma.verbs", WF_DOCTOR_MISSING,
                                                   "/dev/infiniband: %s", strerror(errno));
        wf_doctor_costs(finding, "the RDMA devices cannot be opened; weights go by TCP");
        wf_doctor_remedy(finding, "pass /dev/infiniband to the container");
    }
}

void wf_doctor_network(struct wf_doctor *doctor)
{
    doctor->group = "network";
    look_at_interfaces(doctor);
    look_at_name(doctor);
    look_at_tcp(doctor);
    look_at_rdma(doctor);
}
