/* test_pool.c - a pool gives out each object once, says when none is left, and takes them back. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>

#include "runtime/pool.h"

static const struct pool_row {
    const char *name;
    size_t size_bytes, count;
} pool_rows[] = {
    {"one small object", 1, 1},
    {"sizes that are not aligned", 65, 7},
    {"many", 256, 1000},
};

Test(pool, exhaustion_is_a_status_and_ends_when_something_is_given_back)
{
    for (size_t i = 0; i < sizeof pool_rows / sizeof pool_rows[0]; i++) {
        const struct pool_row *row = &pool_rows[i];
        struct wf_pool pool;
        struct wf_error error = {0};
        unsigned char *objects[1000];
        cr_assert_eq(wf_pool_init(&pool, "things", row->size_bytes, row->count, &error), WF_OK);
        for (size_t round = 0; round < 2; round++) {
            for (size_t n = 0; n < row->count; n++) {
                cr_assert_eq(wf_pool_take(&pool, (void **)&objects[n], &error), WF_OK);
                cr_assert_eq((uintptr_t)objects[n] % _Alignof(max_align_t), 0, "%s", row->name);
                memset(objects[n], (int)n, row->size_bytes);
            }
            void *none = NULL;
            cr_assert_eq(wf_pool_take(&pool, &none, &error), WF_NO_RESOURCE, "%s", row->name);
            cr_assert_null(none);
            cr_assert(strstr(error.text, "things are in use") != NULL, "%s", error.text);
            for (size_t n = 0; n < row->count; n++) {
                cr_assert_eq(objects[n][row->size_bytes - 1], (unsigned char)n,
                             "%s: two objects overlap", row->name);
                wf_pool_give(&pool, objects[n]);
            }
        }
        wf_pool_fini(&pool);
    }
}

Test(pool, sizes_that_cannot_be_had_are_refused)
{
    static const size_t sizes[][2] = {{SIZE_MAX, 1}, {SIZE_MAX / 2, 3}, {SIZE_MAX / 4, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct wf_pool pool;
        struct wf_error error;
        cr_assert_eq(wf_pool_init(&pool, "things", sizes[i][0], sizes[i][1], &error), WF_NO_MEMORY);
    }
}

Test(pool, giving_back_twice_is_our_bug, .signal = SIGABRT)
{
    struct wf_pool pool;
    void *object;
    cr_assert_eq(wf_pool_init(&pool, "things", 8, 2, NULL), WF_OK);
    cr_assert_eq(wf_pool_take(&pool, &object, NULL), WF_OK);
    wf_pool_give(&pool, object);
    wf_pool_give(&pool, object);
}

Test(pool, zeroed_memory_may_be_finished)
{
    struct wf_pool pool = {0};
    wf_pool_fini(&pool);
}
