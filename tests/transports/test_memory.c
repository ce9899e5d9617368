/* test_memory.c - claimed memory is there, zero, sealed; what cannot be had is refused in words. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/transports/job_env.h"
#include "transports/memory.h"

Test(memory, is_zero_and_writable)
{
    for (int shareable = 0; shareable < 2; shareable++) {
        struct wf_region region;
        struct wf_error error;
        cr_assert_eq(wf_memory_new("test", 12345, shareable, &region, &error), WF_OK, "%s",
                     error.text);
        cr_assert_eq(region.len_bytes, 12345);
        cr_assert_eq(region.fd >= 0, shareable);
        for (int i = 0; i < 12345; i++) {
            cr_assert_eq(((uint8_t *)region.address)[i], 0);
        }
        memset(region.address, 1, 12345);
        wf_memory_free(&region);
        cr_assert_null(region.address);
        wf_memory_free(&region); /* twice is fine */
    }
}

Test(memory, is_present_at_once)
{
    struct wf_region region;
    unsigned char present[4];
    cr_assert_eq(wf_memory_new("test", 4 * 4096, true, &region, NULL), WF_OK);
    cr_assert_eq(mincore(region.address, region.len_bytes, present), 0);
    for (int i = 0; i < 4; i++) {
        cr_assert(present[i] & 1, "page %d", i);
    }
    wf_memory_free(&region);
}

Test(memory, shareable_memory_cannot_change_its_size)
{
    struct wf_region region;
    cr_assert_eq(wf_memory_new("test", 8192, true, &region, NULL), WF_OK);
    cr_assert_neq(ftruncate(region.fd, 4096), 0);
    cr_assert_neq(ftruncate(region.fd, 16384), 0);
    cr_assert(fcntl(region.fd, F_GETFD) & FD_CLOEXEC);
    wf_memory_free(&region);
}

Test(memory, too_much_is_refused_in_words)
{
    static const uint64_t sizes[] = {UINT64_MAX, (uint64_t)1 << 62, (uint64_t)1 << 48};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct wf_region region;
        struct wf_error error = {.text = ""};
        cr_assert_eq(wf_memory_new("staging", sizes[i], false, &region, &error), WF_NO_MEMORY);
        cr_assert_not_null(strstr(error.text, "bytes for staging"), "%s", error.text);
    }
}

/* A job that has the only thread of the pool until a byte comes. */
struct gate {
    struct wf_job job;
    int fds[2];
};

static void wait_for_byte(struct wf_job *job)
{
    char byte;
    WF_ASSERT(read(WF_CONTAINER(job, struct gate, job)->fds[0], &byte, 1) == 1);
}

/* Whoever retires memory does not wait until it is unmapped, and nobody has to ask whether it is.
 */
Test(memory, is_retired_by_a_job)
{
    struct job_env env = {.env.ops = &job_env_ops};
    struct gate gate = {.job = {.work = wait_for_byte, .name = "gate"}};
    struct wf_region region;
    cr_assert_eq(wf_memory_new("test", 8192, true, &region, NULL), WF_OK);
    void *address = region.address;
    int fd = region.fd;
    cr_assert_eq(pipe(gate.fds), 0);
    cr_assert_eq(wf_jobs_new(1, &env.jobs, NULL), WF_OK);
    wf_jobs_submit(env.jobs, &gate.job); /* of no owner: its memory is here */
    wf_memory_retire(&env.env, &region);
    cr_assert_null(region.address);
    cr_expect_eq(msync(address, 8192, MS_ASYNC), 0, "it is gone already");
    wf_memory_retire(&env.env, &region); /* twice is fine */
    cr_assert_eq(write(gate.fds[1], "", 1), 1);
    wf_jobs_free(env.jobs);
    cr_expect_neq(msync(address, 8192, MS_ASYNC), 0, "it is still mapped");
    cr_expect_eq(fcntl(fd, F_GETFD), -1, "its descriptor is still open");
    close(gate.fds[0]);
    close(gate.fds[1]);
}
