/* ucx_library.c - finds and loads UCX without letting it touch the process's signals. */
#include "transports/ucx_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { UCP_API_MINOR_NEEDED = 12 };

static const char handle_errors[] = "UCX_HANDLE_ERRORS";

/* --- copies of UCX in this process -------------------------------------------------------------
 */

struct copies {
    const char *folder; /* NULL: any; else only copies outside it */
    size_t folder_len;
    char path[1024]; /* the first found; "" is none */
};

static int see_object(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    struct copies *copies = user;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    if (strncmp(base, "libucp", 6) != 0 && strncmp(base, "libucs", 6) != 0) {
        return 0;
    }
    if (strncmp(base, "libucs_signal", 13) == 0) {
        return 0;
    }
    size_t folder_len = slash != NULL ? (size_t)(slash - info->dlpi_name) : 0;
    if (copies->folder != NULL && folder_len == copies->folder_len &&
        memcmp(copies->folder, info->dlpi_name, folder_len) == 0) {
        return 0;
    }
    snprintf(copies->path, sizeof copies->path, "%s", info->dlpi_name);
    return 1;
}

/* A copy of UCX that is loaded and lies outside the folder of `path` (NULL: any copy). */
static bool find_copy(const char *path, struct copies *copies_out)
{
    *copies_out = (struct copies){0};
    if (path != NULL) {
        const char *slash = strrchr(path, '/');
        copies_out->folder = path;
        copies_out->folder_len = slash != NULL ? (size_t)(slash - path) : 0;
    }
    dl_iterate_phdr(see_object, copies_out);
    return copies_out->path[0] != '\0';
}

/* --- loading -----------------------------------------------------------------------------------
 */

/* "DIR" becomes "DIR/libucp.so.0", resolved, as the dynamic linker will name it. */
static enum wf_status resolve(const char *library, char path_out[static 1024],
                              struct wf_error *error)
{
    struct stat st;
    char joined[1024];
    bool is_folder = stat(library, &st) == 0 && S_ISDIR(st.st_mode);
    int len = snprintf(joined, sizeof joined, "%s%s", library, is_folder ? "/libucp.so.0" : "");
    char *resolved = len < (int)sizeof joined ? realpath(joined, NULL) : NULL;
    if (resolved == NULL || strlen(resolved) >= 1024) {
        free(resolved);
        return wf_error_set(error, WF_UNSUPPORTED,
                            "there is no UCX at %s; expected libucp.so.0 or a folder that has it",
                            joined);
    }
    /* The name given, not what a link in that folder leads to: sonames must match. */
    const char *slash = strrchr(joined, '/');
    const char *base = slash != NULL ? slash + 1 : joined;
    size_t folder_len = (size_t)(strrchr(resolved, '/') + 1 - resolved), base_len = strlen(base);
    if (folder_len + base_len >= 1024) {
        free(resolved);
        return wf_error_set(error, WF_UNSUPPORTED, "the path of UCX is too long: %s", joined);
    }
    memcpy(path_out, resolved, folder_len);
    memcpy(path_out + folder_len, base, base_len + 1);
    free(resolved);
    return WF_OK;
}

/* UCX reads these while it is loaded; a process that loads UCX for itself later is not affected.
 * The second would warn of options that are there for parts which this host does not use. */
static void *load_quietly(const char *name)
{
    static const char *const quiet[2][2] = {{handle_errors, "none"},
                                            {"UCX_WARN_UNUSED_ENV_VARS", "n"}};
    bool is_set[2];
    for (int i = 0; i < 2; i++) {
        is_set[i] = getenv(quiet[i][0]) != NULL;
        setenv(quiet[i][0], quiet[i][1], 0);
    }
    void *handle = dlopen(name, RTLD_LOCAL | RTLD_NOW | RTLD_NODELETE);
    for (int i = 0; i < 2; i++) {
        if (!is_set[i]) {
            unsetenv(quiet[i][0]);
        }
    }
    return handle;
}

static enum wf_status find_functions(void *handle, struct ucx_library *library,
                                     struct wf_error *error)
{
#define UCX_FIND(name)                                                                   \
    library->name = (__typeof__(&name))dlsym(handle, #name);                             \
    if (library->name == NULL) {                                                         \
        return wf_error_set(error, WF_UNSUPPORTED,                                       \
                            "%s has no function " #name "; UCX 1.12 or newer is needed", \
                            library->path);                                              \
    }
    UCX_FUNCTIONS(UCX_FIND)
#undef UCX_FIND
    *(void **)&library->print_all_options = dlsym(handle, "ucs_config_parser_print_all_opts");
    library->options_list = dlsym(handle, "ucs_config_global_list");
    return WF_OK;
}

static void find_path(struct ucx_library *library, const char *asked)
{
    Dl_info info;
    bool known = dladdr((void *)library->ucp_get_version, &info) != 0 && info.dli_fname != NULL;
    snprintf(library->path, sizeof library->path, "%s", known ? info.dli_fname : asked);
}

static void warn(struct ucx_library *library, bool was_loaded)
{
    const char *set = getenv(handle_errors);
    struct copies other;
    size_t len = 0, room = sizeof library->warning;
    if (was_loaded) {
        len = (size_t)snprintf(library->warning, room, "this process had loaded it already");
    } else if (set != NULL && strcmp(set, "none") != 0) {
        len = (size_t)snprintf(library->warning, room,
                               "%s is set to '%s' in the environment, so UCX installs signal "
                               "handlers",
                               handle_errors, set);
    }
    if (find_copy(library->path, &other) && len < room) {
        snprintf(library->warning + len, room - len, "%sa second UCX is in this process: %s",
                 len > 0 ? "; " : "", other.path);
    }
}

enum wf_status ucx_library_open(const char *asked, struct ucx_library *library_out,
                                struct wf_error *error)
{
    struct ucx_library library = {.path = "libucp.so.0"};
    struct copies loaded;
    if (asked == NULL) {
        asked = getenv("WEFT_UCX_LIBRARY");
    }
    if (asked != NULL && asked[0] != '\0') {
        enum wf_status status = resolve(asked, library.path, error);
        if (status != WF_OK) {
            return status;
        }
        /* The dynamic linker would pair this libucp with the other's libucs: equal sonames. */
        if (find_copy(library.path, &loaded)) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "UCX is wanted from %s, but this process has loaded another, %s; "
                                "use that one (no library named), or load none before",
                                library.path, loaded.path);
        }
    }
    bool was_loaded = find_copy(NULL, &loaded);
    void *handle = load_quietly(library.path);
    if (handle == NULL) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "UCX cannot be loaded: %s; install it (Debian: libucx0), or name its "
                            "folder in WEFT_UCX_LIBRARY",
                            dlerror());
    }
    enum wf_status status = find_functions(handle, &library, error);
    if (status != WF_OK) {
        return status;
    }
    find_path(&library, library.path);
    library.ucp_get_version(&library.major, &library.minor, &library.patch);
    if (library.major != 1 || library.minor < UCP_API_MINOR_NEEDED) {
        return wf_error_set(error, WF_UNSUPPORTED, "%s is UCX %u.%u.%u; 1.%d or newer is needed",
                            library.path, library.major, library.minor, library.patch,
                            UCP_API_MINOR_NEEDED);
    }
    warn(&library, was_loaded);
    *library_out = library;
    return WF_OK;
}

/* --- options of the environment ------------------------------------------------------------------
 */

enum wf_status ucx_environment_add(struct ucx_environment *environment, const char *plain_name,
                                   const char *value, struct wf_error *error)
{
    struct ucx_variable *grown =
        realloc(environment->variables, (environment->count + 1) * sizeof *grown);
    if (grown == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an option of ucx");
    }
    environment->variables = grown;
    struct ucx_variable variable = {.value = strdup(value)};
    if (variable.value == NULL || asprintf(&variable.name, "UCX_%s", plain_name) < 0) {
        free(variable.value);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an option of ucx");
    }
    environment->variables[environment->count++] = variable;
    return WF_OK;
}

void ucx_environment_enter(struct ucx_environment *environment)
{
    for (uint32_t i = 0; i < environment->count; i++) {
        struct ucx_variable *variable = &environment->variables[i];
        const char *before = getenv(variable->name);
        variable->before = before != NULL ? strdup(before) : NULL;
        setenv(variable->name, variable->value, 1);
    }
}

void ucx_environment_leave(struct ucx_environment *environment)
{
    for (uint32_t i = environment->count; i-- > 0;) {
        struct ucx_variable *variable = &environment->variables[i];
        if (variable->before != NULL) {
            setenv(variable->name, variable->before, 1);
        } else {
            unsetenv(variable->name);
        }
        free(variable->before);
        variable->before = NULL;
    }
}

void ucx_environment_free(struct ucx_environment *environment)
{
    for (uint32_t i = 0; i < environment->count; i++) {
        free(environment->variables[i].name);
        free(environment->variables[i].value);
    }
    free(environment->variables);
    *environment = (struct ucx_environment){0};
}
