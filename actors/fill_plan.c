/* fill_plan.c - who takes part in a fill from a replica: its engine's ranks stand where a plan has
 * train ranks, the ranks that lack the version where it has infer ranks. Both ends make this from
 * the job's members and OPEN, and plan it as any other; codes and scales that it has no source for
 * are made by their readers. In a fill from the store, which each rank reads for itself, the store
 * is the only source and that rank the only target. */
#include <stdlib.h>

#include "actors/planned.h"

uint32_t wf_agreed_position(const struct wf_agreed *agreed, enum wf_side role, uint64_t side,
                            uint64_t rank)
{
    uint32_t first = role == WF_TRAIN ? 0 : agreed->train_ranks;
    uint32_t count = role == WF_TRAIN ? agreed->train_ranks : agreed->infer_ranks;
    const struct wf_el_peer *peers = agreed->members.members.peers + first;
    if (rank < count && peers[rank].side == side && peers[rank].rank == rank) {
        return (uint32_t)rank; /* so it is in the job's own plan */
    }
    for (uint32_t i = 0; i < count; i++) {
        if (peers[i].side == side && peers[i].rank == rank) {
            return i;
        }
    }
    return UINT32_MAX;
}

static bool is_listed(const struct wf_el_peer *peer, const struct wf_el_member *members,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].side == peer->side && members[i].rank == peer->rank) {
            return true;
        }
    }
    return false;
}

static void add(struct wf_agreed *agreed, const struct wf_agreed *job, uint32_t index)
{
    uint32_t at = agreed->members.members.peers_count++;
    agreed->peers[at] = job->members.members.peers[index];
    agreed->layouts[at] = wf_agreed_owns(job)[index];
}

static struct wf_agreed *new_fill(struct wf_agreed *job, uint32_t members_max)
{
    struct wf_agreed *agreed = wf_agreed_new();
    agreed->base = wf_agreed_hold(job);
    agreed->peers = calloc(members_max, sizeof *agreed->peers);
    agreed->layouts = calloc(members_max, sizeof(struct wf_layout *));
    WF_ASSERT(agreed->peers != NULL && agreed->layouts != NULL);
    agreed->members.members.term = job->members.members.term;
    agreed->members.members.epoch = job->members.members.epoch;
    agreed->members.members.peers = agreed->peers;
    return agreed;
}

struct wf_agreed *wf_agreed_for_fill(struct wf_agreed *job, uint64_t engine,
                                     const struct wf_el_member *members, uint32_t member_count)
{
    uint32_t first = job->train_ranks, end = first + job->infer_ranks;
    struct wf_agreed *agreed = new_fill(job, job->infer_ranks);
    for (uint32_t i = first; i < end; i++) {
        if (job->members.members.peers[i].engine == engine) {
            add(agreed, job, i);
            agreed->train_ranks++;
        }
    }
    for (uint32_t i = first; i < end; i++) {
        const struct wf_el_peer *peer = &job->members.members.peers[i];
        if (peer->engine != engine && is_listed(peer, members, member_count)) {
            add(agreed, job, i);
            agreed->infer_ranks++;
        }
    }
    return agreed;
}

struct wf_agreed *wf_agreed_for_store(struct wf_agreed *job, uint64_t rank)
{
    struct wf_agreed *agreed = new_fill(job, 2);
    agreed->of_store = true;
    agreed->members.members.peers_count = 1;
    agreed->train_ranks = 1;
    add(agreed, job, job->train_ranks + (uint32_t)rank);
    agreed->infer_ranks = 1;
    return agreed;
}

/* --- casts ------------------------------------------------------------------------------------ */
_Static_assert(WF_DTYPE_COUNT <= 32, "a bit for each dtype");

/* By parameter: bits of the dtypes in which the train side holds it. */
static uint32_t *train_dtypes(const struct wf_agreed *job, const struct wf_model *model)
{
    uint32_t *bits = calloc(model->param_count + 1, sizeof *bits);
    WF_ASSERT(bits != NULL);
    for (uint32_t r = 0; job != NULL && r < job->train_ranks; r++) {
        const struct wf_layout *layout = job->layouts[r];
        if (r > 0 && layout == job->layouts[r - 1]) {
            continue; /* a copy of the same */
        }
        for (uint32_t p = 0; p < layout->piece_count; p++) {
            const struct wf_piece *piece = &layout->pieces[p];
            if (piece->kind == WF_PIECE_DATA) {
                bits[piece->param] |= 1U << layout->tensors[piece->tensor].dtype;
            }
        }
    }
    return bits;
}

/* What was cast into `dtype` from any of these is still the same value. */
static bool was_kept(uint32_t from_bits, enum wf_dtype dtype)
{
    uint32_t kept = 1U << dtype;
    if (dtype == WF_DTYPE_F32) {
        kept |= 1U << WF_DTYPE_F16 | 1U << WF_DTYPE_BF16;
    }
    return from_bits != 0 && (from_bits & ~kept) == 0;
}

static enum wf_status refuse_cast(const struct wf_agreed *agreed, const struct wf_edge *edge,
                                  const char *param, enum wf_dtype has, enum wf_dtype needs,
                                  bool assembled, struct wf_error *error)
{
    char who[WF_WHO_MAX] = "the folder of the version";
    if (!agreed->of_store) {
        wf_peer_who(&agreed->peers[edge->src_rank], who);
    }
    if (assembled) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s holds %s as %s, which does not keep what the trainers hold: codes "
                            "made of it would be others than theirs; let the trainers fill it",
                            who, param, wf_dtype_name(has));
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "%s holds %s as %s, %s is needed: rounded twice it would be another value; "
                        "let the trainers fill it, or give both one dtype",
                        who, param, wf_dtype_name(has), wf_dtype_name(needs));
}

enum wf_status wf_fill_plan_check(const struct wf_agreed *agreed, const struct wf_model *model,
                                  struct wf_error *error)
{
    uint32_t *trained = train_dtypes(agreed->base, model);
    enum wf_status status = WF_OK;
    for (uint32_t e = 0; e < agreed->plan->edge_count && status == WF_OK; e++) {
        const struct wf_edge *edge = &agreed->plan->edges[e];
        const struct wf_layout *src = agreed->layouts[edge->src_rank];
        const struct wf_layout *dst = agreed->layouts[agreed->train_ranks + edge->dst_rank];
        const struct wf_layout *own = wf_agreed_owns(agreed)[agreed->train_ranks + edge->dst_rank];
        for (uint32_t o = 0; o < edge->op_count && status == WF_OK; o++) {
            const struct wf_op *op = &edge->ops[o];
            enum wf_dtype has = src->tensors[op->src_tensor].dtype;
            enum wf_dtype needs = dst->tensors[op->dst_tensor].dtype;
            /* What codes are made of here must be what trainers make them of. */
            bool assembled = own != dst && op->dst_tensor >= own->tensor_count;
            if ((has != needs || assembled) && !was_kept(trained[op->param], has)) {
                status = refuse_cast(agreed, edge, model->params[op->param].name, has, needs,
                                     assembled, error);
            }
        }
    }
    free(trained);
    return status;
}
