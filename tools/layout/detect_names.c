/* detect_names.c - which words of an engine and which flags and counts of a family make the names
 * of a dump. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

enum { PASSES_MAX = 3, SMALL_MAX = 16, FAR_MAX = 1 << 16 };

/* --- words ----------------------------------------------------------------------------------- */

/* Words of a SPEC that change names or shapes, one choice of each row that goes with the family:
 * one that has the role, or not. The first choice is what an engine does unless told. */
static const struct {
    const char *engine;
    const char *role, *without; /* the family must have, must not have; NULL: whatever it has */
    const char *choices;        /* parted by | */
} choices[] = {
    {"megatron", NULL, NULL, "|skip_mtp=1"},
    {"megatron", NULL, "expert_gate", "|names=local,experts=sequential"},
    {"megatron", "expert_gate", NULL,
     "|experts=sequential|experts=single|names=local,experts=sequential"},
    {"megatron", NULL, NULL, "|version=0.16"},
    {"megatron", NULL, NULL, "|loader=mbridge"},
    {"fsdp", NULL, NULL, "|shard=1|flat=1"},
    {"vllm", NULL, "expert_gate", "|stage=post,deep_gemm=off"},
    {"vllm", "expert_gate", NULL,
     "|stage=post,moe_backend=triton,deep_gemm=off"
     "|stage=post,moe_backend=flashinfer_cutlass,deep_gemm=off"
     "|stage=post,moe_backend=flashinfer_trtllm,deep_gemm=off,capability=100"},
    {"vllm", "expert_gate", NULL, "|strategy=round_robin"},
    {"vllm", "vision_qkv", NULL, "|vision=data"},
    {"sglang", NULL, "expert_gate", "|stage=post"},
    {"sglang", "expert_gate", NULL,
     "|stage=post|moe_backend=triton|moe_backend=triton,stage=post|moe_backend=triton_kernel"
     "|moe_backend=triton_kernel,stage=post|moe_backend=deep_gemm|moe_backend=deep_gemm,stage=post"
     "|moe_backend=flashinfer_cutlass|moe_backend=flashinfer_cutlass,stage=post"
     "|moe_backend=flashinfer_trtllm,capability=sm100"
     "|moe_backend=flashinfer_trtllm,capability=sm100,stage=post"
     "|moe_backend=triton,swiglu_interleaved=1"},
    {"sglang", "shared_gate", NULL, "|shared_experts=separate|shared_experts=fused"},
    {"sglang", "shared_gate", NULL, "|a2a=deepep"},
    {"sglang", "vision_qkv", NULL, "|vision=data"},
    {"sglang", "sinks", NULL, "|attention=trtllm_mha,capability=sm100"},
};

enum { CHOICES = sizeof choices / sizeof choices[0] };

static bool goes_with(const struct wf_guess *guess, size_t row)
{
    return strcmp(choices[row].engine, guess->engine->name) == 0 &&
           (choices[row].role == NULL || wf_guess_has_role(guess->family, choices[row].role)) &&
           (choices[row].without == NULL ||
            !wf_guess_has_role(guess->family, choices[row].without));
}

static uint32_t count_choices(const char *list)
{
    uint32_t count = 1;
    for (; *list != '\0'; list++) {
        count += *list == '|';
    }
    return count;
}

static void append_choice(char *words, const char *list, uint32_t number)
{
    for (; number > 0; number--) {
        list = strchr(list, '|') + 1;
    }
    size_t used = strlen(words), len = strcspn(list, "|");
    if (len > 0 && used + len + 2 < WF_GUESS_WORDS) {
        snprintf(words + used, WF_GUESS_WORDS - used, "%s%.*s", used > 0 ? "," : "", (int)len,
                 list);
    }
}

bool wf_names_words(const struct wf_guess *guess, uint32_t *at, char words_out[WF_GUESS_WORDS])
{
    uint32_t rest = (*at)++;
    words_out[0] = '\0';
    for (size_t row = 0; row < CHOICES; row++) {
        if (goes_with(guess, row)) {
            uint32_t count = count_choices(choices[row].choices);
            append_choice(words_out, choices[row].choices, rest % count);
            rest /= count;
        }
    }
    return rest == 0;
}

/* Words in which one choice is another than in `picks` (one for each row). */
static bool other_words(const struct wf_guess *guess, const uint32_t *picks, uint32_t *at,
                        char words_out[WF_GUESS_WORDS])
{
    uint32_t rest = (*at)++;
    bool found = false;
    words_out[0] = '\0';
    for (size_t row = 0; row < CHOICES; row++) {
        if (goes_with(guess, row)) {
            uint32_t count = count_choices(choices[row].choices);
            bool here = !found && rest < count;
            append_choice(words_out, choices[row].choices, here ? rest : picks[row]);
            found |= here;
            rest -= found ? 0 : count;
        }
    }
    return found;
}

/* --- names ----------------------------------------------------------------------------------- */

static uint32_t misfits_of(const struct wf_guess *guess, const struct wf_seen *dump)
{
    struct wf_seen own;
    if (!wf_guess_seen(guess, &wf_guess_one_rank, &own)) {
        return UINT32_MAX;
    }
    uint32_t misfits = wf_seen_misfits(&own, dump);
    wf_seen_fini(&own);
    return misfits;
}

static uint64_t start_of(const struct wf_guess *guess, size_t size)
{
    const struct wf_family *family = guess->family;
    const char *name = family->sizes[size].name, *rule = family->sizes[size].otherwise;
    bool own = strcmp(name, "L") == 0;
    bool number = rule != NULL && rule[0] > '0' && rule[0] <= '9' && rule[1] == '\0';
    bool count = !own && wf_guess_is_count(guess, size);
    if (!count) {
        return wf_guess_start(family, size, 1);
    }
    uint64_t every = rule == NULL ? wf_guess_start(family, wf_guess_size(family, "L"), 1) : 1;
    return number ? (uint64_t)(rule[0] - '0') : every;
}

/* Other things to say of one size: a flag the other way, a number or none. *way begins at 0; false
 * behind the last. */
static bool next_way(struct wf_guess *guess, size_t s, uint32_t *way)
{
    static const struct {
        enum wf_guess_state state;
        bool flag, number;
        uint64_t value;
    } ways[] = {{WF_GUESS_NUMBER, true, false, 1}, {WF_GUESS_NUMBER, true, true, 0},
                {WF_GUESS_ABSENT, false, true, 0}, {WF_GUESS_NULL, false, true, 0},
                {WF_GUESS_NUMBER, false, true, 1}, {WF_GUESS_NUMBER, false, true, 2}};
    const struct wf_family_size *size = &guess->family->sizes[s];
    bool flag = wf_guess_is_flag(size), needed = size->otherwise == NULL;
    while (*way < sizeof ways / sizeof ways[0]) {
        uint32_t w = (*way)++;
        /* A number is 0 where the rule without it says so, and a model always has a type. */
        bool zero = ways[w].state == WF_GUESS_NUMBER && ways[w].value == 0;
        bool no_zero = flag ? strstr(size->key, "model_type") != NULL
                            : needed || strcmp(size->otherwise, "0") != 0;
        if (zero && no_zero) {
            continue;
        }
        bool can = ways[w].state == WF_GUESS_NUMBER ||
                   (!needed &&
                    (ways[w].state == WF_GUESS_ABSENT || strstr(size->otherwise, "null") != NULL));
        if (can && (flag ? ways[w].flag : ways[w].number)) {
            guess->state[s] = ways[w].state;
            guess->value[s] = ways[w].value;
            return true;
        }
    }
    return false;
}

/* A class may refuse what no model of the family has together: one size otherwise, then. */
static uint32_t begin_otherwise(struct wf_guess *guess, const struct wf_seen *dump)
{
    const struct wf_guess before = *guess;
    uint32_t least = UINT32_MAX;
    for (size_t s = 0; s < guess->family->size_count; s++) {
        struct wf_guess trial = before;
        for (uint32_t way = 0;
             wf_guess_can_say(&guess->family->sizes[s]) && next_way(&trial, s, &way);
             trial = before) {
            uint32_t misfits = misfits_of(&trial, dump);
            *guess = misfits < least ? trial : *guess;
            least = misfits < least ? misfits : least;
        }
    }
    return least;
}

uint32_t wf_names_begin(struct wf_guess *guess, const struct wf_seen *dump)
{
    const struct wf_family *family = guess->family;
    uint32_t misfits = UINT32_MAX;
    /* All numbers; then without those for which the family has a rule, which a class may insist on;
     * then only what every config has to say. */
    for (int less = 0; less < 3 && misfits == UINT32_MAX; less++) {
        for (size_t s = 0; s < family->size_count; s++) {
            const struct wf_family_size *size = &family->sizes[s];
            bool off = size->otherwise != NULL && strcmp(size->otherwise, "0") == 0;
            bool say = size->otherwise == NULL || (off && less < 2) || less == 0;
            say = say && wf_guess_can_say(size) && !wf_guess_is_flag(size);
            guess->state[s] = say ? WF_GUESS_NUMBER : WF_GUESS_ABSENT;
            guess->value[s] = start_of(guess, s);
        }
        misfits = misfits_of(guess, dump);
        misfits = misfits == UINT32_MAX && less == 0 ? begin_otherwise(guess, dump) : misfits;
    }
    return misfits;
}

/* `now`: the trial's misfits. */
static bool better(struct wf_guess *best, const struct wf_guess *trial, uint32_t now,
                   uint32_t *misfits)
{
    if (now >= *misfits) {
        return false;
    }
    *best = *trial;
    *misfits = now;
    return true;
}

/* What is refused may go with other words. */
static bool improve_size(struct wf_guess *guess, size_t s, const struct wf_seen *dump,
                         const uint32_t *picks, uint32_t *misfits)
{
    const struct wf_guess before = *guess;
    struct wf_guess trial = before;
    bool good = false;
    for (uint32_t way = 0; *misfits > 0 && next_way(&trial, s, &way); trial = before) {
        uint32_t now = misfits_of(&trial, dump);
        if (now < UINT32_MAX) {
            good |= better(guess, &trial, now, misfits);
            continue;
        }
        if (wf_guess_is_no_model(&trial)) {
            continue;
        }
        for (uint32_t at = 0; *misfits > 0 && other_words(&before, picks, &at, trial.words);) {
            good |= better(guess, &trial, misfits_of(&trial, dump), misfits);
        }
    }
    return good;
}

/* One choice after the other. */
static void improve_words(struct wf_guess *guess, const struct wf_seen *dump, uint32_t *picks,
                          uint32_t *misfits)
{
    for (size_t row = 0; row<CHOICES && * misfits> 0; row++) {
        uint32_t count = goes_with(guess, row) ? count_choices(choices[row].choices) : 0;
        uint32_t best = picks[row];
        for (uint32_t pick = 0; pick<count && * misfits> 0; pick++) {
            struct wf_guess trial = *guess;
            picks[row] = pick;
            trial.words[0] = '\0';
            for (size_t r = 0; r < CHOICES; r++) {
                if (goes_with(guess, r)) {
                    append_choice(trial.words, choices[r].choices, picks[r]);
                }
            }
            best = better(guess, &trial, misfits_of(&trial, dump), misfits) ? pick : best;
        }
        picks[row] = best;
    }
}

uint32_t wf_names_fit(struct wf_guess *guess, const struct wf_seen *dump, uint32_t misfits)
{
    bool good = true;
    uint32_t picks[CHOICES] = {0};
    improve_words(guess, dump, picks, &misfits);
    for (int pass = 0; pass < PASSES_MAX && good && misfits > 0; pass++) {
        good = false;
        for (size_t s = 0; s < guess->family->size_count && misfits > 0; s++) {
            good |= wf_guess_can_say(&guess->family->sizes[s]) &&
                    improve_size(guess, s, dump, picks, &misfits);
        }
        if (good && misfits > 0) {
            improve_words(guess, dump, picks, &misfits);
        }
    }
    return misfits;
}

/* --- counts ---------------------------------------------------------------------------------- */

uint64_t wf_names_layer_pattern(const struct wf_guess *guess)
{
    struct wf_seen own;
    uint64_t pattern = 0, most = 0;
    if (!wf_guess_seen(guess, &wf_guess_one_rank, &own)) {
        return 0;
    }
    for (uint32_t i = 0; i < own.count; i++) {
        if (own.slots[i].layer && own.slots[i].number > most) {
            pattern = own.slots[i].pattern;
            most = own.slots[i].number;
        }
    }
    wf_seen_fini(&own);
    return pattern;
}

/* How far the numbers of layers of all patterns are from the dump's. */
static uint64_t distance(const struct wf_guess *guess, const struct wf_seen *dump)
{
    struct wf_seen own;
    uint64_t far = 0;
    if (!wf_guess_seen(guess, &wf_guess_one_rank, &own)) {
        return UINT64_MAX;
    }
    for (uint32_t i = 0; i < dump->count; i++) {
        const struct wf_seen_slot *found = wf_seen_find(&own, dump->slots[i].pattern);
        /* What has no number may stand on several stages. */
        bool counted = found != NULL && found->numbered;
        uint64_t a = counted ? found->number : 0, b = counted ? dump->slots[i].number : 0;
        far += a > b ? a - b : b - a;
        far += found == NULL;
    }
    wf_seen_fini(&own);
    return far;
}

static bool nearer(struct wf_guess *guess, size_t s, uint64_t value, const struct wf_seen *dump,
                   uint64_t *far)
{
    struct wf_guess trial = *guess;
    trial.state[s] = WF_GUESS_NUMBER;
    trial.value[s] = value;
    uint64_t now = *far > 0 ? distance(&trial, dump) : UINT64_MAX;
    if (now >= *far) {
        return false;
    }
    *guess = trial;
    *far = now;
    return true;
}

/* Sets the other counts for so many layers; gives how far they are off. */
static uint64_t count_others(struct wf_guess *guess, uint32_t layers, const struct wf_seen *dump)
{
    const struct wf_family *family = guess->family;
    uint64_t far = distance(guess, dump);
    bool better = true;
    for (int pass = 0; pass < PASSES_MAX && far > 0 && better; pass++) {
        better = false;
        for (size_t s = 0; s < family->size_count && far > 0; s++) {
            const struct wf_family_size *size = &family->sizes[s];
            if (!wf_guess_can_say(size) || wf_guess_is_flag(size) || s == layers ||
                !wf_guess_is_count(guess, s)) {
                continue;
            }
            for (uint64_t value = 0; value <= SMALL_MAX; value++) {
                better |= nearer(guess, s, value, dump, &far);
            }
            uint64_t now = guess->value[s]; /* a large one, by how far it is off */
            for (uint64_t step = 1; step <= far && far > 0 && far <= FAR_MAX; step++) {
                better |= (far % step == 0) && nearer(guess, s, now + far / step, dump, &far);
            }
        }
    }
    return far;
}

bool wf_names_count(struct wf_guess *guess, const struct wf_seen *dump)
{
    enum { FURTHER_MAX = 2 }; /* layers that predict further tokens are numbered on, in files */
    uint64_t pattern = wf_names_layer_pattern(guess);
    const struct wf_seen_slot *slot = pattern != 0 ? wf_seen_find(dump, pattern) : NULL;
    uint32_t layers = wf_guess_size(guess->family, "L");
    if (slot == NULL || layers == WF_NONE || slot->number > WF_LAYERS_MAX) {
        return false;
    }
    const struct wf_guess before = *guess;
    for (uint64_t further = 0; further <= FURTHER_MAX && further < slot->number; further++) {
        *guess = before;
        guess->value[layers] = slot->number - further;
        if (count_others(guess, layers, dump) == 0) {
            return true;
        }
    }
    return false;
}
