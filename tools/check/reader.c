/* reader.c - samples positions of an engine's ranks and decodes which versions they fit. */
#include "tools/check/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/step.h"

/* What an element that is made of others can be takes milliseconds to find, so few elements of such
 * a tensor are read, over and over. */
enum { PLACES = 4 };
struct places {
    uint32_t count;
    struct {
        uint64_t index;
        uint32_t bits[WF_STEP_PERIOD]; /* after each number of steps */
    } at[PLACES];
};

struct wf_reader {
    struct wf_reader_rank *ranks; /* owned copy */
    uint32_t *next_tensor;        /* owned; of each rank */
    struct places ***places;      /* owned; by rank and tensor; NULL where not needed yet */
    uint32_t rank_count, next_rank;
    uint64_t random;
    struct wf_reader_seen seen;
    struct wf_reader_stats stats;
};

/* xorshift64*: the seed decides all, no state of the process is touched. */
static uint64_t draw(struct wf_reader *reader, uint64_t n)
{
    uint64_t x = reader->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    reader->random = x;
    return x * 0x2545f4914f6cdd1dULL % n;
}

static bool make_places(struct wf_reader *reader, const struct wf_reader_rank *ranks,
                        uint32_t rank_count)
{
    bool good = reader->places != NULL;
    for (uint32_t r = 0; r < rank_count && good; r++, reader->rank_count++) {
        reader->places[r] =
            calloc(wf_verify_tensor_count(ranks[r].verify) + 1, sizeof *reader->places[r]);
        good = reader->places[r] != NULL;
    }
    return good;
}

enum wf_status wf_reader_new(const struct wf_reader_rank *ranks, uint32_t rank_count, uint64_t seed,
                             struct wf_reader **out, struct wf_error *error)
{
    WF_ASSERT(rank_count > 0);
    for (uint32_t r = 0; r < rank_count; r++) {
        for (uint32_t t = 0; t < wf_verify_tensor_count(ranks[r].verify); t++) {
            const struct wf_verify_live *live = &ranks[r].live[t];
            uint64_t elements = wf_verify_tensor_elements(ranks[r].verify, t);
            if ((!wf_step_supports(live->dtype) && !wf_verify_is_made(ranks[r].verify, t)) ||
                live->bytes != elements * wf_dtype_bytes(live->dtype)) {
                return wf_error_set(
                    error, WF_MISMATCH,
                    "reader: rank %u tensor %s has %" PRIu64 " bytes, expected %" PRIu64
                    " elements of f32, f16, bf16 or codes",
                    r, wf_verify_tensor_name(ranks[r].verify, t), live->bytes, elements);
            }
        }
    }
    struct wf_reader *reader = calloc(1, sizeof *reader);
    if (reader != NULL) {
        reader->ranks = calloc(rank_count, sizeof *reader->ranks);
        reader->next_tensor = calloc(rank_count, sizeof *reader->next_tensor);
        reader->places = calloc(rank_count, sizeof *reader->places);
    }
    if (reader == NULL || reader->ranks == NULL || reader->next_tensor == NULL ||
        !make_places(reader, ranks, rank_count)) {
        wf_reader_free(reader);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a reader of %u ranks", rank_count);
    }
    memcpy(reader->ranks, ranks, rank_count * sizeof *ranks);
    reader->random = seed != 0 ? seed : 1; /* zero would stay zero */
    *out = reader;
    return WF_OK;
}

void wf_reader_free(struct wf_reader *reader)
{
    if (reader != NULL) {
        for (uint32_t r = 0; r < reader->rank_count; r++) {
            for (uint32_t t = 0; t < wf_verify_tensor_count(reader->ranks[r].verify); t++) {
                free(reader->places[r][t]);
            }
            free(reader->places[r]);
        }
        free(reader->places);
        free(reader->ranks);
        free(reader->next_tensor);
        free(reader);
    }
}

void wf_reader_begin(struct wf_reader *reader)
{
    memset(&reader->seen, 0, sizeof reader->seen);
    memset(reader->seen.versions, 0xff, sizeof reader->seen.versions);
}

/* One load of one element: another process may be writing it. */
static uint32_t load_live(const struct wf_verify_live *live, uint64_t index)
{
    if (wf_dtype_bytes(live->dtype) == 1) {
        return __atomic_load_n((const uint8_t *)live->address + index, __ATOMIC_RELAXED);
    }
    if (wf_dtype_bytes(live->dtype) == 4) {
        return __atomic_load_n((const uint32_t *)live->address + index, __ATOMIC_RELAXED);
    }
    return __atomic_load_n((const uint16_t *)live->address + index, __ATOMIC_RELAXED);
}

/* Equal bits, or two NaNs: which NaN a cast gives differs between paths of one framework. */
static bool same_number(uint32_t a, uint32_t b, enum wf_dtype dtype)
{
    if (wf_dtype_bytes(dtype) == 1) {
        return a == b;
    }
    uint32_t infinity = dtype == WF_DTYPE_BF16  ? 0x7f80
                        : dtype == WF_DTYPE_F16 ? 0x7c00
                                                : 0x7f800000;
    uint32_t magnitude = dtype == WF_DTYPE_F32 ? 0x7fffffff : 0x7fff;
    return a == b || ((a & magnitude) > infinity && (b & magnitude) > infinity);
}

/* The set of step counts after which the checkpoint gives what is in memory. */
static enum wf_status decode(const struct wf_reader_rank *rank, uint32_t tensor, uint64_t index,
                             uint64_t set_out[2], struct wf_error *error)
{
    const struct wf_verify_live *live = &rank->live[tensor];
    uint32_t found = load_live(live, index), param, base = 0;
    uint64_t flat;
    set_out[0] = set_out[1] = 0;
    if (!wf_verify_locate(rank->verify, tensor, index, &param, &flat)) {
        if (found == 0) { /* padding is zero in every version */
            set_out[0] = set_out[1] = UINT64_MAX;
        }
        return WF_OK;
    }
    enum wf_status status = wf_checkpoint_read(rank->checkpoint, param, flat, 1, &base, error);
    if (status != WF_OK) {
        return status;
    }
    enum wf_dtype from = rank->checkpoint->entries[param].dtype;
    for (uint32_t v = 0; v < WF_STEP_PERIOD; v++) {
        if (same_number(wf_verify_value(base, from, live->dtype, v), found, live->dtype)) {
            set_out[v / 64] |= 1ULL << (v % 64);
        }
    }
    return WF_OK;
}

/* The same of one of the tensor's places. */
static enum wf_status decode_made(struct wf_reader *reader, uint32_t rank, uint32_t tensor,
                                  uint64_t *index_out, uint64_t set_out[2], struct wf_error *error)
{
    const struct wf_verify *verify = reader->ranks[rank].verify;
    struct places **places = &reader->places[rank][tensor];
    *places = *places != NULL ? *places : calloc(1, sizeof **places);
    if (*places == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the reader's places");
    }
    uint32_t at = (uint32_t)draw(reader, PLACES);
    if (at >= (*places)->count) {
        at = (*places)->count;
        (*places)->at[at].index = draw(reader, wf_verify_tensor_elements(verify, tensor));
        enum wf_status status = wf_verify_versions(verify, tensor, (*places)->at[at].index,
                                                   reader->ranks[rank].live[tensor].dtype,
                                                   (*places)->at[at].bits, error);
        if (status != WF_OK) {
            return status;
        }
        (*places)->count++;
    }
    *index_out = (*places)->at[at].index;
    const struct wf_verify_live *live = &reader->ranks[rank].live[tensor];
    uint32_t found = load_live(live, *index_out);
    set_out[0] = set_out[1] = 0;
    for (uint32_t v = 0; v < WF_STEP_PERIOD; v++) {
        if (same_number((*places)->at[at].bits[v], found, live->dtype)) {
            set_out[v / 64] |= 1ULL << (v % 64);
        }
    }
    return WF_OK;
}

static void meet(struct wf_reader *reader, uint32_t rank, uint32_t tensor, uint64_t index,
                 const uint64_t set[2])
{
    struct wf_reader_seen *seen = &reader->seen;
    seen->positions++;
    reader->stats.positions++;
    seen->versions[0] &= set[0];
    seen->versions[1] &= set[1];
    if (!seen->torn && (seen->versions[0] | seen->versions[1]) == 0) {
        const char *name = wf_verify_tensor_name(reader->ranks[rank].verify, tensor);
        seen->torn = true;
        seen->rank = rank;
        seen->index = index;
        strncpy(seen->tensor, name, sizeof seen->tensor - 1);
    }
}

enum wf_status wf_reader_sample(struct wf_reader *reader, uint32_t positions,
                                struct wf_error *error)
{
    for (uint32_t i = 0; i < positions; i++) {
        uint32_t rank = reader->next_rank;
        const struct wf_verify *verify = reader->ranks[rank].verify;
        uint32_t tensor = reader->next_tensor[rank];
        reader->next_tensor[rank] = (tensor + 1) % wf_verify_tensor_count(verify);
        reader->next_rank = (rank + 1) % reader->rank_count;
        uint64_t index = 0, set[2];
        enum wf_status status;
        if (wf_verify_is_made(verify, tensor)) {
            status = decode_made(reader, rank, tensor, &index, set, error);
        } else {
            index = draw(reader, wf_verify_tensor_elements(verify, tensor));
            status = decode(&reader->ranks[rank], tensor, index, set, error);
        }
        if (status != WF_OK) {
            return status;
        }
        meet(reader, rank, tensor, index, set);
    }
    return WF_OK;
}

void wf_reader_end(struct wf_reader *reader, struct wf_reader_seen *seen_out)
{
    reader->stats.forward_steps++;
    reader->stats.torn_steps += reader->seen.torn;
    if (seen_out != NULL) {
        *seen_out = reader->seen;
    }
}

struct wf_reader_stats wf_reader_stats(const struct wf_reader *reader)
{
    return reader->stats;
}
