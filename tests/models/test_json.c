/* test_json.c - the door for JSON: what is refused, what Python may write, needed numbers. */
#include <criterion/criterion.h>
#include <string.h>

#include "models/json.h"

struct row {
    const char *name, *text;
    bool strict_ok, python_ok;
};
#define BOM "\xef\xbb\xbf"

Test(json, accepts_and_refuses)
{
    static const struct row rows[] = {
        {"object", "{\"a\": [1, -2.5e3, true, false, null, \"x\"]}", true, true},
        {"scalar", " 7 ", true, true},
        {"empty text", "", false, false},
        {"only space", " \n", false, false},
        {"duplicate key", "{\"a\":1,\"b\":2,\"a\":3}", false, false},
        {"duplicate key through an escape", "{\"ab\":1,\"\\u0061b\":3}", false, false},
        {"duplicate key of nested object", "[{\"k\":{\"a\":1,\"a\":1}}]", false, false},
        {"same key in two objects", "[{\"a\":1},{\"a\":{\"a\":2}}]", true, true},
        {"duplicate empty key", "{\"\":1,\"\":2}", false, false},
        {"key with NUL", "{\"a\\u0000b\":1,\"a\":2}", false, true},
        {"string with NUL", "{\"a\":\"x\\u0000y\"}", true, true},
        {"raw NUL", "{\"a\":\"x\"\x01}", false, false},
        {"control character in a string", "\"a\nb\"", false, false},
        {"NaN", "[NaN]", false, true},
        {"Infinity", "[Infinity,-Infinity]", false, true},
        {"byte-order mark", BOM "{}", false, true},
        {"two byte-order marks", BOM BOM "{}", false, false},
        {"UTF-16", "\xff\xfe{", false, false},
        {"trailing value", "{} {}", false, false},
        {"trailing comma", "{\"a\":1,}", false, false},
        {"trailing comma in array", "[1,]", false, false},
        {"comment", "{} // no", false, false},
        {"single quotes", "{'a':1}", false, false},
        {"bare key", "{a:1}", false, false},
        {"missing colon", "{\"a\" 1}", false, false},
        {"unclosed", "{\"a\":[1", false, false},
        {"mismatched", "[1}", false, false},
        {"leading zero", "[01]", false, false},
        {"minus zero", "[-0]", true, true},
        {"plus sign", "[+1]", false, false},
        {"hexadecimal", "[0x10]", false, false},
        {"point without digits", "[1.]", false, false},
        {"exponent without digits", "[1e]", false, false},
        {"wrong case", "[TRUE]", false, false},
        {"nan in lower case", "[nan]", false, false},
        {"largest unsigned", "[18446744073709551615]", true, true},
        {"beyond unsigned", "[18446744073709551616]", false, true},
        {"smallest signed", "[-9223372036854775808]", true, true},
        {"beyond signed", "[-9223372036854775809]", false, true},
        {"lone surrogate", "[\"\\ud800\"]", false, true},
        {"surrogate pair", "[\"\\ud83d\\ude00\"]", true, true},
        {"two high halves", "[\"\\ud83d\\ud83d\"]", false, true},
        {"bad hexadecimal", "[\"\\u12g4\"]", false, false},
        {"unknown escape", "[\"\\x41\"]", false, false},
        {"overlong UTF-8", "[\"\xc0\xaf\"]", false, false},
        {"surrogate in UTF-8", "[\"\xed\xa0\x80\"]", false, false},
        {"cut UTF-8", "[\"\xe2\x82\"]", false, false},
        {"beyond the last character", "[\"\xf4\x90\x80\x80\"]", false, false},
        {"good UTF-8", "[\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"]", true, true},
        {"unterminated escape", "[\"\\", false, false},
        {"word cut short", "[tru", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (unsigned flags = WF_JSON_STRICT; flags <= WF_JSON_PYTHON; flags++) {
            bool expected = flags == WF_JSON_STRICT ? rows[i].strict_ok : rows[i].python_ok;
            struct json_object *value = NULL;
            struct wf_error error = {0};
            enum wf_status status =
                wf_json_parse(rows[i].text, strlen(rows[i].text), flags, &value, &error);
            cr_expect_eq(status, expected ? WF_OK : WF_INVALID, "%s, flags %u: %s", rows[i].name,
                         flags, error.text);
            cr_expect(expected || strstr(error.text, "line 1 ") || strstr(error.text, "line 2 "),
                      "%s: %s", rows[i].name, error.text);
            json_object_put(value);
        }
    }
}

static void fill(char *text, size_t depth)
{
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
}

Test(json, depth_is_bounded)
{
    enum { DEEP = 1 << 20 };
    char *text = malloc(2 * (size_t)DEEP);
    struct json_object *value = NULL;
    fill(text, 64);
    cr_assert_eq(wf_json_parse(text, 128, 0, &value, NULL), WF_OK);
    json_object_put(value);
    fill(text, 65);
    cr_assert_eq(wf_json_parse(text, 130, 0, &value, NULL), WF_INVALID);
    fill(text, DEEP);
    cr_assert_eq(wf_json_parse(text, 2 * (size_t)DEEP, 0, &value, NULL), WF_INVALID);
    free(text);
}

Test(json, a_refusal_says_where)
{
    static const char text[] = "{\n  \"a\": 1,\n  \"a\": 2\n}";
    struct json_object *value = NULL;
    struct wf_error error;
    cr_assert_eq(wf_json_parse(text, strlen(text), 0, &value, &error), WF_INVALID);
    cr_assert(strstr(error.text, "line 3 column 3"), "%s", error.text);
    cr_assert_eq(wf_json_parse(text, (size_t)WF_JSON_BYTES_MAX + 1, 0, &value, &error), WF_INVALID);
    cr_assert(strstr(error.text, "limit"), "%s", error.text);
}

Test(json, numbers_are_written_as_they_were_read)
{
    static const char *const texts[] = {
        "[1e-06,1e-5,0.1,1.0,-0.0,1E+30,9.9999999999999995e-07,3.141592653589793]",
        "[0.0001,5e-324,1.7976931348623157e+308,6.02214076e23]",
        "[1,-1,18446744073709551615,-9223372036854775808]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct json_object *value = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_json_parse(texts[i], strlen(texts[i]), 0, &value, &error), WF_OK, "%s",
                     error.text);
        cr_expect_str_eq(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN), texts[i]);
        json_object_put(value);
    }
}

Test(json, escapes_become_bytes)
{
    static const char text[] = "\"a\\u00e4\\ud83d\\ude00\\u0000\\n\\/\"";
    static const char expected[] = "a\xc3\xa4\xf0\x9f\x98\x80\0\n/";
    struct json_object *value = NULL;
    cr_assert_eq(wf_json_parse(text, strlen(text), 0, &value, NULL), WF_OK);
    cr_assert_eq(json_object_get_string_len(value), (int)sizeof expected - 1);
    cr_assert_eq(memcmp(json_object_get_string(value), expected, sizeof expected - 1), 0);
    json_object_put(value);
}

Test(json, needed_numbers_are_integers_in_range)
{
    static const struct {
        const char *name, *text;
        enum wf_status status;
    } rows[] = {
        {"in range", "{\"n\":5}", WF_OK},
        {"absent", "{}", WF_NOT_FOUND},
        {"null", "{\"n\":null}", WF_NOT_FOUND},
        {"too small", "{\"n\":0}", WF_INVALID},
        {"too large", "{\"n\":101}", WF_INVALID},
        {"negative", "{\"n\":-1}", WF_INVALID},
        {"integral float", "{\"n\":5.0}", WF_INVALID},
        {"text", "{\"n\":\"5\"}", WF_INVALID},
        {"true", "{\"n\":true}", WF_INVALID},
        {"list", "{\"n\":[5]}", WF_INVALID},
        {"huge", "{\"n\":100000000000000000000000000000000000005}", WF_INVALID},
        {"wraps to 5", "{\"n\":18446744073709551621}", WF_INVALID},
        {"not a number", "{\"n\":NaN}", WF_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json_object *object = NULL;
        struct wf_error error = {0};
        uint64_t value = 77;
        cr_assert_eq(
            wf_json_parse(rows[i].text, strlen(rows[i].text), WF_JSON_PYTHON, &object, &error),
            WF_OK, "%s", rows[i].name);
        enum wf_status status = wf_json_get_u64(object, "n", 1, 100, &value, &error);
        cr_expect_eq(status, rows[i].status, "%s: %s", rows[i].name, error.text);
        cr_expect_eq(value, status == WF_OK ? 5u : 77u, "%s", rows[i].name);
        json_object_put(object);
    }
}

Test(json, needed_flags_are_true_or_false)
{
    static const char text[] = "{\"t\":true,\"f\":false,\"n\":null,\"z\":0,\"s\":\"true\"}";
    struct json_object *object = NULL;
    bool value = true;
    cr_assert_eq(wf_json_parse(text, strlen(text), 0, &object, NULL), WF_OK);
    cr_expect_eq(wf_json_get_bool(object, "n", &value, NULL), WF_NOT_FOUND);
    cr_expect_eq(wf_json_get_bool(object, "absent", &value, NULL), WF_NOT_FOUND);
    cr_expect_eq(wf_json_get_bool(object, "z", &value, NULL), WF_INVALID);
    cr_expect_eq(wf_json_get_bool(object, "s", &value, NULL), WF_INVALID);
    cr_expect(value);
    cr_expect_eq(wf_json_get_bool(object, "f", &value, NULL), WF_OK);
    cr_expect(!value);
    cr_expect_eq(wf_json_get_bool(object, "t", &value, NULL), WF_OK);
    cr_expect(value);
    json_object_put(object);
}
