/* shm_import.c - handles of regions: made, checked, mapped or probed.
 *
 * Mapping 50 GB takes seconds, so checking and mapping is a job; the loop only begins and ends it.
 *
 * Bytes of a handle, integers little-endian: format (1), kind (1), pid (8), address in the source
 * or offset in the memfd (8), length (8), nonce's address (8), nonce (16).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transports/memory.h"
#include "transports/shm.h"

enum { HANDLE_FORMAT = 1, HANDLE_BYTES = 2 + 4 * 8 + SHM_NONCE_BYTES };

/* One import on its way. */
struct shm_import {
    struct wf_job job;
    struct wf_import *import;  /* borrows */
    struct shm_remote *remote; /* becomes the import's result */
};

static void put_u64(uint8_t *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

/* A reader of memory that its owner can shrink dies by SIGBUS, so only sealed memory is shared. */
static enum wf_status check_seals(int fd, bool may_add, struct wf_error *error)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) {
        return WF_OK;
    }
    if (may_add && seals >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        return WF_OK;
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "the memory's descriptor %s; expected a memfd made with MFD_ALLOW_SEALING "
                        "and sealed with F_SEAL_SHRINK; use wf_memory_new, or give the region "
                        "without a descriptor",
                        seals < 0 ? "has no seals" : "is not sealed against shrinking");
}

static enum wf_status check_size(int fd, uint64_t offset, uint64_t len_bytes,
                                 struct wf_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return wf_error_set(error, WF_IO, "cannot examine the memory's descriptor: %s",
                            strerror(errno));
    }
    uint64_t size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || offset > size || len_bytes > size - offset) {
        return wf_error_set(
            error, WF_INVALID, "the memory's descriptor has %llu bytes; expected %llu from %llu on",
            (unsigned long long)size, (unsigned long long)len_bytes, (unsigned long long)offset);
    }
    return WF_OK;
}

enum wf_status shm_export_region(struct wf_transport *t, const struct wf_region *region,
                                 struct wf_handle *handle_out, struct wf_error *error)
{
    struct shm *shm = WF_CONTAINER(t, struct shm, base);
    if (region->memory != WF_MEMORY_HOST || region->address == NULL || region->len_bytes == 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "shm shares host memory only, and at least one byte of it");
    }
    if (region->fd >= 0) {
        enum wf_status status = check_size(region->fd, region->fd_offset, region->len_bytes, error);
        if (status == WF_OK) {
            status = check_seals(region->fd, true, error);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    struct wf_handle handle = {.len = HANDLE_BYTES, .fd = region->fd};
    handle.bytes[0] = HANDLE_FORMAT;
    handle.bytes[1] = region->fd >= 0 ? SHM_MEMFD : SHM_PROCESS;
    put_u64(handle.bytes + 2, (uint64_t)getpid());
    put_u64(handle.bytes + 10,
            region->fd >= 0 ? region->fd_offset : (uint64_t)(uintptr_t)region->address);
    put_u64(handle.bytes + 18, region->len_bytes);
    put_u64(handle.bytes + 26, (uint64_t)(uintptr_t)shm->nonce);
    memcpy(handle.bytes + 34, shm->nonce, SHM_NONCE_BYTES);
    *handle_out = handle;
    return WF_OK;
}

static enum wf_status import_memfd(struct shm_remote *remote, int fd, uint64_t offset,
                                   struct wf_error *error)
{
    uint64_t len_bytes = remote->base.len_bytes;
    if (fd < 0) {
        return wf_error_set(error, WF_PROTOCOL,
                            "a memfd region came without its descriptor: its "
                            "source has to be reached by a unix address");
    }
    enum wf_status status = check_size(fd, offset, len_bytes, error);
    if (status == WF_OK) {
        status = check_seals(fd, false, error);
    }
    if (status != WF_OK) {
        return status;
    }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset % page;
    remote->map_bytes = len_bytes + skip;
    remote->map =
        wf_memory_map(fd, offset - skip, remote->map_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE);
    if (remote->map == NULL) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "cannot map %llu bytes of the source: %s; raise the limit on address "
                            "space, or give the region without a descriptor",
                            (unsigned long long)remote->map_bytes, strerror(errno));
    }
    remote->address = (uint64_t)(uintptr_t)remote->map + skip;
    return WF_OK;
}

static enum wf_status import_process(struct shm_remote *remote, uint64_t address,
                                     struct wf_error *error)
{
    remote->address = address;
    if (address > UINT64_MAX - remote->base.len_bytes) {
        return wf_error_set(error, WF_INVALID, "the region does not fit in an address space");
    }
    uint8_t byte;
    enum wf_status status = shm_process_read(remote, address, &byte, 1, error);
    if (status == WF_OK) {
        status = shm_process_read(remote, address + remote->base.len_bytes - 1, &byte, 1, error);
    }
    return status;
}

/* Reads of process memory go through them. */
static enum wf_status make_bounce_buffers(struct shm *shm, struct wf_error *error)
{
    for (unsigned i = 0; i < shm->job_count; i++) {
        if (shm->jobs[i].bounce == NULL) {
            shm->jobs[i].bounce = malloc(SHM_BOUNCE_BYTES);
        }
        if (shm->jobs[i].bounce == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for the bounce buffers");
        }
    }
    return WF_OK;
}

static enum wf_status import_checked(const struct wf_handle *handle, struct shm_remote *remote,
                                     struct wf_error *error)
{
    const uint8_t *bytes = handle->bytes;
    if (handle->len != HANDLE_BYTES || bytes[0] != HANDLE_FORMAT) {
        return wf_error_set(error, WF_PROTOCOL,
                            "a shm handle has %u bytes in format %u; expected %d in format %d: "
                            "use one version of weft on both sides",
                            handle->len, bytes[0], HANDLE_BYTES, HANDLE_FORMAT);
    }
    uint64_t place = get_u64(bytes + 10), len_bytes = get_u64(bytes + 18);
    if (len_bytes != remote->base.len_bytes || len_bytes == 0 || len_bytes > INT64_MAX ||
        place > INT64_MAX) {
        return wf_error_set(error, WF_PROTOCOL,
                            "the handle is for %llu bytes at %llu, the peer said %llu bytes",
                            (unsigned long long)len_bytes, (unsigned long long)place,
                            (unsigned long long)remote->base.len_bytes);
    }
    if (bytes[1] == SHM_MEMFD) {
        remote->kind = SHM_MEMFD;
        return import_memfd(remote, handle->fd, place, error);
    }
    uint64_t pid = get_u64(bytes + 2);
    if (bytes[1] != SHM_PROCESS || pid == 0 || pid > INT32_MAX) {
        return wf_error_set(error, WF_PROTOCOL, "the handle has kind %u and process %llu", bytes[1],
                            (unsigned long long)pid);
    }
    remote->kind = SHM_PROCESS;
    remote->pid = (pid_t)pid;
    remote->nonce_address = get_u64(bytes + 26);
    memcpy(remote->nonce, bytes + 34, SHM_NONCE_BYTES);
    return import_process(remote, place, error);
}

/* Pool thread. */
static void import_work(struct wf_job *job)
{
    struct shm_import *open = WF_CONTAINER(job, struct shm_import, job);
    struct wf_import *import = open->import;
    import->status = import_checked(&import->handle, open->remote, &import->error);
    if (import->handle.fd >= 0) {
        close(import->handle.fd); /* the mapping lives without it */
        import->handle.fd = -1;
    }
}

void shm_import_region(struct wf_transport *t, struct wf_import *import)
{
    struct shm *shm = WF_CONTAINER(t, struct shm, base);
    struct shm_remote *remote = calloc(1, sizeof *remote);
    struct shm_import *open = calloc(1, sizeof *open);
    import->remote = NULL;
    import->error.text[0] = '\0';
    if (remote == NULL || open == NULL) {
        free(remote);
        free(open);
        if (import->handle.fd >= 0) {
            close(import->handle.fd);
        }
        import->status =
            wf_error_set(&import->error, WF_NO_MEMORY, "no memory for an imported region");
        wf_send(import->owner, &import->done);
        return;
    }
    remote->base = (struct wf_remote){.transport = t, .len_bytes = import->len_bytes};
    open->remote = remote;
    open->import = import;
    open->job = (struct wf_job){.done = {.kind = SHM_IMPORT_DONE},
                                .owner = &shm->actor,
                                .work = import_work,
                                .name = "shm import"};
    shm->imports++;
    struct wf_env *env = wf_loop_env(shm->loop);
    env->ops->job(env, &open->job);
}

void shm_import_ended(struct shm *shm, struct wf_msg *msg)
{
    struct shm_import *open = WF_CONTAINER(msg, struct shm_import, job.done);
    struct wf_import *import = open->import;
    struct shm_remote *remote = open->remote;
    free(open);
    shm->imports--;
    if (import->status == WF_OK && remote->kind == SHM_PROCESS) {
        import->status = make_bounce_buffers(shm, &import->error);
    }
    if (import->status == WF_OK) {
        shm->remotes++;
        import->remote = &remote->base;
    } else {
        free(remote); /* nothing is mapped when the import failed */
    }
    wf_send(import->owner, &import->done);
}

void shm_release_region(struct wf_transport *t, struct wf_remote *base)
{
    struct shm *shm = WF_CONTAINER(t, struct shm, base);
    struct shm_remote *remote = (struct shm_remote *)base;
    WF_ASSERT(remote->open_reads == 0);
    if (remote->kind == SHM_MEMFD) { /* a job: a source's gigabytes are some seconds of it */
        struct wf_region map = {.address = remote->map, .len_bytes = remote->map_bytes, .fd = -1};
        wf_memory_retire(wf_loop_env(shm->loop), &map);
    }
    shm->remotes--;
    free(remote);
}
