/* megatron_pipeline.c - splits layers over pipeline and virtual stages as Megatron does. */
#include "models/engines/megatron_pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SYMBOLS_MAX = 16384, /* of a layout after its repetitions */
    NESTING_MAX = 8,     /* of its parentheses */
};

/* What follows for every split: "model0." and so on before the names of virtual stages (the
 * framework writes them so in its checkpoints), the final norm, the vision tower. */
static void finish_chunks(const struct wf_stage_split *split, struct wf_chunk *chunks,
                          uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct wf_chunk *chunk = &chunks[i];
        bool ends =
            chunk->layer_count > 0 && chunk->first_layer + chunk->layer_count == split->layers;
        chunk->final_norm = split->mtp || split->norm_with_layer ? ends : chunk->head;
        chunk->others = chunk->embedding;
        chunks[i].prefix[0] = '\0';
        if (count > 1) {
            snprintf(chunks[i].prefix, sizeof chunks[i].prefix, "model%u.", (unsigned)i);
        }
    }
}

/* --- the layout string ----------------------------------------------------------------------- */

struct expander {
    const char *at;
    char *out;
    size_t used;
    unsigned depth;
};

/* The number behind '*', 1 where there is none, 0 where it is none or too large. */
static size_t take_times(struct expander *e)
{
    if (*e->at != '*') {
        return 1;
    }
    size_t times = 0;
    for (e->at++; *e->at >= '0' && *e->at <= '9' && times <= SYMBOLS_MAX; e->at++) {
        times = times * 10 + (size_t)(*e->at - '0');
    }
    return times <= SYMBOLS_MAX ? times : 0;
}

/* Writes the layout without commas, parentheses and repetitions, up to a ')' or the end. */
static bool expand(struct expander *e)
{
    while (*e->at && *e->at != ')') {
        size_t start = e->used;
        char symbol = *e->at++;
        if (symbol == ',') {
            continue;
        }
        if (symbol == '(') {
            if (++e->depth > NESTING_MAX || !expand(e) || *e->at++ != ')') {
                return false;
            }
            e->depth--;
        } else if (!strchr("EtmL|", symbol) || e->used == SYMBOLS_MAX) {
            return false;
        } else {
            e->out[e->used++] = symbol;
        }
        size_t times = take_times(e), len = e->used - start;
        if (times == 0 || len * (times - 1) > SYMBOLS_MAX - e->used) {
            return false;
        }
        for (; times > 1; times--) {
            memcpy(e->out + e->used, e->out + start, len);
            e->used += len;
        }
    }
    return true;
}

static enum wf_status refuse_layout(const struct wf_stage_split *split, const char *why,
                                    struct wf_error *error)
{
    return wf_error_set(error, WF_INVALID, "layout \"%.80s\": %s", split->layout, why);
}

static uint32_t count_symbol(const char *text, char symbol)
{
    uint32_t count = 0;
    for (; *text; text++) {
        count += *text == symbol;
    }
    return count;
}

/* Further-token layers: all of them in one stage, behind the layers, in the last virtual round. */
static enum wf_status check_further(const struct wf_stage_split *split, const char *flat,
                                    uint32_t stages, struct wf_error *error)
{
    uint32_t stage = 0, run = 0;
    const char *first = strchr(flat, 'm');
    if (count_symbol(flat, 'm') != split->mtp) {
        return wf_error_set(error, WF_INVALID,
                            "layout \"%.80s\" places %" PRIu32
                            " further-token layers (m), the model has %" PRIu32,
                            split->layout, count_symbol(flat, 'm'), split->mtp);
    }
    if (!first) {
        return WF_OK;
    }
    for (const char *at = flat; at < first; at++) {
        stage += *at == '|';
    }
    while (first[run] == 'm') {
        run++;
    }
    if (run != split->mtp || strchr(first, 't')) {
        return refuse_layout(split, "its m must stand together in one stage behind all t", error);
    }
    if (stage < stages - split->pp) {
        return refuse_layout(split, "its m must be in a rank's last virtual stage", error);
    }
    return WF_OK;
}

static enum wf_status check_layout(const struct wf_stage_split *split, const char *flat,
                                   uint32_t *vpp_out, struct wf_error *error)
{
    uint32_t stages = count_symbol(flat, '|') + 1;
    if (split->first || split->last || split->account_embedding || split->account_loss) {
        return refuse_layout(split, "it cannot be combined with first, last or account", error);
    }
    if (stages % split->pp != 0 || stages / split->pp > WF_CHUNKS_MAX ||
        (split->vpp > 1 && stages != split->pp * split->vpp)) {
        return wf_error_set(error, WF_INVALID,
                            "layout \"%.80s\" has %" PRIu32
                            " stages, which does not fit pp=%" PRIu32 ",vpp=%" PRIu32,
                            split->layout, stages, split->pp, split->vpp);
    }
    const char *embedding = strchr(flat, 'E'), *loss = strchr(flat, 'L');
    if (embedding != flat || count_symbol(flat, 'E') != 1) {
        return refuse_layout(split, "it must begin with its one E", error);
    }
    if (!loss || loss[1] != '\0') {
        return refuse_layout(split, "it must end with its one L", error);
    }
    if (count_symbol(flat, 't') != split->layers) {
        return wf_error_set(error, WF_INVALID,
                            "layout \"%.80s\" places %" PRIu32 " layers, the model has %" PRIu32,
                            split->layout, count_symbol(flat, 't'), split->layers);
    }
    *vpp_out = stages / split->pp;
    return check_further(split, flat, stages, error);
}

/* The list of stages runs over all ranks first, then over virtual stages. */
static enum wf_status stage_by_layout(const struct wf_stage_split *split, uint32_t pp,
                                      struct wf_chunk *chunks_out, uint32_t *count_out,
                                      struct wf_error *error)
{
    char flat[SYMBOLS_MAX + 1];
    struct expander e = {.at = split->layout, .out = flat};
    if (!expand(&e) || *e.at != '\0') {
        return refuse_layout(split, "expected E, t, m, L and | with (...)*n or x*n", error);
    }
    flat[e.used] = '\0';
    uint32_t vpp = 1;
    enum wf_status status = check_layout(split, flat, &vpp, error);
    if (status != WF_OK) {
        return status;
    }
    uint32_t stage = 0;
    struct wf_chunk chunk = {0};
    for (const char *at = flat;; at++) {
        chunk.layer_count += *at == 't';
        chunk.mtp_count += *at == 'm';
        chunk.embedding = chunk.embedding || *at == 'E';
        chunk.head = chunk.head || *at == 'L';
        if (*at == '|' || *at == '\0') {
            if (stage % split->pp == pp) {
                chunks_out[stage / split->pp] = chunk;
            }
            chunk = (struct wf_chunk){.first_layer = chunk.first_layer + chunk.layer_count};
            stage++;
        }
        if (*at == '\0') {
            break;
        }
    }
    finish_chunks(split, chunks_out, vpp);
    *count_out = vpp;
    return WF_OK;
}

/* --- even and uneven splits ------------------------------------------------------------------ */

static enum wf_status refuse_division(const char *what, uint32_t number, const char *over,
                                      uint32_t by, struct wf_error *error)
{
    return wf_error_set(error, WF_INVALID,
                        "%s: %" PRIu32 " layers cannot be divided equally over %s=%" PRIu32, what,
                        number, over, by);
}

/* First and last stage given, the others equal. */
static enum wf_status stage_uneven(const struct wf_stage_split *split, uint32_t pp,
                                   struct wf_chunk *chunks_out, struct wf_error *error)
{
    uint32_t given = split->first + split->last, vpp = split->vpp;
    uint32_t ends = (split->first > 0) + (split->last > 0);
    if (split->account_embedding || split->account_loss) {
        return wf_error_set(error, WF_INVALID, "first and last cannot be combined with account");
    }
    if (ends > split->pp || given > split->layers) {
        return wf_error_set(error, WF_INVALID,
                            "first=%" PRIu32 ",last=%" PRIu32 " do not fit %" PRIu32
                            " layers in pp=%" PRIu32 " stages",
                            split->first, split->last, split->layers, split->pp);
    }
    uint32_t stages = split->pp - ends, middle = split->layers - given;
    if (stages == 0 ? middle != 0 || vpp > 1 : middle % stages != 0 || middle == 0) {
        return refuse_division("between first and last", middle, "stages", stages, error);
    }
    uint32_t each = stages ? middle / stages : 0;
    if (split->first % vpp || split->last % vpp || each % vpp) {
        return wf_error_set(error, WF_INVALID,
                            "stages of %" PRIu32 ", %" PRIu32 " and %" PRIu32
                            " layers cannot each be divided over vpp=%" PRIu32,
                            split->first, each, split->last, vpp);
    }
    bool is_first = pp == 0 && split->first, is_last = pp == split->pp - 1 && split->last;
    uint32_t mine = is_first ? split->first : is_last ? split->last : each;
    uint32_t before = pp == 0 ? 0 : split->first + (pp - (split->first > 0)) * each;
    for (uint32_t v = 0; v < vpp; v++) {
        chunks_out[v].first_layer = v * (split->layers / vpp) + before / vpp;
        chunks_out[v].layer_count = mine / vpp;
    }
    return WF_OK;
}

/* Equal stages; embedding and loss may count as one layer each. */
static enum wf_status stage_even(const struct wf_stage_split *split, uint32_t pp,
                                 struct wf_chunk *chunks_out, struct wf_error *error)
{
    uint32_t vpp = split->vpp, extra = split->account_embedding + split->account_loss;
    uint32_t counted = split->layers + extra;
    if (counted % split->pp != 0) {
        return refuse_division(extra ? "counting embedding and loss" : "the pipeline", counted,
                               "pp", split->pp, error);
    }
    if (counted / split->pp % vpp != 0) {
        return refuse_division("a stage", counted / split->pp, "vpp", vpp, error);
    }
    uint32_t each = counted / split->pp / vpp;
    for (uint32_t v = 0; v < vpp; v++) {
        uint32_t stage = v * split->pp + pp, count = each;
        bool first = stage == 0, last = stage == split->pp * vpp - 1;
        uint32_t taken = (first && split->account_embedding) + (last && split->account_loss);
        if (count < taken) {
            return wf_error_set(error, WF_INVALID, "a stage would have less than no layers");
        }
        chunks_out[v].first_layer = stage * each - (!first && split->account_embedding);
        chunks_out[v].layer_count = count - taken;
    }
    return WF_OK;
}

enum wf_status wf_megatron_stage(const struct wf_stage_split *split, uint32_t pp,
                                 struct wf_chunk *chunks_out, uint32_t *count_out,
                                 struct wf_error *error)
{
    WF_ASSERT(pp < split->pp && split->vpp >= 1 && split->vpp <= WF_CHUNKS_MAX);
    if (split->layout[0]) {
        return stage_by_layout(split, pp, chunks_out, count_out, error);
    }
    if (split->vpp > 1 && split->pp == 1) {
        return wf_error_set(error, WF_INVALID, "vpp=%" PRIu32 " needs pp of at least 2",
                            split->vpp);
    }
    memset(chunks_out, 0, split->vpp * sizeof *chunks_out);
    enum wf_status status = split->first || split->last ? stage_uneven(split, pp, chunks_out, error)
                                                        : stage_even(split, pp, chunks_out, error);
    if (status != WF_OK) {
        return status;
    }
    chunks_out[0].embedding = pp == 0;
    chunks_out[split->vpp - 1].head = pp == split->pp - 1;
    chunks_out[split->vpp - 1].mtp_count = pp == split->pp - 1 ? split->mtp : 0;
    finish_chunks(split, chunks_out, split->vpp);
    *count_out = split->vpp;
    return WF_OK;
}
