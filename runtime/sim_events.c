/* sim_events.c - under the simulated world: memory, drawn choices, the trace, the heap of events.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sim_internal.h"
#include "runtime/splitmix.h"

#define SIM_MILLION UINT64_C(1000000)

/* --- memory ---------------------------------------------------------------------------------- */
void *sim_alloc(size_t len_bytes)
{
    void *memory = calloc(1, len_bytes);
    WF_ASSERT(memory != NULL);
    return memory;
}

void sim_grow(void *array_of_pointer, uint64_t count, uint64_t *cap, size_t size)
{
    if (count < *cap) {
        return;
    }
    void **array = array_of_pointer;
    *cap = *cap == 0 ? 16 : *cap * 2;
    *array = realloc(*array, *cap * size);
    WF_ASSERT(*array != NULL);
}

char *sim_copy_text(const char *text)
{
    char *copy = strdup(text);
    WF_ASSERT(copy != NULL);
    return copy;
}

/* --- choices: xoshiro256** (Blackman and Vigna), seeded by splitmix64 --------------------------
 */
static uint64_t rotate(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t sim_draw(struct wf_sim *sim)
{
    uint64_t *s = sim->random;
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    sim->draws++;
    return result;
}

uint64_t wf_sim_choose(struct wf_sim *sim, uint64_t n)
{
    WF_ASSERT(n > 0);
    return (uint64_t)(((unsigned __int128)sim_draw(sim) * n) >> 64);
}

uint64_t wf_sim_range(struct wf_sim *sim, uint64_t min, uint64_t max)
{
    return max <= min ? min : min + wf_sim_choose(sim, max - min + 1);
}

bool wf_sim_chance(struct wf_sim *sim, uint32_t per_million)
{
    return per_million > 0 && wf_sim_choose(sim, SIM_MILLION) < per_million;
}

struct wf_sim_options wf_sim_options_swarm(uint64_t seed)
{
    uint64_t state = seed ^ UINT64_C(0x5eed5eed5eed5eed);
    struct wf_sim_options options = {0};
    /* Powers of two: worlds where one thing is far slower than the others find most. */
    options.latency_min_ns = UINT64_C(1000) << (wf_splitmix64(&state) % 8);
    options.latency_max_ns =
        options.latency_min_ns + (UINT64_C(10000) << (wf_splitmix64(&state) % 10));
    options.job_max_ns = UINT64_C(1000) << (wf_splitmix64(&state) % 14);
    options.turn_max_ns = UINT64_C(100) << (wf_splitmix64(&state) % 12);
    options.timer_late_max_ns = UINT64_C(100) << (wf_splitmix64(&state) % 14);
    options.spurious_per_million = (uint32_t)(wf_splitmix64(&state) % 100000);
    return options;
}

/* --- trace ------------------------------------------------------------------------------------ */
void sim_trace_mix(struct wf_sim *sim, uint64_t value)
{
    uint64_t x = (sim->trace ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    sim->trace = x ^ (x >> 29);
}

static void trace_bytes(struct wf_sim *sim, const uint8_t *bytes, size_t len)
{
    uint64_t word = 0;
    for (; len >= sizeof word; len -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sim_trace_mix(sim, word);
    }
    word = len;
    for (; len > 0; len--) {
        word = word << 8 | *bytes++;
    }
    sim_trace_mix(sim, word);
}

void sim_trace_event(struct wf_sim *sim, const struct wf_sim_event *event)
{
    static const char *const names[] = {"none",   "turn",    "frame", "opened",
                                        "closed", "connect", "job",   "call"};
    sim->delivered++;
    sim_trace_mix(sim, event->time_ns);
    sim_trace_mix(sim, (uint64_t)event->kind << 32 | event->rank);
    sim_trace_mix(sim, event->port);
    if (event->wire != NULL) {
        sim_trace_mix(sim, event->wire->status);
        trace_bytes(sim, event->wire->bytes, event->wire->len_bytes);
    }
    if (sim->options.trace == NULL || event->kind == SIM_TURN) {
        return;
    }
    fprintf(sim->options.trace, "%12.3f us  %-7s %-16s port %" PRIu64 " len %zu %s%s\n",
            (double)event->time_ns / 1e3, names[event->kind],
            event->rank == WF_SIM_HOST ? "-" : sim->ranks[event->rank]->name, event->port,
            event->wire != NULL ? event->wire->len_bytes : 0,
            event->wire != NULL ? event->wire->text : "",
            event->job != NULL && event->job->name != NULL ? event->job->name : "");
}

uint64_t wf_sim_trace_hash(const struct wf_sim *sim)
{
    uint64_t state = sim->trace ^ sim->draws;
    return wf_splitmix64(&state);
}

uint64_t wf_sim_events(const struct wf_sim *sim)
{
    return sim->delivered;
}

/* --- events ----------------------------------------------------------------------------------- */
void sim_list_append(struct sim_event_list *list, struct wf_sim_event *event)
{
    event->next = NULL;
    event->prev = list->last;
    *(list->last == NULL ? &list->first : &list->last->next) = event;
    list->last = event;
}

void sim_list_remove(struct sim_event_list *list, struct wf_sim_event *event)
{
    *(event->prev == NULL ? &list->first : &event->prev->next) = event->next;
    *(event->next == NULL ? &list->last : &event->next->prev) = event->prev;
    event->prev = event->next = NULL;
}

struct wf_sim_event *sim_event_new(struct wf_sim *sim, enum sim_kind kind, uint32_t rank)
{
    struct wf_sim_event *event = sim->free_events;
    if (event == NULL) {
        event = sim_alloc(sizeof *event);
    } else {
        sim->free_events = event->next;
    }
    *event = (struct wf_sim_event){.kind = kind, .rank = rank, .id = ++sim->event_count};
    return event;
}

void sim_event_free(struct wf_sim *sim, struct wf_sim_event *event)
{
    if (event->wire != NULL) {
        event->wire->msg.release(&event->wire->msg);
        event->wire = NULL;
    }
    event->next = sim->free_events;
    sim->free_events = event;
}

static bool is_before(const struct wf_sim_event *a, const struct wf_sim_event *b)
{
    if (a->time_ns != b->time_ns) {
        return a->time_ns < b->time_ns;
    }
    return a->tie != b->tie ? a->tie < b->tie : a->id < b->id;
}

void sim_event_push(struct wf_sim *sim, struct wf_sim_event *event, uint64_t time_ns)
{
    uint64_t cap = sim->heap_cap;
    sim_grow(&sim->heap, sim->heap_len, &cap, sizeof *sim->heap);
    sim->heap_cap = (uint32_t)cap;
    event->time_ns = time_ns < sim->now_ns ? sim->now_ns : time_ns;
    event->tie = sim_draw(sim);
    uint32_t i = sim->heap_len++;
    for (; i > 0; i = (i - 1) / 2) {
        struct wf_sim_event *parent = sim->heap[(i - 1) / 2];
        if (!is_before(event, parent)) {
            break;
        }
        sim->heap[i] = parent;
    }
    sim->heap[i] = event;
}

struct wf_sim_event *sim_event_pop(struct wf_sim *sim)
{
    struct wf_sim_event *first = sim->heap[0], *moved = sim->heap[--sim->heap_len];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < sim->heap_len; i = child) {
        if (child + 1 < sim->heap_len && is_before(sim->heap[child + 1], sim->heap[child])) {
            child++;
        }
        if (!is_before(sim->heap[child], moved)) {
            break;
        }
        sim->heap[i] = sim->heap[child];
    }
    sim->heap[i] = moved;
    return first;
}
