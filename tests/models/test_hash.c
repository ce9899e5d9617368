/* test_hash.c - equal on every machine: known answers, and texts that do not run into each other.
 */
#include <criterion/criterion.h>
#include <string.h>
#include <xxhash.h>

#include "models/hash.h"

Test(hash, integers_are_little_endian_bytes)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, 0x0807060504030201u);
    wf_hasher_text(&hasher, "ab", 2);
    struct wf_hash hash = wf_hasher_end(&hasher);
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'};
    XXH128_hash_t expected = XXH3_128bits(bytes, sizeof bytes);
    cr_assert_eq(hash.high, expected.high64);
    cr_assert_eq(hash.low, expected.low64);
}

Test(hash, nothing_hashes_to_the_empty_answer)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    char text[WF_HASH_TEXT];
    wf_hash_format(wf_hasher_end(&hasher), text);
    cr_assert_str_eq(text, "99aa06d3014798d86001c324468d497f");
}

Test(hash, texts_do_not_run_into_each_other)
{
    struct wf_hasher a, b;
    wf_hasher_init(&a);
    wf_hasher_init(&b);
    wf_hasher_text(&a, "ab", 2);
    wf_hasher_text(&a, "", 0);
    wf_hasher_text(&b, "a", 1);
    wf_hasher_text(&b, "b", 1);
    cr_assert_not(wf_hash_equal(wf_hasher_end(&a), wf_hasher_end(&b)));
}

Test(hash, sums_wrap_by_halves)
{
    struct wf_hash sum =
        wf_hash_add((struct wf_hash){UINT64_MAX, 1}, (struct wf_hash){2, UINT64_MAX});
    cr_assert(wf_hash_equal(sum, (struct wf_hash){1, 0}));
}
