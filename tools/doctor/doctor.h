/* doctor.h - what this host offers Weft, what of it would be slow, and why.
 *
 * A finding is one line: something is ok, slow (works, at a price) or missing, with the figure that
 * was measured or read, what that costs, and what to do. Probes look at the thing itself: they make
 * the call, on the peer they would make it on, and measure for some milliseconds; nothing on the
 * host is changed and no privileges are needed. One probe a subject, one file a group of probes.
 */
#ifndef WEFT_TOOLS_DOCTOR_DOCTOR_H
#define WEFT_TOOLS_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/status.h"

enum wf_doctor_state { WF_DOCTOR_OK, WF_DOCTOR_SLOW, WF_DOCTOR_MISSING };

enum { WF_DOCTOR_ID = 40, WF_DOCTOR_TEXT = 400 };

struct wf_finding {
    const char *group;     /* "memory" */
    char id[WF_DOCTOR_ID]; /* for scripts: "memfd", "nic.eth0" */
    enum wf_doctor_state state;
    bool needed;  /* no job runs where this is missing */
    double value; /* the figure, in `unit`; meaningless where unit is NULL */
    const char *unit;
    char found[WF_DOCTOR_TEXT]; /* a phrase, with the figure */
    char costs[WF_DOCTOR_TEXT]; /* "" where it costs nothing */
    char remedy[WF_DOCTOR_TEXT];
};

struct wf_doctor {
    struct wf_finding *findings;
    uint32_t count;
    const char *group;       /* of the findings that are added now */
    double copy_bytes_per_s; /* of one thread over warm pages; 0: not measured yet */
};

/* Adds a finding; valid until the next is added. `format` is the phrase. */
struct wf_finding *wf_doctor_add(struct wf_doctor *doctor, const char *id,
                                 enum wf_doctor_state state, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void wf_doctor_costs(struct wf_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void wf_doctor_remedy(struct wf_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void wf_doctor_value(struct wf_finding *finding, double value, const char *unit);
void wf_doctor_fini(struct wf_doctor *doctor);

/* The probes, in the order of the report. */
void wf_doctor_memory(struct wf_doctor *doctor);
void wf_doctor_processes(struct wf_doctor *doctor);
void wf_doctor_cores(struct wf_doctor *doctor);
void wf_doctor_network(struct wf_doctor *doctor);
void wf_doctor_libraries(struct wf_doctor *doctor);
void wf_doctor_disk(struct wf_doctor *doctor);

/* For a terminal of 80 columns. */
void wf_doctor_print(const struct wf_doctor *doctor, FILE *out);
void wf_doctor_write_json(FILE *out, const void *doctor); /* of struct wf_doctor */
/* Something without which no job runs is missing. */
bool wf_doctor_unfit(const struct wf_doctor *doctor);

/* --- look.c: what several probes need */
/* The first line of a file into out, "" if it cannot be read; false then. */
bool wf_look_line(const char *path, char *out, size_t size);
/* A number at the start of the file's first line. */
bool wf_look_number(const char *path, uint64_t *out);
/* "24.0 GB", "64 KB" */
void wf_look_bytes(uint64_t bytes, char out[32]);
uint64_t wf_look_now_ns(void);

#endif
