/* memory.c - shared memory, its limits, huge pages, what a copy costs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "transports/memory.h"

enum { PROBE_BYTES = 64 << 20, COPIES = 5, SMALL_SHM_BYTES = 256 << 20 };

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define LOW_MEMORY_BYTES (UINT64_C(2) << 30)
#define RDMA_LOCK_BYTES (UINT64_C(64) << 30)

static double copy_rate(void *to, const void *from)
{
    double best = 0;
    for (int i = 0; i < COPIES; i++) {
        uint64_t start = wf_look_now_ns();
        memcpy(to, from, PROBE_BYTES);
        double rate = PROBE_BYTES / ((double)(wf_look_now_ns() - start) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}

/* What a group of processes may use, by version 2 or 1 of control groups. */
static bool group_memory(uint64_t *limit_out, uint64_t *used_out)
{
    static const struct {
        const char *limit, *used;
    } files[] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (wf_look_number(files[i].limit, limit_out) && wf_look_number(files[i].used, used_out) &&
            *limit_out < UINT64_C(1) << 60) {
            return true;
        }
    }
    return false;
}

static uint64_t meminfo(const char *key)
{
    char line[120];
    uint64_t kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kilobytes = strtoull(line + strlen(key), NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kilobytes << 10;
}

static void look_at_size(struct wf_doctor *doctor)
{
    uint64_t total = meminfo("MemTotal:"), available = meminfo("MemAvailable:"), limit, used;
    char sizes[2][32];
    wf_look_bytes(total, sizes[0]);
    wf_look_bytes(available, sizes[1]);
    struct wf_finding *finding = wf_doctor_add(
        doctor, "memory", available < LOW_MEMORY_BYTES ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
        "memory: %s available of %s", sizes[1], sizes[0]);
    wf_doctor_value(finding, (double)available, "bytes");
    if (!group_memory(&limit, &used) || limit >= total) {
        return;
    }
    wf_look_bytes(limit, sizes[0]);
    wf_look_bytes(limit > used ? limit - used : 0, sizes[1]);
    bool low = limit < used + LOW_MEMORY_BYTES;
    finding = wf_doctor_add(doctor, "memory.group", low ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                            "control group: %s left of its limit of %s", sizes[1], sizes[0]);
    wf_doctor_value(finding, (double)limit, "bytes");
    wf_doctor_costs(finding,
                    "shared pages count for the group that touched them first; a rank that "
                    "goes beyond the limit is killed");
    wf_doctor_remedy(finding, "allow each rank what docs/operations.md says for its mode");
}

/* A memfd as ranks make them, a second mapping of it, and a copy between the two. */
static void look_at_memfd(struct wf_doctor *doctor)
{
    struct wf_region shared = {.fd = -1}, own = {.fd = -1};
    struct wf_error error;
    if (wf_memory_new("weft-doctor", PROBE_BYTES, false, &own, &error) == WF_OK) {
        void *other = malloc(PROBE_BYTES);
        if (other != NULL) {
            memset(other, 1, PROBE_BYTES);
            doctor->copy_bytes_per_s = copy_rate(other, own.address);
        }
        free(other);
    }
    if (wf_memory_new("weft-doctor", PROBE_BYTES, true, &shared, &error) != WF_OK) {
        struct wf_finding *finding =
            wf_doctor_add(doctor, "memfd", WF_DOCTOR_MISSING, "shared memory: %s", error.text);
        finding->needed = true;
        wf_doctor_costs(finding, "ranks cannot make the buffers that they share with each other");
        wf_doctor_remedy(finding,
                         "allow memfd_create, and files of any size (ulimit -f unlimited)");
        wf_memory_free(&own);
        return;
    }
    void *map = wf_memory_map(shared.fd, 0, PROBE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE);
    double rate = 0;
    if (map != NULL && own.address != NULL) {
        rate = copy_rate(own.address, map);
    }
    struct wf_finding *finding = wf_doctor_add(
        doctor, "memfd", WF_DOCTOR_OK,
        "shared memory: a memfd can be made, sealed and mapped; one thread copies out of it at "
        "%.1f GB/s (between private pages: %.1f GB/s)",
        rate * 1e-9, doctor->copy_bytes_per_s * 1e-9);
    wf_doctor_value(finding, rate * 1e-9, "GB/s");
    finding->needed = true;
    if (map != NULL) {
        munmap(map, PROBE_BYTES);
    }
    wf_memory_free(&shared);
    wf_memory_free(&own);
}

/* "always [madvise] never" is madvise. */
static void chosen_word(const char *line, char *out, size_t size)
{
    const char *open = strchr(line, '['), *end = open != NULL ? strchr(open, ']') : NULL;
    snprintf(out, size, "%.*s", end != NULL ? (int)(end - open - 1) : 0,
             end != NULL ? open + 1 : "");
}

static void look_at_huge_pages(struct wf_doctor *doctor)
{
    static const struct {
        const char *id, *file, *what, *costs;
    } rows[] = {
        {"thp", "enabled", "private memory", "copies are slower and first touches take longer"},
        {"thp.shared", "shmem_enabled", "shared memory",
         "the transfer phase is slower (by 8 % in the measurement that made Weft ask for them)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[120], line[120], word[40];
        snprintf(path, sizeof path, THP "%s", rows[i].file);
        if (!wf_look_line(path, line, sizeof line)) {
            continue;
        }
        chosen_word(line, word, sizeof word);
        bool off = strcmp(word, "never") == 0 || strcmp(word, "deny") == 0;
        struct wf_finding *finding =
            wf_doctor_add(doctor, rows[i].id, off ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                          "huge pages for %s: %s", rows[i].what, word);
        if (off) {
            wf_doctor_costs(finding, "%s", rows[i].costs);
            wf_doctor_remedy(finding, "echo %s > %s", i == 0 ? "madvise" : "advise", path);
        }
    }
}

static void look_at_shm_mount(struct wf_doctor *doctor)
{
    struct statvfs info;
    char sizes[2][32];
    if (statvfs("/dev/shm", &info) != 0) {
        struct wf_finding *finding =
            wf_doctor_add(doctor, "dev_shm", WF_DOCTOR_SLOW, "/dev/shm: %s", strerror(errno));
        wf_doctor_costs(finding, "Weft does not use it; UCX's shared memory and NCCL do");
        return;
    }
    uint64_t all = (uint64_t)info.f_blocks * info.f_frsize;
    uint64_t free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    bool writable = access("/dev/shm", W_OK) == 0, small = free_bytes < SMALL_SHM_BYTES;
    wf_look_bytes(all, sizes[0]);
    wf_look_bytes(free_bytes, sizes[1]);
    struct wf_finding *finding = wf_doctor_add(
        doctor, "dev_shm", writable && !small ? WF_DOCTOR_OK : WF_DOCTOR_SLOW,
        "/dev/shm: %s free of %s%s", sizes[1], sizes[0], writable ? "" : ", not writable");
    wf_doctor_value(finding, (double)free_bytes, "bytes");
    if (!writable || small) {
        wf_doctor_costs(finding, "Weft does not use it; UCX's shared memory and NCCL do, and fail "
                                 "or fall back");
        wf_doctor_remedy(finding, "give containers more (--shm-size, or an emptyDir of medium "
                                  "Memory at /dev/shm)");
    }
}

/* "unlimited", or the size. */
static void limit_text(rlim_t limit, char out[32])
{
    if (limit == RLIM_INFINITY) {
        snprintf(out, 32, "unlimited");
    } else {
        wf_look_bytes(limit, out);
    }
}

static void look_at_limits(struct wf_doctor *doctor)
{
    struct rlimit limit;
    char size[32];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        bool rdma = access("/sys/class/infiniband", F_OK) == 0;
        bool low = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < RDMA_LOCK_BYTES;
        limit_text(limit.rlim_cur, size);
        struct wf_finding *finding =
            wf_doctor_add(doctor, "memlock", low && rdma ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                          "locked memory (ulimit -l): %s%s", size,
                          low && !rdma ? ", which only RDMA would need" : "");
        if (low && rdma) {
            wf_doctor_costs(finding, "RDMA cannot register a rank's weights; UCX then sends in "
                                     "small pieces or by TCP");
            wf_doctor_remedy(finding, "ulimit -l unlimited, LimitMEMLOCK=infinity, or the "
                                      "container's CAP_IPC_LOCK");
        }
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        limit_text(limit.rlim_cur, size);
        struct wf_finding *finding = wf_doctor_add(doctor, "file_size", WF_DOCTOR_SLOW,
                                                   "size of files (ulimit -f): %s", size);
        wf_doctor_costs(finding, "it bounds shared memory too: no buffer can be larger");
        wf_doctor_remedy(finding, "ulimit -f unlimited");
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        limit_text(limit.rlim_cur, size);
        struct wf_finding *finding = wf_doctor_add(doctor, "address_space", WF_DOCTOR_SLOW,
                                                   "address space (ulimit -v): %s", size);
        wf_doctor_costs(finding, "an engine maps its trainers' weights beside its own");
        wf_doctor_remedy(finding, "ulimit -v unlimited");
    }
}

void wf_doctor_memory(struct wf_doctor *doctor)
{
    doctor->group = "memory";
    look_at_size(doctor);
    look_at_memfd(doctor);
    look_at_huge_pages(doctor);
    look_at_shm_mount(doctor);
    look_at_limits(doctor);
}
