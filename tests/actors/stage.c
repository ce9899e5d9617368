/* stage.c - builds the ranks of a test by hand, as rank.c would. */
#include "tests/actors/stage.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"

static const char model_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 1000, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 16, \"intermediate_size\": 96, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

static const uint64_t second_ns = 1000 * 1000 * 1000;

struct wf_actor *wf_meta_client_actor(struct wf_meta_client *client)
{
    return &client->actor;
}

void wf_meta_client_held(const struct wf_meta_client *client, struct wf_frame_held *held_out)
{
    *held_out = client->held;
}

static enum wf_verdict keep_answer(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_meta_client *client = WF_CONTAINER(self, struct wf_meta_client, actor);
    cr_assert_lt(client->answer_count, STAGE_ANSWERS_MAX);
    client->answers[client->answer_count++] = (struct wf_local_msg *)msg;
    return WF_KEEP;
}

/* --- ranks ---------------------------------------------------------------------------------------
 */

static void make_tensors(struct stage_rank *rank, bool shared)
{
    const struct wf_layout *layout = rank->rank.layout;
    struct wf_error error;
    uint64_t bytes = 64, at = 0;
    rank->tensors = calloc(layout->tensor_count, sizeof *rank->tensors);
    rank->rank.order = calloc(layout->tensor_count, sizeof *rank->rank.order);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        bytes += (layout->tensors[i].bytes + 63) / 64 * 64;
    }
    cr_assert_eq(wf_memory_new("stage", bytes, shared, &rank->memory, &error), WF_OK, "%s",
                 error.text);
    memset(rank->memory.address, 0xee, bytes);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        rank->rank.order[i] = i;
        rank->tensors[i].address = (uint8_t *)rank->memory.address + at;
        rank->tensors[i].offset = at;
        at += (layout->tensors[i].bytes + 63) / 64 * 64;
    }
}

static void make_options(struct stage *stage, struct stage_rank *rank, enum wf_side side,
                         uint32_t number, const struct stage_options *options)
{
    uint32_t per_engine = wf_recipe_ranks_per_engine(&stage->recipes[side]);
    rank->rank.options = (struct wf_rank_options){
        .job = "stage",
        .listen = "unix:@weft-stage-*",
        .host_name = "here",
        .side = side,
        .rank = number,
        .engine = side == WF_INFER ? number / per_engine : 0,
        .group = wf_side_name(side),
        .group_rank = number,
        .model = stage->model,
        .regions = &rank->memory,
        .region_count = 1,
        .tensors = rank->tensors,
        .tensor_count = rank->rank.layout->tensor_count,
        .publish = options->publish,
        .mode = options->mode,
        .policy = options->policy,
        .timeouts = {.connect_ns = STAGE_PATIENCE_S * second_ns,
                     .reconnect_ns = STAGE_PATIENCE_S * second_ns,
                     .plan_ns = STAGE_PATIENCE_S * second_ns,
                     .round_ns = STAGE_PATIENCE_S * second_ns},
    };
}

static void check(enum wf_status status, const struct wf_error *error)
{
    cr_assert_eq(status, WF_OK, "%s", error->text);
}

static void open_rank(struct stage *stage, uint32_t index, const struct stage_options *options)
{
    struct stage_rank *rank = &stage->ranks[index];
    enum wf_side side = index < stage->train ? WF_TRAIN : WF_INFER;
    uint32_t number = side == WF_TRAIN ? index : index - stage->train;
    struct wf_error error;
    memset(rank, 0, sizeof *rank);
    const struct wf_loop_options loop = {.poller = WF_POLLER_EPOLL};
    check(wf_loop_new(&loop, &rank->rank.loop, &error), &error);
    const struct wf_env_real_options env = {.workers = 1};
    check(wf_env_real_new(rank->rank.loop, &env, &rank->env, &error), &error);
    wf_loop_set_env(rank->rank.loop, rank->env);
    rank->env->ops->random(rank->env, &rank->rank.incarnation, sizeof rank->rank.incarnation);
    check(wf_layout_derive(stage->model, &stage->recipes[side], number, &rank->rank.layout, &error),
          &error);
    if (side == WF_TRAIN) {
        check(wf_prepare_derive(stage->model, rank->rank.layout, &rank->rank.source,
                                &rank->rank.prepare, &error),
              &error);
    }
    rank->rank.recipe = stage->recipes[side];
    make_tensors(rank, options->share_memory && side == WF_TRAIN);
    make_options(stage, rank, side, number, options);
    check(wf_transport_shm_new(rank->rank.loop, 1, &rank->transports[0], &error), &error);
    rank->rank.options.transports = rank->transports;
    rank->rank.options.transport_count = 1;
    if (options->equip != NULL) {
        options->equip(rank, options->user);
    }
    wf_actor_init(&rank->client.actor, rank->rank.loop, "client", keep_answer);
    rank->rank.client = &rank->client;
    check(wf_converter_new(&rank->rank, &rank->rank.converter, &error), &error);
    check(wf_planner_new(&rank->rank, &rank->rank.planner, &error), &error);
    if (side == WF_TRAIN) {
        check(wf_sender_new(&rank->rank, &rank->rank.sender, &error), &error);
    } else {
        check(wf_receiver_new(&rank->rank, &rank->rank.receiver, &error), &error);
        check(wf_validator_new(&rank->rank, &rank->rank.validator, &error), &error);
    }
    rank->open = true;
}

static void close_rank(struct stage_rank *rank)
{
    struct wf_rank *r = &rank->rank;
    wf_converter_close(r->converter);
    wf_planner_close(r->planner);
    if (r->sender != NULL) {
        wf_sender_close(r->sender);
    } else {
        wf_receiver_close(r->receiver);
        wf_validator_close(r->validator);
    }
    while (wf_loop_turn(r->loop)) {
    }
    if (r->sender != NULL) {
        wf_sender_free(r->sender);
    } else {
        wf_receiver_free(r->receiver);
        wf_validator_free(r->validator);
    }
    wf_converter_free(r->converter);
    wf_planner_free(r->planner);
    for (uint32_t i = 0; i < rank->client.answer_count; i++) {
        stage_drop(rank->client.answers[i]);
    }
    wf_actor_close(&rank->client.actor);
    wf_actor_fini(&rank->client.actor);
    for (uint32_t i = 0; i < r->options.transport_count; i++) {
        rank->transports[i]->ops->close(rank->transports[i]);
    }
    wf_env_real_free(rank->env);
    wf_loop_free(r->loop);
    wf_memory_free(&rank->memory);
    wf_layout_free(r->layout);
    wf_layout_free(r->source);
    wf_prepare_free(r->prepare);
    free(r->order);
    free(rank->tensors);
    rank->open = false;
}

/* The job's model: of the config, and of what the engines hold quantised. */
static void make_model(struct stage *stage, const struct stage_options *options)
{
    const char *text = options->config != NULL ? options->config : model_text;
    struct wf_recipe recipes[2];
    const struct wf_recipe *both[2] = {&recipes[0], &recipes[1]};
    struct wf_model *config = NULL;
    struct wf_error error;
    check(wf_model_parse(text, strlen(text), NULL, &config, &error), &error);
    check(wf_recipe_parse(options->train, NULL, &recipes[0], &error), &error);
    check(wf_recipe_parse(options->infer, NULL, &recipes[1], &error), &error);
    check(wf_model_for_job(config, both, 2, &stage->model, &error), &error);
    wf_model_free(config);
}

void stage_open(struct stage *stage, const struct stage_options *options)
{
    struct wf_error error;
    memset(stage, 0, sizeof *stage);
    stage->epoch = 1;
    make_model(stage, options);
    check(wf_recipe_parse(options->train, stage->model, &stage->recipes[WF_TRAIN], &error), &error);
    check(wf_recipe_parse(options->infer, stage->model, &stage->recipes[WF_INFER], &error), &error);
    stage->train = wf_recipe_world(&stage->recipes[WF_TRAIN]);
    stage->infer = wf_recipe_world(&stage->recipes[WF_INFER]);
    cr_assert_leq(stage->train + stage->infer, STAGE_RANKS_MAX);
    for (uint32_t i = 0; i < stage->train + stage->infer; i++) {
        open_rank(stage, i, options);
    }
}

void stage_close(struct stage *stage)
{
    for (uint32_t i = stage->train + stage->infer; i-- > 0;) {
        close_rank(&stage->ranks[i]);
    }
    wf_model_free(stage->model);
}

void stage_restart(struct stage *stage, uint32_t index, const struct stage_options *options)
{
    close_rank(&stage->ranks[index]);
    open_rank(stage, index, options);
}

struct stage_rank *stage_train(struct stage *stage, uint32_t rank)
{
    return &stage->ranks[rank];
}

struct stage_rank *stage_infer(struct stage *stage, uint32_t rank)
{
    return &stage->ranks[stage->train + rank];
}

void stage_step(struct stage *stage, uint64_t version)
{
    for (uint32_t t = 0; t < stage->train; t++) {
        struct stage_rank *rank = &stage->ranks[t];
        uint8_t *bytes = rank->memory.address;
        for (uint64_t i = 0; i < rank->memory.len_bytes; i++) {
            bytes[i] = (uint8_t)(((i + t * 977) * 2654435761U + version * 40503U) >> 9);
        }
    }
}

struct wf_round_key stage_key(const struct stage *stage, uint64_t version, uint64_t attempt)
{
    return (struct wf_round_key){.term = 1,
                                 .epoch = stage->epoch,
                                 .models = 1,
                                 .version = {1, 1, version},
                                 .attempt = attempt};
}

/* --- messages
 * -------------------------------------------------------------------------------------- */

void stage_send(struct stage_rank *rank, struct wf_actor *to, enum wf_local_kind kind,
                const struct wf_round_key *key, uint64_t deadline_ns)
{
    struct wf_local_msg *msg = wf_local_msg_new(kind, &rank->client.actor);
    msg->round = *key;
    msg->deadline_ns = deadline_ns;
    wf_send(to, &msg->msg);
}

static struct wf_el_peer peer_of(const struct stage_rank *rank)
{
    const struct wf_rank_options *options = &rank->rank.options;
    struct wf_el_peer peer = {.side = options->side,
                              .rank = options->rank,
                              .engine = options->engine,
                              .group = options->side,
                              .group_rank = options->group_rank,
                              .incarnation = rank->rank.incarnation,
                              .layout = wf_rank_source(&rank->rank)->hash};
    snprintf(peer.host, sizeof peer.host, "%s", options->host_name);
    snprintf(peer.address, sizeof peer.address, "%s", rank->rank.address);
    return peer;
}

void stage_send_plan(struct stage *stage, struct stage_rank *rank, uint32_t spoil)
{
    struct wf_el_group groups[2] = {{.name = "train", .side = WF_TRAIN},
                                    {.name = "infer", .side = WF_INFER}};
    struct wf_el_peer peers[STAGE_RANKS_MAX];
    uint32_t count = stage->train + stage->infer;
    for (int side = 0; side < 2; side++) {
        wf_recipe_format(&stage->recipes[side], groups[side].spec);
        groups[side].model = stage->model->hash;
    }
    for (uint32_t i = 0; i < count; i++) {
        peers[count - 1 - i] = peer_of(&stage->ranks[i]); /* any order will do */
        if (i == spoil) {
            peers[count - 1 - i].layout.low ^= 1;
        }
    }
    struct wf_frame_members members = {.term = 1,
                                       .epoch = stage->epoch,
                                       .groups = groups,
                                       .groups_count = 2,
                                       .peers = peers,
                                       .peers_count = count};
    uint8_t *bytes;
    size_t len;
    struct wf_error error;
    check(wf_frame_encode(WF_FRAME_members, &members, &bytes, &len, &error), &error);
    struct wf_local_msg *msg = wf_local_msg_new(WF_LOCAL_PLAN, &rank->client.actor);
    check(wf_frame_decode(bytes, len, &msg->members, &error), &error);
    free(bytes);
    wf_send(wf_converter_actor(rank->rank.converter), &msg->msg);
}

bool stage_run(struct stage *stage, bool (*done)(void *user), void *user)
{
    struct wf_env *env = stage->ranks[0].env;
    uint64_t limit = env->ops->now_ns(env) + STAGE_PATIENCE_S * second_ns;
    while (!done(user)) {
        if (env->ops->now_ns(env) > limit) {
            return false;
        }
        for (uint32_t i = 0; i < stage->train + stage->infer; i++) {
            wf_loop_turn(stage->ranks[i].rank.loop);
        }
    }
    return true;
}

struct wanted {
    struct stage_rank *rank;
    enum wf_local_kind kind;
};

static uint32_t find_answer(const struct wanted *wanted)
{
    const struct wf_meta_client *client = &wanted->rank->client;
    for (uint32_t i = 0; i < client->answer_count; i++) {
        if (client->answers[i]->msg.kind == (uint32_t)wanted->kind) {
            return i;
        }
    }
    return UINT32_MAX;
}

static bool has_answer(void *user)
{
    return find_answer(user) != UINT32_MAX;
}

struct wf_local_msg *stage_wait(struct stage *stage, struct stage_rank *rank,
                                enum wf_local_kind kind)
{
    struct wanted wanted = {rank, kind};
    if (!stage_run(stage, has_answer, &wanted)) {
        return NULL;
    }
    struct wf_meta_client *client = &rank->client;
    uint32_t at = find_answer(&wanted);
    struct wf_local_msg *answer = client->answers[at];
    client->answer_count--;
    for (uint32_t i = at; i < client->answer_count; i++) {
        client->answers[i] = client->answers[i + 1];
    }
    return answer;
}

void stage_drop(struct wf_local_msg *answer)
{
    answer->msg.release(&answer->msg);
}

static void wait_ok(struct stage *stage, struct stage_rank *rank, enum wf_local_kind kind)
{
    struct wf_local_msg *answer = stage_wait(stage, rank, kind);
    cr_assert_not_null(answer, "no answer of kind %x", kind);
    cr_assert_eq(answer->status, WF_OK, "%s", answer->error.text);
    stage_drop(answer);
}

void stage_plan(struct stage *stage)
{
    uint32_t count = stage->train + stage->infer;
    for (uint32_t i = 0; i < count; i++) {
        stage_send_plan(stage, &stage->ranks[i], UINT32_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        wait_ok(stage, &stage->ranks[i], WF_LOCAL_PLANNED);
    }
}

void stage_snapshot(struct stage *stage, const struct wf_round_key *key)
{
    for (uint32_t r = 0; r < stage->train; r++) {
        struct stage_rank *train = stage_train(stage, r);
        stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_SNAPSHOT, key, 0);
        wait_ok(stage, train, WF_LOCAL_SNAPSHOT_DONE);
    }
}

void stage_transfer(struct stage *stage, const struct wf_round_key *key)
{
    for (uint32_t i = 0; i < stage->train; i++) {
        struct stage_rank *rank = stage_train(stage, i);
        stage_send(rank, wf_sender_actor(rank->rank.sender), WF_LOCAL_GRANT, key, 0);
    }
    for (uint32_t i = 0; i < stage->infer; i++) {
        struct stage_rank *rank = stage_infer(stage, i);
        uint64_t deadline_ns = rank->env->ops->now_ns(rank->env) + STAGE_PATIENCE_S * second_ns;
        stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_READ, key, deadline_ns);
    }
    for (uint32_t i = 0; i < stage->infer; i++) {
        wait_ok(stage, stage_infer(stage, i), WF_LOCAL_READ_DONE);
    }
}

void stage_flip(struct stage *stage, const struct wf_round_key *key)
{
    for (uint32_t i = 0; i < stage->infer; i++) {
        struct stage_rank *rank = stage_infer(stage, i);
        stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_FLIP, key, 0);
        wait_ok(stage, rank, WF_LOCAL_FLIPPED);
    }
}

/* --- the naive move
 * ---------------------------------------------------------------------------------- */

static void move_box(const struct wf_box *box, const uint8_t *src, uint8_t *dst, size_t elem)
{
    for (uint64_t e = 0; e < box->elements; e++) {
        int64_t from = (int64_t)box->src_offset, to = (int64_t)box->dst_offset;
        uint64_t rest = e;
        for (uint32_t a = box->axis_count; a-- > 0;) {
            from += (int64_t)(rest % box->axes[a].count) * box->axes[a].src_step;
            to += (int64_t)(rest % box->axes[a].count) * box->axes[a].dst_step;
            rest /= box->axes[a].count;
        }
        memcpy(dst + to, src + from, elem);
    }
}

/* By tensor of a trainer's source layout: its own, and what it must have prepared. */
static void **make_sources(const struct stage_rank *rank)
{
    const struct wf_layout *source = wf_rank_source(&rank->rank);
    const struct wf_prepare *prepare = rank->rank.prepare;
    uint32_t own = rank->rank.layout->tensor_count;
    void **tensors = calloc(source->tensor_count + 1, sizeof *tensors);
    for (uint32_t t = 0; t < source->tensor_count; t++) {
        tensors[t] = t < own ? rank->tensors[t].address : calloc(1, source->tensors[t].bytes + 1);
    }
    for (uint32_t i = 0; prepare != NULL && i < wf_prepare_item_count(prepare); i++) {
        void *scratch = malloc(wf_prepare_scratch_bytes(prepare) + 1);
        wf_prepare_run(prepare, i, tensors, scratch);
        free(scratch);
    }
    return tensors;
}

static void free_sources(const struct stage_rank *rank, void **tensors)
{
    for (uint32_t t = rank->rank.layout->tensor_count;
         t < wf_rank_source(&rank->rank)->tensor_count; t++) {
        free(tensors[t]);
    }
    free(tensors);
}

static void move_op(const struct stage_rank *src, void **sources, const struct stage_rank *dst,
                    const struct wf_op *op, uint8_t *wanted)
{
    enum wf_dtype from = wf_rank_source(&src->rank)->tensors[op->src_tensor].dtype;
    enum wf_dtype to = dst->rank.layout->tensors[op->dst_tensor].dtype;
    uint8_t *at = wanted + dst->tensors[op->dst_tensor].offset;
    if (from == to) {
        move_box(&op->box, sources[op->src_tensor], at, wf_dtype_bytes(to));
    } else {
        wf_copy_box(&op->box, sources[op->src_tensor], from, at, to,
                    (struct wf_copy_part){0, op->box.elements});
    }
}

static uint32_t host_number(const struct stage *stage, uint32_t index)
{
    uint32_t first = 0;
    while (strcmp(stage->ranks[first].rank.options.host_name,
                  stage->ranks[index].rank.options.host_name) != 0) {
        first++;
    }
    return first;
}

bool stage_live_is_right(struct stage *stage)
{
    struct wf_plan_member members[STAGE_RANKS_MAX];
    uint32_t count = stage->train + stage->infer;
    for (uint32_t i = 0; i < count; i++) {
        const struct wf_rank *rank = &stage->ranks[i].rank;
        members[i] = (struct wf_plan_member){rank->options.side,    rank->options.rank,
                                             rank->options.engine,  wf_rank_source(rank),
                                             host_number(stage, i), NULL};
    }
    struct wf_plan_input input = {.model = stage->model, .members = members, .member_count = count};
    struct wf_plan *plan;
    struct wf_error error;
    check(wf_plan_build(&input, &plan, &error), &error);
    bool right = true;
    void **sources[STAGE_RANKS_MAX];
    for (uint32_t i = 0; i < stage->train; i++) {
        sources[i] = make_sources(&stage->ranks[i]);
    }
    for (uint32_t i = 0; i < stage->infer; i++) {
        struct stage_rank *rank = stage_infer(stage, i);
        uint8_t *wanted = calloc(1, rank->memory.len_bytes);
        for (uint32_t e = 0; e < plan->edge_count; e++) {
            const struct wf_edge *edge = &plan->edges[e];
            for (uint32_t o = 0; o < edge->op_count && edge->dst_rank == i; o++) {
                move_op(&stage->ranks[edge->src_rank], sources[edge->src_rank], rank, &edge->ops[o],
                        wanted);
            }
        }
        for (uint32_t t = 0; t < rank->rank.layout->tensor_count; t++) {
            const struct wf_tensor *tensor = &rank->rank.layout->tensors[t];
            right = right && (tensor->kind != WF_TENSOR_WEIGHTS ||
                              memcmp(wanted + rank->tensors[t].offset, rank->tensors[t].address,
                                     tensor->bytes) == 0);
        }
        free(wanted);
    }
    for (uint32_t i = 0; i < stage->train; i++) {
        free_sources(&stage->ranks[i], sources[i]);
    }
    wf_plan_free(plan);
    return right;
}
