/* test_safetensors.c - headers that the format allows and forbids, and writing them. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "models/safetensors.h"

struct row {
    const char *name, *header;
    uint64_t data_bytes;
    const char *expected; /* NULL: accepted; else a part of the sentence */
};

#define T(name, dtype, shape, begin, end)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end \
    "]}"

static const struct row rows[] = {
    {"empty", "{}", 0, NULL},
    {"space behind", "{}  \t\r\n", 0, NULL},
    {"space before, as page-aligning writers do", " \t\n{}", 0, NULL},
    {"one tensor", "{" T("a", "F32", "[2,3]", "0", "24") "}", 24, NULL},
    {"scalar", "{" T("a", "BF16", "[]", "0", "2") "}", 2, NULL},
    {"without elements", "{" T("a", "I32", "[2,0]", "0", "0") "}", 0, NULL},
    {"empty between",
     "{" T("a", "U8", "[4]", "0", "4") "," T("e", "F32", "[0]", "4", "4") "," T("b", "U8", "[1]",
                                                                                "4", "5") "}",
     5, NULL},
    {"data in another order",
     "{" T("b", "U8", "[4]", "2", "6") "," T("a", "U8", "[2]", "0", "2") "}", 6, NULL},
    {"unaligned", "{" T("a", "U8", "[1]", "0", "1") "," T("b", "F64", "[1]", "1", "9") "}", 9,
     NULL},
    {"dtype of the format that we do not know", "{" T("a", "F4", "[2]", "0", "1") "}", 1, NULL},
    {"complex", "{" T("a", "C64", "[1]", "0", "8") "}", 8, NULL},
    {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "U8", "[1]", "0", "1") "}", 1,
     NULL},
    {"metadata null", "{\"__metadata__\":null}", 0, NULL},
    {"unknown key of a tensor",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],"
     "\"x\":{}}}",
     1, NULL},
    {"zero times huge", "{" T("a", "U8", "[0,18446744073709551615]", "0", "0") "}", 0, NULL},
    {"many dimensions", "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,2]", "0", "2") "}", 2, NULL},

    {"nothing", "", 0, "header"},
    {"no object", "[]", 0, "no JSON object"},
    {"null", "null", 0, "no JSON object"},
    {"not JSON", "{\"a\":", 0, "header"},
    {"not UTF-8", "{\"\xff\xfe\":1}", 0, "header"},
    {"NUL padding", "{}\0\0", 0, "header"},
    {"two objects", "{}{}", 0, "header"},
    {"name twice", "{" T("a", "U8", "[1]", "0", "1") "," T("a", "U8", "[1]", "0", "1") "}", 1,
     "before"},
    {"name twice through an escape",
     "{" T("a", "U8", "[1]", "0", "1") "," T("\\u0061", "U8", "[1]", "1", "2") "}", 2, "before"},
    {"key of a tensor twice",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "before"},
    {"name with NUL", "{" T("a\\u0000b", "U8", "[1]", "0", "1") "}", 1, "NUL"},
    {"metadata with a number", "{\"__metadata__\":{\"n\":1}}", 0, "only strings"},
    {"metadata list", "{\"__metadata__\":[]}", 0, "no object"},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype, shape and"},
    {"tensor is a number", "{\"a\":1}", 1, "dtype, shape and"},
    {"unknown dtype", "{" T("a", "F12", "[1]", "0", "1") "}", 1, "unknown dtype"},
    {"dtype in lower case", "{" T("a", "bf16", "[1]", "0", "2") "}", 2, "unknown dtype"},
    {"shape is a number", "{" T("a", "U8", "1", "0", "1") "}", 1, "no list"},
    {"negative dimension", "{" T("a", "U8", "[-1]", "0", "1") "}", 1, "0 or more"},
    {"fractional dimension", "{" T("a", "U8", "[1.0]", "0", "1") "}", 1, "0 or more"},
    {"dimension as text", "{" T("a", "U8", "[\"1\"]", "0", "1") "}", 1, "0 or more"},
    {"dimension beyond 64 bits", "{" T("a", "U8", "[18446744073709551616]", "0", "0") "}", 0, ""},
    {"shape overflows", "{" T("a", "U8", "[4294967296,4294967296]", "0", "0") "}", 0, "overflow"},
    {"shape overflows before a zero", "{" T("a", "U8", "[4294967296,4294967296,0]", "0", "0") "}",
     0, "overflow"},
    {"bytes overflow", "{" T("a", "F64", "[2305843009213693952]", "0", "0") "}", 0, "overflow"},
    {"half a byte", "{" T("a", "F4", "[3]", "0", "1") "}", 1, "whole bytes"},
    {"offsets not two", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1,
     "two integers"},
    {"negative offset", "{" T("a", "U8", "[1]", "-1", "0") "}", 1, "two integers"},
    {"end before begin", "{" T("a", "U8", "[1]", "1", "0") "}", 1, "do not span"},
    {"too few bytes", "{" T("a", "F32", "[2]", "0", "4") "}", 4, "do not span"},
    {"too many bytes", "{" T("a", "F32", "[1]", "0", "8") "}", 8, "do not span"},
    {"hole before", "{" T("a", "U8", "[1]", "1", "2") "}", 2, "holes"},
    {"hole between", "{" T("a", "U8", "[1]", "0", "1") "," T("b", "U8", "[1]", "2", "3") "}", 3,
     "holes"},
    {"overlap", "{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "1", "3") "}", 3,
     "overlap"},
    {"one range twice", "{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "0", "2") "}", 2,
     "overlap"},
    {"data behind", "{" T("a", "U8", "[1]", "0", "1") "}", 2, "no tensor"},
    {"data without tensors", "{}", 1, "no tensor"},
    {"truncated", "{" T("a", "U8", "[4]", "0", "4") "}", 3, "truncated"},
    {"beyond any file", "{" T("a", "U8", "[2305843009213693951]", "0", "2305843009213693951") "}",
     3, "truncated"},
};

Test(safetensors, accepts_and_refuses)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct wf_error error = {.status = WF_OK};
        struct wf_safetensors *st = NULL;
        size_t len = strcmp(row->name, "NUL padding") == 0 ? 4 : strlen(row->header);
        enum wf_status status = wf_st_parse(row->header, len, row->data_bytes, &st, &error);
        if (row->expected == NULL) {
            cr_assert_eq(status, WF_OK, "%s: %s", row->name, error.text);
            wf_st_free(st);
        } else {
            cr_assert_neq(status, WF_OK, "%s: accepted", row->name);
            cr_assert_not_null(strstr(error.text, row->expected), "%s: %s", row->name, error.text);
            cr_assert_null(st, "%s", row->name);
        }
    }
}

Test(safetensors, gives_what_the_header_says)
{
    static const char header[] =
        "{" T("z", "BF16", "[2,3]", "4", "16") "," T("a", "F32", "[]", "0", "4") "}";
    struct wf_safetensors *st;
    cr_assert_eq(wf_st_parse(header, strlen(header), 16, &st, NULL), WF_OK);
    cr_assert_eq(st->tensor_count, 2);
    cr_assert_str_eq(st->tensors[0].name, "a", "tensors are in the order of their data");
    const struct wf_st_tensor *z = wf_st_find(st, "z");
    cr_assert_not_null(z);
    cr_assert_eq(z->dtype, WF_DTYPE_BF16);
    cr_assert_eq(z->ndim, 2);
    cr_assert_eq(z->shape[0], 2);
    cr_assert_eq(z->shape[1], 3);
    cr_assert_eq(z->elements, 6);
    cr_assert_eq(z->begin, 4);
    cr_assert_eq(z->end, 16);
    cr_assert_eq(wf_st_find(st, "a")->elements, 1);
    cr_assert_null(wf_st_find(st, "b"));
    wf_st_free(st);
}

Test(safetensors, header_length)
{
    static const struct {
        const char *name;
        uint8_t prefix[WF_ST_PREFIX_BYTES];
        uint64_t file_bytes;
        uint64_t expected; /* UINT64_MAX: refused */
    } cases[] = {
        {"two", {2}, 10, 2},
        {"whole file", {0, 1}, 264, 256},
        {"limit", {0x00, 0xe1, 0xf5, 0x05}, 100000008, 100000000},
        {"over the limit", {0x01, 0xe1, 0xf5, 0x05}, 200000000, UINT64_MAX},
        {"one beyond the file", {3}, 10, UINT64_MAX},
        {"largest", {255, 255, 255, 255, 255, 255, 255, 255}, 10, UINT64_MAX},
        {"wraps when 8 is added", {0xf9, 255, 255, 255, 255, 255, 255, 255}, 10, UINT64_MAX},
        {"short file", {0}, 7, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 77;
        enum wf_status status =
            wf_st_header_bytes(cases[i].prefix, cases[i].file_bytes, &bytes, NULL);
        if (cases[i].expected == UINT64_MAX) {
            cr_assert_eq(status, WF_INVALID, "%s", cases[i].name);
            cr_assert_eq(bytes, 77, "%s: output written on failure", cases[i].name);
        } else {
            cr_assert_eq(status, WF_OK, "%s", cases[i].name);
            cr_assert_eq(bytes, cases[i].expected, "%s", cases[i].name);
        }
    }
}

Test(safetensors, what_is_written_can_be_read)
{
    static const uint64_t matrix[] = {3, 5}, vector[] = {7};
    const struct wf_st_tensor tensors[] = {
        {.name = "b.weight", .dtype = WF_DTYPE_BF16, .ndim = 2, .shape = matrix},
        {.name = "a \"quoted\" /\xc3\xa9", .dtype = WF_DTYPE_F32, .ndim = 1, .shape = vector},
        {.name = "scalar", .dtype = WF_DTYPE_U8, .ndim = 0},
    };
    static const char *const metadata[] = {"format", "pt", NULL};
    uint8_t *bytes;
    size_t len;
    cr_assert_eq(wf_st_format(tensors, 3, metadata, &bytes, &len, NULL), WF_OK);
    cr_assert_eq(len % 8, 0, "data are aligned");
    uint64_t header_bytes, data_bytes = 30 + 28 + 1;
    cr_assert_eq(wf_st_header_bytes(bytes, len + data_bytes, &header_bytes, NULL), WF_OK);
    cr_assert_eq(header_bytes + WF_ST_PREFIX_BYTES, len);
    struct wf_safetensors *st;
    struct wf_error error;
    cr_assert_eq(wf_st_parse((const char *)bytes + WF_ST_PREFIX_BYTES, header_bytes, data_bytes,
                             &st, &error),
                 WF_OK, "%s", error.text);
    cr_assert_eq(st->tensor_count, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_str_eq(st->tensors[i].name, tensors[i].name);
        cr_assert_eq(st->tensors[i].dtype, tensors[i].dtype);
        cr_assert_eq(st->tensors[i].ndim, tensors[i].ndim);
    }
    wf_st_free(st);
    free(bytes);
}

Test(safetensors, writing_refuses_sizes_that_overflow)
{
    static const uint64_t shape[] = {UINT64_MAX, 2};
    const struct wf_st_tensor tensor = {
        .name = "a", .dtype = WF_DTYPE_F32, .ndim = 2, .shape = shape};
    uint8_t *bytes = NULL;
    size_t len = 0;
    cr_assert_neq(wf_st_format(&tensor, 1, NULL, &bytes, &len, NULL), WF_OK);
    cr_assert_null(bytes);
}
