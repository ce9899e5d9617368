/* test_fault.c - what the fault transport does to reads, over shared memory of this process. */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "models/casts.h"
#include "runtime/loop.h"
#include "tests/transports/job_env.h"
#include "transports/fault.h"
#include "transports/memory.h"

enum { ELEMENTS = 3000, OPS = 3 };
#define MS_NS UINT64_C(1000000)

struct rig {
    struct job_env env;
    struct wf_loop *loop;
    struct wf_transport *transport;
    struct wf_actor actor;
    struct wf_region memory;
    struct wf_remote *remote;
    unsigned ended; /* imports and reads */
    struct wf_op ops[OPS];
    struct wf_read_source src;
    struct wf_read_target dst;
    struct wf_read read;
    float wanted[ELEMENTS];
    float got[ELEMENTS];
};

static enum wf_verdict count_end(struct wf_actor *self, struct wf_msg *msg)
{
    (void)msg;
    (WF_CONTAINER(self, struct rig, actor))->ended++;
    return WF_KEEP;
}

static void wait_end(struct rig *rig)
{
    while (rig->ended == 0) {
        wf_loop_turn(rig->loop);
    }
    rig->ended = 0;
}

static void import(struct rig *rig)
{
    struct wf_error error;
    struct wf_import import = {
        .done = {.kind = WF_IMPORT_DONE}, .owner = &rig->actor, .len_bytes = 2 * ELEMENTS};
    cr_assert_eq(
        rig->transport->ops->export_region(rig->transport, &rig->memory, &import.handle, &error),
        WF_OK);
    import.handle.fd = dup(import.handle.fd);
    rig->transport->ops->import_region(rig->transport, &import);
    wait_end(rig);
    cr_assert_eq(import.status, WF_OK, "%s", import.error.text);
    rig->remote = import.remote;
}

/* bf16 numbers that are cast to f32 in three ops. */
static void open_rig(struct rig *rig, const struct wf_fault *faults, uint32_t count, uint64_t seed)
{
    const struct wf_loop_options options = {.poller = WF_POLLER_EPOLL};
    struct wf_transport *shm;
    struct wf_error error;
    memset(rig, 0, sizeof *rig);
    rig->env.env.ops = &job_env_ops;
    cr_assert_eq(wf_loop_new(&options, &rig->loop, &error), WF_OK);
    cr_assert_eq(wf_jobs_new(1, &rig->env.jobs, &error), WF_OK);
    wf_loop_set_env(rig->loop, &rig->env.env);
    cr_assert_eq(wf_transport_shm_new(rig->loop, 1, &shm, &error), WF_OK);
    cr_assert_eq(
        wf_transport_fault_new(rig->loop, shm, faults, count, seed, &rig->transport, &error),
        WF_OK);
    cr_assert_str_eq(rig->transport->ops->name, "shm");
    cr_assert_eq(rig->transport->ops->caps, shm->ops->caps);
    wf_actor_init(&rig->actor, rig->loop, "rig", count_end);
    cr_assert_eq(wf_memory_new("fault", 2 * ELEMENTS, true, &rig->memory, &error), WF_OK);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        ((uint16_t *)rig->memory.address)[i] = (uint16_t)(0x3f00 + i);
    }
    wf_cast_for(WF_DTYPE_BF16, WF_DTYPE_F32, true)(rig->wanted, rig->memory.address, ELEMENTS);
    import(rig);
    for (uint64_t i = 0; i < OPS; i++) {
        uint64_t n = ELEMENTS / OPS;
        rig->ops[i].box = (struct wf_box){0, i * n * 2, i * n * 4, n, 1, {{n, 2, 4}}};
    }
    rig->src = (struct wf_read_source){rig->remote, 0, 2 * ELEMENTS, WF_DTYPE_BF16};
    rig->dst = (struct wf_read_target){rig->got, sizeof rig->got, WF_DTYPE_F32};
}

static void close_rig(struct rig *rig)
{
    rig->transport->ops->release_region(rig->transport, rig->remote);
    rig->transport->ops->close(rig->transport);
    wf_actor_close(&rig->actor);
    wf_actor_fini(&rig->actor);
    wf_jobs_free(rig->env.jobs);
    wf_loop_free(rig->loop);
    wf_memory_free(&rig->memory);
}

static void start(struct rig *rig, uint64_t deadline_ns)
{
    memset(rig->got, 0, sizeof rig->got);
    rig->read = (struct wf_read){.done = {.kind = WF_READ_DONE},
                                 .owner = &rig->actor,
                                 .ops = rig->ops,
                                 .op_count = OPS,
                                 .src_count = 1,
                                 .dst_count = 1,
                                 .src = &rig->src,
                                 .dst = &rig->dst,
                                 .deadline_ns = deadline_ns};
    rig->transport->ops->read(rig->transport, &rig->read);
}

/* Elements that are not what they should be; the last of them in *index_out. */
static unsigned differences(const struct rig *rig, unsigned *index_out)
{
    unsigned count = 0;
    for (unsigned i = 0; i < ELEMENTS; i++) {
        if (memcmp(&rig->got[i], &rig->wanted[i], sizeof rig->got[i]) != 0) {
            count++;
            *index_out = i;
        }
    }
    return count;
}

static const struct {
    const char *name;
    struct wf_fault fault;
    enum wf_status status;
    unsigned wrong; /* elements */
} rows[] = {
    {"a flip on the wire", {.kind = WF_FAULT_FLIP_WIRE, .at = 2}, WF_OK, 1},
    {"a flip after the write", {.kind = WF_FAULT_FLIP_MEMORY, .at = 2}, WF_OK, 1},
    {"a delay", {.kind = WF_FAULT_DELAY, .at = 2, .delay_ns = 3 * MS_NS}, WF_OK, 0},
    {"a failure", {.kind = WF_FAULT_FAIL, .at = 2}, WF_CONNECTION, ELEMENTS},
    {"a delay beyond the deadline",
     {.kind = WF_FAULT_DELAY, .at = 2, .delay_ns = UINT64_C(3600000) * MS_NS},
     WF_TIMED_OUT,
     ELEMENTS},
    {"a drop", {.kind = WF_FAULT_DROP, .at = 2}, WF_TIMED_OUT, ELEMENTS},
};

Test(fault, hits_the_read_that_it_names_and_no_other)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig rig;
        open_rig(&rig, &rows[i].fault, 1, 7);
        for (unsigned read = 1; read <= 3; read++) {
            bool hit = read == 2;
            uint64_t wait_ns = (rows[i].status == WF_TIMED_OUT && hit ? 20 : 20000) * MS_NS;
            start(&rig, job_env_now_ns(NULL) + wait_ns);
            wait_end(&rig);
            unsigned at = 0, wrong = differences(&rig, &at);
            cr_assert_eq(rig.read.status, hit ? rows[i].status : WF_OK, "%s, read %u: %s",
                         rows[i].name, read, rig.read.text);
            cr_assert_eq(wrong, hit ? rows[i].wrong : 0, "%s, read %u: %u wrong", rows[i].name,
                         read, wrong);
            cr_assert(wrong != 1 || rig.got[at] == -rig.wanted[at], "%s", rows[i].name);
        }
        close_rig(&rig);
    }
}

Test(fault, what_waits_can_be_cancelled)
{
    const struct wf_fault fault = {.kind = WF_FAULT_DROP, .per_million = 1000000};
    struct rig rig;
    open_rig(&rig, &fault, 1, 7);
    start(&rig, WF_NEVER_NS);
    wf_loop_turn(rig.loop);
    cr_assert_eq(rig.ended, 0);
    rig.transport->ops->cancel(rig.transport, &rig.read);
    wait_end(&rig);
    cr_assert_eq(rig.read.status, WF_CANCELLED);
    rig.transport->ops->cancel(rig.transport, &rig.read); /* done is out: left alone */
    wf_loop_turn(rig.loop);
    cr_assert_eq(rig.ended, 0);
    close_rig(&rig);
}

static uint64_t pattern(uint64_t seed)
{
    const struct wf_fault fault = {.kind = WF_FAULT_FAIL, .per_million = 300000};
    struct rig rig;
    uint64_t bits = 0;
    open_rig(&rig, &fault, 1, seed);
    for (int i = 0; i < 64; i++) {
        start(&rig, WF_NEVER_NS);
        wait_end(&rig);
        bits = bits << 1 | (rig.read.status != WF_OK);
    }
    close_rig(&rig);
    return bits;
}

Test(fault, chance_follows_the_seed)
{
    uint64_t one = pattern(1);
    cr_assert_eq(one, pattern(1));
    cr_assert_neq(one, pattern(2));
    cr_assert_gt(__builtin_popcountll(one), 5);
    cr_assert_lt(__builtin_popcountll(one), 40);
}
