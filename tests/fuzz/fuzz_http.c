/* fuzz_http.c - throws bytes at what Weft itself makes of an HTTP request (its fields come from
 * libmicrohttpd): who is let in, and to which page.
 *
 * The first byte says whether the request is of this host; then lines: method, path, Host,
 * Authorization. An empty line is a field that is not there. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tools/watch/answer.h"

enum { INPUT_MAX = 2048, FIELDS = 4 };
static const struct wf_token token = {.is_set = true, .bytes = "\x01\x02\xff what nobody knows"};

static void lower(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (char)tolower((unsigned char)*text);
    }
}

/* Does the text have one of the secrets, as digits? */
static bool has_secret(const char *text)
{
    struct wf_token watching;
    char digits[WF_TOKEN_TEXT], copy[INPUT_MAX];
    wf_token_derive(&token, WF_TOKEN_FOR_WATCHING, &watching);
    snprintf(copy, sizeof copy, "%s", text);
    lower(copy);
    wf_token_format(&token, digits);
    bool has = strstr(copy, digits) != NULL;
    wf_token_format(&watching, digits);
    return has || strstr(copy, digits) != NULL;
}

/* In the field itself, in base64 after its scheme, or as the base64 of the bytes. */
static bool shows_secret(const char *field)
{
    char plain[INPUT_MAX];
    const char *rest = strchr(field, ' ');
    rest = rest == NULL ? field : rest + strspn(rest, " ");
    if (has_secret(field) || (wf_token_base64(rest, plain, sizeof plain) && has_secret(plain))) {
        return true;
    }
    struct wf_token shown, watching;
    struct wf_error error;
    const char *colon = wf_token_base64(rest, plain, sizeof plain) ? strchr(plain, ':') : NULL;
    const char *secret = colon != NULL ? colon + 1 : rest;
    wf_token_derive(&token, WF_TOKEN_FOR_WATCHING, &watching);
    return wf_token_parse(secret, strlen(secret), &shown, &error) == WF_OK &&
           (wf_token_equal(shown.bytes, token.bytes) ||
            wf_token_equal(shown.bytes, watching.bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[INPUT_MAX + 1], *rest = text, *fields[FIELDS] = {"", "", "", ""};
    if (size == 0) {
        return 0;
    }
    size_t len = size - 1 > INPUT_MAX ? INPUT_MAX : size - 1;
    memcpy(text, data + 1, len);
    text[len] = '\0';
    for (int i = 0; i < FIELDS && rest != NULL; i++) {
        fields[i] = strsep(&rest, "\n");
    }
    const struct wf_http_request request = {.method = fields[0],
                                            .path = fields[1],
                                            .host = fields[2][0] != '\0' ? fields[2] : NULL,
                                            .authorization =
                                                fields[3][0] != '\0' ? fields[3] : NULL,
                                            .is_local = data[0] % 2 == 0};
    struct wf_http_answer answer;
    wf_http_answer(&request, &token, &answer);
    if (answer.code == WF_HTTP_OK) {
        WF_ASSERT(answer.page != WF_PAGE_NONE && answer.text[0] == '\0');
        WF_ASSERT(strcmp(request.method, "GET") == 0 || strcmp(request.method, "HEAD") == 0);
        WF_ASSERT(request.is_local || shows_secret(fields[3]));
        WF_ASSERT(!request.is_local || request.host == NULL || wf_http_is_own_host(request.host));
    } else {
        size_t end = strlen(answer.text);
        WF_ASSERT(answer.page == WF_PAGE_NONE && end > 1 && answer.text[end - 1] == '\n');
        WF_ASSERT(!has_secret(answer.text));
    }
    return 0;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    struct wf_token watching;
    char secret[WF_TOKEN_TEXT];
    wf_token_derive(&token, WF_TOKEN_FOR_WATCHING, &watching);
    wf_token_format(&watching, secret);
    switch (index) {
    case 0:
        return (size_t)snprintf((char *)out, cap, "0GET\n/\nlocalhost:80\n");
    case 1:
        return (size_t)snprintf((char *)out, cap, "1GET\n/v1/status\nnode\nBearer %s", secret);
    case 2: /* "u:" and 31 bytes of anything, in base64 */
        return (size_t)snprintf((char *)out, cap,
                                "1HEAD\n/metrics\nnode\nBasic dTphYmNkZWZnaGlqa2xtbm9w");
    case 3:
        wf_token_format(&token, secret);
        return (size_t)snprintf((char *)out, cap, "1GET\n/\n[::1]\nbearer  %s", secret);
    case 4:
        return (size_t)snprintf((char *)out, cap, "0GET\n/metrics\n127.0.0.1\n");
    default:
        return 0;
    }
}
