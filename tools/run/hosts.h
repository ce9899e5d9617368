/* hosts.h - which ranks of a job go to which hosts of a list. Pure.
 *
 * The list has one host a line, `#` begins a comment:
 *
 *   NAME [slots=N] [side=train|infer] [address=A]
 *
 * NAME is what the host is called in the job (a second line of a name is refused); A is what the
 * remote shell connects to (default NAME); N bounds the ranks placed there; `side` keeps the host
 * for one side. The name localhost is this host, where processes are started without a remote
 * shell.
 *
 * Train ranks fill the hosts in the list's order, in blocks: as many as the slots allow, or an
 * equal share where no slots are given. An engine goes whole to the host with the most room; only
 * where no host has room for all of it are its ranks spread, in order.
 */
#ifndef WEFT_TOOLS_RUN_HOSTS_H
#define WEFT_TOOLS_RUN_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/round.h"
#include "runtime/env.h"
#include "tools/run/setup.h"

enum { WF_HOSTS_MAX = 1024, WF_HOSTS_BYTES_MAX = 256 << 10 };

struct wf_run_host {
    char name[WF_HOST_MAX];
    char address[WF_ADDRESS_MAX]; /* of the remote shell */
    bool local;
    bool takes[2];   /* by enum wf_side */
    uint32_t slots;  /* 0: no bound */
    uint32_t placed; /* ranks */
};

struct wf_hosts {
    struct wf_run_host *hosts;
    uint32_t count;
    uint32_t *train, *infer; /* the host of each rank */
};

/* INVALID, with the line's number: it makes no sense, names a host twice, ... */
enum wf_status wf_hosts_parse(const char *text, size_t len, struct wf_hosts *hosts_out,
                              struct wf_error *error);
/* The same from a file, IO if it cannot be read; errors begin with its path. */
enum wf_status wf_hosts_load(const char *path, struct wf_hosts *hosts_out, struct wf_error *error);
/* INVALID: there is too little room. */
enum wf_status wf_hosts_place(struct wf_hosts *hosts, const struct wf_run_setup *setup,
                              struct wf_error *error);
/* The host of an engine, or NULL if its ranks are on several. */
const struct wf_run_host *wf_hosts_engine(const struct wf_hosts *hosts,
                                          const struct wf_run_setup *setup, uint32_t engine);
void wf_hosts_fini(struct wf_hosts *hosts);

#endif
