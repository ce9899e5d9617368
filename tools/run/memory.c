/* memory.c - one memfd or anonymous mapping with all tensors of a rank. */
#include "tools/run/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/memory.h"

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + WF_TENSOR_ALIGN - 1) / WF_TENSOR_ALIGN * WF_TENSOR_ALIGN;
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
        for (uint32_t d = tensor->ndim; d-- > 0;) {
            placed->live.shape[d] = tensor->shape[d];
            placed->live.strides[d] = tensor->strides[d];
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
    struct wf_run_memory memory = {0};
    enum wf_status status = wf_memory_new("weft-weights", bytes, shared, &memory.region, error);
    if (status != WF_OK) {
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
    wf_memory_free(&memory->region);
    free(memory->tensors);
    memset(memory, 0, sizeof *memory);
}

/* Bytes of memfds that this process made: it alone maps them writable. */
static uint64_t own_memfd_bytes(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    uint64_t bytes = 0;
    char line[512];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long long first, end;
        char rights[8];
        if (strstr(line, "/memfd:weft-") != NULL &&
            sscanf(line, "%llx-%llx %7s", &first, &end, rights) == 3 && rights[1] == 'w') {
            bytes += end - first;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return bytes;
}

uint64_t wf_run_own_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
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
    return kib * 1024 + own_memfd_bytes();
}
