/* look.h - what stands at one element of a tensor, by its layout. Pure. */
#ifndef WEFT_TOOLS_LAYOUT_LOOK_H
#define WEFT_TOOLS_LAYOUT_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "models/layout.h"

struct wf_look {
    bool fill;    /* `byte` in all its bytes; else element `element` of parameter `param` */
    uint8_t byte; /* of a fill */
    uint32_t param;
    uint64_t element;
    uint64_t run; /* so many elements from here on follow on both sides, at least 1 */
};

/* False if no piece covers element `index` of the tensor. */
bool wf_layout_look(const struct wf_layout *layout, uint32_t tensor, uint64_t index,
                    struct wf_look *look_out);
/* Elements of all pieces of the tensor together: with every element found once, equal to its size
 * only if no two pieces overlap. */
uint64_t wf_layout_covered(const struct wf_layout *layout, uint32_t tensor);

#endif
