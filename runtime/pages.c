/* pages.c - see pages.h. */
#include "runtime/pages.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 2 << 20, LARGE_BYTES = 2 * PAGE_BYTES };

void *wf_pages_alloc(size_t bytes)
{
    if (bytes < LARGE_BYTES || bytes > (size_t)-1 - PAGE_BYTES) {
        return malloc(bytes);
    }
    size_t whole = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *memory = aligned_alloc(PAGE_BYTES, whole);
    if (memory != NULL) {
        (void)madvise(memory, whole, MADV_HUGEPAGE); /* a hint: may be refused */
    }
    return memory;
}
