/* parent_hosts.c - the supervisor's processes on other hosts (weft run --hosts). */
#include "tools/run/parent_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/wire_address.h"
#include "tools/run/reach.h"

enum { ANY_PORT = 22 }; /* only a route is asked for; nothing is sent */

const struct wf_run_host *wf_parent_host_of(const struct parent *p, const struct wf_child *child)
{
    const struct wf_hosts *hosts = p->options->hosts;
    if (hosts == NULL || child->kind == WF_CHILD_SERVER) {
        return NULL;
    }
    if (child->kind == WF_CHILD_READER) {
        return wf_hosts_engine(hosts, p->setup, child->number);
    }
    uint32_t at =
        child->kind == WF_CHILD_TRAIN ? hosts->train[child->number] : hosts->infer[child->number];
    return &hosts->hosts[at];
}

/* An engine that keeps versions serves nobody; of one that nobody knows no reader can tell what it
 * reads. */
static bool is_readable(const struct parent *p, uint32_t engine)
{
    const char *group = NULL;
    for (uint32_t i = 0; i < p->setup->infer_ranks; i++) {
        struct wf_run_place place = wf_run_place(p->setup, i);
        group = place.engine == engine ? p->setup->job.infer[place.group].name : group;
    }
    for (uint32_t i = 0; i < p->report.check_count; i++) {
        if (p->checks[i].group == group) {
            return p->checks[i].knows;
        }
    }
    return false;
}

bool wf_parent_reads(const struct parent *p, uint32_t engine)
{
    if (!is_readable(p, engine)) {
        return false;
    }
    return p->options->hosts == NULL ||
           wf_hosts_engine(p->options->hosts, p->setup, engine) != NULL;
}

static void far_said(void *user, const char *host, const char *line)
{
    struct parent *p = user;
    wf_progress_clear(&p->progress);
    fprintf(stderr, "[%s] %s\n", host, line);
}

enum wf_status wf_parent_start_far(struct parent *p, struct wf_child *child,
                                   const struct wf_run_host *host, const char **arguments,
                                   struct wf_error *error)
{
    char job[PATH_MAX];
    int n = 0;
    if (realpath(arguments[1], job) == NULL) {
        return wf_error_set(error, WF_IO, "%s: the job file is gone", arguments[1]);
    }
    arguments[1] = job; /* the same path there, whatever folder the shell begins in */
    while (arguments[n] != NULL) {
        n++;
    }
    arguments[n++] = "--gate-stdin";
    arguments[n++] = "--host-name";
    arguments[n++] = host->name;
    arguments[n] = NULL;
    if (p->far == NULL) {
        p->far = calloc(p->children.count, sizeof *p->far);
        WF_ASSERT(p->far != NULL);
    }
    struct wf_far_output *output = &p->far[child - p->children.children];
    output->said = far_said;
    output->user = p;
    return wf_far_start(&p->children, child, host, arguments, &p->token, output, error);
}

void wf_parent_end_far(struct parent *p)
{
    for (uint32_t i = 0; p->far != NULL && i < p->children.count; i++) {
        wf_far_output_fini(&p->far[i]);
    }
    free(p->far);
    p->far = NULL;
}

/* The first host that is not this one, as the wire would name it; false: there is none. */
static bool far_address(const struct wf_hosts *hosts, char out[WF_ADDRESS_MAX], const char **name)
{
    for (uint32_t i = 0; i < hosts->count; i++) {
        if (!hosts->hosts[i].local && hosts->hosts[i].placed > 0) {
            const char *address = hosts->hosts[i].address, *at = strchr(address, '@');
            address = at != NULL ? at + 1 : address;
            bool six = strchr(address, ':') != NULL;
            snprintf(out, WF_ADDRESS_MAX, "tcp:%s%.250s%s:%d", six ? "[" : "", address,
                     six ? "]" : "", ANY_PORT);
            *name = hosts->hosts[i].name;
            return true;
        }
    }
    return false;
}

enum wf_status wf_parent_far_listen(struct parent *p, char listen_out[WF_ADDRESS_MAX],
                                    struct wf_error *error)
{
    const char *given = p->setup->job.server.listen, *name = NULL;
    char far[WF_ADDRESS_MAX];
    listen_out[0] = '\0';
    if (p->options->hosts == NULL || !far_address(p->options->hosts, far, &name)) {
        return WF_OK;
    }
    if (given[0] != '\0') {
        return wf_reach_own(given, listen_out, error);
    }
    enum wf_status status =
        wf_reach_listen(far, p->setup->job.transport.interfaces, listen_out, error);
    if (status != WF_OK) {
        wf_error_prefix(
            error, "which address of this host reaches %s? Say it: server.listen: HOST:PORT", name);
    }
    return status;
}

enum wf_status wf_parent_far_server(struct parent *p, const char *bound, struct wf_error *error)
{
    struct wf_wire_address address, reaches;
    char far[WF_ADDRESS_MAX], here[WF_ADDRESS_MAX];
    const char *name = NULL;
    if (p->options->hosts == NULL || !far_address(p->options->hosts, far, &name)) {
        return WF_OK;
    }
    enum wf_status status = wf_wire_address_parse(bound, &address, error);
    if (status == WF_OK && address.is_unix) {
        return wf_error_set(error, WF_INVALID,
                            "server.listen: %s cannot be reached from %s; expected HOST:PORT",
                            bound, name);
    }
    bool any = strcmp(address.host, "0.0.0.0") == 0 || strcmp(address.host, "::") == 0;
    if (status != WF_OK || !any) {
        return status;
    }
    status = wf_reach_listen(far, p->setup->job.transport.interfaces, here, error);
    if (status == WF_OK) {
        status = wf_wire_address_parse(here, &reaches, error);
    }
    if (status == WF_OK) {
        bool six = strchr(reaches.host, ':') != NULL;
        snprintf(p->server, sizeof p->server, "tcp:%s%.250s%s:%u", six ? "[" : "", reaches.host,
                 six ? "]" : "", address.port);
    }
    return status;
}
