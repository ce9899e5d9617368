/* token_file.c - files of tokens and notes of servers: who may read them, finding the right one. */
#include "tools/run/token_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/hash.h"
#include "tools/files/io.h"

#define NOTE_END ".server"
enum { NOTE_BYTES_MAX = WF_JOB_NAME_MAX + WF_ADDRESS_MAX + 8, SCOPE_TEXT = 160 };

/* --- token files ------------------------------------------------------------------------------ */
/* Files that a cluster mounts for a service's group belong to root and are readable for the group
 * that the service runs in. */
static enum wf_status check_mode(const char *path, const struct stat *info, struct wf_error *error)
{
    unsigned mode = (unsigned)info->st_mode & 0777;
    bool lent = info->st_uid == 0 && geteuid() != 0;
    if (!S_ISREG(info->st_mode)) {
        return wf_error_set(error, WF_REFUSED, "token file %s is not a file", path);
    }
    if (info->st_uid != geteuid() && info->st_uid != 0) {
        return wf_error_set(error, WF_REFUSED,
                            "token file %s belongs to user %u, this process runs as user %u: use "
                            "a copy of your own",
                            path, (unsigned)info->st_uid, (unsigned)geteuid());
    }
    if ((mode & (lent ? 0037 : 0077)) != 0) {
        return wf_error_set(error, WF_REFUSED,
                            "token file %s can be read by others (mode %04o): run chmod 600 %s, "
                            "and make a new token if they should not know it",
                            path, mode, path);
    }
    return WF_OK;
}

static enum wf_status load_fd(int fd, const char *path, struct wf_token *token_out,
                              struct wf_error *error)
{
    struct stat info;
    char text[WF_TOKEN_FILE_MAX];
    if (fstat(fd, &info) != 0) {
        return wf_error_set(error, WF_IO, "token file %s: %s", path, strerror(errno));
    }
    enum wf_status status = check_mode(path, &info, error);
    if (status != WF_OK) {
        return status;
    }
    ssize_t len = read(fd, text, sizeof text);
    if (len < 0) {
        return wf_error_set(error, WF_IO, "token file %s: %s", path, strerror(errno));
    }
    status = wf_token_parse(text, (size_t)len, token_out, error);
    explicit_bzero(text, sizeof text);
    if (status != WF_OK) {
        wf_error_prefix(error, "token file %s", path);
    }
    return status;
}

enum wf_status wf_token_load(const char *path, struct wf_token *token_out, struct wf_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return wf_error_set(error, WF_IO,
                            "token file %s: %s; expected the file that the job's server uses (it "
                            "prints \"token in ...\"), or a copy",
                            path, strerror(errno));
    }
    enum wf_status status = load_fd(fd, path, token_out, error);
    close(fd);
    return status;
}

static enum wf_status write_new(const char *path, const char *text, struct wf_error *error)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t len = (ssize_t)strlen(text);
    bool written = fd >= 0 && write(fd, text, (size_t)len) == len;
    int number = errno;
    if (fd >= 0 && close(fd) != 0) {
        written = false;
        number = errno;
    }
    if (fd >= 0 && !written) {
        unlink(path);
    }
    return written ? WF_OK
                   : wf_error_set(error, WF_IO, "cannot write %s: %s", path, strerror(number));
}

/* --- the run folder --------------------------------------------------------------------------- */
static void fallback_name(char out[WF_PATH_MAX])
{
    snprintf(out, WF_PATH_MAX, "/tmp/weft-run-%u", (unsigned)geteuid());
}

static bool folder_name(char out[WF_PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *own = getenv("WEFT_CACHE");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const struct {
        const char *root, *below;
    } places[] = {{own, "run"}, {runtime, "weft"}, {cache, "weft/run"}, {home, ".cache/weft/run"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i].root != NULL && places[i].root[0] == '/') {
            int len = snprintf(out, WF_PATH_MAX, "%s/%s", places[i].root, places[i].below);
            return len < WF_PATH_MAX;
        }
    }
    fallback_name(out);
    return true;
}

enum wf_status wf_run_folder(char folder[WF_PATH_MAX], struct wf_error *error)
{
    struct stat info;
    struct wf_error ignored; /* what can be done about it is said below */
    if (!folder_name(folder)) {
        return wf_error_set(error, WF_INVALID,
                            "the run folder's path is too long; set WEFT_CACHE "
                            "to a shorter one");
    }
    wf_folder_make(folder, 0700, &ignored);
    if (access(folder, W_OK) != 0 && getenv("WEFT_CACHE") == NULL) {
        fallback_name(folder); /* a home that cannot be written is common in containers */
        wf_folder_make(folder, 0700, &ignored);
    }
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return wf_error_set(error, WF_IO,
                            "cannot make the folder %s: %s; set WEFT_CACHE to one "
                            "that can be written",
                            folder, strerror(errno));
    }
    if (info.st_uid != geteuid() || (info.st_mode & 0022) != 0) {
        return wf_error_set(error, WF_REFUSED,
                            "others can write into %s, where tokens are kept: run chmod 700 %s, "
                            "or set WEFT_CACHE to a folder of your own",
                            folder, folder);
    }
    return WF_OK;
}

static enum wf_status run_path(char out[WF_PATH_MAX], struct wf_error *error, const char *format,
                               ...)
{
    enum wf_status status = wf_run_folder(out, error);
    if (status == WF_OK) {
        size_t used = strlen(out);
        va_list args;
        va_start(args, format);
        int len = vsnprintf(out + used, WF_PATH_MAX - used, format, args);
        va_end(args);
        if (used + (size_t)len >= WF_PATH_MAX) {
            status = wf_error_set(error, WF_INVALID,
                                  "the run folder's path is too long; set "
                                  "WEFT_CACHE to a shorter one");
        }
    }
    return status;
}

/* What tells this kernel and process namespace from others; "" where /proc does not say. */
static void numbers_scope(char out[SCOPE_TEXT])
{
    char boot[64] = "", space[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, boot, sizeof boot - 1);
    if (fd >= 0) {
        close(fd);
    }
    boot[len < 0 ? 0 : len] = '\0';
    len = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[len < 0 ? 0 : len] = '\0';
    snprintf(out, SCOPE_TEXT, "%s %s", boot, space);
}

enum wf_status wf_process_folder(char folder[WF_PATH_MAX], struct wf_error *error)
{
    char scope[SCOPE_TEXT];
    numbers_scope(scope);
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_text(&hasher, scope, strlen(scope));
    enum wf_status status =
        run_path(folder, error, "/here-%016llx", (unsigned long long)wf_hasher_end(&hasher).high);
    if (status == WF_OK && mkdir(folder, 0700) != 0 && errno != EEXIST) {
        status = wf_error_set(error, WF_IO, "cannot make the folder %s: %s%s", folder,
                              strerror(errno), wf_errno_advice(errno));
    }
    return status;
}

/* --- which token ------------------------------------------------------------------------------ */
/* Which file the process was told to use, or NULL. */
static const char *told_path(const char *argument, const struct wf_job_file *job)
{
    if (argument != NULL) {
        return argument;
    }
    if (job != NULL && job->server.token_file[0] != '\0') {
        return job->server.token_file;
    }
    const char *told = getenv("WEFT_TOKEN_FILE");
    return told != NULL && told[0] != '\0' ? told : NULL;
}

/* A file that is there under its name is whole: others may be looking for it now. Who comes second
 * leaves it as it is. */
static enum wf_status make_token(const char *path, struct wf_env *env, struct wf_error *error)
{
    struct wf_token token = {.is_set = true};
    char text[WF_TOKEN_TEXT + 1], made[WF_PATH_MAX + 32];
    env->ops->random(env, token.bytes, sizeof token.bytes);
    wf_token_format(&token, text);
    wf_token_wipe(&token);
    strcat(text, "\n");
    snprintf(made, sizeof made, "%s.%d.new", path, (int)getpid());
    unlink(made); /* of an earlier process with this number */
    enum wf_status status = write_new(made, text, error);
    explicit_bzero(text, sizeof text);
    if (status == WF_OK && link(made, path) != 0 && errno != EEXIST) {
        status = wf_error_set(error, WF_IO, "cannot make %s: %s", path, strerror(errno));
    }
    unlink(made);
    return status;
}

static bool has_token(const char *job, char path_out[WF_PATH_MAX])
{
    struct wf_error error;
    return job[0] != '\0' && run_path(path_out, &error, "/%s.token", job) == WF_OK &&
           access(path_out, F_OK) == 0;
}

enum wf_status wf_token_of_job(const char *argument, const struct wf_job_file *file,
                               const char *job, struct wf_env *env, char path_out[WF_PATH_MAX],
                               struct wf_token *token_out, struct wf_error *error)
{
    const char *told = told_path(argument, file);
    enum wf_status status = WF_OK;
    if (told == NULL && env == NULL && !has_token(job, path_out)) {
        status = wf_error_set(error, WF_INVALID,
                              "no token of %s%s is here: give the server's --token-file, or set "
                              "WEFT_TOKEN_FILE",
                              job[0] != '\0' ? "job " : "that job", job);
    } else if (told == NULL) {
        status = run_path(path_out, error, "/%s.token", job);
        if (status == WF_OK && access(path_out, F_OK) != 0) {
            status = make_token(path_out, env, error);
        }
    } else if (snprintf(path_out, WF_PATH_MAX, "%s", told) >= WF_PATH_MAX) {
        status = wf_error_set(error, WF_INVALID, "the token file's path is too long");
    }
    return status == WF_OK ? wf_token_load(path_out, token_out, error) : status;
}

/* --- notes of servers ------------------------------------------------------------------------- */
enum wf_status wf_server_note_write(struct wf_server_note *note, struct wf_error *error)
{
    char text[NOTE_BYTES_MAX];
    char folder[WF_PATH_MAX];
    enum wf_status status = wf_process_folder(folder, error);
    if (status == WF_OK && snprintf(note->path, sizeof note->path, "%.900s/%s-%d" NOTE_END, folder,
                                    note->job, (int)getpid()) >= WF_PATH_MAX) {
        status = wf_error_set(error, WF_INVALID, "the run folder's path is too long");
    }
    if (status == WF_OK) {
        snprintf(text, sizeof text, "%s\n%s\n", note->job, note->address);
        unlink(note->path); /* of an earlier process with this number */
        status = write_new(note->path, text, error);
    }
    if (status != WF_OK) {
        note->path[0] = '\0';
    }
    return status;
}

void wf_server_note_remove(const struct wf_server_note *note)
{
    if (note->path[0] != '\0') {
        unlink(note->path);
    }
}

/* Its two lines; false: it is none. */
static bool note_read(const char *path, struct wf_server_note *note)
{
    char text[NOTE_BYTES_MAX + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t len = fd < 0 ? -1 : read(fd, text, NOTE_BYTES_MAX);
    if (fd >= 0) {
        close(fd);
    }
    if (len <= 0) {
        return false;
    }
    text[len] = '\0';
    char *rest = text, *job = strsep(&rest, "\n");
    char *address = rest == NULL ? NULL : strsep(&rest, "\n");
    if (address == NULL || rest == NULL || strlen(job) >= sizeof note->job ||
        strlen(address) >= sizeof note->address || strlen(path) >= sizeof note->path) {
        return false;
    }
    strcpy(note->path, path);
    strcpy(note->job, job);
    strcpy(note->address, address);
    return true;
}

/* The same, or the same port: a server that listens everywhere is reached under many names. */
static bool is_address_of(const struct wf_server_note *note, const char *address)
{
    const char *a = strrchr(note->address, ':'), *b = strrchr(address, ':');
    bool tcp = strncmp(note->address, "tcp:", 4) == 0 && strncmp(address, "tcp:", 4) == 0;
    return strcmp(note->address, address) == 0 || (tcp && strcmp(a, b) == 0);
}

/* JOB-PID.server */
static bool is_alive(const char *name)
{
    const char *dash = strrchr(name, '-');
    long pid = dash == NULL ? 0 : strtol(dash + 1, NULL, 10);
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

bool wf_server_note_find(const char *address, const char *job, struct wf_server_note *note_out)
{
    char folder[WF_PATH_MAX], path[2 * WF_PATH_MAX];
    struct timespec newest = {0};
    bool found = false;
    struct wf_error error;
    DIR *dir = wf_process_folder(folder, &error) == WF_OK ? opendir(folder) : NULL;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        size_t len = strlen(entry->d_name), end = strlen(NOTE_END);
        struct wf_server_note note;
        struct stat info;
        if (len <= end || strcmp(entry->d_name + len - end, NOTE_END) != 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &info) != 0 || info.st_uid != geteuid() || strlen(path) >= WF_PATH_MAX) {
            continue;
        }
        if (!is_alive(entry->d_name)) {
            unlink(path);
            continue;
        }
        bool newer =
            info.st_mtim.tv_sec > newest.tv_sec ||
            (info.st_mtim.tv_sec == newest.tv_sec && info.st_mtim.tv_nsec >= newest.tv_nsec);
        if (newer && note_read(path, &note) && (address == NULL || is_address_of(&note, address)) &&
            (job == NULL || strcmp(job, note.job) == 0)) {
            *note_out = note;
            newest = info.st_mtim;
            found = true;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}
