/* fault.c - reads that are late, fail, vanish or arrive wrong, around any transport.
 *
 *   read: WAITING (DELAY, DROP) -> READING (the inner transport's) -> done sent
 *         READING -> FLIPPING (the inner reads one element once more, as it is on the wire) -> done
 *   WAITING -(cancel, deadline)-> done sent
 */
#include "transports/fault.h"

#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "runtime/splitmix.h"
#include "transports/read_check.h"

struct fault {
    struct wf_transport base;
    struct wf_transport_ops ops;
    struct wf_transport *inner; /* owns */
    struct wf_loop *loop;
    struct wf_actor actor; /* owner of the inner's reads */
    struct wf_fault faults[WF_FAULTS_MAX];
    uint32_t fault_count;
    uint64_t random, reads, open; /* random: state; reads: begun so far */
};

enum fault_state { FAULT_WAITING, FAULT_READING, FAULT_FLIPPING };

struct fault_read {
    struct fault *fault;
    struct wf_read *outer; /* borrows */
    struct wf_read inner;
    enum fault_state state;
    bool flip_wire, flip_memory;
    struct wf_timer timer; /* WAITING */
    /* FLIPPING: where the element stands, and as what it arrives */
    struct wf_op op; /* reads it into `arrival` */
    struct wf_read_target arrival;
    uint8_t element[8];
    uint32_t dst_tensor;
    uint64_t dst_offset;
};

static uint64_t draw(struct fault *fault, uint64_t n)
{
    return wf_splitmix64(&fault->random) % n;
}

/* --- ends ------------------------------------------------------------------------------------ */

static void finish(struct fault_read *open)
{
    struct wf_read *outer = open->outer;
    wf_timer_cancel(open->fault->loop, &open->timer);
    open->fault->open--;
    free(open);
    outer->transport_data = NULL;
    wf_send(outer->owner, &outer->done);
}

static void take_results(struct fault_read *open)
{
    struct wf_read *outer = open->outer;
    const struct wf_read *inner = &open->inner;
    outer->status = inner->status;
    outer->failed_op = inner->failed_op;
    outer->bytes = inner->bytes;
    memcpy(outer->text, inner->text, sizeof outer->text);
}

/* --- flips ----------------------------------------------------------------------------------- */

/* Draws an element of the read: its op, and its place on both sides. */
static void draw_element(struct fault_read *open)
{
    const struct wf_read *outer = open->outer;
    const struct wf_op *op = &outer->ops[draw(open->fault, outer->op_count)];
    uint64_t rest = draw(open->fault, op->box.elements);
    int64_t src = (int64_t)op->box.src_offset, dst = (int64_t)op->box.dst_offset;
    for (uint32_t a = op->box.axis_count; a-- > 0;) {
        uint64_t digit = rest % op->box.axes[a].count;
        src += (int64_t)digit * op->box.axes[a].src_step;
        dst += (int64_t)digit * op->box.axes[a].dst_step;
        rest /= op->box.axes[a].count;
    }
    open->op = *op;
    open->op.box = (struct wf_box){.src_offset = (uint64_t)src, .elements = 1};
    open->op.dst_tensor = 0;
    open->dst_tensor = op->dst_tensor;
    open->dst_offset = (uint64_t)dst;
}

static void invert_top_bit(uint8_t *element, enum wf_dtype dtype)
{
    element[wf_dtype_bytes(dtype) - 1] ^= 0x80; /* the sign: no cast rounds it away */
}

static void flip_memory(struct fault_read *open)
{
    draw_element(open);
    const struct wf_read_target *target = &open->outer->dst[open->dst_tensor];
    invert_top_bit((uint8_t *)target->address + open->dst_offset, target->dtype);
}

static void start_flip_wire(struct fault_read *open)
{
    draw_element(open);
    struct wf_transport *inner = open->fault->inner;
    open->arrival = (struct wf_read_target){open->element, sizeof open->element,
                                            open->outer->src[open->op.src_tensor].dtype};
    open->inner.ops = &open->op;
    open->inner.op_count = 1;
    open->inner.dst = &open->arrival;
    open->inner.dst_count = 1;
    open->state = FAULT_FLIPPING;
    inner->ops->read(inner, &open->inner);
}

/* The element is here as the wire brought it: it is spoilt and placed once more. */
static void place_flipped(struct fault_read *open)
{
    const struct wf_read_target *target = &open->outer->dst[open->dst_tensor];
    const struct wf_box box = {.dst_offset = open->dst_offset, .elements = 1};
    invert_top_bit(open->element, open->arrival.dtype);
    wf_copy_box(&box, open->element, open->arrival.dtype, target->address, target->dtype,
                (struct wf_copy_part){0, 1});
}

/* --- a read's course -------------------------------------------------------------------------- */

static void begin(struct fault_read *open)
{
    struct wf_transport *inner = open->fault->inner;
    open->state = FAULT_READING;
    inner->ops->read(inner, &open->inner);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    (void)self;
    WF_ASSERT(msg->kind == WF_READ_DONE);
    struct fault_read *open = WF_CONTAINER(msg, struct fault_read, inner.done);
    if (open->state == FAULT_READING) {
        take_results(open);
        if (open->flip_wire && open->outer->status == WF_OK) {
            open->flip_wire = false;
            start_flip_wire(open);
            return WF_KEEP;
        }
    } else if (open->inner.status == WF_OK) {
        place_flipped(open);
    } else {
        wf_read_fail(open->outer, open->inner.status, UINT32_MAX, open->inner.text);
    }
    if (open->flip_memory && open->outer->status == WF_OK) {
        flip_memory(open);
    }
    finish(open);
    return WF_KEEP; /* part of the read */
}

static void waited(struct wf_timer *timer)
{
    struct fault_read *open = WF_CONTAINER(timer, struct fault_read, timer);
    if (wf_loop_now_ns(open->fault->loop) < open->outer->deadline_ns) {
        begin(open);
        return;
    }
    wf_read_fail(open->outer, WF_TIMED_OUT, 0, "the deadline passed");
    finish(open);
}

static void wait_until(struct fault_read *open, uint64_t due_ns)
{
    uint64_t deadline_ns = open->outer->deadline_ns;
    open->timer.fire = waited;
    open->timer.name = "a fault on purpose";
    if (due_ns != WF_NEVER_NS || deadline_ns != WF_NEVER_NS) {
        wf_timer_arm(open->fault->loop, &open->timer, due_ns < deadline_ns ? due_ns : deadline_ns);
    }
}

/* Which faults hit the read that begins now; draws the same number of times for each. */
static uint32_t draw_faults(struct fault *fault, uint64_t *delay_ns_out)
{
    uint32_t hit = 0;
    *delay_ns_out = 0;
    fault->reads++;
    for (uint32_t i = 0; i < fault->fault_count; i++) {
        const struct wf_fault *one = &fault->faults[i];
        bool by_chance = draw(fault, 1000000) < one->per_million;
        if (one->at != 0 ? one->at == fault->reads : by_chance) {
            hit |= 1U << one->kind;
            *delay_ns_out += one->kind == WF_FAULT_DELAY ? one->delay_ns : 0;
        }
    }
    return hit;
}

static void read_start(struct wf_transport *t, struct wf_read *read)
{
    struct fault *fault = WF_CONTAINER(t, struct fault, base);
    struct fault_read *open = calloc(1, sizeof *open);
    uint64_t delay_ns = 0, now_ns = wf_loop_now_ns(fault->loop);
    WF_ASSERT(open != NULL);
    uint32_t hit = read->op_count > 0 ? draw_faults(fault, &delay_ns) : 0;
    open->fault = fault;
    open->outer = read;
    open->inner = *read;
    open->inner.done = (struct wf_msg){.kind = WF_READ_DONE};
    open->inner.owner = &fault->actor;
    open->flip_wire = (hit & 1U << WF_FAULT_FLIP_WIRE) != 0;
    open->flip_memory = (hit & 1U << WF_FAULT_FLIP_MEMORY) != 0;
    read->status = WF_OK;
    read->failed_op = UINT32_MAX;
    read->bytes = 0;
    read->text[0] = '\0';
    read->transport_data = open;
    fault->open++;
    if ((hit & 1U << WF_FAULT_FAIL) != 0) {
        wf_read_fail(read, WF_CONNECTION, 0, "a fault on purpose");
        finish(open);
    } else if ((hit & 1U << WF_FAULT_DROP) != 0) {
        wait_until(open, WF_NEVER_NS);
    } else if ((hit & 1U << WF_FAULT_DELAY) != 0) {
        wait_until(open, now_ns + delay_ns);
    } else {
        begin(open);
    }
}

static void read_cancel(struct wf_transport *t, struct wf_read *read)
{
    struct fault *fault = WF_CONTAINER(t, struct fault, base);
    struct fault_read *open = read->transport_data;
    if (open == NULL) {
        return;
    }
    if (open->state == FAULT_WAITING) {
        wf_read_fail(read, WF_CANCELLED, UINT32_MAX, "cancelled");
        finish(open);
    } else {
        fault->inner->ops->cancel(fault->inner, &open->inner);
    }
}

/* --- passed on ---------------------------------------------------------------------------------
 */

static enum wf_status export_region(struct wf_transport *t, const struct wf_region *region,
                                    struct wf_handle *handle_out, struct wf_error *error)
{
    struct wf_transport *inner = WF_CONTAINER(t, struct fault, base)->inner;
    return inner->ops->export_region(inner, region, handle_out, error);
}

static void withdraw_region(struct wf_transport *t, const struct wf_handle *handle)
{
    struct wf_transport *inner = WF_CONTAINER(t, struct fault, base)->inner;
    inner->ops->withdraw_region(inner, handle);
}

/* The regions are the inner transport's own: it is what checks that reads name its regions. */
static void import_region(struct wf_transport *t, struct wf_import *import)
{
    struct wf_transport *inner = WF_CONTAINER(t, struct fault, base)->inner;
    inner->ops->import_region(inner, import);
}

static void release_region(struct wf_transport *t, struct wf_remote *remote)
{
    struct wf_transport *inner = WF_CONTAINER(t, struct fault, base)->inner;
    inner->ops->release_region(inner, remote);
}

static const char *describe(struct wf_transport *t)
{
    struct wf_transport *inner = WF_CONTAINER(t, struct fault, base)->inner;
    return inner->ops->describe != NULL ? inner->ops->describe(inner) : NULL;
}

static void close_fault(struct wf_transport *t)
{
    struct fault *fault = WF_CONTAINER(t, struct fault, base);
    WF_ASSERT(fault->open == 0);
    fault->inner->ops->close(fault->inner);
    wf_actor_close(&fault->actor);
    wf_actor_fini(&fault->actor);
    free(fault);
}

const char *wf_fault_kind_name(unsigned kind)
{
    static const char *const names[] = {
#define NAME(name, text) [WF_FAULT_##name] = text,
        WF_FAULT_KIND_MAP(NAME)
#undef NAME
    };
    return kind < WF_FAULT_KINDS ? names[kind] : NULL;
}

enum wf_status wf_transport_fault_new(struct wf_loop *loop, struct wf_transport *inner,
                                      const struct wf_fault *faults, uint32_t count, uint64_t seed,
                                      struct wf_transport **transport_out, struct wf_error *error)
{
    if (count > WF_FAULTS_MAX) {
        return wf_error_set(error, WF_INVALID, "%u faults; expected at most %d", count,
                            WF_FAULTS_MAX);
    }
    struct fault *fault = calloc(1, sizeof *fault);
    if (fault == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a fault transport");
    }
    fault->ops = (struct wf_transport_ops){.name = inner->ops->name,
                                           .caps = inner->ops->caps,
                                           .export_region = export_region,
                                           .withdraw_region = withdraw_region,
                                           .import_region = import_region,
                                           .release_region = release_region,
                                           .read = read_start,
                                           .cancel = read_cancel,
                                           .close = close_fault,
                                           .describe = describe};
    fault->base.ops = &fault->ops;
    fault->inner = inner;
    fault->loop = loop;
    fault->random = seed;
    fault->fault_count = count;
    for (uint32_t i = 0; i < count; i++) {
        fault->faults[i] = faults[i];
    }
    wf_actor_init(&fault->actor, loop, "fault", handle);
    *transport_out = &fault->base;
    return WF_OK;
}
