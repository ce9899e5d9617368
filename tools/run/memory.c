/* memory.c - one memfd or anonymous mapping with all tensors of a rank. */
#include "tools/run/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + WF_TENSOR_ALIGN - 1) / WF_TENSOR_ALIGN * WF_TENSOR_ALIGN;
}

/* A memfd of fixed size; fallocate claims its pages, so that a full /dev/shm is an error here and
 * not a SIGBUS later. */
static enum wf_status make_memfd(uint64_t bytes, int *fd_out, struct wf_error *error)
{
    int fd = memfd_create("weft-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make shared memory: %s",
                            strerror(errno));
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        enum wf_status status =
            wf_error_set(error, WF_NO_RESOURCE, "cannot claim %llu bytes of shared memory: %s; %s",
                         (unsigned long long)bytes, strerror(errno),
                         errno == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                                        : "free memory or raise the limit of this container");
        close(fd);
        return status;
    }
    *fd_out = fd;
    return WF_OK;
}

static void place_tensors(const struct wf_layout *layout, struct wf_run_memory *memory)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        struct wf_rank_tensor *placed = &memory->tensors[i];
        placed->live.name = tensor->name;
        placed->live.dtype = tensor->dtype;
        placed->live.ndim = tensor->ndim;
        int64_t stride = 1;
        for (uint32_t d = tensor->ndim; d-- > 0;) {
            placed->live.shape[d] = tensor->shape[d];
            placed->live.strides[d] = stride;
            stride *= (int64_t)tensor->shape[d];
        }
        placed->address = (uint8_t *)memory->region.address + offset;
        placed->offset = offset;
        offset += aligned(tensor->bytes);
    }
}

enum wf_status wf_run_memory_new(const struct wf_layout *layout, bool shared,
                                 struct wf_run_memory *memory_out, struct wf_error *error)
{
    uint64_t bytes = WF_TENSOR_ALIGN;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        bytes += aligned(layout->tensors[i].bytes);
    }
    struct wf_run_memory memory = {.region = {.memory = WF_MEMORY_HOST, .fd = -1}};
    if (shared) {
        enum wf_status status = make_memfd(bytes, &memory.region.fd, error);
        if (status != WF_OK) {
            return status;
        }
    }
    int flags = (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE;
    memory.region.len_bytes = bytes;
    memory.region.address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, memory.region.fd, 0);
    if (memory.region.address == MAP_FAILED) {
        enum wf_status status =
            wf_error_set(error, WF_NO_MEMORY, "cannot map %llu bytes for the weights: %s",
                         (unsigned long long)bytes, strerror(errno));
        if (memory.region.fd >= 0) {
            close(memory.region.fd);
        }
        return status;
    }
    memory.tensor_count = layout->tensor_count;
    memory.tensors = calloc(layout->tensor_count + 1, sizeof *memory.tensors);
    WF_ASSERT(memory.tensors != NULL);
    place_tensors(layout, &memory);
    *memory_out = memory;
    return WF_OK;
}

void wf_run_memory_fini(struct wf_run_memory *memory)
{
    if (memory->region.address != NULL) {
        munmap(memory->region.address, memory->region.len_bytes);
    }
    if (memory->tensors != NULL && memory->region.fd >= 0) {
        close(memory->region.fd);
    }
    free(memory->tensors);
    memset(memory, 0, sizeof *memory);
}

uint64_t wf_run_own_bytes(uint64_t memfd_bytes)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib * 1024 + memfd_bytes;
}
