/* sim.c - reads between simulated ranks, slice by slice in virtual time. */
#include "transports/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/copy.h"
#include "transports/read_check.h"

enum {
    SLICES_MIN = 2,
    SLICES_MAX = 5,
    HANDLE_BYTES = 12,
    DEFAULT_BYTES_PER_US = 10000,
};
#define DEFAULT_LATENCY_MAX_NS UINT64_C(200000)
#define DEFAULT_STALL_MAX_NS UINT64_C(1000000000)

static const uint8_t handle_magic[4] = {'W', 'S', 'I', 'M'};

struct sim_transport {
    struct wf_transport base; /* first */
    struct wf_loop *loop;
    struct wf_sim *sim;
    uint32_t rank;
    struct wf_sim_link_options options;
    struct sim_read *reads; /* open ones, newest first */
    struct sim_import *imports;
};

struct sim_remote {
    struct wf_remote base; /* first */
    uint64_t region;
};

struct sim_import {
    struct wf_sim_call call; /* first */
    struct sim_transport *transport;
    struct wf_import *import;
    struct sim_import *prev, *next;
};

struct sim_read {
    struct wf_sim_call call; /* first */
    struct sim_transport *transport;
    struct wf_read *read;
    struct sim_read *prev, *next;
    uint32_t slices, taken, turn;
    uint64_t bytes; /* of all ops, target dtype */
};

static struct sim_transport *of_base(struct wf_transport *t)
{
    return (struct sim_transport *)t;
}

static void finish(struct sim_read *open)
{
    struct wf_read *read = open->read;
    *(open->prev != NULL ? &open->prev->next : &open->transport->reads) = open->next;
    if (open->next != NULL) {
        open->next->prev = open->prev;
    }
    read->transport_data = NULL;
    free(open);
    wf_send(read->owner, &read->done);
}

/* --- one slice ---------------------------------------------------------------------------------
 */
static bool fault(struct sim_transport *t, uint32_t per_million)
{
    return wf_sim_faults(t->sim) && wf_sim_chance(t->sim, per_million);
}

static void copy_slice_of_op(struct sim_read *open, uint32_t index, const void *source)
{
    struct wf_read *read = open->read;
    const struct wf_op *op = &read->ops[index];
    const struct wf_read_source *src = &read->src[op->src_tensor];
    const struct wf_read_target *dst = &read->dst[op->dst_tensor];
    uint64_t n = op->box.elements, slice = (open->taken + index + open->turn) % open->slices;
    struct wf_copy_part part = {.first = n / open->slices * slice};
    part.count = slice + 1 == open->slices ? n - part.first : n / open->slices;
    if (part.count > 0) {
        wf_copy_box(&op->box, (const uint8_t *)source + src->offset, src->dtype, dst->address,
                    dst->dtype, part);
        read->bytes += part.count * wf_dtype_bytes(dst->dtype);
    }
}

/* Spoils the first target byte of a drawn op. */
static void corrupt(struct sim_read *open)
{
    const struct wf_read *read = open->read;
    const struct wf_op *op = &read->ops[wf_sim_choose(open->transport->sim, read->op_count)];
    uint8_t *byte = (uint8_t *)read->dst[op->dst_tensor].address + op->box.dst_offset;
    *byte ^= (uint8_t)(1 + wf_sim_choose(open->transport->sim, UINT8_MAX));
}

static void take_slice(struct sim_read *open)
{
    struct sim_transport *t = open->transport;
    struct wf_read *read = open->read;
    for (uint32_t i = 0; i < read->op_count; i++) {
        const struct wf_read_source *src = &read->src[read->ops[i].src_tensor];
        const void *source = NULL;
        uint64_t len = 0;
        if (!wf_sim_region_find(t->sim, ((struct sim_remote *)src->remote)->region, &source,
                                &len)) {
            wf_read_fail(read, WF_PEER_LOST, i, "the source is dead or withdrew its memory");
            return;
        }
        copy_slice_of_op(open, i, source);
    }
    if (read->op_count > 0 && fault(t, t->options.corrupt_per_million)) {
        corrupt(open);
    }
    open->taken++;
}

/* --- a read's course ---------------------------------------------------------------------------
 */
static uint64_t now_ns(const struct sim_transport *t)
{
    struct wf_env *env = wf_loop_env(t->loop);
    return env->ops->now_ns(env);
}

static void schedule(struct sim_read *open)
{
    struct sim_transport *t = open->transport;
    const struct wf_sim_link_options *o = &t->options;
    uint64_t delay = wf_sim_range(t->sim, o->latency_min_ns, o->latency_max_ns) +
                     open->bytes / open->slices * 1000 / o->bytes_per_us;
    if (fault(t, o->stall_per_million)) {
        delay += wf_sim_choose(t->sim, o->stall_max_ns);
    }
    uint64_t now = now_ns(t), deadline = open->read->deadline_ns;
    uint64_t left = deadline > now ? deadline - now : 0;
    wf_sim_call_after(t->sim, t->rank, delay < left ? delay : left, &open->call);
}

static void read_step(struct wf_sim_call *call)
{
    struct sim_read *open = (struct sim_read *)call;
    struct sim_transport *t = open->transport;
    struct wf_read *read = open->read;
    if (now_ns(t) >= read->deadline_ns) {
        wf_read_fail(read, WF_TIMED_OUT, open->taken == 0 && read->op_count > 0 ? 0 : UINT32_MAX,
                     "the deadline passed");
    }
    if (read->status != WF_OK) {
        /* Cancelled or late: what was on its way may still land, but not after done. */
        if (open->taken < open->slices && wf_sim_choose(t->sim, 2) == 0) {
            take_slice(open);
        }
        finish(open);
        return;
    }
    if (fault(t, t->options.fail_per_million)) {
        wf_read_fail(read, WF_CONNECTION, UINT32_MAX, "the simulated link broke");
    } else {
        take_slice(open);
    }
    if (read->status != WF_OK || open->taken == open->slices) {
        finish(open);
    } else {
        schedule(open);
    }
}

static void read_lost(struct wf_sim_call *call)
{
    struct sim_read *open = (struct sim_read *)call;
    wf_read_fail(open->read, WF_CANCELLED, UINT32_MAX, "this simulated rank is dead");
    finish(open);
}

static void sim_read_start(struct wf_transport *base, struct wf_read *read)
{
    struct sim_transport *t = of_base(base);
    if (!wf_read_begin(base, read, now_ns(t))) {
        wf_send(read->owner, &read->done);
        return;
    }
    struct sim_read *open = calloc(1, sizeof *open);
    WF_ASSERT(open != NULL);
    open->call.run = read_step;
    open->call.lost = read_lost;
    open->transport = t;
    open->read = read;
    open->slices = (uint32_t)wf_sim_range(t->sim, SLICES_MIN, SLICES_MAX);
    open->turn = (uint32_t)wf_sim_choose(t->sim, SLICES_MAX);
    for (uint32_t i = 0; i < read->op_count; i++) {
        open->bytes +=
            read->ops[i].box.elements * wf_dtype_bytes(read->dst[read->ops[i].dst_tensor].dtype);
    }
    open->next = t->reads;
    if (open->next != NULL) {
        open->next->prev = open;
    }
    t->reads = open;
    read->transport_data = open;
    schedule(open);
}

static void sim_read_cancel(struct wf_transport *base, struct wf_read *read)
{
    struct sim_transport *t = of_base(base);
    struct sim_read *open = read->transport_data;
    if (open == NULL || read->status != WF_OK) {
        return;
    }
    wf_read_fail(read, WF_CANCELLED, UINT32_MAX, "cancelled");
    wf_sim_call_cancel(t->sim, &open->call);
    wf_sim_call_after(t->sim, t->rank,
                      wf_sim_range(t->sim, t->options.latency_min_ns, t->options.latency_max_ns),
                      &open->call);
}

/* --- regions -----------------------------------------------------------------------------------
 */
static enum wf_status sim_export(struct wf_transport *base, const struct wf_region *region,
                                 struct wf_handle *handle_out, struct wf_error *error)
{
    struct sim_transport *t = of_base(base);
    if (region->memory != WF_MEMORY_HOST || region->address == NULL || region->len_bytes == 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "simulated ranks export host memory of at least one byte");
    }
    uint64_t id = wf_sim_region_add(t->sim, t->rank, region->address, region->len_bytes);
    *handle_out = (struct wf_handle){.len = HANDLE_BYTES, .fd = -1};
    memcpy(handle_out->bytes, handle_magic, sizeof handle_magic);
    for (size_t i = 0; i < sizeof id; i++) {
        handle_out->bytes[sizeof handle_magic + i] = (uint8_t)(id >> (8 * i));
    }
    return WF_OK;
}

/* The region that a handle names, or 0. */
static uint64_t handle_region(const struct wf_handle *handle)
{
    if (handle->len != HANDLE_BYTES || memcmp(handle->bytes, handle_magic, sizeof handle_magic)) {
        return 0;
    }
    uint64_t id = 0;
    for (size_t i = sizeof id; i > 0; i--) {
        id = id << 8 | handle->bytes[sizeof handle_magic + i - 1];
    }
    return id;
}

static void sim_withdraw(struct wf_transport *base, const struct wf_handle *handle)
{
    wf_sim_region_remove(of_base(base)->sim, handle_region(handle));
}

static enum wf_status import_checked(struct sim_transport *t, struct wf_import *import)
{
    const void *address = NULL;
    uint64_t region = handle_region(&import->handle), region_bytes = 0;
    if (region == 0) {
        return wf_error_set(&import->error, WF_INVALID,
                            "expected a handle of the sim transport, found %u bytes of another",
                            import->handle.len);
    }
    if (!wf_sim_region_find(t->sim, region, &address, &region_bytes)) {
        return wf_error_set(&import->error, WF_PEER_LOST,
                            "the source is dead or withdrew its memory");
    }
    if (import->len_bytes != region_bytes) {
        return wf_error_set(
            &import->error, WF_INVALID, "expected a region of %llu bytes, found %llu",
            (unsigned long long)import->len_bytes, (unsigned long long)region_bytes);
    }
    struct sim_remote *remote = calloc(1, sizeof *remote);
    WF_ASSERT(remote != NULL);
    remote->base = (struct wf_remote){.transport = &t->base, .len_bytes = import->len_bytes};
    remote->region = region;
    import->remote = &remote->base;
    return WF_OK;
}

static void import_end(struct sim_import *open)
{
    struct wf_import *import = open->import;
    *(open->prev != NULL ? &open->prev->next : &open->transport->imports) = open->next;
    if (open->next != NULL) {
        open->next->prev = open->prev;
    }
    free(open);
    wf_send(import->owner, &import->done);
}

static void import_run(struct wf_sim_call *call)
{
    struct sim_import *open = (struct sim_import *)call;
    open->import->status = import_checked(open->transport, open->import);
    import_end(open);
}

static void import_lost(struct wf_sim_call *call)
{
    struct sim_import *open = (struct sim_import *)call;
    open->import->status =
        wf_error_set(&open->import->error, WF_CANCELLED, "this simulated rank is dead");
    import_end(open);
}

static void sim_import(struct wf_transport *base, struct wf_import *import)
{
    struct sim_transport *t = of_base(base);
    if (import->handle.fd >= 0) {
        close(import->handle.fd);
        import->handle.fd = -1;
    }
    import->remote = NULL;
    struct sim_import *open = calloc(1, sizeof *open);
    WF_ASSERT(open != NULL);
    open->call.run = import_run;
    open->call.lost = import_lost;
    open->transport = t;
    open->import = import;
    open->next = t->imports;
    if (open->next != NULL) {
        open->next->prev = open;
    }
    t->imports = open;
    wf_sim_call_after(t->sim, t->rank,
                      wf_sim_range(t->sim, t->options.latency_min_ns, t->options.latency_max_ns),
                      &open->call);
}

static void sim_release(struct wf_transport *base, struct wf_remote *remote)
{
    WF_ASSERT(remote->transport == base);
    free(remote);
}

static void sim_close(struct wf_transport *base)
{
    struct sim_transport *t = of_base(base);
    WF_ASSERT((t->reads == NULL && t->imports == NULL) || !wf_sim_rank_is_alive(t->sim, t->rank));
    for (struct sim_import *open; (open = t->imports) != NULL;) {
        t->imports = open->next;
        wf_sim_call_cancel(t->sim, &open->call);
        free(open);
    }
    for (struct sim_read *open; (open = t->reads) != NULL;) {
        t->reads = open->next;
        wf_sim_call_cancel(t->sim, &open->call);
        free(open);
    }
    free(t);
}

static const struct wf_transport_ops sim_transport_ops = {
    .name = "sim",
    .caps = WF_CAP_GET | WF_CAP_CAST,
    .export_region = sim_export,
    .withdraw_region = sim_withdraw,
    .import_region = sim_import,
    .release_region = sim_release,
    .read = sim_read_start,
    .cancel = sim_read_cancel,
    .close = sim_close,
};

enum wf_status wf_transport_sim_new(struct wf_loop *loop, const struct wf_sim_link_options *options,
                                    struct wf_transport **transport_out, struct wf_error *error)
{
    struct wf_sim *sim = wf_sim_of(loop);
    if (sim == NULL) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "the sim transport is for simulated ranks; choose shm");
    }
    struct sim_transport *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a sim transport");
    }
    t->base.ops = &sim_transport_ops;
    t->loop = loop;
    t->sim = sim;
    t->rank = wf_sim_rank_id(loop);
    t->options = options != NULL ? *options : (struct wf_sim_link_options){0};
    struct wf_sim_link_options *o = &t->options;
    o->latency_max_ns = o->latency_max_ns == 0 ? DEFAULT_LATENCY_MAX_NS : o->latency_max_ns;
    o->bytes_per_us = o->bytes_per_us == 0 ? DEFAULT_BYTES_PER_US : o->bytes_per_us;
    o->stall_max_ns = o->stall_max_ns == 0 ? DEFAULT_STALL_MAX_NS : o->stall_max_ns;
    *transport_out = &t->base;
    return WF_OK;
}
