/* test_msgpack_read.c - each form, its neighbours, and each place where the bytes may end. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/msgpack_read.h"

enum { NUMBER = WF_MSGPACK_NUMBER, TEXT = WF_MSGPACK_TEXT };
enum { BYTES = WF_MSGPACK_BYTES, LIST = WF_MSGPACK_LIST };

/* A whole head each: its number, and that every shorter beginning of it ends too early. */
static const struct {
    int form;
    size_t len;
    const char *bytes;
    uint64_t number;
} heads[] = {
    {NUMBER, 1, "\x00", 0},
    {NUMBER, 1, "\x7f", 127},
    {NUMBER, 2, "\xcc\xff", 255},
    {NUMBER, 2, "\xcc\x01", 1}, /* longer than it needs to be */
    {NUMBER, 3, "\xcd\x01\x02", 0x0102},
    {NUMBER, 5, "\xce\x01\x02\x03\x04", 0x01020304},
    {NUMBER, 9, "\xcf\xff\xff\xff\xff\xff\xff\xff\xfe", UINT64_MAX - 1},
    {TEXT, 1, "\xa0", 0},
    {TEXT, 1, "\xbf", 31},
    {TEXT, 2, "\xd9\x20", 32},
    {TEXT, 3, "\xda\x01\x00", 256},
    {TEXT, 5, "\xdb\x80\x00\x00\x00", UINT32_C(1) << 31},
    {BYTES, 2, "\xc4\x10", 16},
    {BYTES, 3, "\xc5\x01\x00", 256},
    {BYTES, 5, "\xc6\xff\xff\xff\xff", UINT32_MAX},
    {LIST, 1, "\x90", 0},
    {LIST, 1, "\x9f", 15},
    {LIST, 3, "\xdc\x00\x10", 16},
    {LIST, 5, "\xdd\xff\xff\xff\xff", UINT32_MAX},
};

Test(msgpack_read, heads)
{
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        for (size_t len = 0; len <= heads[i].len; len++) {
            const uint8_t *bytes = (const uint8_t *)heads[i].bytes;
            struct wf_msgpack in = {bytes, bytes + len};
            uint64_t number = 7;
            enum wf_msgpack_taken taken =
                wf_msgpack_take_head(&in, (enum wf_msgpack_form)heads[i].form, &number);
            bool whole = len == heads[i].len;
            cr_assert_eq(taken, whole ? WF_MSGPACK_TAKEN : WF_MSGPACK_ENDS, "row %zu, %zu bytes", i,
                         len);
            cr_assert_eq(in.at - bytes, whole ? (ptrdiff_t)len : 0, "row %zu, %zu bytes", i, len);
            cr_assert_eq(number, whole ? heads[i].number : 7, "row %zu, %zu bytes", i, len);
        }
    }
}

/* Each of the 256 first bytes begins at most one form: the table above says how many each has. */
Test(msgpack_read, a_first_byte_begins_one_form)
{
    static const unsigned expected[] = {
        [NUMBER] = 128 + 4, [TEXT] = 32 + 3, [BYTES] = 3, [LIST] = 16 + 2};
    unsigned begun[4] = {0};
    for (unsigned first = 0; first < 256; first++) {
        unsigned forms = 0;
        for (int form = NUMBER; form <= LIST; form++) {
            uint8_t bytes[9] = {(uint8_t)first};
            struct wf_msgpack in = {bytes, bytes + sizeof bytes};
            uint64_t number = 0;
            bool taken =
                wf_msgpack_take_head(&in, (enum wf_msgpack_form)form, &number) == WF_MSGPACK_TAKEN;
            cr_assert_eq(in.at > bytes, taken, "0x%02x", first);
            begun[form] += taken;
            forms += taken;
        }
        cr_assert_leq(forms, 1, "0x%02x", first);
    }
    cr_assert_arr_eq(begun, expected, sizeof begun);
}

static const struct {
    size_t len;
    const char *bytes;
    int64_t number;
    enum wf_msgpack_taken taken;
} numbers[] = {
    {1, "\xff", -1, WF_MSGPACK_TAKEN},
    {1, "\xe0", -32, WF_MSGPACK_TAKEN},
    {1, "\x7f", 127, WF_MSGPACK_TAKEN},
    {2, "\xd0\x80", -128, WF_MSGPACK_TAKEN},
    {3, "\xd1\xff\x00", -256, WF_MSGPACK_TAKEN},
    {5, "\xd2\x80\x00\x00\x00", INT32_MIN, WF_MSGPACK_TAKEN},
    {9, "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", INT64_MIN, WF_MSGPACK_TAKEN},
    {9, "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", INT64_MAX, WF_MSGPACK_TAKEN},
    {9, "\xcf\x80\x00\x00\x00\x00\x00\x00\x00", 7, WF_MSGPACK_OTHER},
    {8, "\xd3\x80\x00\x00\x00\x00\x00\x00", 7, WF_MSGPACK_ENDS},
    {1, "\xa0", 7, WF_MSGPACK_OTHER},
    {0, "", 7, WF_MSGPACK_ENDS},
};

Test(msgpack_read, numbers_of_either_sign)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const uint8_t *bytes = (const uint8_t *)numbers[i].bytes;
        struct wf_msgpack in = {bytes, bytes + numbers[i].len};
        int64_t number = 7; /* unless one is taken */
        bool taken = numbers[i].taken == WF_MSGPACK_TAKEN;
        cr_assert_eq(wf_msgpack_take_signed(&in, &number), numbers[i].taken, "row %zu", i);
        cr_assert_eq(wf_msgpack_left(&in), taken ? 0 : numbers[i].len, "row %zu", i);
        cr_assert_eq(number, numbers[i].number, "row %zu", i);
    }
}

Test(msgpack_read, spans_and_nil)
{
    static const uint8_t bytes[] = {0xc0, 'a', 'b'};
    struct wf_msgpack in = {bytes, bytes + sizeof bytes};
    const uint8_t *start = NULL;
    cr_assert(wf_msgpack_take_nil(&in));
    cr_assert_not(wf_msgpack_take_nil(&in), "an a is no nil");
    cr_assert_not(wf_msgpack_take_span(&in, 3, &start));
    cr_assert_not(wf_msgpack_take_span(&in, UINT64_MAX, &start), "no sum may overflow");
    cr_assert(wf_msgpack_take_span(&in, 2, &start));
    cr_assert_eq(start, bytes + 1);
    cr_assert(wf_msgpack_take_span(&in, 0, &start));
    cr_assert_not(wf_msgpack_take_nil(&in), "nothing is left");
}
