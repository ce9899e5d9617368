/* shm.h - what the files of the shared-memory transport share. Private to transports/shm*.c.
 *
 * A read is cut into jobs of at most SHM_JOB_BYTES. The transport has a fixed number of job slots,
 * two for each thread it may use, so that the pool always has the next job while the loop learns of
 * the last; the slots serve the open reads in the order in which they came. A job is at most a few
 * milliseconds, which bounds how long the barrier of a cancel takes.
 *
 *   read: OPEN -(last job issued)-> DRAINING -(no job running)-> done sent
 *   read: OPEN -(job failed, cancel, deadline)-> DRAINING
 */
#ifndef WEFT_TRANSPORTS_SHM_H
#define WEFT_TRANSPORTS_SHM_H

#include <sys/types.h>

#include "transports/transport.h"

enum {
    SHM_JOB_BYTES = 8 << 20,    /* target bytes of one job */
    SHM_JOB_OPS = 4096,         /* ops that one job may touch */
    SHM_PARALLEL_MAX = 64,      /* threads */
    SHM_BOUNCE_BYTES = 1 << 20, /* of each slot, for memory that cannot be mapped */
    SHM_NONCE_BYTES = 16,
    SHM_JOB_DONE = WF_TRANSPORT_OWN,
    SHM_IMPORT_DONE,
};

enum shm_kind { SHM_MEMFD = 1, SHM_PROCESS = 2 };

struct shm_remote {
    struct wf_remote base;
    enum shm_kind kind;
    uint64_t address; /* of the region's first byte: here (MEMFD) or in the source (PROCESS) */
    void *map;        /* MEMFD: the mapping, which begins at a page */
    size_t map_bytes;
    pid_t pid; /* PROCESS */
    uint64_t nonce_address;
    uint8_t nonce[SHM_NONCE_BYTES]; /* proves that the process with that pid is still the source */
    unsigned open_reads;
};

struct shm_job {
    struct wf_job job;
    struct shm_read *read;
    struct shm_job *next_idle;
    uint8_t *bounce;               /* SHM_BOUNCE_BYTES once a PROCESS region is imported */
    uint32_t op, end_op;           /* from element `element` of op ... */
    uint64_t element, end_element; /* ... up to, not including, end_element of end_op */
    enum wf_status status;         /* results */
    uint32_t failed_op;
    uint64_t bytes;
    char text[sizeof((struct wf_read *)0)->text];
};

struct shm_read {
    struct wf_read *read;
    struct shm *shm;
    struct shm_read *next;
    struct wf_timer deadline;
    uint32_t op; /* the next element that no job has */
    uint64_t element;
    unsigned running;
    bool draining; /* no job may be issued any more */
};

struct shm {
    struct wf_transport base;
    struct wf_loop *loop;
    struct wf_actor actor; /* jobs end here */
    struct shm_job *jobs;
    unsigned job_count, remotes, imports; /* imports: open ones */
    struct shm_job *idle;
    struct shm_read *reads; /* open ones, oldest first */
    uint8_t *nonce;         /* own allocation: peers read it */
};

/* shm_import.c */
enum wf_status shm_export_region(struct wf_transport *t, const struct wf_region *region,
                                 struct wf_handle *handle_out, struct wf_error *error);
void shm_import_region(struct wf_transport *t, struct wf_import *import);
void shm_import_ended(struct shm *shm, struct wf_msg *msg); /* SHM_IMPORT_DONE came */
void shm_release_region(struct wf_transport *t, struct wf_remote *remote);

/* shm_copy.c: the work of a job; any thread. */
void shm_job_work(struct wf_job *job);
/* Reads `len_bytes` from the source's `address`, at most SHM_BOUNCE_BYTES, after the proof that it
 * still is the source. */
enum wf_status shm_process_read(const struct shm_remote *remote, uint64_t address, void *into,
                                size_t len_bytes, struct wf_error *error);

#endif
