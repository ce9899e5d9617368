/* test_watch_answer.c - who may watch a job over HTTP, and under which names its host is known. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/watch/answer.h"

static const struct wf_token token = {.is_set = true, .bytes = "thirty-two bytes of a test's job"};

static const struct {
    const char *name, *method, *path, *host;
    bool is_local;
    unsigned code;
    enum wf_page page;
} rows[] = {
    {"the page", "GET", "/", "localhost:80", true, 200, WF_PAGE_INDEX},
    {"its head", "HEAD", "/", "localhost", true, 200, WF_PAGE_INDEX},
    {"status", "GET", "/v1/status", "127.0.0.1:5", true, 200, WF_PAGE_STATUS},
    {"metrics", "GET", "/metrics", "[::1]:5", true, 200, WF_PAGE_METRICS},
    {"without a Host", "GET", "/metrics", NULL, true, 200, WF_PAGE_METRICS},
    {"another path", "GET", "/metrics/", "localhost", true, 404, WF_PAGE_NONE},
    {"a path out of here", "GET", "/../etc/passwd", "localhost", true, 404, WF_PAGE_NONE},
    {"another method", "POST", "/v1/status", "localhost", true, 405, WF_PAGE_NONE},
    {"a method in lower case", "get", "/", "localhost", true, 405, WF_PAGE_NONE},
    {"a rebound name", "GET", "/", "evil.example", true, 403, WF_PAGE_NONE},
    {"a name that begins well", "GET", "/", "localhost.evil.example", true, 403, WF_PAGE_NONE},
    {"a name that begins with a number", "GET", "/", "127.0.0.1.evil.example", true, 403,
     WF_PAGE_NONE},
    {"a name below localhost", "GET", "/", "weft.localhost:80", true, 200, WF_PAGE_INDEX},
    {"from elsewhere", "GET", "/", "localhost", false, 401, WF_PAGE_NONE},
    {"from elsewhere, no such page", "GET", "/x", "node", false, 401, WF_PAGE_NONE},
};

Test(watch_answer, gives_a_page_or_says_why_not)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct wf_http_request request = {.method = rows[i].method,
                                                .path = rows[i].path,
                                                .host = rows[i].host,
                                                .is_local = rows[i].is_local};
        struct wf_http_answer answer;
        wf_http_answer(&request, &token, &answer);
        cr_expect_eq(answer.code, rows[i].code, "%s: %u", rows[i].name, answer.code);
        cr_expect_eq(answer.page, rows[i].page, "%s", rows[i].name);
        cr_expect_eq(answer.code == 200, answer.text[0] == '\0', "%s", rows[i].name);
    }
}

Test(watch_answer, knows_the_hosts_own_name)
{
    char name[300] = "";
    gethostname(name, 256);
    cr_assert(wf_http_is_own_host(name));
    strcat(name, ":8080");
    cr_assert(wf_http_is_own_host(name));
}

Test(watch_answer, lets_in_who_shows_the_token_or_what_is_derived_from_it)
{
    struct wf_token watching, other = {.is_set = true, .bytes = {1}};
    char secret[WF_TOKEN_TEXT], text[WF_TOKEN_TEXT], field[200];
    wf_token_derive(&token, WF_TOKEN_FOR_WATCHING, &watching);
    wf_token_format(&watching, secret);
    wf_token_format(&token, text);
    static const struct {
        const char *format;
        bool good;
    } forms[] = {
        {"Bearer %s", true},      {"bearer %s", true},   {"BEARER   %s", true},
        {"Bearer %s ", true},     {"Bearer%s", false},   {"%s", false},
        {"Token %s", false},      {"Bearer x%s", false}, {"Bearer %.63s", false},
        {"Bearer \"%s\"", false},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *secrets[] = {secret, text};
        for (size_t s = 0; s < 2; s++) {
            snprintf(field, sizeof field, forms[i].format, secrets[s]);
            cr_expect_eq(wf_http_is_authorized(field, &token), forms[i].good, "%s", field);
            cr_expect_not(wf_http_is_authorized(field, &other), "another job: %s", field);
        }
    }
    cr_expect_not(wf_http_is_authorized(NULL, &token), "nothing");
    cr_expect_not(wf_http_is_authorized("", &token), "an empty field");
    cr_expect_not(wf_http_is_authorized("Basic dTpw", &token), "another password");
    cr_expect(wf_http_is_authorized(NULL, &(struct wf_token){0}), "a job without a token");
}
