/* container.h - from a member back to the struct that it is part of: how a handler that gets its
 * actor, message, timer, job or watch finds the rest. */
#ifndef WEFT_RUNTIME_CONTAINER_H
#define WEFT_RUNTIME_CONTAINER_H

#include <stddef.h>

/* `pointer` to `member` of a `type`: the `type`. */
#define WF_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
