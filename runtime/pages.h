/* pages.h - memory for tables of many megabytes that are filled once: in large pages where the
 * kernel gives them, because faulting small ones in one by one takes longer than filling them. */
#ifndef WEFT_RUNTIME_PAGES_H
#define WEFT_RUNTIME_PAGES_H

#include <stddef.h>

/* As malloc, freed with free; NULL without memory. Any thread. What is small is malloc's; what is
 * large may take up to 2 MiB more than it asks for once it is filled. */
void *wf_pages_alloc(size_t bytes);

#endif
