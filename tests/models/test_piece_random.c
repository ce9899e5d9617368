/* test_piece_random.c - intersection and composition against brute force on random small nests:
 * every common element once, nothing else, whatever the steps, repeats, heads and tails. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/piece.h"
#include "runtime/splitmix.h"
#include "tests/within.h"

enum {
    PARAM_MAX = 4096, /* elements that a random nest may reach */
    TENSOR_MAX = 1 << 16,
    NEST_ELEMENTS_MAX = 300,
    PAIRS = 240000,
    COMPOSITIONS = 120000,
};

/* 1..max, small numbers more often. */
static uint64_t next_size(uint64_t *state, uint64_t max)
{
    return 1 + wf_splitmix64(state) % (1 + wf_splitmix64(state) % max);
}

struct options {
    uint32_t elem_bytes;
    bool repeats, backwards;
};

/* Tensor steps in a random order of the axes, with gaps, so that no two elements share a byte. */
static void place_in_tensor(uint64_t *state, struct wf_nest *nest, const struct options *options)
{
    bool placed[WF_AXES_MAX] = {false};
    uint64_t step = nest->elem_bytes * (wf_splitmix64(state) % 4 == 0 ? next_size(state, 3) : 1);
    nest->tensor_offset = nest->elem_bytes * (wf_splitmix64(state) % 5);
    for (uint32_t n = nest->axis_count; n-- > 0;) {
        uint32_t a = n;
        if (wf_splitmix64(state) % 3 == 0 || placed[a]) {
            do {
                a = (uint32_t)(wf_splitmix64(state) % nest->axis_count);
            } while (placed[a]);
        }
        placed[a] = true;
        nest->axes[a].tensor_step = (int64_t)step;
        if (options->backwards && wf_splitmix64(state) % 8 == 0) {
            nest->axes[a].tensor_step = -(int64_t)step;
            nest->tensor_offset += (nest->axes[a].count - 1) * step;
        }
        step *= nest->axes[a].count;
        if (wf_splitmix64(state) % 4 == 0) {
            step += nest->elem_bytes * (wf_splitmix64(state) % 3);
        }
    }
}

/* A chain of random factors; param_first anywhere, so that digits carry. Tensor steps may be no
 * multiples of one another. */
static struct wf_nest random_nest(uint64_t *state, const struct options *options)
{
    for (;;) {
        struct wf_nest nest = {.elem_bytes = options->elem_bytes};
        uint64_t step = wf_splitmix64(state) % 3 == 0 ? next_size(state, 4) : 1, elements = 1;
        nest.axis_count = (uint32_t)(wf_splitmix64(state) % 6);
        for (uint32_t n = nest.axis_count; n-- > 0;) {
            uint64_t count = next_size(state, 9);
            elements *= count;
            nest.axes[n].count = count;
            if (options->repeats && wf_splitmix64(state) % 7 == 0) {
                continue; /* param_step 0 */
            }
            nest.axes[n].param_step = step;
            step *= wf_splitmix64(state) % 2 == 0 ? count : count + wf_splitmix64(state) % 4;
        }
        nest.param_first = wf_splitmix64(state) % 3 == 0 ? 0 : wf_splitmix64(state) % 60;
        place_in_tensor(state, &nest, options);
        if (elements <= NEST_ELEMENTS_MAX &&
            wf_nest_check(&nest, PARAM_MAX, TENSOR_MAX, NULL) == WF_OK) {
            return nest;
        }
    }
}

struct place {
    uint64_t element, byte;
};

/* Element number `index` of the nest's loop, outer to inner. */
static struct place place_of(const struct wf_nest *nest, uint64_t index, bool *first_copy_out)
{
    struct place place = {nest->param_first, nest->tensor_offset};
    *first_copy_out = true;
    for (uint32_t a = nest->axis_count; a-- > 0;) {
        uint64_t i = index % nest->axes[a].count;
        index /= nest->axes[a].count;
        place.element += i * nest->axes[a].param_step;
        place.byte += i * (uint64_t)nest->axes[a].tensor_step;
        *first_copy_out = *first_copy_out && (nest->axes[a].param_step != 0 || i == 0);
    }
    return place;
}

static struct place place_in_box(const struct wf_box *box, uint64_t index)
{
    struct place place = {box->src_offset, box->dst_offset};
    for (uint32_t a = box->axis_count; a-- > 0;) {
        uint64_t i = index % box->axes[a].count;
        index /= box->axes[a].count;
        place.element += i * (uint64_t)box->axes[a].src_step;
        place.byte += i * (uint64_t)box->axes[a].dst_step;
    }
    return place;
}

/* For each byte of the target: the source byte, or element, that belongs there plus 1; 0 is none.
 * `element` is the parameter's element there. */
struct expectation {
    uint32_t from[TENSOR_MAX], element[TENSOR_MAX];
    uint64_t missing;
    uint32_t emitted;
    bool wrong;
};

static bool take_box(void *user, const struct wf_box *box)
{
    struct expectation *expected = user;
    uint64_t elements = 1, last_src_element = 0;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        elements *= box->axes[a].count;
    }
    bool repeats = box->axis_count > 0 && box->axes[0].src_step == 0;
    bool wrong = elements != box->elements || box->axis_count > WF_AXES_MAX;
    for (uint64_t i = 0; i < elements && !wrong; i++) {
        struct place place = place_in_box(box, i);
        wrong = place.byte >= TENSOR_MAX || expected->from[place.byte] != place.element + 1;
        if (!wrong) {
            uint32_t element = expected->element[place.byte];
            wrong = (i == 0 && element != box->param_first) ||
                    (i > 0 && !repeats && element <= last_src_element);
            last_src_element = element;
            expected->from[place.byte] = 0;
            expected->missing--;
        }
    }
    expected->wrong = expected->wrong || wrong;
    expected->emitted++;
    return true;
}

static void expect_intersection(struct expectation *expected, const struct wf_nest *src,
                                const struct wf_nest *dst)
{
    uint32_t src_byte[PARAM_MAX]; /* plus 1 */
    bool first_copy;
    memset(src_byte, 0, sizeof src_byte);
    for (uint64_t i = 0; i < wf_nest_elements(src); i++) {
        struct place place = place_of(src, i, &first_copy);
        if (first_copy) {
            src_byte[place.element] = (uint32_t)place.byte + 1;
        }
    }
    expected->missing = 0;
    expected->emitted = 0;
    expected->wrong = false;
    for (uint64_t i = 0; i < wf_nest_elements(dst); i++) {
        struct place place = place_of(dst, i, &first_copy);
        expected->from[place.byte] = src_byte[place.element];
        expected->element[place.byte] = (uint32_t)place.element;
        expected->missing += src_byte[place.element] != 0;
    }
}

static void format_nest(const struct wf_nest *nest, char text_out[400])
{
    int len = snprintf(text_out, 400, "first %" PRIu64 " offset %" PRIu64, nest->param_first,
                       nest->tensor_offset);
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        len += snprintf(text_out + len, 400 - (size_t)len, " {%" PRIu64 " %" PRIu64 " %" PRId64 "}",
                        nest->axes[a].count, nest->axes[a].param_step, nest->axes[a].tensor_step);
    }
}

static bool share_a_chain(const struct wf_nest *a, const struct wf_nest *b)
{
    for (uint32_t i = 0; i < a->axis_count; i++) {
        for (uint32_t j = 0; j < b->axis_count; j++) {
            uint64_t s = a->axes[i].param_step, t = b->axes[j].param_step;
            if (a->axes[i].count > 1 && b->axes[j].count > 1 && s != 0 && t != 0 && s % t != 0 &&
                t % s != 0) {
                return false;
            }
        }
    }
    return true;
}

Test(piece_random, intersection_is_what_brute_force_finds, .init = within_minutes)
{
    static struct expectation expected;
    uint64_t state = 88172645463325252u;
    uint32_t several = 0, unchained = 0, repeated = 0;
    for (uint32_t pair = 0; pair < PAIRS; pair++) {
        struct options src_options = {.elem_bytes = 1u << wf_splitmix64(&state) % 3,
                                      .repeats = pair % 4 == 0,
                                      .backwards = true};
        struct options dst_options = {.elem_bytes = 1u << wf_splitmix64(&state) % 3,
                                      .repeats = pair % 2 == 0,
                                      .backwards = true};
        struct wf_nest src = random_nest(&state, &src_options);
        struct wf_nest dst = random_nest(&state, &dst_options);
        char src_text[400], dst_text[400];
        expect_intersection(&expected, &src, &dst);
        enum wf_status status = wf_nest_intersect(&src, &dst, take_box, &expected, NULL);
        if (status != WF_OK || expected.wrong || expected.missing != 0) {
            format_nest(&src, src_text);
            format_nest(&dst, dst_text);
            cr_assert(false, "pair %u: %s; wrong %d, missing %" PRIu64 "\nsrc %s\ndst %s", pair,
                      wf_status_name(status), expected.wrong, expected.missing, src_text, dst_text);
        }
        several += expected.emitted > 1;
        unchained += expected.emitted > 0 && !share_a_chain(&src, &dst);
        for (uint32_t a = 0; a < dst.axis_count; a++) {
            repeated += dst.axes[a].count > 1 && dst.axes[a].param_step == 0;
        }
    }
    cr_assert(several > PAIRS / 10 && unchained > PAIRS / 10 && repeated > PAIRS / 20,
              "the random nests are too tame: %u %u %u", several, unchained, repeated);
}

/* 512 elements as nine binary digits: each side turns its digits round in pairs, but other pairs.
 */
Test(piece_random, a_box_of_nine_axes_is_written_out)
{
    static struct expectation expected;
    const struct wf_nest src = {
        0, 0, 2, 5, {{4, 128, 4}, {4, 32, 16}, {4, 8, 64}, {4, 2, 256}, {2, 1, 2}}};
    const struct wf_nest dst = {
        0, 0, 2, 5, {{2, 256, 512}, {4, 64, 2}, {4, 16, 8}, {4, 4, 32}, {4, 1, 128}}};
    cr_assert_eq(wf_nest_check(&src, 512, 1024, NULL), WF_OK);
    cr_assert_eq(wf_nest_check(&dst, 512, 1024, NULL), WF_OK);
    expect_intersection(&expected, &src, &dst);
    cr_assert_eq(wf_nest_intersect(&src, &dst, take_box, &expected, NULL), WF_OK);
    cr_expect_eq(expected.emitted, 2);
    cr_expect(!expected.wrong && expected.missing == 0);
}

static bool take_nest(void *user, const struct wf_nest *nest)
{
    struct expectation *expected = user;
    bool first_copy;
    expected->wrong = expected->wrong || wf_nest_check(nest, PARAM_MAX, TENSOR_MAX, NULL) != WF_OK;
    for (uint64_t i = 0; i < wf_nest_elements(nest) && !expected->wrong; i++) {
        struct place place = place_of(nest, i, &first_copy);
        expected->wrong = expected->from[place.byte] != place.element + 1;
        expected->from[place.byte] = 0;
        expected->missing--;
    }
    expected->emitted++;
    return true;
}

/* Whole tensor element -> parameter element plus 1, then through the cut. */
static void expect_composition(struct expectation *expected, const struct wf_nest *inner,
                               const struct wf_nest *outer)
{
    static uint32_t param_of[TENSOR_MAX];
    bool first_copy;
    memset(param_of, 0, sizeof param_of);
    for (uint64_t i = 0; i < wf_nest_elements(inner); i++) {
        struct place place = place_of(inner, i, &first_copy);
        param_of[place.byte / inner->elem_bytes] = (uint32_t)place.element + 1;
    }
    expected->missing = 0;
    expected->emitted = 0;
    expected->wrong = false;
    for (uint64_t i = 0; i < wf_nest_elements(outer); i++) {
        struct place place = place_of(outer, i, &first_copy);
        expected->from[place.byte] = param_of[place.element];
        expected->missing += param_of[place.element] != 0;
    }
}

Test(piece_random, composition_is_what_brute_force_finds, .init = within_minutes)
{
    static struct expectation expected;
    uint64_t state = 362436069123456789u;
    uint32_t several = 0, some = 0;
    for (uint32_t pair = 0; pair < COMPOSITIONS; pair++) {
        uint32_t elem_bytes = 1u << wf_splitmix64(&state) % 3;
        struct options inner_options = {.elem_bytes = elem_bytes, .repeats = pair % 4 == 0};
        struct options outer_options = {
            .elem_bytes = elem_bytes, .repeats = pair % 3 == 0, .backwards = true};
        struct wf_nest inner = random_nest(&state, &inner_options);
        struct wf_nest outer = random_nest(&state, &outer_options);
        char inner_text[400], outer_text[400];
        expect_composition(&expected, &inner, &outer);
        enum wf_status status = wf_nest_compose(&inner, &outer, take_nest, &expected, NULL);
        if (status != WF_OK || expected.wrong || expected.missing != 0) {
            format_nest(&inner, inner_text);
            format_nest(&outer, outer_text);
            cr_assert(false, "pair %u: %s; wrong %d, missing %" PRIu64 "\ninner %s\nouter %s", pair,
                      wf_status_name(status), expected.wrong, expected.missing, inner_text,
                      outer_text);
        }
        some += expected.emitted > 0;
        several += expected.emitted > 1;
    }
    cr_assert(some > COMPOSITIONS / 4 && several > COMPOSITIONS / 10,
              "the random nests are too tame: %u %u", some, several);
}
