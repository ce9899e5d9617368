/* memory.c - claims memory by mapping and touching it once. */
#include "transports/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Needs Linux 5.14; older headers and kernels lack it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
/* Needs Linux 6.1. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const uint64_t huge_bytes = 2 << 20; /* where it is another size nothing is gained or lost */

static enum wf_status no_memory(struct wf_error *error, const char *name, uint64_t len_bytes,
                                const char *what)
{
    return wf_error_set(error, WF_NO_MEMORY, "cannot claim %llu bytes for %s: %s: %s; %s",
                        (unsigned long long)len_bytes, name, what, strerror(errno),
                        errno == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                                       : "free memory, raise the limit of the control group, or "
                                         "use fewer ranks on this host");
}

/* Populating reports a full mount or group as an error, where a plain store would be a signal. */
static int touch(void *address, uint64_t len_bytes)
{
    if (madvise(address, len_bytes, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -1;
    }
    long page = sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < len_bytes; at += (uint64_t)page) {
        ((volatile uint8_t *)address)[at] = 0;
    }
    return 0;
}

/* Reserves more than is needed, to choose the address. */
void *wf_memory_map(int fd, uint64_t offset, uint64_t len_bytes, int protection, int flags)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (len_bytes == 0 || len_bytes > INT64_MAX - huge_bytes - page) {
        errno = EINVAL;
        return NULL;
    }
    uint64_t mapped = (len_bytes + page - 1) / page * page, reserved = mapped + huge_bytes;
    uint8_t *room =
        mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return NULL;
    }
    uint64_t skip = (offset - (uint64_t)(uintptr_t)room) % huge_bytes;
    void *address = mmap(room + skip, len_bytes, protection, flags | MAP_FIXED, fd, (off_t)offset);
    if (address == MAP_FAILED) {
        int why = errno;
        munmap(room, reserved);
        errno = why;
        return NULL;
    }
    if (skip > 0) {
        munmap(room, skip);
    }
    munmap(room + skip + mapped, reserved - skip - mapped);
    return address;
}

static enum wf_status map_and_touch(struct wf_region *region, const char *name,
                                    struct wf_error *error)
{
    int flags = region->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *address = wf_memory_map(region->fd, 0, region->len_bytes, PROT_READ | PROT_WRITE, flags);
    if (address == NULL) {
        return no_memory(error, name, region->len_bytes, "mmap");
    }
    if (region->fd < 0) {
        (void)madvise(address, region->len_bytes, MADV_HUGEPAGE); /* a hint: may be refused */
    }
    if (touch(address, region->len_bytes) != 0) {
        enum wf_status status = no_memory(error, name, region->len_bytes, "touching it");
        munmap(address, region->len_bytes);
        return status;
    }
    if (region->fd >= 0) {
        /* Hosts rarely give a memfd huge pages by themselves, but gather them when asked; a hint.
         */
        (void)madvise(address, region->len_bytes, MADV_COLLAPSE);
    }
    region->address = address;
    return WF_OK;
}

enum wf_status wf_memory_new(const char *name, uint64_t len_bytes, bool shareable,
                             struct wf_region *region_out, struct wf_error *error)
{
    WF_ASSERT(len_bytes > 0);
    if (len_bytes > INT64_MAX) {
        errno = EFBIG;
        return no_memory(error, name, len_bytes, "its size");
    }
    struct wf_region region = {.memory = WF_MEMORY_HOST, .len_bytes = len_bytes, .fd = -1};
    if (shareable) {
        region.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (region.fd < 0) {
            return no_memory(error, name, len_bytes, "memfd_create");
        }
        if (ftruncate(region.fd, (off_t)len_bytes) != 0 ||
            fcntl(region.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
            enum wf_status status = no_memory(error, name, len_bytes, "sizing the memfd");
            close(region.fd);
            return status;
        }
    }
    enum wf_status status = map_and_touch(&region, name, error);
    if (status != WF_OK) {
        if (region.fd >= 0) {
            close(region.fd);
        }
        return status;
    }
    *region_out = region;
    return WF_OK;
}

void wf_memory_free(struct wf_region *region)
{
    if (region->address != NULL) {
        munmap(region->address, region->len_bytes);
        if (region->fd >= 0) {
            close(region->fd);
        }
    }
    memset(region, 0, sizeof *region);
    region->fd = -1;
}

struct retired {
    struct wf_job job;
    struct wf_region region;
};

/* Pool thread. */
static void retire(struct wf_job *job)
{
    struct retired *retired = WF_CONTAINER(job, struct retired, job);
    wf_memory_free(&retired->region);
    free(retired);
}

void wf_memory_retire(struct wf_env *env, struct wf_region *region)
{
    struct retired *retired = region->address != NULL ? calloc(1, sizeof *retired) : NULL;
    if (retired == NULL) {
        wf_memory_free(region);
        return;
    }
    retired->job.work = retire;
    retired->job.name = "unmap";
    retired->region = *region;
    *region = (struct wf_region){.fd = -1};
    env->ops->job(env, &retired->job);
}
