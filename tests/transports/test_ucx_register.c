/* test_ucx_register.c - pinning memory takes as long as it takes: the source's loop goes on
 * meanwhile, readers wait for it, and it may be withdrawn in the middle. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "tests/transports/job_env.h"
#include "tests/transports/ucx_reading.h"
#include "tests/within.h"

enum { SLOW_BYTES = WORLD_BYTES };

/* --- a UCX that registers when it is told to
 * ------------------------------------------------------- */
static __typeof__(&ucp_mem_map) real_map;
static __typeof__(&ucp_mem_unmap) real_unmap;
static sem_t may_map;
static pthread_t loop_thread;
static _Atomic int maps, unmaps, on_the_loop;

static ucs_status_t slow_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                             ucp_mem_h *memory_out)
{
    if (pthread_equal(pthread_self(), loop_thread)) {
        on_the_loop++; /* nobody would ever let it go on */
    } else {
        sem_wait(&may_map);
    }
    maps++;
    return real_map(context, params, memory_out);
}

static ucs_status_t count_unmap(ucp_context_h context, ucp_mem_h memory)
{
    on_the_loop += pthread_equal(pthread_self(), loop_thread) != 0;
    unmaps++;
    return real_unmap(context, memory);
}

/* --- a source of its own, in the reader's transport
 * ------------------------------------------------ */
struct slow {
    struct world world;
    uint8_t *memory;
    struct wf_handle handle;
    struct wf_import import;
};

static void open_slow(struct slow *slow)
{
    struct wf_error error;
    open_world(&slow->world, &world_ucx_get);
    struct ucx *ucx = inside(&slow->world);
    real_map = ucx->library.ucp_mem_map;
    real_unmap = ucx->library.ucp_mem_unmap;
    ucx->library.ucp_mem_map = slow_map;
    ucx->library.ucp_mem_unmap = count_unmap;
    loop_thread = pthread_self();
    maps = unmaps = on_the_loop = 0;
    cr_assert_eq(sem_init(&may_map, 0, 0), 0);
    slow->memory = malloc(SLOW_BYTES);
    for (uint64_t i = 0; i < SLOW_BYTES; i++) {
        slow->memory[i] = world_byte(i);
    }
    const struct wf_region region = {
        .memory = WF_MEMORY_HOST, .address = slow->memory, .len_bytes = SLOW_BYTES};
    struct wf_transport *t = slow->world.transport;
    cr_assert_eq(t->ops->export_region(t, &region, &slow->handle, &error), WF_OK, "%s", error.text);
    cr_assert_eq(maps, 0, "it was registered on the loop");
}

static void close_slow(struct slow *slow)
{
    close_world(&slow->world);
    cr_expect_eq(maps, unmaps, "%d registered, %d let go of", maps, unmaps);
    cr_expect_eq(on_the_loop, 0, "%d times on the loop", on_the_loop);
    sem_destroy(&may_map);
    free(slow->memory);
}

static bool told_to_ask_again(struct world *world)
{
    const struct ucx_import *open = inside(world)->reader.imports;
    return open == NULL || wf_timer_is_armed(&open->again);
}

static bool no_jobs(struct world *world)
{
    return inside(world)->source.jobs_out == 0;
}

Test(ucx_register, a_reader_waits_until_a_region_is_registered, .init = within_minutes)
{
    struct slow slow;
    open_slow(&slow);
    slow.import = (struct wf_import){.done = {.kind = WF_IMPORT_DONE},
                                     .owner = &slow.world.actor,
                                     .handle = slow.handle,
                                     .len_bytes = SLOW_BYTES};
    slow.world.import_count = 0;
    struct wf_transport *t = slow.world.transport;
    t->ops->import_region(t, &slow.import);
    cr_assert(slow.world.kind->run(&slow.world, told_to_ask_again));
    cr_assert_eq(slow.world.import_count, 0, "it was given before it was registered");
    turn_for(&slow.world, 3 * UCX_ASK_AGAIN_NS); /* and asks again */
    cr_assert_eq(slow.world.import_count, 0);
    sem_post(&may_map);
    cr_assert(slow.world.kind->run(&slow.world, imported));
    cr_assert_eq(slow.import.status, WF_OK, "%s", slow.import.error.text);
    cr_assert_not_null(((struct ucx_remote *)slow.import.remote)->key, "it would be streamed");
    uint8_t *target = malloc(SLOW_BYTES);
    struct reading reading;
    start(&slow.world, &reading, slow.import.remote, target, 0, SLOW_BYTES);
    cr_assert(slow.world.kind->run(&slow.world, one_done));
    cr_assert_eq(reading.read.status, WF_OK, "%s", reading.read.text);
    check_bytes(target, 0, SLOW_BYTES);
    free(target);
    t->ops->release_region(t, slow.import.remote);
    t->ops->withdraw_region(t, &slow.handle);
    cr_assert(slow.world.kind->run(&slow.world, no_jobs));
    close_slow(&slow);
}

Test(ucx_register, a_region_is_withdrawn_while_it_is_being_registered, .init = within_minutes)
{
    struct slow slow;
    open_slow(&slow);
    struct wf_transport *t = slow.world.transport;
    t->ops->withdraw_region(t, &slow.handle);
    check_alive(&slow.world); /* the loop and its other regions go on */
    cr_assert_eq(inside(&slow.world)->source.jobs_out, 1);
    sem_post(&may_map);
    cr_assert(slow.world.kind->run(&slow.world, no_jobs));
    close_slow(&slow);
}

Test(ucx_register, a_transport_is_closed_while_it_registers, .init = within_minutes)
{
    struct slow slow;
    open_slow(&slow);
    sem_post(&may_map);
    close_slow(&slow);
}
