/* detect_words.c - words of an engine's SPEC that make the names of a dump, in classes that show
 * alike: one of a class is solved for, the others can only differ in what the tensors hold. */
#include <stdio.h>
#include <string.h>

#include "tools/layout/detect_private.h"

/* What the first of two ranks has with these words, divided in one way or another, and what it
 * holds. */
static void hash_words(const struct wf_guess *guess, uint64_t *shows_out, uint64_t *holds_out)
{
    static const char *const sizes[] = {"tp=2", "dp=2", "tp=2,ep=2", ""};
    *shows_out = *holds_out = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct wf_guess trial = *guess;
        uint64_t shows = 0, holds = 0;
        snprintf(trial.sizes, sizeof trial.sizes, "%s", sizes[i]);
        for (size_t s = 0; s < trial.family->size_count; s++) {
            bool counts =
                strcmp(trial.family->sizes[s].name, "L") == 0 || wf_guess_is_count(&trial, s);
            bool shape = trial.state[s] == WF_GUESS_NUMBER && trial.value[s] > 1 && !counts;
            trial.value[s] = shape ? wf_guess_start(trial.family, s, 2) : trial.value[s];
        }
        if (wf_guess_shows(&trial, &shows, &holds)) {
            *shows_out = (*shows_out ^ shows ^ i) * 0x100000001b3u;
            *holds_out = (*holds_out ^ holds ^ i) * 0x100000001b3u;
        }
    }
}

static bool is_known(const struct wf_words *words, uint32_t class, uint64_t holds)
{
    for (uint32_t w = 0; w < words->count; w++) {
        if (words->class[w] == class && words->holds[w] == holds) {
            return true;
        }
    }
    return false;
}

/* Words with which names are the dump's; those that show alike are a class. */
void wf_words_find(const struct wf_guess *guess, const struct wf_seen *dump, struct wf_words *words)
{
    struct wf_guess trial = *guess;
    words->count = words->class_count = 0;
    for (uint32_t at = 0; wf_names_words(guess, &at, trial.words) && words->count < WF_WORDS_MAX;) {
        struct wf_seen seen;
        uint64_t shows = 0, holds = 0;
        uint32_t class = 0;
        if (!wf_guess_seen(&trial, &wf_guess_one_rank, &seen)) {
            continue;
        }
        bool fits = wf_seen_misfits(&seen, dump) == 0;
        wf_seen_fini(&seen);
        if (!fits) {
            continue;
        }
        hash_words(&trial, &shows, &holds);
        while (class < words->class_count && words->classes[class].shows != shows) {
            class ++;
        }
        if (class == WF_WORD_CLASSES_MAX || is_known(words, class, holds)) {
            continue;
        }
        if (class == words->class_count) {
            words->classes[words->class_count++] = (struct wf_word_class){shows, words->count};
        }
        words->class[words->count] = class;
        words->holds[words->count] = holds;
        memcpy(words->texts[words->count++], trial.words, sizeof trial.words);
    }
}
