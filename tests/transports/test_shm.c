/* test_shm.c - what only the shm transport can be given: descriptors and processes. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/loop.h"
#include "tests/runtime/descriptors.h"
#include "tests/transports/job_env.h"
#include "transports/memory.h"
#include "transports/shm.h"

enum { BYTES = 3 * 4096 };

struct fixture {
    struct wf_actor actor; /* of imports */
    bool imported;
    struct job_env env;
    struct wf_loop *loop;
    struct wf_transport *transport;
    struct wf_region memfd, plain;
};

static enum wf_verdict take_import(struct wf_actor *self, struct wf_msg *msg)
{
    struct fixture *f = WF_CONTAINER(self, struct fixture, actor);
    cr_assert_eq(msg->kind, WF_IMPORT_DONE);
    f->imported = true;
    return WF_KEEP;
}

/* Imports and turns until it is done. */
static struct wf_import import(struct fixture *f, const struct wf_handle *handle,
                               uint64_t len_bytes)
{
    struct wf_import import = {.done = {.kind = WF_IMPORT_DONE},
                               .owner = &f->actor,
                               .handle = *handle,
                               .len_bytes = len_bytes};
    f->imported = false;
    f->transport->ops->import_region(f->transport, &import);
    while (!f->imported) {
        wf_loop_turn(f->loop);
    }
    return import;
}

static void open_fixture(struct fixture *f)
{
    const struct wf_loop_options options = {.poller = WF_POLLER_EPOLL};
    struct wf_error error;
    memset(f, 0, sizeof *f);
    f->env.env.ops = &job_env_ops;
    cr_assert_eq(wf_loop_new(&options, &f->loop, &error), WF_OK);
    cr_assert_eq(wf_jobs_new(1, &f->env.jobs, &error), WF_OK);
    wf_loop_set_env(f->loop, &f->env.env);
    cr_assert_eq(wf_transport_shm_new(f->loop, 1, &f->transport, &error), WF_OK);
    wf_actor_init(&f->actor, f->loop, "test", take_import);
    cr_assert_eq(wf_memory_new("test", BYTES, true, &f->memfd, &error), WF_OK);
    cr_assert_eq(wf_memory_new("test", BYTES, false, &f->plain, &error), WF_OK);
    for (int i = 0; i < BYTES; i++) {
        ((uint8_t *)f->memfd.address)[i] = (uint8_t)(i / 7);
    }
}

static void close_fixture(struct fixture *f)
{
    f->transport->ops->close(f->transport);
    wf_actor_close(&f->actor);
    wf_actor_fini(&f->actor);
    wf_jobs_free(f->env.jobs);
    wf_loop_free(f->loop);
    wf_memory_free(&f->memfd);
    wf_memory_free(&f->plain);
}

static struct wf_handle export(struct fixture *f, const struct wf_region *region)
{
    struct wf_handle handle;
    struct wf_error error;
    cr_assert_eq(f->transport->ops->export_region(f->transport, region, &handle, &error), WF_OK,
                 "%s", error.text);
    handle.fd = handle.fd >= 0 ? dup(handle.fd) : -1;
    return handle;
}

/* --- handles
 * ---------------------------------------------------------------------------------------- */

static void without_fd(struct wf_handle *handle)
{
    close(handle->fd);
    handle->fd = -1;
}

static void with_fd(struct wf_handle *handle, int fd)
{
    close(handle->fd);
    handle->fd = fd;
}

static void unsealed(struct wf_handle *handle)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(fd, BYTES), 0);
    with_fd(handle, fd);
}

static void too_small(struct wf_handle *handle)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(fd, BYTES - 1), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    with_fd(handle, fd);
}

static void a_file(struct wf_handle *handle)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    with_fd(handle, fd);
}

static void a_pipe(struct wf_handle *handle)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    close(ends[1]);
    with_fd(handle, ends[0]);
}

static void beyond_its_end(struct wf_handle *handle)
{
    handle->bytes[10] = 1; /* the offset in the memfd */
}

static void another_kind(struct wf_handle *handle)
{
    handle->bytes[1] = 3;
}

static void nobody(struct wf_handle *handle)
{
    memset(handle->bytes + 2, 0, 8);
}

static void nobody_yet(struct wf_handle *handle)
{
    memset(handle->bytes + 2, 0xff, 3);
    handle->bytes[5] = 0x7f;
}

static void another_life(struct wf_handle *handle)
{
    handle->bytes[34] ^= 1;
}

static void no_such_nonce(struct wf_handle *handle)
{
    memset(handle->bytes + 26, 0, 8);
}

static void no_such_memory(struct wf_handle *handle)
{
    memset(handle->bytes + 10, 0, 8);
}

static const struct {
    const char *name;
    bool memfd;
    void (*spoil)(struct wf_handle *handle);
    enum wf_status status;
} handle_rows[] = {
    {"a memfd that did not come", true, without_fd, WF_PROTOCOL},
    {"a memfd that may shrink", true, unsealed, WF_UNSUPPORTED},
    {"a memfd that is too small", true, too_small, WF_INVALID},
    {"a file", true, a_file, WF_UNSUPPORTED},
    {"a pipe", true, a_pipe, WF_INVALID},
    {"a region beyond the memfd's end", true, beyond_its_end, WF_INVALID},
    {"an unknown kind", true, another_kind, WF_PROTOCOL},
    {"process 0", false, nobody, WF_PROTOCOL},
    {"a process that does not exist", false, nobody_yet, WF_PEER_LOST},
    {"a pid that belongs to another process now", false, another_life, WF_PEER_LOST},
    {"a nonce that cannot be read", false, no_such_nonce, WF_PEER_LOST},
    {"memory that is not there", false, no_such_memory, WF_IO},
};

Test(shm, handles_are_checked_and_their_descriptors_closed)
{
    struct fixture f;
    open_fixture(&f);
    unsigned before = open_descriptors();
    for (size_t i = 0; i < sizeof handle_rows / sizeof handle_rows[0]; i++) {
        struct wf_handle handle = export(&f, handle_rows[i].memfd ? &f.memfd : &f.plain);
        handle_rows[i].spoil(&handle);
        struct wf_import got = import(&f, &handle, BYTES);
        cr_assert_eq(got.status, handle_rows[i].status, "%s: %s (%s)", handle_rows[i].name,
                     wf_status_name(got.status), got.error.text);
        cr_assert_neq(got.error.text[0], '\0', "%s", handle_rows[i].name);
        cr_assert_eq(open_descriptors(), before, "%s: a descriptor stays open",
                     handle_rows[i].name);
    }
    close_fixture(&f);
}

Test(shm, a_mapping_needs_no_descriptor_and_no_page_boundary)
{
    struct fixture f;
    open_fixture(&f);
    unsigned before = open_descriptors();
    struct wf_region part = f.memfd;
    part.fd_offset = 5000;
    part.address = (uint8_t *)f.memfd.address + 5000;
    part.len_bytes = BYTES - 5000;
    struct wf_handle handle = export(&f, &part);
    struct wf_import got = import(&f, &handle, part.len_bytes);
    cr_assert_eq(got.status, WF_OK, "%s", got.error.text);
    cr_assert_eq(open_descriptors(), before);
    const struct shm_remote *mapped = (const struct shm_remote *)got.remote;
    cr_assert_eq(memcmp((const void *)(uintptr_t)mapped->address, part.address, part.len_bytes), 0);
    f.transport->ops->release_region(f.transport, got.remote);
    close_fixture(&f);
}

/* --- exporting
 * --------------------------------------------------------------------------------------- */

Test(shm, export_seals_what_it_may_and_refuses_the_rest)
{
    struct fixture f;
    open_fixture(&f);
    struct wf_handle handle;
    struct wf_error error = {.text = ""};
    struct wf_region region = f.memfd;
    region.fd = memfd_create("test", MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(region.fd, BYTES), 0);
    cr_assert_eq(f.transport->ops->export_region(f.transport, &region, &handle, &error), WF_OK);
    cr_assert(fcntl(region.fd, F_GET_SEALS) & F_SEAL_SHRINK);
    close(region.fd);

    region.fd = memfd_create("test", 0); /* may not be sealed */
    cr_assert_eq(ftruncate(region.fd, BYTES), 0);
    cr_assert_eq(f.transport->ops->export_region(f.transport, &region, &handle, &error),
                 WF_UNSUPPORTED);
    cr_assert_not_null(strstr(error.text, "MFD_ALLOW_SEALING"), "%s", error.text);
    close(region.fd);

    region = f.memfd;
    region.memory = WF_MEMORY_DEVICE;
    cr_assert_eq(f.transport->ops->export_region(f.transport, &region, &handle, &error),
                 WF_UNSUPPORTED);
    region = f.memfd;
    region.len_bytes = BYTES + 1;
    cr_assert_eq(f.transport->ops->export_region(f.transport, &region, &handle, &error),
                 WF_INVALID);
    close_fixture(&f);
}

Test(shm, absurd_parallelism_is_refused)
{
    struct fixture f;
    open_fixture(&f);
    struct wf_transport *transport;
    struct wf_error error = {.text = ""};
    cr_assert_eq(wf_transport_shm_new(f.loop, SHM_PARALLEL_MAX + 1, &transport, &error),
                 WF_INVALID);
    cr_assert_neq(error.text[0], '\0');
    close_fixture(&f);
}
