/* test_token.c - tokens as people write them into files, and what is derived from them. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/token.h"

#define HEX32 "00112233445566778899aabbccddeeff"
#define BASE64 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

static const struct {
    const char *name, *text;
    bool good;
} rows[] = {
    {"hex", HEX32 HEX32, true},
    {"upper case", "00112233445566778899AABBCCDDEEFF" HEX32, true},
    {"with a line end", HEX32 HEX32 "\n", true},
    {"with space around", " \t" HEX32 HEX32 "\r\n\r\n", true},
    {"base64", BASE64, true},
    {"base64 with a line end", BASE64 "\n", true},
    {"nothing", "", false},
    {"space", " \n ", false},
    {"a short one", HEX32, false},
    {"a long one", HEX32 HEX32 "00", false},
    {"space inside", HEX32 " " HEX32, false},
    {"no hex digit", HEX32 "0011223344556677889_aabbccddeeff", false},
    {"base64 of too few bytes", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", false},
    {"base64 of too many bytes", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g", false},
    {"words", "correct horse battery staple", false},
};

Test(token, is_read_from_what_people_write)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_token token = {0};
        struct wf_error error = {0};
        enum wf_status status = wf_token_parse(rows[i].text, strlen(rows[i].text), &token, &error);
        cr_expect_eq(status == WF_OK, rows[i].good, "%s: %s", rows[i].name, error.text);
        cr_expect_eq(token.is_set, rows[i].good, "%s", rows[i].name);
        cr_expect(rows[i].good || rows[i].text[0] == '\0' ||
                      strstr(error.text, rows[i].text) == NULL,
                  "%s: an error never repeats a secret", rows[i].name);
    }
}

Test(token, with_a_zero_byte_inside_is_refused)
{
    char text[] = HEX32 HEX32;
    struct wf_token token;
    struct wf_error error;
    text[5] = '\0';
    cr_assert_eq(wf_token_parse(text, sizeof text - 1, &token, &error), WF_INVALID);
    text[5] = '2';
    text[0] = '\0';
    cr_assert_eq(wf_token_parse(text, sizeof text - 1, &token, &error), WF_INVALID);
}

Test(token, is_the_same_after_it_was_written)
{
    struct wf_token token, again;
    struct wf_error error;
    char text[WF_TOKEN_TEXT];
    cr_assert_eq(wf_token_parse(BASE64, strlen(BASE64), &token, &error), WF_OK);
    cr_assert_eq(token.bytes[31], 31);
    wf_token_format(&token, text);
    cr_assert_eq(wf_token_parse(text, strlen(text), &again, &error), WF_OK);
    cr_assert(wf_token_equal(token.bytes, again.bytes));
}

Test(token, gives_other_secrets_for_other_purposes)
{
    struct wf_token token = {.is_set = true, .bytes = {1}}, other = {.is_set = true, .bytes = {2}};
    struct wf_token a, b, c;
    wf_token_derive(&token, "a", &a);
    wf_token_derive(&token, "b", &b);
    wf_token_derive(&other, "a", &c);
    cr_assert(a.is_set && !wf_token_equal(a.bytes, b.bytes) && !wf_token_equal(a.bytes, c.bytes) &&
              !wf_token_equal(a.bytes, token.bytes));
}
