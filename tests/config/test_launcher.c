/* test_launcher.c - environments as launchers set them, and what they mean. */
#include <criterion/criterion.h>
#include <string.h>

#include "config/launcher.h"
#include "tests/config/variables.h"

struct row {
    const char *name;
    enum wf_launcher wanted;
    uint32_t ranks;
    const char *set[VARIABLES_MAX];
    enum wf_launcher launcher; /* AUTO: refused */
    uint32_t rank, world;
    const char *says[3]; /* in the error, or in `said` */
};

#define TORCHRUN(rank, size) \
    "RANK=" rank, "WORLD_SIZE=" size, "LOCAL_RANK=0", "MASTER_ADDR=node1", "TORCHELASTIC_RUN_ID=r7"
#define OPENMPI(rank, size) \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size, "OMPI_COMM_WORLD_LOCAL_RANK=1"
#define SLURM(rank, size)                                                            \
    "SLURM_PROCID=" rank, "SLURM_NTASKS=" size, "SLURM_STEP_ID=0", "SLURM_JOB_ID=9", \
        "SLURM_STEP_NODELIST=n[08-09]"
#define AUTO WF_LAUNCHER_AUTO
#define UNSAID WF_LAUNCHER_UNSAID
#define REFUSED WF_LAUNCHER_AUTO
#define NONE WF_LAUNCHER_NONE

/* clang-format off */
static const struct row rows[] = {
    /* each alone */
    {"torchrun", AUTO, 8, {TORCHRUN("3", "8")}, WF_LAUNCHER_TORCHRUN, 3, 8, {"RANK=3, WORLD_SIZE=8"}},
    {"open mpi", AUTO, 4, {OPENMPI("2", "4"), "PMIX_RANK=2", "PMIX_NAMESPACE=11"}, WF_LAUNCHER_OPENMPI, 2, 4, {0}},
    {"pmix alone has no size", AUTO, 4, {"PMIX_RANK=3", "PMIX_NAMESPACE=x"}, WF_LAUNCHER_PMIX, 3, 0, {0}},
    {"pmix with a size of the user's", AUTO, 4, {"PMIX_RANK=3", "PMIX_NAMESPACE=x", "WEFT_WORLD_SIZE=4"}, WF_LAUNCHER_PMIX, 3, 4, {0}},
    {"pmix rank beyond the job", AUTO, 4, {"PMIX_RANK=4", "PMIX_NAMESPACE=x"}, REFUSED, 0, 0, {"PMIX_RANK=4", "4 ranks"}},
    {"srun --mpi=pmix", AUTO, 4, {"PMIX_RANK=1", "PMIX_NAMESPACE=slurm.pmix.9.0", SLURM("1", "4")}, WF_LAUNCHER_PMIX, 1, 4, {0}},
    {"hydra", AUTO, 2, {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1"}, WF_LAUNCHER_PMI, 1, 2, {0}},
    {"srun", AUTO, 4, {SLURM("2", "4")}, WF_LAUNCHER_SLURM, 2, 4, {0}},
    {"srun of fewer tasks than the allocation", AUTO, 2, {"SLURM_STEP_NUM_TASKS=2", SLURM("1", "4")}, WF_LAUNCHER_SLURM, 1, 2, {0}},
    {"indexed job", AUTO, 4, {"JOB_COMPLETION_INDEX=3"}, WF_LAUNCHER_K8S, 3, 0, {0}},
    {"pod index label", AUTO, 4, {"WEFT_POD_INDEX=2", "HOSTNAME=weft-2"}, WF_LAUNCHER_K8S, 2, 0, {0}},
    {"ordinal of a StatefulSet", WF_LAUNCHER_K8S, 12, {"HOSTNAME=weft-train-11"}, WF_LAUNCHER_K8S, 11, 0, {"HOSTNAME"}},
    {"a host name is looked at only where asked for", AUTO, 12, {"HOSTNAME=weft-train-11"}, REFUSED, 0, 0, {"no launcher"}},
    {"a pod of a Deployment", WF_LAUNCHER_K8S, 12, {"HOSTNAME=weft-5d4f-x7x2p"}, REFUSED, 0, 0, {"JOB_COMPLETION_INDEX"}},
    /* what surrounds another */
    {"torchrun in a batch script", AUTO, 8, {TORCHRUN("5", "8"), "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=1"}, WF_LAUNCHER_TORCHRUN, 5, 8, {0}},
    {"one torchrun for each task of srun", AUTO, 8, {TORCHRUN("5", "8"), SLURM("1", "2")}, WF_LAUNCHER_TORCHRUN, 5, 8, {0}},
    {"as many tasks, another order", AUTO, 2, {TORCHRUN("1", "2"), SLURM("0", "2")}, WF_LAUNCHER_TORCHRUN, 1, 2, {0}},
    {"mpirun in an allocation", AUTO, 4, {OPENMPI("3", "4"), SLURM("1", "4")}, WF_LAUNCHER_OPENMPI, 3, 4, {0}},
    {"torchrun for each rank of mpirun", AUTO, 8, {TORCHRUN("5", "8"), OPENMPI("1", "2")}, WF_LAUNCHER_TORCHRUN, 5, 8, {0}},
    {"srun in a pod", AUTO, 4, {SLURM("2", "4"), "JOB_COMPLETION_INDEX=0"}, WF_LAUNCHER_SLURM, 2, 4, {0}},
    {"the surrounding one asked for", WF_LAUNCHER_SLURM, 2, {TORCHRUN("1", "2"), SLURM("0", "2")}, WF_LAUNCHER_SLURM, 0, 2, {0}},
    /* contradictions */
    {"mpirun started by a trainer under torchrun", AUTO, 4, {TORCHRUN("1", "4"), OPENMPI("2", "4")}, REFUSED, 0, 0,
     {"RANK=1, WORLD_SIZE=4 (torchrun)", "OMPI_COMM_WORLD_RANK=2", "--launcher openmpi"}},
    {"the same, told which", WF_LAUNCHER_OPENMPI, 4, {TORCHRUN("1", "4"), OPENMPI("2", "4")}, WF_LAUNCHER_OPENMPI, 2, 4, {0}},
    {"the inner one does not fit, the outer would", AUTO, 8, {TORCHRUN("3", "6"), SLURM("0", "8")}, REFUSED, 0, 0,
     {"RANK=3, WORLD_SIZE=6", "8 ranks", "slurm would fit"}},
    {"a trainer's environment in an engine", AUTO, 4, {TORCHRUN("3", "8")}, REFUSED, 0, 0, {"WORLD_SIZE=8", "4 ranks"}},
    {"two that agree", AUTO, 4, {TORCHRUN("2", "4"), OPENMPI("2", "4")}, WF_LAUNCHER_TORCHRUN, 2, 4, {0}},
    {"rank beyond its world", AUTO, 4, {TORCHRUN("4", "4")}, REFUSED, 0, 0, {"contradicts itself"}},
    /* values */
    {"a word for a rank", AUTO, 4, {"RANK=first", "WORLD_SIZE=4"}, REFUSED, 0, 0, {"RANK=\"first\"", "number"}},
    {"a huge one", AUTO, 4, {"RANK=99999999999999999999", "WORLD_SIZE=4"}, REFUSED, 0, 0, {"RANK="}},
    {"a negative one", AUTO, 4, {"RANK=-1", "WORLD_SIZE=4"}, REFUSED, 0, 0, {"RANK="}},
    {"an empty one is none", AUTO, 4, {"RANK=", "WORLD_SIZE=4", SLURM("1", "4")}, WF_LAUNCHER_SLURM, 1, 4, {0}},
    {"RANK alone is somebody else's", AUTO, 4, {"RANK=1", SLURM("3", "4")}, WF_LAUNCHER_SLURM, 3, 4, {0}},
    {"a word elsewhere does not matter", WF_LAUNCHER_OPENMPI, 4, {"RANK=x", "WORLD_SIZE=4", OPENMPI("1", "4")}, WF_LAUNCHER_OPENMPI, 1, 4, {0}},
    /* asked for and not there */
    {"nothing", AUTO, 4, {"PATH=/bin"}, REFUSED, 0, 0, {"no launcher", "--rank"}},
    {"no torchrun", WF_LAUNCHER_TORCHRUN, 4, {OPENMPI("1", "4")}, REFUSED, 0, 0, {"--launcher torchrun", "RANK", "torchrun --no-python"}},
    {"the batch script", WF_LAUNCHER_SLURM, 4, {"SLURM_PROCID=0", "SLURM_NTASKS=4"}, REFUSED, 0, 0, {"SLURM_STEP_ID", "srun"}},
    /* nobody asked */
    {"a plain shell", UNSAID, 4, {"PATH=/bin"}, NONE, 0, 0, {0}},
    {"a batch script", UNSAID, 4, {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=1"}, NONE, 0, 0, {0}},
    {"a world of one", UNSAID, 4, {TORCHRUN("0", "1")}, NONE, 0, 0, {0}},
    {"a pod", UNSAID, 4, {"JOB_COMPLETION_INDEX=0"}, NONE, 0, 0, {0}},
    {"a launcher that fits", UNSAID, 4, {OPENMPI("3", "4")}, WF_LAUNCHER_OPENMPI, 3, 4, {0}},
    {"one that does not", UNSAID, 4, {OPENMPI("3", "6")}, REFUSED, 0, 0, {"OMPI_COMM_WORLD_SIZE=6", "--launcher"}},
    {"switched off", NONE, 4, {TORCHRUN("3", "6")}, NONE, 0, 0, {0}},
};
/* clang-format on */

Test(launcher, environments)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct wf_launcher_place place;
        struct wf_error error = {0};
        enum wf_status status = wf_launcher_find(row->wanted, row->ranks, look_up,
                                                 (void *)(uintptr_t)row->set, &place, &error);
        bool refused = row->launcher == REFUSED;
        cr_expect_eq(status, refused ? WF_INVALID : WF_OK, "%s: %s", row->name, error.text);
        const char *text = refused ? error.text : place.said;
        for (int s = 0; s < 3 && row->says[s] != NULL; s++) {
            cr_expect(strstr(text, row->says[s]) != NULL, "%s: \"%s\" lacks \"%s\"", row->name,
                      text, row->says[s]);
        }
        if (!refused) {
            cr_expect_eq(place.launcher, row->launcher, "%s: %s", row->name,
                         wf_launcher_name(place.launcher));
        }
        if (!refused && place.launcher != NONE) {
            cr_expect_eq(place.rank, row->rank, "%s: rank %u", row->name, place.rank);
            cr_expect_eq(place.world, row->world, "%s: world %u", row->name, place.world);
        }
    }
}

Test(launcher, where_rank_0_is_and_which_start_this_is)
{
    static const struct {
        const char *name;
        const char *set[VARIABLES_MAX];
        const char *host, *job_id;
        uint32_t local_world;
    } places[] = {
        {"torchrun",
         {TORCHRUN("1", "4"), "LOCAL_WORLD_SIZE=2", "MASTER_PORT=29500"},
         "node1",
         "r7.29500",
         2},
        {"slurm", {SLURM("1", "4"), "SLURM_LOCALID=1"}, "n08", "9.0", 0},
        {"slurm on one node", {SLURM("1", "4"), "SLURM_NNODES=1"}, "n08", "9.0", 4},
        {"openmpi",
         {OPENMPI("1", "4"), "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=5"},
         "",
         "5",
         4},
        {"k8s", {"JOB_COMPLETION_INDEX=1"}, "", "", 0},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct wf_launcher_place place;
        struct wf_error error = {0};
        enum wf_status status =
            wf_launcher_find(AUTO, 4, look_up, (void *)(uintptr_t)places[i].set, &place, &error);
        cr_expect_eq(status, WF_OK, "%s: %s", places[i].name, error.text);
        cr_expect_str_eq(place.rank0_host, places[i].host, "%s", places[i].name);
        cr_expect_str_eq(place.job_id, places[i].job_id, "%s", places[i].name);
        cr_expect_eq(place.local_world, places[i].local_world, "%s", places[i].name);
    }
}

Test(launcher, first_host_of_a_slurm_list)
{
    static const struct {
        const char *list, *host; /* NULL: none */
    } lists[] = {
        {"node1", "node1"},
        {"node1,node2", "node1"},
        {"gpu[07-09,12],cpu1", "gpu07"},
        {"gpu[3,5]", "gpu3"},
        {"r[1-2]n[03-04]", "r1n03"},
        {"n[1-2]-ib,x", "n1-ib"},
        {"a.b-c.example", "a.b-c.example"},
        {"", NULL},
        {"gpu[07-", NULL},
    };
    char long_list[400];
    memset(long_list, 'a', sizeof long_list);
    long_list[sizeof long_list - 1] = '\0';
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char host[WF_LAUNCHER_HOST] = "";
        bool good = wf_launcher_first_host(lists[i].list, host, sizeof host);
        cr_expect_eq(good, lists[i].host != NULL, "\"%s\"", lists[i].list);
        cr_expect(!good || strcmp(host, lists[i].host) == 0, "\"%s\": %s", lists[i].list, host);
    }
    char host[WF_LAUNCHER_HOST];
    cr_expect_not(wf_launcher_first_host(long_list, host, sizeof host));
}

Test(launcher, words)
{
    enum wf_launcher launcher = NONE;
    for (int i = 0; i < WF_LAUNCHER_COUNT; i++) {
        cr_expect(wf_launcher_parse(wf_launcher_name((enum wf_launcher)i), &launcher));
        cr_expect_eq((int)launcher, i);
        cr_expect(strstr(wf_launcher_words(), wf_launcher_name((enum wf_launcher)i)) != NULL);
    }
    cr_expect(wf_launcher_parse("auto", &launcher) && launcher == AUTO);
    cr_expect(wf_launcher_parse("none", &launcher) && launcher == NONE);
    cr_expect_not(wf_launcher_parse("Slurm", &launcher));
    cr_expect_not(wf_launcher_parse("", &launcher));
}
