/* libraries.c - UCX, CUDA and NCCL: found or not, which, and how often. */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/ucx_probe.h"

enum { COPIES_MAX = 16 };

/* The file behind a loaded library. */
static void path_of(void *library, char out[PATH_MAX])
{
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || realpath(map->l_name, out) == NULL) {
        snprintf(out, PATH_MAX, "unknown");
    }
}

/* Loads one of the names, NULL-terminated; unloading a driver's library is not safe, so it stays.
 */
static void *load_first(const char *const *names)
{
    void *library = NULL;
    for (int i = 0; names[i] != NULL && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* --- UCX -------------------------------------------------------------------------------------- */
struct copies {
    char path[COPIES_MAX][PATH_MAX];
    int count;
};

static void add_copy(struct copies *copies, const char *path)
{
    char real[PATH_MAX];
    if (copies->count == COPIES_MAX || realpath(path, real) == NULL) {
        return;
    }
    for (int i = 0; i < copies->count; i++) {
        if (strcmp(copies->path[i], real) == 0) {
            return;
        }
    }
    memcpy(copies->path[copies->count++], real, sizeof real);
}

static void add_pattern(struct copies *copies, const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            add_copy(copies, found.gl_pathv[i]);
        }
        globfree(&found);
    }
}

/* Where packages, HPC-X and Python wheels put theirs. */
static void find_copies(struct copies *copies)
{
    static const char *const patterns[] = {
        "/usr/lib/libucp.so.0*",
        "/usr/lib64/libucp.so.0*",
        "/usr/lib/*/libucp.so.0*",
        "/usr/local/lib/libucp.so.0*",
        "/opt/*/lib/libucp.so.0*",
        "/opt/*/ucx/lib/libucp.so.0*",
        "/usr/local/lib/python3*/*-packages/*/lib/libucp.so.0*",
        "/usr/lib/python3*/*-packages/*/lib/libucp.so.0*",
        "/usr/local/lib/python3*/*-packages/*.libs/libucp*.so*",
        "/opt/conda/lib/libucp.so.0*",
    };
    char folders[PATH_MAX], pattern[PATH_MAX + 40];
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        add_pattern(copies, patterns[i]);
    }
    static const char *const variables[] = {"LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"};
    static const char *const below[] = {
        "/libucp.so.0*", "/lib/python3*/site-packages/*/lib/libucp.so.0*", "/lib/libucp.so.0*"};
    for (size_t v = 0; v < sizeof variables / sizeof variables[0]; v++) {
        const char *value = getenv(variables[v]);
        snprintf(folders, sizeof folders, "%s", value != NULL ? value : "");
        for (char *next = folders, *one; (one = strsep(&next, ":")) != NULL;) {
            if (one[0] != '\0') {
                snprintf(pattern, sizeof pattern, "%s%s", one, below[v]);
                add_pattern(copies, pattern);
            }
        }
    }
}

static void tell_copies(struct wf_doctor *doctor, const struct copies *copies, const char *used)
{
    char list[WF_DOCTOR_TEXT] = "";
    int others = 0;
    for (int i = 0; i < copies->count; i++) {
        if (strcmp(copies->path[i], used) != 0) {
            size_t len = strlen(list);
            snprintf(list + len, sizeof list - len, "%s%s", others++ > 0 ? ", " : "",
                     copies->path[i]);
        }
    }
    if (others > 0) {
        struct wf_finding *finding =
            wf_doctor_add(doctor, "ucx.copies", WF_DOCTOR_SLOW, "other copies of UCX: %s", list);
        wf_doctor_costs(finding, "a process whose framework brings its own copy may end with two; "
                                 "Weft uses the one that is loaded already and says so");
        wf_doctor_remedy(finding, "name the wanted one in WEFT_UCX_LIBRARY");
    }
}

/* False: there is none. */
static bool look_at_ucx(struct wf_doctor *doctor)
{
    const char *wanted = getenv("WEFT_UCX_LIBRARY");
    char given[PATH_MAX] = "", used[PATH_MAX];
    struct stat info;
    if (wanted != NULL && wanted[0] != '\0') {
        bool folder = stat(wanted, &info) == 0 && S_ISDIR(info.st_mode);
        snprintf(given, sizeof given, "%s%s", wanted, folder ? "/libucp.so.0" : "");
    }
    const char *const names[] = {given[0] != '\0' ? given : "libucp.so.0", NULL};
    setenv("UCX_HANDLE_ERRORS", "none", 0); /* or it installs signal handlers when it is loaded */
    void *library = load_first(names);
    if (library == NULL) {
        struct wf_finding *finding =
            wf_doctor_add(doctor, "ucx", WF_DOCTOR_MISSING, "UCX: %s", dlerror());
        wf_doctor_costs(finding, "only shared memory is left: no job over several hosts");
        wf_doctor_remedy(finding, "install UCX (Debian: libucx0) or name it in WEFT_UCX_LIBRARY");
        return false;
    }
    unsigned major = 0, minor = 0, patch = 0;
    void (*version)(unsigned *, unsigned *, unsigned *) =
        (void (*)(unsigned *, unsigned *, unsigned *))dlsym(library, "ucp_get_version");
    if (version != NULL) {
        version(&major, &minor, &patch);
    }
    path_of(library, used);
    bool old = major == 1 && minor < 14;
    struct wf_finding *finding = wf_doctor_add(doctor, "ucx", old ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                                               "UCX %u.%u.%u: %s", major, minor, patch, used);
    if (old) {
        wf_doctor_costs(finding,
                        "1.13 and older have no GPU modules in Debian and collapse over TCP "
                        "when much is outstanding; Weft keeps little outstanding");
        wf_doctor_remedy(finding, "1.16 or newer, where the cluster has it");
    }
    struct copies *copies = calloc(1, sizeof *copies);
    WF_ASSERT(copies != NULL);
    find_copies(copies);
    tell_copies(doctor, copies, used);
    free(copies);
    return true;
}

/* What UCX reaches between two processes of this host. */
static const struct {
    const char *id, *transports, *what;
} probes[] = {{"ucx.tcp", "tcp", "UCX over TCP, two processes"},
              {"ucx.host", NULL, "UCX by its own choice, two processes"}};

enum { PROBES = sizeof probes / sizeof probes[0] };

static void tell_probe(struct wf_doctor *doctor, int i, const struct wf_ucx_probe *probe)
{
    struct wf_finding *finding = wf_doctor_add(
        doctor, probes[i].id, probe->good ? WF_DOCTOR_OK : WF_DOCTOR_MISSING, "%s", probes[i].what);
    size_t len = strlen(finding->found);
    if (probe->good) {
        snprintf(finding->found + len, sizeof finding->found - len, ": %.1f GB/s%s%s",
                 probe->bytes_per_s * 1e-9, probe->text[0] != '\0' ? "; " : "", probe->text);
        wf_doctor_value(finding, probe->bytes_per_s * 1e-9, "GB/s");
    } else {
        snprintf(finding->found + len, sizeof finding->found - len, ": %s", probe->text);
        wf_doctor_costs(finding, "no job over several hosts");
    }
}

/* --- CUDA and NCCL ---------------------------------------------------------------------------- */
static void look_at_cuda(struct wf_doctor *doctor)
{
    static const char *const drivers[] = {"libcuda.so.1", NULL};
    static const char *const runtimes[] = {"libcudart.so", "libcudart.so.13", "libcudart.so.12",
                                           "libcudart.so.11.0", NULL};
    void *driver = load_first(drivers);
    if (driver == NULL) {
        wf_doctor_add(doctor, "cuda", WF_DOCTOR_MISSING,
                      "CUDA: no driver (libcuda.so.1); this version moves host memory only");
        return;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*get_version)(int *) = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
    int (*get_count)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    int code = init != NULL ? init(0) : -1, version = 0, devices = 0;
    if (code == 0 && get_version != NULL && get_count != NULL) {
        get_version(&version);
        get_count(&devices);
    }
    struct wf_finding *finding =
        code == 0
            ? wf_doctor_add(doctor, "cuda", WF_DOCTOR_OK,
                            "CUDA driver %d.%d with %d devices; this version of Weft moves host "
                            "memory only",
                            version / 1000, version % 1000 / 10, devices)
            : wf_doctor_add(doctor, "cuda", WF_DOCTOR_MISSING,
                            "CUDA: the driver's library is here but does not start (error %d)",
                            code);
    wf_doctor_value(finding, devices, "devices");
    void *runtime = load_first(runtimes);
    int (*runtime_version)(int *) =
        runtime != NULL ? (int (*)(int *))dlsym(runtime, "cudaRuntimeGetVersion") : NULL;
    if (runtime_version != NULL && runtime_version(&version) == 0) {
        wf_doctor_add(doctor, "cudart", WF_DOCTOR_OK, "CUDA runtime %d.%d", version / 1000,
                      version % 1000 / 10);
    }
}

static void look_at_nccl(struct wf_doctor *doctor)
{
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    void *library = load_first(names);
    int (*get_version)(int *) =
        library != NULL ? (int (*)(int *))dlsym(library, "ncclGetVersion") : NULL;
    int version = 0;
    char path[PATH_MAX];
    if (get_version == NULL || get_version(&version) != 0) {
        wf_doctor_add(doctor, "nccl", WF_DOCTOR_MISSING,
                      "NCCL: not found; this version of Weft does not use it");
        return;
    }
    path_of(library, path);
    wf_doctor_add(doctor, "nccl", WF_DOCTOR_OK, "NCCL %d.%d.%d: %s; not used by this version",
                  version / 10000, version / 100 % 100, version % 100, path);
}

void wf_doctor_libraries(struct wf_doctor *doctor)
{
    struct wf_ucx_probe results[PROBES];
    doctor->group = "libraries";
    for (int i = 0; i < PROBES; i++) { /* before this process has UCX, for children to inherit */
        wf_ucx_probe_run(probes[i].transports, &results[i]);
    }
    bool found = look_at_ucx(doctor);
    for (int i = 0; found && i < PROBES; i++) {
        tell_probe(doctor, i, &results[i]);
    }
    look_at_cuda(doctor);
    look_at_nccl(doctor);
}
