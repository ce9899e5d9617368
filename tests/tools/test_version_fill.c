/* test_version_fill.c - a rank filled from a version's folder: planned and proven, read by jobs,
 * verified; and what a damaged folder leaves behind. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/planned.h"
#include "actors/receiver.h"
#include "tests/actors/stage.h"
#include "tests/tools/folder.h"
#include "tools/files/version_folder.h"

/* The train rank is the folder's twin: it has its very layout, so what a fill must give is what a
 * transfer from it would. */
static char base[FOLDER_PATH_MAX], place[2 * FOLDER_PATH_MAX];
static struct stage stage;
static struct wf_store *store;

static void give_store(struct stage_rank *rank, const void *user)
{
    (void)user;
    rank->rank.options.store = store;
    rank->rank.options.capacity_jobs = 3;
}

static void open_with(const char *train, const char *infer, enum wf_update_mode mode)
{
    struct wf_error error = {0};
    const struct stage_options options = {
        .train = train, .infer = infer, .share_memory = true, .mode = mode, .equip = give_store};
    folder_make(base);
    folder_join(place, base, "versions");
    cr_assert_eq(wf_version_store_new(place, &store, &error), WF_OK);
    stage_open(&stage, &options);
}

static void open_all(const char *infer, enum wf_update_mode mode)
{
    open_with("hf:", infer, mode);
}

static void close_all(void)
{
    if (stage.model != NULL) {
        stage_close(&stage);
        wf_version_store_free(store);
        folder_remove(base);
        memset(&stage, 0, sizeof stage);
    }
}

TestSuite(version_fill, .fini = close_all);

static void write_version(const struct wf_round_key *key)
{
    const struct stage_rank *twin = stage_train(&stage, 0);
    void *tensors[64];
    for (uint32_t i = 0; i < twin->rank.layout->tensor_count; i++) {
        tensors[i] = twin->tensors[i].address;
    }
    const struct wf_version_save save = {.place = place,
                                         .job = "stage",
                                         .version = key->version,
                                         .label = "",
                                         .config = "{}",
                                         .config_len = 2,
                                         .layout = twin->rank.layout,
                                         .tensors = tensors,
                                         .shard_bytes = 100000,
                                         .keep = 2};
    struct wf_error error = {0};
    cr_assert_eq(wf_version_write(&save, &error), WF_OK, "%s", error.text);
}

/* The plan of a fill from the store; held. */
static struct wf_agreed *plan_fill(struct stage_rank *rank, enum wf_status wanted)
{
    stage_send_plan(&stage, rank, UINT32_MAX);
    struct wf_local_msg *planned = stage_wait(&stage, rank, WF_LOCAL_PLANNED);
    cr_assert(planned != NULL && planned->status == WF_OK);
    struct wf_local_msg *ask = wf_local_msg_new(WF_LOCAL_PLAN_FILL, &rank->client.actor);
    ask->agreed = wf_agreed_for_store(planned->agreed, rank->rank.options.rank);
    stage_drop(planned);
    wf_send(wf_planner_actor(rank->rank.planner), &ask->msg);
    struct wf_local_msg *answer = stage_wait(&stage, rank, WF_LOCAL_FILL_PLANNED);
    cr_assert_not_null(answer);
    cr_assert_eq(answer->status, wanted, "%s", answer->error.text);
    struct wf_agreed *agreed = wf_agreed_hold(answer->agreed);
    stage_drop(answer);
    return agreed;
}

static void start_read_for(struct stage_rank *rank, struct wf_agreed *agreed,
                           const struct wf_round_key *key, uint64_t ns)
{
    struct wf_local_msg *read = wf_local_msg_new(WF_LOCAL_READ, &rank->client.actor);
    read->round = *key;
    read->deadline_ns = rank->env->ops->now_ns(rank->env) + ns;
    read->agreed = wf_agreed_hold(agreed);
    wf_send(wf_receiver_actor(rank->rank.receiver), &read->msg);
}

static void start_read(struct stage_rank *rank, struct wf_agreed *agreed,
                       const struct wf_round_key *key)
{
    start_read_for(rank, agreed, key, UINT64_C(15000000000));
}

static struct wf_local_msg *read_version(struct stage_rank *rank, struct wf_agreed *agreed,
                                         const struct wf_round_key *key)
{
    start_read(rank, agreed, key);
    struct wf_local_msg *answer = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
    cr_assert_not_null(answer);
    return answer;
}

static const struct {
    const char *infer;
    enum wf_update_mode mode;
    uint64_t read_max; /* 0: the store's own; less than what a chunk spans: it is read in parts */
} rows[] = {
    {"vllm:tp=1", WF_MODE_STAGED, 0},
    {"vllm:tp=2", WF_MODE_STAGED, 0},     /* rows and columns cut */
    {"vllm:tp=2", WF_MODE_IN_PLACE, 200}, /* a part of a row at a time */
    {"vllm:tp=4", WF_MODE_IN_PLACE, 0},   /* key and value heads repeated */
    {"vllm:pp=2", WF_MODE_IN_PLACE, 0},
    {"hf:", WF_MODE_STAGED, 0},
};

Test(version_fill, what_is_filled_is_what_was_written)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_all(rows[i].infer, rows[i].mode);
        struct wf_round_key key = stage_key(&stage, 3, 1);
        store->read_max = rows[i].read_max > 0 ? rows[i].read_max : store->read_max;
        stage_step(&stage, 3);
        write_version(&key);
        for (uint32_t r = 0; r < stage.infer; r++) {
            struct stage_rank *rank = stage_infer(&stage, r);
            struct wf_agreed *agreed = plan_fill(rank, WF_OK);
            struct wf_local_msg *answer = read_version(rank, agreed, &key);
            cr_assert_eq(answer->status, WF_OK, "%s: %s", rows[i].infer, answer->error.text);
            cr_assert(answer->bytes > 0 && answer->bytes == agreed->plan->edges[0].bytes);
            cr_assert_str_eq(answer->transports[0].name, "folder");
            stage_drop(answer);
            wf_agreed_release(agreed);
        }
        stage_flip(&stage, &key);
        cr_assert(stage_live_is_right(&stage), "%s", rows[i].infer);
        close_all();
    }
}

/* The folder keeps what the trainers hold: cast from there it is what they would give. */
Test(version_fill, a_fill_that_casts_gives_what_the_trainers_give)
{
    static const char *const engines[] = {"vllm:tp=2,dtype=f32", "vllm:dtype=f16"};
    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++) {
        open_all(engines[i], WF_MODE_STAGED);
        struct wf_round_key moved = stage_key(&stage, 3, 1), filled = stage_key(&stage, 3, 2);
        struct stage_rank *rank = stage_infer(&stage, 0);
        stage_plan(&stage);
        stage_step(&stage, 3);
        write_version(&moved);
        stage_transfer(&stage, &moved);
        stage_flip(&stage, &moved);
        uint8_t *wanted = malloc(rank->memory.len_bytes);
        memcpy(wanted, rank->memory.address, rank->memory.len_bytes);
        memset(rank->memory.address, 0xee, rank->memory.len_bytes);
        struct wf_agreed *agreed = plan_fill(rank, WF_OK);
        struct wf_local_msg *answer = read_version(rank, agreed, &filled);
        cr_assert_eq(answer->status, WF_OK, "%s: %s", engines[i], answer->error.text);
        stage_drop(answer);
        stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_FLIP, &filled, 0);
        stage_drop(stage_wait(&stage, rank, WF_LOCAL_FLIPPED));
        for (uint32_t t = 0; t < rank->rank.layout->tensor_count; t++) {
            cr_expect_arr_eq(rank->tensors[t].address, wanted + rank->tensors[t].offset,
                             rank->rank.layout->tensors[t].bytes, "%s: %s", engines[i],
                             rank->rank.layout->tensors[t].name);
        }
        free(wanted);
        wf_agreed_release(agreed);
        close_all();
    }
}

Test(version_fill, what_was_rounded_into_the_folder_is_not_cast_again)
{
    open_with("megatron:tp=1,dtype=f32", "vllm:dtype=f32", WF_MODE_STAGED);
    wf_agreed_release(plan_fill(stage_infer(&stage, 0), WF_UNSUPPORTED));
}

enum { LAST = -1 };

/* Flips a bit of the byte at `at`, or cuts the file. `file` may be a pattern: how many shards there
 * are is the writer's to say. */
static void damage(const char *file, off_t at, off_t cut)
{
    char pattern[3 * FOLDER_PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/1.1.3/%s", place, file);
    glob_t found;
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0, "%s", pattern);
    uint8_t byte;
    int fd = open(found.gl_pathv[0], O_RDWR);
    cr_assert(fd >= 0, "%s", found.gl_pathv[0]);
    globfree(&found);
    if (cut > 0) {
        cr_assert_eq(ftruncate(fd, cut), 0);
    } else {
        at = at == LAST ? lseek(fd, 0, SEEK_END) - 1 : at;
        cr_assert_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static const struct {
    const char *name, *file, *says;
    off_t at, cut;
    enum wf_status status;
} refused[] = {
    {"a flipped byte", "model-00002-of-*.safetensors", "is damaged: bytes", LAST, 0, WF_DIGEST},
    {"a cut file", "model-00002-of-*.safetensors", "has 100 bytes, ", 0, 100, WF_DIGEST},
    {"a changed manifest", WF_VERSION_FILE, "", 30, 0, WF_DIGEST},
};

Test(version_fill, a_damaged_folder_is_refused_and_named)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        open_all("vllm:tp=1", WF_MODE_IN_PLACE);
        struct stage_rank *rank = stage_infer(&stage, 0);
        struct wf_round_key key = stage_key(&stage, 3, 1), again = stage_key(&stage, 3, 2);
        stage_step(&stage, 3);
        write_version(&key);
        damage(refused[i].file, refused[i].at, refused[i].cut);
        struct wf_agreed *agreed = plan_fill(rank, WF_OK);
        struct wf_local_msg *answer = read_version(rank, agreed, &key);
        cr_assert_neq(answer->status, WF_OK, "%s", refused[i].name);
        cr_expect_not(answer->wrote, "%s: the live tensors were touched", refused[i].name);
        cr_expect_not_null(strstr(answer->culprit.reason, "cannot be filled from a folder: "));
        cr_expect_not_null(strstr(answer->culprit.reason, refused[i].says), "%s: %s",
                           refused[i].name, answer->culprit.reason);
        stage_drop(answer);
        folder_remove(place);
        write_version(&key); /* a good one, and all is well */
        answer = read_version(rank, agreed, &again);
        cr_assert_eq(answer->status, WF_OK, "%s", answer->error.text);
        stage_drop(answer);
        wf_agreed_release(agreed);
        close_all();
    }
}

Test(version_fill, a_version_that_comes_a_little_later_is_waited_for)
{
    open_all("vllm:tp=1", WF_MODE_STAGED);
    struct stage_rank *rank = stage_infer(&stage, 0);
    struct wf_round_key key = stage_key(&stage, 3, 1);
    struct wf_agreed *agreed = plan_fill(rank, WF_OK);
    start_read(rank, agreed, &key);
    while (rank->rank.receiver->store.looks == 0) {
        wf_loop_turn(rank->rank.loop);
    }
    stage_step(&stage, 3);
    write_version(&key);
    struct wf_local_msg *answer = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
    cr_assert_not_null(answer);
    cr_assert_eq(answer->status, WF_OK, "%s", answer->error.text);
    stage_drop(answer);
    wf_agreed_release(agreed);
}

Test(version_fill, who_waited_in_vain_says_where)
{
    char missing[3 * FOLDER_PATH_MAX];
    open_all("vllm:tp=1", WF_MODE_STAGED);
    struct stage_rank *rank = stage_infer(&stage, 0);
    struct wf_round_key key = stage_key(&stage, 3, 1);
    struct wf_agreed *agreed = plan_fill(rank, WF_OK);
    start_read_for(rank, agreed, &key, UINT64_C(250000000)); /* half of the time between looks */
    struct wf_local_msg *answer = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
    cr_assert_not_null(answer);
    snprintf(missing, sizeof missing, "is not in %s", place);
    cr_assert_eq(answer->status, WF_TIMED_OUT);
    cr_assert_not_null(strstr(answer->culprit.reason, missing), "%s", answer->culprit.reason);
    stage_drop(answer);
    wf_agreed_release(agreed);
}

Test(version_fill, stop_is_a_barrier)
{
    open_all("vllm:tp=1", WF_MODE_STAGED);
    struct stage_rank *rank = stage_infer(&stage, 0);
    struct wf_round_key key = stage_key(&stage, 3, 1), next = stage_key(&stage, 4, 1);
    struct wf_agreed *agreed = plan_fill(rank, WF_OK);
    stage_step(&stage, 3);
    write_version(&key);
    start_read(rank, agreed, &key);
    stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_STOP, &key, 0);
    struct wf_local_msg *answer = stage_wait(&stage, rank, WF_LOCAL_STOPPED);
    cr_assert_not_null(answer);
    cr_assert_eq(rank->rank.receiver->open_reads, 0);
    stage_drop(answer);
    wf_agreed_release(agreed);
    stage_plan(&stage); /* and the trainer is read again */
    stage_step(&stage, 4);
    stage_transfer(&stage, &next);
    stage_flip(&stage, &next);
    cr_assert(stage_live_is_right(&stage));
}
