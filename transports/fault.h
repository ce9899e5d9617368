/* fault.h - a transport around another that goes wrong on purpose, for tests and drills.
 *
 * It has the inner transport's name and capabilities, passes everything on, and does to some reads
 * what its faults say. Which reads is drawn from the seed: the same seed, faults and order of reads
 * give the same faults.
 */
#ifndef WEFT_TRANSPORTS_FAULT_H
#define WEFT_TRANSPORTS_FAULT_H

#include "transports/transport.h"

/* FLIP_WIRE    one element arrives with its top bit inverted, before it is cast
 * FLIP_MEMORY  the top bit of one element is inverted where it was written, after the read
 * DELAY        the read begins delay_ns later
 * FAIL         the read ends with CONNECTION and moves nothing
 * DROP         nothing arrives: the read ends by its deadline or by cancel */
#define WF_FAULT_KIND_MAP(X)  \
    X(FLIP_WIRE, "flip_wire") \
    X(FLIP_MEMORY, "flip_memory") X(DELAY, "delay") X(FAIL, "fail") X(DROP, "drop")

enum wf_fault_kind {
#define WF_FAULT_ENUM(name, text) WF_FAULT_##name,
    WF_FAULT_KIND_MAP(WF_FAULT_ENUM)
#undef WF_FAULT_ENUM
        WF_FAULT_KINDS
};

struct wf_fault {
    enum wf_fault_kind kind;
    uint64_t at;          /* the at-th read that has ops, from 1; 0: by chance */
    uint32_t per_million; /* reads, when at is 0 */
    uint64_t delay_ns;    /* DELAY */
};

enum { WF_FAULTS_MAX = 16 };

/* Takes `inner` (closed with it) on success only; copies the faults. `loop` is the inner's. */
enum wf_status wf_transport_fault_new(struct wf_loop *loop, struct wf_transport *inner,
                                      const struct wf_fault *faults, uint32_t count, uint64_t seed,
                                      struct wf_transport **transport_out, struct wf_error *error);
/* "flip_wire"; NULL for a number that is none. */
const char *wf_fault_kind_name(unsigned kind);

#endif
