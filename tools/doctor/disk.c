/* disk.c - where files go: temporary ones, and checkpoints of known values. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

#define LOW_BYTES (UINT64_C(1) << 30)

static void look_at(struct wf_doctor *doctor, const char *id, const char *what, const char *folder,
                    const char *costs)
{
    struct statvfs info;
    char size[32];
    if (statvfs(folder, &info) != 0 || access(folder, W_OK | X_OK) != 0) {
        struct wf_finding *finding =
            wf_doctor_add(doctor, id, WF_DOCTOR_SLOW, "%s %s: %s", what, folder, strerror(errno));
        wf_doctor_costs(finding, "%s", costs);
        return;
    }
    uint64_t left = (uint64_t)info.f_bavail * info.f_frsize;
    wf_look_bytes(left, size);
    struct wf_finding *finding =
        wf_doctor_add(doctor, id, left < LOW_BYTES ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                      "%s %s: %s free", what, folder, size);
    wf_doctor_value(finding, (double)left, "bytes");
    if (left < LOW_BYTES) {
        wf_doctor_costs(finding, "%s", costs);
    }
}

void wf_doctor_disk(struct wf_doctor *doctor)
{
    const char *temporary = getenv("TMPDIR"), *cache = getenv("WEFT_CACHE");
    const char *home = getenv("HOME");
    doctor->group = "disk";
    look_at(doctor, "tmp", "temporary files in", temporary != NULL ? temporary : "/tmp",
            "reports and pictures are written to a file beside the final one first");
    /* The cache is made at its first use: what counts is where. */
    const char *root = cache != NULL && access(cache, F_OK) == 0 ? cache
                       : home != NULL                            ? home
                                                                 : "/tmp";
    look_at(doctor, "cache", "checkpoints of known values in", root,
            "a job whose model is a configuration makes its weights there; set WEFT_CACHE");
}
