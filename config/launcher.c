/* launcher.c - reads what launchers put into the environment, and chooses one of them. */
#include "config/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 4, RANKS_MAX = 1 << 20 };

/* Which variables say what; the first that is set counts. */
struct source {
    const char *name;
    const char *rank[NAMES_MAX], *world[NAMES_MAX], *local_world[NAMES_MAX];
    const char *job_id[NAMES_MAX]; /* all of them together */
    const char *host[NAMES_MAX], *nodes[NAMES_MAX];
    const char *needs[NAMES_MAX]; /* one of these must be set; otherwise it is no rank of it */
    const char *hint;             /* what to do where it was asked for and is not there */
};

static const struct source sources[WF_LAUNCHER_COUNT] = {
    [WF_LAUNCHER_TORCHRUN] = {.name = "torchrun",
                              .rank = {"RANK"},
                              .world = {"WORLD_SIZE"},
                              .local_world = {"LOCAL_WORLD_SIZE"},
                              .job_id = {"TORCHELASTIC_RUN_ID", "MASTER_PORT"},
                              .host = {"MASTER_ADDR"},
                              .needs = {"WORLD_SIZE"},
                              .hint = "start with torchrun --no-python"},
    [WF_LAUNCHER_OPENMPI] = {.name = "openmpi",
                             .rank = {"OMPI_COMM_WORLD_RANK"},
                             .world = {"OMPI_COMM_WORLD_SIZE"},
                             .local_world = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
                             .job_id = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
                             .needs = {"OMPI_COMM_WORLD_SIZE"},
                             .hint = "start with mpirun"},
    [WF_LAUNCHER_PMIX] = {.name = "pmix",
                          .rank = {"PMIX_RANK"},
                          .world = {"WEFT_WORLD_SIZE"},
                          .job_id = {"PMIX_NAMESPACE"},
                          .needs = {"PMIX_NAMESPACE"},
                          .hint = "start with prterun, or srun --mpi=pmix"},
    [WF_LAUNCHER_PMI] = {.name = "pmi",
                         .rank = {"PMI_RANK"},
                         .world = {"PMI_SIZE"},
                         .local_world = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
                         .job_id = {"PMI_JOBID"},
                         .needs = {"PMI_SIZE"},
                         .hint = "start with mpiexec.hydra, or srun --mpi=pmi2"},
    [WF_LAUNCHER_SLURM] = {.name = "slurm",
                           .rank = {"SLURM_PROCID"},
                           .world = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
                           .job_id = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                           .nodes = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
                           .host = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"},
                           .needs = {"SLURM_STEP_ID", "SLURM_STEPID"},
                           .hint = "start with srun: a batch script itself is no rank"},
    [WF_LAUNCHER_K8S] = {.name = "k8s",
                         .rank = {"JOB_COMPLETION_INDEX", "WEFT_POD_INDEX"},
                         .world = {"WEFT_WORLD_SIZE"},
                         .hint = "use an indexed Job, or set WEFT_POD_INDEX in the pod"},
};

/* Not among the sources. */
static const struct {
    const char *name;
    enum wf_launcher launcher;
} words[] = {{"auto", WF_LAUNCHER_AUTO}, {"none", WF_LAUNCHER_NONE}};

struct looker {
    wf_variable_lookup_t *lookup;
    void *user;
    struct wf_error *error;
};

bool wf_launcher_parse(const char *word, enum wf_launcher *launcher_out)
{
    for (int i = 0; i < WF_LAUNCHER_COUNT; i++) {
        if (strcmp(word, sources[i].name) == 0) {
            *launcher_out = (enum wf_launcher)i;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i].name) == 0) {
            *launcher_out = words[i].launcher;
            return true;
        }
    }
    return false;
}

const char *wf_launcher_name(enum wf_launcher launcher)
{
    return launcher < WF_LAUNCHER_COUNT     ? sources[launcher].name
           : launcher == WF_LAUNCHER_NONE   ? "none"
           : launcher == WF_LAUNCHER_UNSAID ? "the environment"
                                            : "auto";
}

const char *wf_launcher_words(void)
{
    return "auto, none, torchrun, openmpi, pmix, pmi, slurm or k8s";
}

/* The first of the names that is set and not empty; its value. */
static const char *first_set(const struct looker *look, const char *const names[NAMES_MAX],
                             const char **name_out)
{
    for (int i = 0; i < NAMES_MAX && names[i] != NULL; i++) {
        const char *value = look->lookup(look->user, names[i]);
        if (value != NULL && value[0] != '\0') {
            *name_out = names[i];
            return value;
        }
    }
    return NULL;
}

static bool parse_count(const char *text, uint32_t *out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 7 || text[digits] != '\0') {
        return false;
    }
    *out = (uint32_t)strtoul(text, NULL, 10);
    return *out <= RANKS_MAX;
}

/* Leaves *out alone if none is set. `said`: appends "NAME=VALUE". */
static enum wf_status take_count(const struct looker *look, const char *const names[NAMES_MAX],
                                 uint32_t *out, char *said)
{
    const char *name = NULL, *value = first_set(look, names, &name);
    if (value == NULL) {
        return WF_OK;
    }
    if (!parse_count(value, out)) {
        return wf_error_set(look->error, WF_INVALID,
                            "%s=\"%.40s\" in the environment: expected a number of 0 to %d", name,
                            value, RANKS_MAX);
    }
    if (said != NULL) {
        size_t len = strlen(said);
        snprintf(said + len, WF_LAUNCHER_TEXT - len, "%s%s=%u", len > 0 ? ", " : "", name, *out);
    }
    return WF_OK;
}

static void take_text(const struct looker *look, const char *const names[NAMES_MAX], char *out,
                      size_t size)
{
    const char *name = NULL, *value = first_set(look, names, &name);
    snprintf(out, size, "%s", value != NULL ? value : "");
}

/* All that are set: each start of a job has its own. */
static void take_job_id(const struct looker *look, const char *const names[NAMES_MAX],
                        char out[WF_LAUNCHER_TEXT])
{
    out[0] = '\0';
    for (int i = 0; i < NAMES_MAX && names[i] != NULL; i++) {
        const char *value = look->lookup(look->user, names[i]);
        size_t len = strlen(out);
        if (value != NULL && value[0] != '\0') {
            snprintf(out + len, WF_LAUNCHER_TEXT - len, "%s%s", len > 0 ? "." : "", value);
        }
    }
}

bool wf_launcher_first_host(const char *list, char *host_out, size_t size)
{
    size_t len = 0;
    bool inside = false, skipping = false;
    for (const char *c = list; *c != '\0'; c++) {
        if (*c == '[' || *c == ']') {
            inside = *c == '[';
            skipping = false;
        } else if (!inside && *c == ',') {
            break;
        } else if (inside && (*c == '-' || *c == ',')) {
            skipping = true; /* the first number of the brackets was all */
        } else if (!skipping) {
            if (len + 1 >= size) {
                return false;
            }
            host_out[len++] = *c;
        }
    }
    host_out[len] = '\0';
    return len > 0 && !inside;
}

/* The number after the last '-' of a StatefulSet's pod. */
static bool ordinal_of(const char *host_name, uint32_t *rank_out)
{
    const char *dash = host_name != NULL ? strrchr(host_name, '-') : NULL;
    return dash != NULL && parse_count(dash + 1, rank_out);
}

/* Slurm lists its hosts, and says how many they are instead of how many ranks each has. */
static void take_nodes(const struct looker *look, const struct source *source,
                       struct wf_launcher_place *place)
{
    char list[WF_LAUNCHER_HOST], nodes[WF_LAUNCHER_HOST];
    memcpy(list, place->rank0_host, sizeof list);
    if (!wf_launcher_first_host(list, place->rank0_host, sizeof place->rank0_host)) {
        place->rank0_host[0] = '\0';
    }
    take_text(look, source->nodes, nodes, sizeof nodes);
    place->local_world = strcmp(nodes, "1") == 0 ? place->world : 0;
    place->several_hosts = nodes[0] != '\0' && strcmp(nodes, "1") != 0;
}

/* What one launcher says; place_out->launcher stays NONE if it is not there. */
static enum wf_status read_source(enum wf_launcher launcher, bool asked, const struct looker *look,
                                  struct wf_launcher_place *place_out)
{
    const struct source *source = &sources[launcher];
    struct wf_launcher_place *place = place_out;
    const char *name = NULL;
    *place = (struct wf_launcher_place){.launcher = WF_LAUNCHER_NONE};
    bool there = first_set(look, source->rank, &name) != NULL;
    if (there && source->needs[0] != NULL) {
        there = first_set(look, source->needs, &name) != NULL;
    }
    if (!there && asked && launcher == WF_LAUNCHER_K8S &&
        ordinal_of(look->lookup(look->user, "HOSTNAME"), &place->rank)) {
        there = true;
        snprintf(place->said, sizeof place->said, "HOSTNAME ends in %u", place->rank);
    }
    if (!there) {
        return WF_OK;
    }
    enum wf_status status = take_count(look, source->rank, &place->rank, place->said);
    if (status == WF_OK) {
        status = take_count(look, source->world, &place->world, place->said);
    }
    if (status == WF_OK) {
        status = take_count(look, source->local_world, &place->local_world, NULL);
    }
    if (status == WF_OK && place->world != 0 && place->rank >= place->world) {
        status =
            wf_error_set(look->error, WF_INVALID, "the environment contradicts itself: %s (%s)",
                         place->said, source->name);
    }
    take_job_id(look, source->job_id, place->job_id);
    take_text(look, source->host, place->rank0_host, sizeof place->rank0_host);
    /* A pod is a host of its own. */
    place->several_hosts = launcher == WF_LAUNCHER_K8S
                               ? place->world != 1
                               : place->local_world != 0 && place->local_world < place->world;
    if (launcher == WF_LAUNCHER_SLURM) {
        take_nodes(look, source, place);
    }
    place->launcher = launcher;
    return status;
}

/* PMIx does not put its size into the environment; Slurm, if it is the same task, does. */
static void borrow_size(struct wf_launcher_place *pmix, const struct wf_launcher_place *slurm)
{
    if (pmix->launcher == WF_LAUNCHER_PMIX && pmix->world == 0 &&
        slurm->launcher == WF_LAUNCHER_SLURM && slurm->rank == pmix->rank) {
        pmix->world = slurm->world;
        memcpy(pmix->rank0_host, slurm->rank0_host, sizeof pmix->rank0_host);
        pmix->local_world = slurm->local_world;
        pmix->several_hosts = slurm->several_hosts;
    }
}

static bool fits(const struct wf_launcher_place *place, uint32_t ranks)
{
    return place->world == 0 ? place->rank < ranks : place->world == ranks;
}

static enum wf_status refuse_misfit(const struct wf_launcher_place *places, enum wf_launcher inner,
                                    uint32_t ranks, struct wf_error *error)
{
    char other[WF_LAUNCHER_TEXT + 40] = "";
    for (int i = 0; i < WF_LAUNCHER_COUNT; i++) {
        bool there = i != (int)inner && places[i].launcher != WF_LAUNCHER_NONE;
        if (there && places[i].world != 0 && fits(&places[i], ranks)) {
            snprintf(other, sizeof other, "; %s would fit (%s)", sources[i].name, places[i].said);
            break;
        }
    }
    return wf_error_set(error, WF_INVALID,
                        "the environment says %s (%s) but %u ranks are to be started%s; start as "
                        "many, or say which part this is: --launcher NAME|none, --side, --rank",
                        places[inner].said, sources[inner].name, ranks, other);
}

/* Slurm and Kubernetes surround whatever else is there. */
static bool surrounds(int launcher)
{
    return launcher == WF_LAUNCHER_SLURM || launcher == WF_LAUNCHER_K8S;
}

static enum wf_status choose(const struct wf_launcher_place places[WF_LAUNCHER_COUNT],
                             enum wf_launcher wanted, uint32_t ranks,
                             struct wf_launcher_place *place_out, struct wf_error *error)
{
    uint32_t least = wanted == WF_LAUNCHER_UNSAID ? 2 : 0;
    int inner = 0;
    while (inner < WF_LAUNCHER_COUNT &&
           (places[inner].launcher == WF_LAUNCHER_NONE || places[inner].world < least)) {
        inner++;
    }
    if (inner == WF_LAUNCHER_COUNT && wanted == WF_LAUNCHER_UNSAID) {
        return WF_OK;
    }
    if (inner == WF_LAUNCHER_COUNT) {
        return wf_error_set(error, WF_INVALID,
                            "no launcher's variables are in the environment (RANK and WORLD_SIZE, "
                            "OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID of a step, "
                            "JOB_COMPLETION_INDEX); say --rank SIDE:R");
    }
    const struct wf_launcher_place *place = &places[inner];
    if (!fits(place, ranks)) {
        return refuse_misfit(places, (enum wf_launcher)inner, ranks, error);
    }
    for (int i = inner + 1; i < WF_LAUNCHER_COUNT && !surrounds(i); i++) {
        if (places[i].launcher != WF_LAUNCHER_NONE && fits(&places[i], ranks) &&
            places[i].rank != place->rank) {
            return wf_error_set(error, WF_INVALID,
                                "two launchers contradict each other: %s (%s) and %s (%s); say "
                                "which counts with --launcher %s or --launcher %s",
                                place->said, sources[inner].name, places[i].said, sources[i].name,
                                sources[inner].name, sources[i].name);
        }
    }
    *place_out = *place;
    return WF_OK;
}

enum wf_status wf_launcher_find(enum wf_launcher wanted, uint32_t ranks,
                                wf_variable_lookup_t *lookup, void *user,
                                struct wf_launcher_place *place_out, struct wf_error *error)
{
    struct looker look = {lookup, user, error};
    struct wf_launcher_place places[WF_LAUNCHER_COUNT];
    *place_out = (struct wf_launcher_place){.launcher = WF_LAUNCHER_NONE};
    if (wanted == WF_LAUNCHER_NONE) {
        return WF_OK;
    }
    for (int i = 0; i < WF_LAUNCHER_COUNT; i++) {
        bool asked = (int)wanted == i;
        enum wf_status status = read_source((enum wf_launcher)i, asked, &look, &places[i]);
        if (status != WF_OK && (asked || wanted >= WF_LAUNCHER_COUNT)) {
            return status;
        }
    }
    borrow_size(&places[WF_LAUNCHER_PMIX], &places[WF_LAUNCHER_SLURM]);
    if (wanted >= WF_LAUNCHER_COUNT) {
        return choose(places, wanted, ranks, place_out, error);
    }
    if (places[wanted].launcher == WF_LAUNCHER_NONE) {
        const struct source *source = &sources[wanted];
        return wf_error_set(error, WF_INVALID,
                            "--launcher %s: expected %s%s%s in the environment; %s", source->name,
                            source->rank[0], source->needs[0] != NULL ? " and " : "",
                            source->needs[0] != NULL ? source->needs[0] : "", source->hint);
    }
    if (!fits(&places[wanted], ranks)) {
        return refuse_misfit(places, wanted, ranks, error);
    }
    *place_out = places[wanted];
    return WF_OK;
}
