/* other_transport.h - a transport of another name for tests with several: shm underneath.
 *
 * It can be one that maps nothing ("far": it crosses hosts, needs no descriptor) and one whose
 * imports are refused, as where the system forbids mapping.
 */
#ifndef WEFT_TESTS_ACTORS_OTHER_TRANSPORT_H
#define WEFT_TESTS_ACTORS_OTHER_TRANSPORT_H

#include "transports/transport.h"

struct other_options {
    const char *name;
    bool maps;        /* else: one that crosses hosts */
    bool refuses;     /* imports end with UNSUPPORTED */
    bool exports_bad; /* exports fail */
    bool holds;       /* imports wait for other_transport_go */
    bool holds_read;  /* so does the first read */
};

/* Takes `inner`. Fails the test where it cannot be made. */
struct wf_transport *other_transport_new(struct wf_transport *inner,
                                         const struct other_options *options);
/* Imports that wait. */
unsigned other_transport_held(const struct wf_transport *t);
/* Lets all that waits go, and later ones at once. */
void other_transport_go(struct wf_transport *t);

#endif
