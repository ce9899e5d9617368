/* shm_copy.c - the work of one job: copy and cast out of the source's memory in one pass.
 *
 * Mapped memory goes straight through the copy engine. Memory that can only be had by
 * process_vm_readv goes by the first way that fits:
 *   direct  equal types and long common runs: from there to its place, many runs a call
 *   cover   the bytes between the part's first and last element, holes included, into the bounce
 *           buffer, when there are next to none or runs are short and that is at most SPARSE_MAX
 *           times what is wanted; then the copy engine
 *   gather  each run of the source into the bounce buffer, packed; then the copy engine
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "models/copy.h"
#include "transports/shm.h"

enum {
    IOVECS = 256,          /* runs of one call; the kernel takes 1024 */
    LONG_RUN_BYTES = 2048, /* a call's cost for one run equals that of copying twice as much */
    SPARSE_MAX = 4,
    GATHER_BYTES = 64 << 10,
};

/* --- process_vm_readv ------------------------------------------------------------------------- */

static enum wf_status explain(const struct shm_remote *remote, int error_number,
                              struct wf_error *error)
{
    int pid = (int)remote->pid;
    switch (error_number) {
    case ESRCH:
        return wf_error_set(error, WF_PEER_LOST, "process %d of the source is gone", pid);
    case EPERM:
    case EACCES:
    case ENOSYS:
        return wf_error_set(
            error, WF_UNSUPPORTED,
            "this host forbids process_vm_readv of process %d (%s); give the source's tensors "
            "memory from a memfd (transport share_memory), or allow it: same user, "
            "kernel.yama.ptrace_scope=0, a seccomp profile with process_vm_readv",
            pid, strerror(error_number));
    default:
        return wf_error_set(error, WF_IO, "cannot read memory of process %d: %s", pid,
                            strerror(error_number));
    }
}

/* Moves all of `local` from all of `far`, which have equal lengths. */
static enum wf_status read_vectors(const struct shm_remote *remote, const struct iovec *local,
                                   const struct iovec *far, unsigned count, uint64_t len_bytes,
                                   struct wf_error *error)
{
    ssize_t got = process_vm_readv(remote->pid, local, count, far, count, 0);
    if (got < 0) {
        return explain(remote, errno, error);
    }
    return (uint64_t)got == len_bytes ? WF_OK : explain(remote, EFAULT, error);
}

static enum wf_status read_range(const struct shm_remote *remote, uint64_t address, void *into,
                                 size_t len_bytes, struct wf_error *error)
{
    struct iovec local = {into, len_bytes}, far = {(void *)(uintptr_t)address, len_bytes};
    return read_vectors(remote, &local, &far, 1, len_bytes, error);
}

/* A pid is used again by another process some day; the random nonce is not. */
static enum wf_status prove_source(const struct shm_remote *remote, struct wf_error *error)
{
    uint8_t nonce[SHM_NONCE_BYTES];
    enum wf_status status = read_range(remote, remote->nonce_address, nonce, sizeof nonce, error);
    bool other = status == WF_IO || (status == WF_OK && memcmp(nonce, remote->nonce, sizeof nonce));
    return !other ? status
                  : wf_error_set(error, WF_PEER_LOST,
                                 "process %d is not the source any more (or the source runs in "
                                 "another pid namespace)",
                                 (int)remote->pid);
}

enum wf_status shm_process_read(const struct shm_remote *remote, uint64_t address, void *into,
                                size_t len_bytes, struct wf_error *error)
{
    enum wf_status status = prove_source(remote, error);
    return status != WF_OK ? status : read_range(remote, address, into, len_bytes, error);
}

/* --- where elements of a box stand ------------------------------------------------------------ */

struct place {
    int64_t src, dst;
};

static void digits_of(const struct wf_box *box, uint64_t element, uint64_t digits[WF_AXES_MAX])
{
    for (uint32_t a = box->axis_count; a-- > 0;) {
        digits[a] = element % box->axes[a].count;
        element /= box->axes[a].count;
    }
}

static struct place place_of(const struct wf_box *box, uint64_t element)
{
    uint64_t digits[WF_AXES_MAX];
    digits_of(box, element, digits);
    struct place place = {(int64_t)box->src_offset, (int64_t)box->dst_offset};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        place.src += (int64_t)digits[a] * box->axes[a].src_step;
        place.dst += (int64_t)digits[a] * box->axes[a].dst_step;
    }
    return place;
}

/* Source bytes [*low_out, *high_out) hold elements [first, first + count), and maybe others. */
static void cover_of(const struct wf_box *box, uint64_t first, uint64_t count, uint32_t src_elem,
                     int64_t *low_out, int64_t *high_out)
{
    uint64_t from[WF_AXES_MAX], to[WF_AXES_MAX];
    digits_of(box, first, from);
    digits_of(box, first + count - 1, to);
    int64_t low = (int64_t)box->src_offset, high = low;
    bool fixed = true; /* all outer digits are equal at both ends */
    for (uint32_t a = 0; a < box->axis_count; a++) {
        int64_t step = box->axes[a].src_step;
        int64_t least = fixed ? (int64_t)from[a] : 0;
        int64_t most = fixed ? (int64_t)to[a] : (int64_t)box->axes[a].count - 1;
        low += step * (step >= 0 ? least : most);
        high += step * (step >= 0 ? most : least);
        fixed = fixed && from[a] == to[a];
    }
    *low_out = low;
    *high_out = high + src_elem;
}

/* Elements of one run of the innermost axis: contiguous in the source and, if dst_elem is not 0, in
 * the target too. */
static uint64_t run_elements(const struct wf_box *box, uint32_t src_elem, uint32_t dst_elem)
{
    if (box->axis_count == 0) {
        return 1;
    }
    uint32_t a = box->axis_count - 1;
    bool run = box->axes[a].src_step == (int64_t)src_elem &&
               (dst_elem == 0 || box->axes[a].dst_step == (int64_t)dst_elem);
    return run ? box->axes[a].count : 1;
}

/* --- one part of one op out of a process ------------------------------------------------------ */

struct part {
    const struct shm_remote *remote;
    const struct wf_box *box;
    uint64_t src_address; /* of the tensor, in the source */
    uint8_t *dst;
    enum wf_dtype src_dtype, dst_dtype;
    uint32_t src_elem, dst_elem;
    uint8_t *bounce;
};

/* Reads runs to where `packed` says: NULL, their own places; else packed from there on. */
static enum wf_status read_runs(const struct part *part, uint64_t first, uint64_t count,
                                uint8_t *packed, struct wf_error *error)
{
    struct iovec local[IOVECS], far[IOVECS];
    uint64_t run = run_elements(part->box, part->src_elem, packed == NULL ? part->dst_elem : 0);
    uint64_t element = first, end = first + count;
    while (element < end) {
        unsigned filled = 0;
        uint64_t bytes = 0;
        while (element < end && filled < IOVECS) {
            uint64_t n = run - element % run;
            n = n < end - element ? n : end - element;
            struct place place = place_of(part->box, element);
            uint8_t *into = packed == NULL ? part->dst + place.dst
                                           : packed + (element - first) * part->src_elem;
            local[filled] = (struct iovec){into, n * part->src_elem};
            far[filled] = (struct iovec){
                (void *)(uintptr_t)(part->src_address + (uint64_t)place.src), n * part->src_elem};
            bytes += n * part->src_elem;
            element += n;
            filled++;
        }
        enum wf_status status = read_vectors(part->remote, local, far, filled, bytes, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

/* The same box with its source packed in row-major order. */
static struct wf_box packed_box(const struct part *part)
{
    struct wf_box box = *part->box;
    int64_t step = part->src_elem;
    box.src_offset = 0;
    for (uint32_t a = box.axis_count; a-- > 0;) {
        box.axes[a].src_step = step;
        step *= (int64_t)box.axes[a].count;
    }
    return box;
}

static enum wf_status gather(const struct part *part, uint64_t first, uint64_t count,
                             struct wf_error *error)
{
    enum wf_status status = read_runs(part, first, count, part->bounce, error);
    if (status == WF_OK) {
        struct wf_box box = packed_box(part);
        /* The packed box's element `first` stands at the bounce buffer's first byte. */
        uintptr_t base = (uintptr_t)part->bounce - first * part->src_elem;
        wf_copy_box(&box, (const void *)base, part->src_dtype, part->dst, part->dst_dtype,
                    (struct wf_copy_part){first, count});
    }
    return status;
}

static enum wf_status cover(const struct part *part, uint64_t first, uint64_t count, int64_t low,
                            int64_t high, struct wf_error *error)
{
    enum wf_status status = read_range(part->remote, part->src_address + (uint64_t)low,
                                       part->bounce, (size_t)(high - low), error);
    if (status == WF_OK) {
        uintptr_t base = (uintptr_t)part->bounce - (uintptr_t)low;
        wf_copy_box(part->box, (const void *)base, part->src_dtype, part->dst, part->dst_dtype,
                    (struct wf_copy_part){first, count});
    }
    return status;
}

static enum wf_status copy_from_process(const struct part *part, uint64_t first, uint64_t count,
                                        struct wf_error *error)
{
    enum wf_status status = prove_source(part->remote, error);
    uint64_t run = run_elements(part->box, part->src_elem, part->dst_elem);
    if (status == WF_OK && part->src_dtype == part->dst_dtype &&
        run * part->src_elem >= LONG_RUN_BYTES) {
        return read_runs(part, first, count, NULL, error);
    }
    bool long_runs = run_elements(part->box, part->src_elem, 0) * part->src_elem >= LONG_RUN_BYTES;
    while (status == WF_OK && count > 0) {
        uint64_t n = SHM_BOUNCE_BYTES / part->src_elem;
        n = n < count ? n : count;
        int64_t low, high;
        cover_of(part->box, first, n, part->src_elem, &low, &high);
        while (high - low > SHM_BOUNCE_BYTES && n * part->src_elem > GATHER_BYTES) {
            n /= 2;
            cover_of(part->box, first, n, part->src_elem, &low, &high);
        }
        uint64_t covered = (uint64_t)(high - low), wanted = n * part->src_elem;
        uint64_t most = long_runs ? wanted + wanted / 8 : SPARSE_MAX * wanted;
        status = covered <= SHM_BOUNCE_BYTES && covered <= most
                     ? cover(part, first, n, low, high, error)
                     : gather(part, first, n, error);
        first += n;
        count -= n;
    }
    return status;
}

/* --- the job ---------------------------------------------------------------------------------- */

static enum wf_status copy_part(struct shm_job *job, const struct wf_op *op, uint64_t first,
                                uint64_t count, struct wf_error *error)
{
    const struct wf_read *read = job->read->read;
    const struct wf_read_source *src = &read->src[op->src_tensor];
    const struct wf_read_target *dst = &read->dst[op->dst_tensor];
    const struct shm_remote *remote = (const struct shm_remote *)src->remote;
    if (remote->kind == SHM_MEMFD) {
        wf_copy_box(&op->box, (const void *)(uintptr_t)(remote->address + src->offset), src->dtype,
                    dst->address, dst->dtype, (struct wf_copy_part){first, count});
        return WF_OK;
    }
    struct part part = {
        .remote = remote,
        .box = &op->box,
        .src_address = remote->address + src->offset,
        .dst = dst->address,
        .src_dtype = src->dtype,
        .dst_dtype = dst->dtype,
        .src_elem = (uint32_t)wf_dtype_bytes(src->dtype),
        .dst_elem = (uint32_t)wf_dtype_bytes(dst->dtype),
        .bounce = job->bounce,
    };
    return copy_from_process(&part, first, count, error);
}

void shm_job_work(struct wf_job *base)
{
    struct shm_job *job = (struct shm_job *)base;
    const struct wf_read *read = job->read->read;
    job->status = WF_OK;
    job->bytes = 0;
    uint32_t op = job->op;
    uint64_t element = job->element;
    while (op < job->end_op || (op == job->end_op && element < job->end_element)) {
        const struct wf_op *at = &read->ops[op];
        uint64_t end = op < job->end_op ? at->box.elements : job->end_element;
        struct wf_error error;
        if (end > element) {
            job->status = copy_part(job, at, element, end - element, &error);
        }
        if (job->status != WF_OK) {
            job->failed_op = op;
            memcpy(job->text, error.text, sizeof job->text - 1);
            job->text[sizeof job->text - 1] = '\0';
            return;
        }
        job->bytes += (end - element) * wf_dtype_bytes(read->dst[at->dst_tensor].dtype);
        op++;
        element = 0;
    }
}
