/* sim_files.c - the simulated disk: folders that outlive their processes, and deaths in mid-write.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sim_internal.h"

struct sim_file {
    struct sim_file *next;
    char *name;
    uint8_t *bytes;
    size_t len;
};

/* Stays until the world goes. */
struct wf_folder {
    struct wf_folder *next;
    char *path;
    struct sim_file *files;
    uint32_t owner; /* WF_SIM_HOST: nobody's */
};

void wf_sim_on_write(struct wf_sim *sim, wf_sim_write_t *hook, void *user)
{
    sim->write_hook = hook;
    sim->write_user = user;
}

void wf_sim_folder_erase(struct wf_sim *sim, const char *path)
{
    for (struct wf_folder *folder = sim->folders; folder != NULL; folder = folder->next) {
        if (strcmp(folder->path, path) != 0) {
            continue;
        }
        for (struct sim_file *file; (file = folder->files) != NULL;) {
            folder->files = file->next;
            free(file->name);
            free(file->bytes);
            free(file);
        }
    }
}

void sim_files_fini(struct wf_sim *sim)
{
    for (struct wf_folder *folder; (folder = sim->folders) != NULL;) {
        wf_sim_folder_erase(sim, folder->path);
        sim->folders = folder->next;
        free(folder->path);
        free(folder);
    }
}

enum wf_status sim_files_open(struct wf_env *env, const char *path, struct wf_folder **folder_out,
                              struct wf_error *error)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    struct wf_folder *folder = rank->sim->folders;
    while (folder != NULL && strcmp(folder->path, path) != 0) {
        folder = folder->next;
    }
    if (folder == NULL) {
        folder = sim_alloc(sizeof *folder);
        folder->path = sim_copy_text(path);
        folder->owner = WF_SIM_HOST;
        folder->next = rank->sim->folders;
        rank->sim->folders = folder;
    }
    if (folder->owner != WF_SIM_HOST && wf_sim_rank_is_alive(rank->sim, folder->owner)) {
        return wf_error_set(error, WF_REFUSED, "%s is in use by process %u", path, folder->owner);
    }
    folder->owner = rank->id;
    *folder_out = folder;
    return WF_OK;
}

static struct sim_file *find(const struct wf_folder *folder, const char *name)
{
    struct sim_file *file = folder->files;
    while (file != NULL && strcmp(file->name, name) != 0) {
        file = file->next;
    }
    return file;
}

enum wf_status sim_files_read(struct wf_env *env, struct wf_folder *folder, const char *name,
                              uint8_t **bytes_out, size_t *len_out, struct wf_error *error)
{
    (void)env;
    const struct sim_file *file = find(folder, name);
    if (file == NULL) {
        return wf_error_set(error, WF_NOT_FOUND, "%s/%s is not there", folder->path, name);
    }
    *bytes_out = sim_alloc(file->len + 1);
    memcpy(*bytes_out, file->bytes, file->len);
    *len_out = file->len;
    return WF_OK;
}

static enum wf_sim_write ask(struct sim_rank *rank, const char *name, const void *bytes, size_t len)
{
    struct wf_sim *sim = rank->sim;
    if (!rank->alive) {
        return WF_SIM_WRITE_DIES; /* its turn goes on, but it is dead */
    }
    sim_trace_mix(sim, len);
    return sim->write_hook == NULL ? WF_SIM_WRITE_DONE
                                   : sim->write_hook(sim->write_user, rank->loop, name, bytes, len);
}

static enum wf_status die(struct sim_rank *rank, struct wf_error *error)
{
    if (rank->alive) {
        WF_ASSERT(rank->in_turn); /* nobody could free what is on the stack */
        wf_sim_crash(rank->sim, rank->loop);
    }
    return wf_error_set(error, WF_IO, "the process died in the middle of a write");
}

static void add(struct sim_file *file, const void *bytes, size_t len)
{
    file->bytes = realloc(file->bytes, file->len + len + 1);
    WF_ASSERT(file->bytes != NULL);
    memcpy(file->bytes + file->len, bytes, len);
    file->len += len;
}

enum wf_status sim_files_append(struct wf_env *env, struct wf_folder *folder, const char *name,
                                const void *bytes, size_t len_bytes, struct wf_error *error)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    struct sim_file *file = find(folder, name);
    enum wf_sim_write what = ask(rank, name, bytes, len_bytes);
    WF_ASSERT(file != NULL);
    if (what == WF_SIM_WRITE_FAILS) {
        return wf_error_set(error, WF_IO, "cannot write %s/%s: no space", folder->path, name);
    }
    if (what == WF_SIM_WRITE_TORN) {
        /* Some of it reached the disk; a block that did not may hold anything. */
        size_t reached = (size_t)wf_sim_choose(rank->sim, len_bytes), start = file->len;
        add(file, bytes, wf_sim_choose(rank->sim, 2) == 0 ? reached : len_bytes);
        memset(file->bytes + start + reached, 0, file->len - start - reached);
    } else if (what != WF_SIM_WRITE_DIES) {
        add(file, bytes, len_bytes);
    }
    return what == WF_SIM_WRITE_DONE ? WF_OK : die(rank, error);
}

enum wf_status sim_files_replace(struct wf_env *env, struct wf_folder *folder, const char *name,
                                 const void *bytes, size_t len_bytes, struct wf_error *error)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    struct sim_file *file = find(folder, name);
    enum wf_sim_write what = ask(rank, name, bytes, len_bytes);
    if (what == WF_SIM_WRITE_FAILS) {
        return wf_error_set(error, WF_IO, "cannot write %s/%s: no space", folder->path, name);
    }
    if (what == WF_SIM_WRITE_DONE || what == WF_SIM_WRITE_THEN_DIES) {
        if (file == NULL) {
            file = sim_alloc(sizeof *file);
            file->name = sim_copy_text(name);
            file->next = folder->files;
            folder->files = file;
        }
        file->len = 0;
        add(file, bytes, len_bytes);
    }
    return what == WF_SIM_WRITE_DONE ? WF_OK : die(rank, error);
}

void sim_files_close(struct wf_env *env, struct wf_folder *folder)
{
    if (folder != NULL && folder->owner == sim_rank_of_env(env)->id) {
        folder->owner = WF_SIM_HOST;
    }
}
