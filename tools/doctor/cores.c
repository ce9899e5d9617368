/* cores.c - how many cores, how much of them, which nodes, what the clock costs. */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

enum { CLOCK_READS = 10000, CLOCK_SLOW_NS = 200 };

/* Cores' worth of time that the control group grants; 0: no limit. */
static double quota(void)
{
    char line[80];
    uint64_t us, period;
    if (wf_look_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) {
        unsigned long long one, other;
        return sscanf(line, "%llu %llu", &one, &other) == 2 && other > 0
                   ? (double)one / (double)other
                   : 0;
    }
    if (wf_look_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &us) &&
        wf_look_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period) && period > 0) {
        return (double)us / (double)period;
    }
    return 0;
}

static void look_at_cores(struct wf_doctor *doctor)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int mine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    double granted = quota();
    bool cut = granted > 0 && granted < mine;
    struct wf_finding *finding = wf_doctor_add(doctor, "cores", cut ? WF_DOCTOR_SLOW : WF_DOCTOR_OK,
                                               "cores: %d of %ld may be used", mine, online);
    wf_doctor_value(finding, mine, "cores");
    if (cut) {
        size_t len = strlen(finding->found);
        snprintf(finding->found + len, sizeof finding->found - len,
                 ", for the time of %.1f of them (control group)", granted);
        wf_doctor_value(finding, granted, "cores");
        wf_doctor_costs(finding, "when the time is used up, all threads stand still until the next "
                                 "period: copies and heartbeats stall for up to 100 ms");
        wf_doctor_remedy(finding, "grant whole cores (cpuset) instead of a share of time");
    }
    if (mine == 1) {
        finding = wf_doctor_add(doctor, "cores.one", WF_DOCTOR_SLOW, "one core for everything");
        wf_doctor_costs(finding, "loops do not spin and take turns with copies: each message costs "
                                 "a change of process");
    }
}

static void look_at_nodes(struct wf_doctor *doctor)
{
    DIR *folder = opendir("/sys/devices/system/node");
    unsigned nodes = 0;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        nodes += strncmp(entry->d_name, "node", 4) == 0 && entry->d_name[4] >= '0' &&
                 entry->d_name[4] <= '9';
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (nodes == 0) {
        return;
    }
    struct wf_finding *finding =
        wf_doctor_add(doctor, "numa", WF_DOCTOR_OK, "memory nodes: %u", nodes);
    wf_doctor_value(finding, nodes, "nodes");
    if (nodes > 1) {
        wf_doctor_costs(finding, "reading another node's memory is slower; Weft does not choose "
                                 "nodes: threads run, and pages lie, where the launcher binds the "
                                 "rank");
        wf_doctor_remedy(finding, "bind each rank to the node of its device (numactl, mpirun "
                                  "--bind-to numa, srun --cpu-bind)");
    }
}

static void look_at_clock(struct wf_doctor *doctor)
{
    char source[60];
    uint64_t start = wf_look_now_ns(), end = start;
    for (int i = 0; i < CLOCK_READS; i++) {
        end = wf_look_now_ns();
    }
    double each = (double)(end - start) / CLOCK_READS;
    bool slow = each > CLOCK_SLOW_NS;
    wf_look_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
                 sizeof source);
    struct wf_finding *finding = wf_doctor_add(
        doctor, "clock", slow ? WF_DOCTOR_SLOW : WF_DOCTOR_OK, "clock: %.0f ns a reading%s%s", each,
        source[0] != '\0' ? ", source " : "", source);
    wf_doctor_value(finding, each, "ns");
    if (slow) {
        wf_doctor_costs(finding, "every turn of a loop reads it");
        wf_doctor_remedy(finding, "use the processor's own counter (clocksource tsc or kvm-clock)");
    }
}

void wf_doctor_cores(struct wf_doctor *doctor)
{
    doctor->group = "cores";
    look_at_cores(doctor);
    look_at_nodes(doctor);
    look_at_clock(doctor);
}
