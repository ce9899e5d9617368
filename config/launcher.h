/* launcher.h - which rank of which world this process is, by the environment of what started it.
 *
 * Pure: variables are looked up through a callback, so that a test states them. What each launcher
 * sets (facts from their sources and manuals):
 *
 *   torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR TORCHELASTIC_RUN_ID (also
 *              what Ray, DeepSpeed and others that imitate it set)
 *   openmpi    OMPI_COMM_WORLD_RANK/SIZE/LOCAL_RANK/LOCAL_SIZE, OMPI_MCA_ess_base_jobid; it sets
 *              PMIX_RANK too, which then says the same
 *   pmix       PMIX_RANK PMIX_NAMESPACE; no size
 *   pmi        PMI_RANK PMI_SIZE (MPICH's and Intel's hydra, Slurm's pmi2), MPI_LOCALRANKID
 *   slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (SLURM_NTASKS) SLURM_LOCALID SLURM_STEP_NODELIST,
 *              in tasks of srun, which alone have SLURM_STEP_ID: a batch script has SLURM_PROCID=0
 *              and is no rank
 *   k8s        JOB_COMPLETION_INDEX (indexed Job), WEFT_POD_INDEX (any variable's value that the
 *              pod's manifest puts there), the ordinal at the end of HOSTNAME (StatefulSet; only
 *              when k8s is asked for); WEFT_WORLD_SIZE if set
 *
 * The environment is inherited: what it says may be another world's. So it counts only if its world
 * has as many ranks as the job asks for, and where several launchers are there:
 *   1. slurm and k8s are what surrounds the others and are not looked at beside them;
 *   2. of the others the innermost counts: torchrun, then openmpi, pmix, pmi;
 *   3. if it does not fit, or another one fits and says another rank, nothing is chosen: the error
 *      names the variables, and the user names the launcher.
 */
#ifndef WEFT_CONFIG_LAUNCHER_H
#define WEFT_CONFIG_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"

/* Innermost first; then what is no launcher of its own. */
enum wf_launcher {
    WF_LAUNCHER_TORCHRUN,
    WF_LAUNCHER_OPENMPI,
    WF_LAUNCHER_PMIX,
    WF_LAUNCHER_PMI,
    WF_LAUNCHER_SLURM,
    WF_LAUNCHER_K8S,
    WF_LAUNCHER_COUNT,
    WF_LAUNCHER_NONE = WF_LAUNCHER_COUNT, /* the environment is not looked at */
    WF_LAUNCHER_AUTO,                     /* whichever is there; none is an error */
    WF_LAUNCHER_UNSAID, /* nobody asked: as auto, but none, a world of one, or one that does not say
                           its size is NONE */
};

enum { WF_LAUNCHER_TEXT = 160, WF_LAUNCHER_HOST = 256 };

struct wf_launcher_place {
    enum wf_launcher launcher; /* NONE: none; the rest then means nothing */
    uint32_t rank;
    uint32_t world;                    /* 0: the launcher does not say */
    uint32_t local_world;              /* ranks on this host; 0: not said */
    bool several_hosts;                /* it is known that ranks are on other hosts too */
    char job_id[WF_LAUNCHER_TEXT];     /* the same for all ranks of one start; "" if not said */
    char rank0_host[WF_LAUNCHER_HOST]; /* where rank 0 runs, by name or address; "" if not said */
    char said[WF_LAUNCHER_TEXT];       /* "RANK=3, WORLD_SIZE=8" */
};

/* The variable's value, or NULL. */
typedef const char *wf_variable_lookup_t(void *user, const char *name);

/* "torchrun", "auto", "none"; UNSAID has no name. */
bool wf_launcher_parse(const char *word, enum wf_launcher *launcher_out);
const char *wf_launcher_name(enum wf_launcher launcher);
/* "auto, none, torchrun, openmpi, pmix, pmi, slurm or k8s" */
const char *wf_launcher_words(void);

/* `ranks`: how many the job, or the side of it that is started, has. INVALID: variables that make
 * no sense, do not fit, or contradict each other. */
enum wf_status wf_launcher_find(enum wf_launcher wanted, uint32_t ranks,
                                wf_variable_lookup_t *lookup, void *user,
                                struct wf_launcher_place *place_out, struct wf_error *error);

/* The first host of a Slurm list: "gpu[07-09,12],cpu1" is gpu07. False if it does not fit. */
bool wf_launcher_first_host(const char *list, char *host_out, size_t size);

#endif
