/* test_job.c - the whole job under faults: no engine ever serves a mixture, nobody is stuck. */
#include <criterion/criterion.h>

#include "actors/journal.h"
#include "tests/sanitized.h"
#include "tests/sim/job.h"

enum {
    EXPERTS_SEEDS = 24,
    PREPARED_SEEDS = 24,
    REPLICAS_SEEDS = 30,
    CUT_SEEDS = 24,
    CASTS_SEEDS = 16
};
enum {
    SEEDS = SANITIZED ? 80 : 200,
    SERVER_SEEDS = SANITIZED ? 80 : 200,
    TWICE = SANITIZED ? 4 : 12,
    BUG_SEEDS = 5
};

Test(job, no_torn_version_and_no_stuck_rank)
{
    uint32_t struck_at[JOB_POINT_COUNT] = {0}, struck_by[JOB_FAULT_COUNT] = {0}, server = 0;
    uint32_t commits = 0, aborts = 0, fills = 0, replicas = 0, stores = 0, doubts = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job_options options = job_options_of_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu: %s", (unsigned long long)seed,
                            result.failure);
        for (int i = 0; i < JOB_POINT_COUNT; i++) {
            struck_at[i] += result.struck_at[i];
        }
        for (int i = 0; i < JOB_FAULT_COUNT; i++) {
            struck_by[i] += result.struck_by[i];
        }
        server += result.struck_server;
        commits += result.commits;
        aborts += result.aborts;
        fills += result.fills;
        replicas += result.replica_fills;
        stores += result.store_fills;
        doubts += result.doubts;
    }
    for (int i = 0; i < JOB_AT_PREPARING; i++) {
        cr_expect(SANITIZED || struck_at[i] > 0, "no fault struck %s", job_point_names[i]);
    }
    for (int i = 0; i < JOB_LOSE; i++) {
        cr_expect(SANITIZED || struck_by[i] > 0, "nothing was struck by %s", job_fault_names[i]);
    }
    cr_expect_gt(server, 0, "the server was never struck");
    cr_expect_gt(commits, SEEDS);
    cr_expect_gt(aborts, 0);
    cr_expect_gt(stores, 0, "none was filled from the store");
    cr_expect_gt(doubts, 0, "no version was in doubt");
    cr_expect_gt(fills, replicas + stores, "none was filled from the train side");
    cr_expect_gt(replicas, 0, "none was filled from a replica");
}

/* The server dies at any state of the protocol, alone or with others, comes back on its journal, on
 * a torn one, without one, or as another server beside the old one that was frozen. */
Test(job, versions_survive_their_servers)
{
    uint32_t at_server[JOB_FAULT_COUNT] = {0}, records[JOB_RECORDS] = {0}, commits = 0;
    for (uint64_t seed = 1; seed <= SERVER_SEEDS; seed++) {
        struct job_options options = job_options_of_server_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu with server faults: %s",
                            (unsigned long long)seed, result.failure);
        for (int i = 0; i < JOB_FAULT_COUNT; i++) {
            at_server[i] += result.struck_server_by[i];
        }
        for (int i = 0; i < JOB_RECORDS; i++) {
            records[i] += result.struck_record[i];
        }
        commits += result.commits;
    }
    static const enum job_fault_kind kinds[] = {JOB_CRASH, JOB_FREEZE_LONG, JOB_LOSE, JOB_TAKEOVER,
                                                JOB_WRITE};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        cr_expect_gt(at_server[kinds[i]], SANITIZED ? 0 : 5, "the server was hardly struck by %s",
                     job_fault_names[kinds[i]]);
    }
    cr_expect_gt(records[WF_JOURNAL_OPEN], 0, "never while OPEN was written");
    cr_expect_gt(records[WF_JOURNAL_DECIDE], 0, "never while DECIDE was written");
    cr_expect_gt(commits, SERVER_SEEDS);
}

/* Engines move their experts after versions, each of its hosts at another moment, while ranks and
 * servers die: nobody plans with half a table, and nobody waits for ever. */
Test(job, experts_move_between_versions)
{
    uint32_t placements = 0, commits = 0, fills = 0, taken = 0;
    for (uint64_t seed = 1; seed <= EXPERTS_SEEDS; seed++) {
        struct job_options options = job_options_of_experts_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu with experts: %s", (unsigned long long)seed,
                            result.failure);
        placements += result.placements;
        commits += result.commits;
        fills += result.fills;
        taken += result.tables_taken;
    }
    cr_expect_gt(taken, 0, "no rank that was started again was told its engine's table");
    cr_expect_gt(placements, 4 * EXPERTS_SEEDS);
    cr_expect_gt(commits, 4 * EXPERTS_SEEDS);
    cr_expect_gt(fills, 0);
}

/* Trainers are struck while they make codes, scales and norms, and rounds end meanwhile: what
 * engines have is always made of the version that they claim. */
Test(job, what_is_prepared_is_of_the_version)
{
    uint32_t commits = 0, aborts = 0, fills = 0, preparing = 0;
    for (uint64_t seed = 1; seed <= PREPARED_SEEDS; seed++) {
        struct job_options options = job_options_of_prepared_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu with prepared tensors: %s",
                            (unsigned long long)seed, result.failure);
        commits += result.commits;
        aborts += result.aborts;
        fills += result.fills;
        preparing += result.struck_at[JOB_AT_PREPARING];
    }
    cr_expect_gt(commits, PREPARED_SEEDS);
    cr_expect_gt(aborts, 0);
    cr_expect_gt(fills, 0);
    cr_expect_gt(preparing, 0, "no trainer was struck while it prepared");
}

/* Copies are compared while ranks and servers die, experts move and engines are filled: where all
 * are alike nobody is blamed, and where one is not it is that one, of that version; a trainer's is
 * served by nobody. */
Test(job, copies_that_differ_are_named_and_no_others)
{
    uint32_t different[JOB_ALTERED_INFER + 1] = {0}, fills = 0;
    uint64_t compared = 0;
    for (uint64_t seed = 1; seed <= REPLICAS_SEEDS; seed++) {
        struct job_options options = job_options_of_replicas_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu with copies compared: %s",
                            (unsigned long long)seed, result.failure);
        different[options.altered] += result.different > 0;
        compared += result.compared;
        fills += result.fills;
    }
    cr_expect_gt(compared, 4 * REPLICAS_SEEDS);
    cr_expect_gt(fills, 0);
    cr_expect_gt(different[JOB_ALTERED_TRAIN], 3, "trainers' copies that differ were not found");
    cr_expect_gt(different[JOB_ALTERED_INFER], 3, "engines' copies that differ were not found");
}

/* Without that, a version is served of which nobody knows which copy it is. */
Test(job, a_copy_that_differs_is_served_where_none_are_compared)
{
    for (uint64_t seed = 1; seed <= BUG_SEEDS; seed++) {
        struct job_options options = {.seed = seed, .altered = JOB_ALTERED_TRAIN};
        struct job_result result;
        job_run(&options, &result);
        bool served = strstr(result.failure, "step 2 is served, in which") != NULL ||
                      strstr(result.failure, "of model.norm.weight is another's") != NULL;
        cr_expect(served, "seed %llu: %s", (unsigned long long)seed, result.failure);
    }
}

/* Engines are struck while they quantise what they assembled, and rounds end meanwhile. Fills
 * from a replica have codes, those from the store have none. */
Test(job, what_engines_quantise_is_of_the_version)
{
    uint32_t commits = 0, aborts = 0, replicas = 0, stores = 0, quantising = 0;
    for (uint64_t seed = 1; seed <= CUT_SEEDS; seed++) {
        struct job_options options = job_options_of_cut_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu with blocks that are cut: %s",
                            (unsigned long long)seed, result.failure);
        commits += result.commits;
        aborts += result.aborts;
        replicas += result.replica_fills;
        stores += result.store_fills;
        quantising += result.struck_at[JOB_AT_QUANTISING];
    }
    cr_expect_gt(commits, CUT_SEEDS);
    cr_expect_gt(aborts, 0);
    cr_expect_gt(replicas, 0, "none was filled from a replica");
    cr_expect_gt(stores, 0, "none was filled from the store");
    cr_expect_gt(quantising, 0, "no engine was struck while it quantised");
}

/* Trainers and servers die while tensors are cast ahead, plans come and go: what engines hold is of
 * one version, rounded once. */
Test(job, what_is_cast_once_is_of_the_version)
{
    uint32_t commits = 0, aborts = 0, fills = 0, preparing = 0;
    for (uint64_t seed = 1; seed <= CASTS_SEEDS; seed++) {
        struct job_options options = job_options_of_casts_seed(seed);
        struct job_result result;
        job_run(&options, &result);
        cr_assert_str_empty(result.failure, "seed %llu with casts: %s", (unsigned long long)seed,
                            result.failure);
        commits += result.commits;
        aborts += result.aborts;
        fills += result.fills;
        preparing += result.struck_at[JOB_AT_PREPARING];
    }
    cr_expect_gt(commits, CASTS_SEEDS);
    cr_expect_gt(aborts, 0);
    cr_expect_gt(fills, 0);
    cr_expect_gt(preparing, 0, "no trainer was struck while it cast");
}

Test(job, one_seed_gives_one_trace)
{
    for (uint64_t seed = 1; seed <= 2 * TWICE; seed++) {
        struct job_options options =
            seed > TWICE ? job_options_of_server_seed(seed) : job_options_of_seed(seed);
        struct job_result first, second;
        job_run(&options, &first);
        job_run(&options, &second);
        cr_expect_eq(first.trace_hash, second.trace_hash, "seed %llu", (unsigned long long)seed);
        cr_expect_eq(first.events, second.events, "seed %llu", (unsigned long long)seed);
    }
}

Test(job, without_faults_every_step_commits)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct job_options options = {.seed = seed, .versions = 5};
        struct job_result result;
        job_run(&options, &result);
        cr_expect_str_empty(result.failure, "seed %llu: %s", (unsigned long long)seed,
                            result.failure);
        cr_expect_eq(result.commits, result.last_step, "seed %llu: %u commits, last step %llu",
                     (unsigned long long)seed, result.commits,
                     (unsigned long long)result.last_step);
        cr_expect_eq(result.aborts, 0, "seed %llu: %s", (unsigned long long)seed, result.culprit);
    }
}

/* A checker that never finds anything proves nothing: ranks that flip without the pause. */
Test(job, the_planted_bug_is_found)
{
    for (uint64_t seed = 1; seed <= BUG_SEEDS; seed++) {
        struct job_options options = {.seed = seed, .skip_quiesce = true};
        struct job_result result;
        job_run(&options, &result);
        cr_expect_str_not_empty(result.failure, "seed %llu", (unsigned long long)seed);
    }
}

/* Experts of equal content could be swapped unseen. */
Test(job, swapped_experts_are_found)
{
    for (uint64_t seed = 1; seed <= BUG_SEEDS; seed++) {
        struct job_options options = {.seed = seed, .experts = true, .swapped = true};
        struct job_result result;
        job_run(&options, &result);
        cr_expect_not_null(strstr(result.failure, "is another's"), "seed %llu: %s",
                           (unsigned long long)seed, result.failure);
    }
}

/* Nor does one that looks away for ever once there was a fault: nobody flips, and it is released.
 */
Test(job, a_release_of_what_nobody_has_is_found_after_faults)
{
    for (uint64_t seed = 1; seed <= BUG_SEEDS; seed++) {
        struct job_options options = job_options_of_seed(seed);
        options.faults = options.unseen_flips = true;
        options.versions = 8;
        struct job_result result;
        job_run(&options, &result);
        cr_expect_not_null(strstr(result.failure, "none ever had"), "seed %llu: %s",
                           (unsigned long long)seed, result.failure);
    }
}

typedef struct job_options options_of_seed_t(uint64_t seed);

/* Seeds that once failed, and why. */
static const struct {
    options_of_seed_t *options_of;
    uint64_t seed;
    const char *was;
} kept[] = {
    {job_options_of_replicas_seed, 412, "a rank died before its list of copies was made"},
    {job_options_of_experts_seed, 22, "a rank kept the tables that an earlier server had told"},
    {job_options_of_experts_seed, 142,
     "a repeated list of members was told with a table from after it"},
    {job_options_of_experts_seed, 25,
     "a rank began by rule again, in an engine that had moved its experts, and nobody noticed"},
    {job_options_of_server_seed, 433,
     "a server on a rebuilt journal refused a rank that had been away during the rebuilding"},
    {job_options_of_server_seed, 1267,
     "a server that rebuilt its journal took the lost one's term: old plans passed for new"},
    {job_options_of_server_seed, 1733,
     "ranks came back so late that a new server took all of them for gone"},
    {job_options_of_server_seed, 1815, "as 1267, with a generation"},
    {job_options_of_seed, 54,
     "an idle trainer's snapshot was given up before a fill could read it"},
    {job_options_of_seed, 648, "a repeated PUBLISH ended the hold while another engine still read"},
    {job_options_of_seed, 947,
     "a newcomer that waited for the first incarnation's end was cut off for its heartbeat"},
    {job_options_of_seed, 1132, "a rank was evicted for not resuming before RESUME had been sent"},
    {job_options_of_seed, 2864, "as 648, after a freeze"},
};

Test(job, seeds_that_once_failed)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        struct job_options options = kept[i].options_of(kept[i].seed);
        struct job_result result;
        job_run(&options, &result);
        cr_expect_str_empty(result.failure, "row %zu, seed %llu (%s): %s", i,
                            (unsigned long long)kept[i].seed, kept[i].was, result.failure);
    }
}
