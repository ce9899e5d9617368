/* test_pages.c - memory in large pages is memory: whole, aligned where it is large, freed as any.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages.h"

Test(pages, small_and_large_are_filled_and_freed)
{
    static const size_t sizes[] = {1, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *memory = wf_pages_alloc(sizes[i]);
        cr_assert(memory, "%zu", sizes[i]);
        memset(memory, 7, sizes[i]);
        cr_expect(memory[0] == 7 && memory[sizes[i] - 1] == 7);
        bool large = sizes[i] >= 4 << 20;
        cr_expect(!large || (uintptr_t)memory % (2 << 20) == 0, "%zu", sizes[i]);
        free(memory);
    }
}
