/* run_job.c - runs seeds of the simulated job by hand: `run_job FIRST LAST
 * [trace|bug|calm|server|server-trace|experts|experts-trace|prepared|prepared-trace|replicas|
 * replicas-trace|cut|cut-trace|casts|casts-trace]`.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/job.h"

static struct job_options options_of(const char *kind, uint64_t seed)
{
    return strncmp(kind, "server", 6) == 0     ? job_options_of_server_seed(seed)
           : strncmp(kind, "experts", 7) == 0  ? job_options_of_experts_seed(seed)
           : strncmp(kind, "prepared", 8) == 0 ? job_options_of_prepared_seed(seed)
           : strncmp(kind, "replicas", 8) == 0 ? job_options_of_replicas_seed(seed)
           : strncmp(kind, "cut", 3) == 0      ? job_options_of_cut_seed(seed)
           : strncmp(kind, "casts", 5) == 0    ? job_options_of_casts_seed(seed)
                                               : job_options_of_seed(seed);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t last = argc > 2 ? strtoull(argv[2], NULL, 10) : first;
    uint32_t failed = 0, commits = 0, aborts = 0, fills = 0, replicas = 0;
    uint32_t placements = 0, taken = 0;
    uint64_t events = 0, mismatches = 0, compared = 0, different = 0;
    uint32_t struck_at[JOB_POINT_COUNT] = {0}, struck_by[JOB_FAULT_COUNT] = {0};
    uint32_t at_server[JOB_FAULT_COUNT] = {0}, records[JOB_RECORDS] = {0};
    for (uint64_t seed = first; seed <= last; seed++) {
        struct job_options options = options_of(argc > 3 ? argv[3] : "", seed);
        if (argc > 3 && strstr(argv[3], "trace") != NULL) {
            options.trace = stdout;
        }
        if (argc > 3 && strcmp(argv[3], "bug") == 0) {
            options.skip_quiesce = true;
        }
        if (argc > 3 && strcmp(argv[3], "calm") == 0) {
            options.faults = options.bad_links = options.corrupt = false;
        }
        struct job_result result;
        job_run(&options, &result);
        commits += result.commits;
        aborts += result.aborts;
        fills += result.fills;
        replicas += result.replica_fills;
        placements += result.placements;
        taken += result.tables_taken;
        events += result.events;
        compared += result.compared;
        different += result.different;
        mismatches += result.digest_mismatches;
        for (int i = 0; i < JOB_POINT_COUNT; i++) {
            struck_at[i] += result.struck_at[i];
        }
        for (int i = 0; i < JOB_FAULT_COUNT; i++) {
            struck_by[i] += result.struck_by[i];
            at_server[i] += result.struck_server_by[i];
        }
        for (int i = 0; i < JOB_RECORDS; i++) {
            records[i] += result.struck_record[i];
        }
        if (result.failure[0] != '\0') {
            failed++;
            printf("seed %llu: %s\n", (unsigned long long)seed, result.failure);
        }
    }
    printf(
        "%llu seeds, %u failed, %llu events, %u commits, %u fills (%u from replicas), %u aborts\n",
        (unsigned long long)(last - first + 1), failed, (unsigned long long)events, commits, fills,
        replicas, aborts);
    for (int i = 0; i < JOB_POINT_COUNT; i++) {
        printf("%s %u  ", job_point_names[i], struck_at[i]);
    }
    for (int i = 0; i < JOB_FAULT_COUNT; i++) {
        printf("%s %u (server %u)  ", job_fault_names[i], struck_by[i], at_server[i]);
    }
    for (int i = 1; i < JOB_RECORDS; i++) {
        printf("record %d %u  ", i, records[i]);
    }
    printf("digest mismatches %llu  placements %u (%u told)  copies %llu, rounds with a difference "
           "%llu\n",
           (unsigned long long)mismatches, placements, taken, (unsigned long long)compared,
           (unsigned long long)different);
    return failed > 0;
}
