/* processes.c - what one process may see of another, and how many descriptors it may have. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

enum { PROBE_BYTES = 32 << 20, PASSES = 3, WANTED_DESCRIPTORS = 4096 };

/* What the reading child found; in memory that it shares with us. */
struct verdict {
    int read_errno; /* 0: it could read its sibling's memory */
    double bytes_per_s;
};

static pid_t start_sleeper(int pipe_write)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            close(pipe_write);
            pause();
        }
        _exit(0);
    }
    return pid;
}

/* In a child: reads what lies at the same address in its sibling, as an engine reads a trainer. */
static void read_sibling(pid_t sibling, void *from, void *to, struct verdict *verdict)
{
    struct iovec local = {to, PROBE_BYTES}, remote = {from, PROBE_BYTES};
    for (int i = 0; i < PASSES; i++) {
        uint64_t start = wf_look_now_ns();
        ssize_t got = process_vm_readv(sibling, &local, 1, &remote, 1, 0);
        if (got != PROBE_BYTES) {
            verdict->read_errno = got < 0 ? errno : EIO;
            return;
        }
        double rate = PROBE_BYTES / ((double)(wf_look_now_ns() - start) * 1e-9);
        verdict->bytes_per_s = rate > verdict->bytes_per_s ? rate : verdict->bytes_per_s;
    }
}

static void end_child(pid_t pid, int signal_number)
{
    if (pid > 0) {
        kill(pid, signal_number);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
}

/* Ranks are siblings, not parent and child: kernel.yama.ptrace_scope=1 tells those apart. */
static void try_siblings(struct verdict *verdict)
{
    void *from =
        mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *to = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ends[2] = {-1, -1};
    verdict->read_errno = ENOMEM;
    if (from != MAP_FAILED && to != MAP_FAILED && pipe2(ends, O_CLOEXEC) == 0) {
        memset(from, 1, PROBE_BYTES);
        pid_t sleeper = start_sleeper(ends[1]);
        pid_t reader = sleeper > 0 ? fork() : -1;
        if (reader == 0) {
            memset(to, 0, PROBE_BYTES);
            verdict->read_errno = 0;
            read_sibling(sleeper, from, to, verdict);
            _exit(0);
        }
        if (reader > 0) {
            while (waitpid(reader, NULL, 0) < 0 && errno == EINTR) {
            }
        } else {
            verdict->read_errno = errno;
        }
        end_child(sleeper, SIGKILL);
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
    if (from != MAP_FAILED) {
        munmap(from, PROBE_BYTES);
    }
    if (to != MAP_FAILED) {
        munmap(to, PROBE_BYTES);
    }
}

static void look_at_reading(struct wf_doctor *doctor)
{
    struct verdict *verdict =
        mmap(NULL, sizeof *verdict, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char scope[40];
    bool yama = wf_look_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    if (verdict == MAP_FAILED) {
        return;
    }
    *verdict = (struct verdict){0};
    try_siblings(verdict);
    if (verdict->read_errno == 0) {
        struct wf_finding *finding = wf_doctor_add(doctor, "process_vm_readv", WF_DOCTOR_OK,
                                                   "process_vm_readv between ranks: allowed, %.1f "
                                                   "GB/s from small pages (needed only where "
                                                   "weights are no shared memory)",
                                                   verdict->bytes_per_s * 1e-9);
        wf_doctor_value(finding, verdict->bytes_per_s * 1e-9, "GB/s");
    } else {
        struct wf_finding *finding =
            wf_doctor_add(doctor, "process_vm_readv", WF_DOCTOR_MISSING,
                          "process_vm_readv between ranks: %s%s%s", strerror(verdict->read_errno),
                          yama ? ", kernel.yama.ptrace_scope=" : "", yama ? scope : "");
        wf_doctor_costs(finding, "only weights in shared memory (memfd) can be read on this host; "
                                 "others go over the network transport");
        wf_doctor_remedy(finding, "keep weights in shared memory (the default), or allow it: "
                                  "ptrace_scope=0, CAP_SYS_PTRACE, a seccomp profile with "
                                  "process_vm_readv");
    }
    munmap(verdict, sizeof *verdict);
}

static void look_at_pidfd(struct wf_doctor *doctor)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int error = errno;
    if (fd >= 0) {
        close(fd);
        wf_doctor_add(doctor, "pidfd", WF_DOCTOR_OK, "pidfd_open: allowed")->needed = true;
        return;
    }
    struct wf_finding *finding =
        wf_doctor_add(doctor, "pidfd", WF_DOCTOR_MISSING, "pidfd_open: %s", strerror(error));
    wf_doctor_costs(finding,
                    "`weft run` cannot start the ranks of a job here; ranks that a launcher "
                    "starts are not concerned, except the first");
    wf_doctor_remedy(finding, "Linux 5.3 or newer, a seccomp profile with pidfd_open");
}

/* Every command of weft begins with the hard limit as its own. */
static void look_at_descriptors(struct wf_doctor *doctor)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    unsigned long long most = (unsigned long long)limit.rlim_max;
    bool low = most < WANTED_DESCRIPTORS;
    struct wf_finding *finding =
        wf_doctor_add(doctor, "descriptors", low ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                      "open files (ulimit -Hn): %llu, the hard limit", most);
    wf_doctor_value(finding, (double)most, "descriptors");
    if (low) {
        wf_doctor_costs(finding,
                        "a server needs one for each rank and one for each who knocks; a "
                        "rank one for each peer: jobs of more than about %llu ranks are "
                        "refused",
                        most > 64 ? most - 64 : 0);
        wf_doctor_remedy(finding,
                         "raise the hard limit where it is set: LimitNOFILE= of a systemd unit, "
                         "nofile in /etc/security/limits.conf, docker run --ulimit nofile=65536");
    }
}

void wf_doctor_processes(struct wf_doctor *doctor)
{
    doctor->group = "processes";
    look_at_reading(doctor);
    look_at_pidfd(doctor);
    look_at_descriptors(doctor);
}
