/* test_expr.c - what expressions of the tables give, and what is wrong with those that give
 * nothing. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/expr.h"

static bool lookup(void *user, const char *name, size_t len, uint64_t *value_out)
{
    static const struct {
        const char *name;
        uint64_t value;
    } values[] = {{"H", 64},           {"nq", 8},         {"nk", 2},  {"zero", 0},
                  {"max", UINT64_MAX}, {"moe.triton", 1}, {"x_1", 7}, {"has.q", 1}};
    unsigned *asked = user;
    *asked += 1;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strlen(values[i].name) == len && memcmp(values[i].name, name, len) == 0) {
            *value_out = values[i].value;
            return true;
        }
    }
    return false;
}

Test(expr, values)
{
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {
        {"7", 7},
        {" H ", 64},
        {"nq*H", 512},
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"10 - 3 - 2", 5},
        {"H / nq", 8},
        {"7 // 2", 3},
        {"7 ^ 2", 4},
        {"8 ^ 2", 4},
        {"7 % 4", 3},
        {"100 / 5 / 2", 10},
        {"2 * 7 // 4", 3},
        {"!0", 1},
        {"!!H", 1},
        {"!nq + 1", 1},
        {"nq == 8", 1},
        {"nq != 8", 0},
        {"nq < 8", 0},
        {"nq <= 8", 1},
        {"nq > 7", 1},
        {"nq >= 9", 0},
        {"1 + 1 == 2 && 3 < 4", 1},
        {"0 || 5", 1},
        {"1 || 0 && 0", 1},
        {"0 && 1 || 1 < 2 && 3 == 1 + 2", 1},
        {"zero && 1 / zero", 0},
        {"1 || unknown", 1},
        {"zero ? unknown : 3", 3},
        {"1 ? 2 : 1 / zero", 2},
        {"0 ? 1 : 0 ? 2 : 3", 3},
        {"1 ? 0 ? 1 : 2 : 3", 2},
        {"moe.triton + x_1", 8},
        {"has.q && !zero", 1},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_error error = {0};
        unsigned asked = 0;
        uint64_t value = 99;
        cr_expect_eq(
            wf_expr_eval(rows[i].text, strlen(rows[i].text), lookup, &asked, &value, &error), WF_OK,
            "%s: %s", rows[i].text, error.text);
        cr_expect_eq(value, rows[i].value, "%s: %llu", rows[i].text, (unsigned long long)value);
    }
}

Test(expr, refusals_name_the_part)
{
    static const struct {
        const char *text, *fragment;
    } rows[] = {
        {"", "ends where"},
        {"1 +", "ends where"},
        {"(1", "expected )"},
        {"1)", "left over"},
        {"1 2", "left over"},
        {"1x", "goes over into a name"},
        {"unknown", "\"unknown\" in"},
        {"H.x", "\"H.x\" in"},
        {"5 / 2", "rest"},
        {"5 / zero", "zero"},
        {"5 % 0", "zero"},
        {"5 // 0", "zero"},
        {"5 ^ 0", "zero"},
        {"1 - 2", "negative"},
        {"max + 1", "64 bits"},
        {"max * 2", "64 bits"},
        {"18446744073709551616", "64 bits"},
        {"1 ? 2", "expected :"},
        {"1 < 2 < 3", "left over"},
        {"0 && 1 == 1 < 2", "left over"},
        {"1 || 1 < 2 == 1", "left over"},
        {"1 = 1", "left over"},
        {"1 & 1", "left over"},
        {"-1", "expected a number"},
        {"$", "expected a number"},
        {"1 > = 2", "expected a number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_error error = {0};
        unsigned asked = 0;
        uint64_t value = 99;
        cr_expect_eq(
            wf_expr_eval(rows[i].text, strlen(rows[i].text), lookup, &asked, &value, &error),
            WF_INVALID, "%s", rows[i].text);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].text, error.text);
        cr_expect_eq(value, 99, "%s", rows[i].text);
    }
}

/* A check reads the branches that are not taken, and works nothing out. */
Test(expr, a_check_asks_for_every_name)
{
    struct wf_error error = {0};
    unsigned asked = 0;
    static const char text[] = "zero ? 1 / zero : nq - H && (x_1 || has.q)";
    cr_expect_eq(wf_expr_check(text, strlen(text), lookup, &asked, &error), WF_OK, "%s",
                 error.text);
    cr_expect_eq(asked, 6);
    static const char *const wrong[] = {"1 || unknown", "zero ? unknown : 3", "0 && (1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_expect_eq(wf_expr_check(wrong[i], strlen(wrong[i]), lookup, &asked, &error), WF_INVALID,
                     "%s", wrong[i]);
    }
}

Test(expr, nesting_is_bounded)
{
    char text[4096];
    uint64_t value = 0;
    unsigned asked = 0;
    static const struct {
        const char *open, *close;
    } rows[] = {{"(", ")"}, {"!", ""}, {"1 ? ", " : 0"}, {"0 ? 1 : ", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (unsigned depth = 1; depth < 200; depth += 9) {
            size_t used = 0;
            for (unsigned j = 0; j < 2 * depth + 1; j++) {
                const char *piece = j < depth ? rows[i].open : j == depth ? "7" : rows[i].close;
                used += (size_t)snprintf(text + used, sizeof text - used, "%s", piece);
            }
            enum wf_status expected = depth <= 10 ? WF_OK : WF_INVALID;
            enum wf_status status = wf_expr_eval(text, used, lookup, &asked, &value, NULL);
            cr_expect(status == expected || (depth > 10 && depth < 40), "%s", text);
        }
    }
}

/* The text has a length and no NUL. */
Test(expr, the_length_counts)
{
    uint64_t value = 0;
    unsigned asked = 0;
    cr_expect_eq(wf_expr_eval("12345", 2, lookup, &asked, &value, NULL), WF_OK);
    cr_expect_eq(value, 12);
    cr_expect_eq(wf_expr_eval("nqx", 2, lookup, &asked, &value, NULL), WF_OK);
    cr_expect_eq(value, 8);
    cr_expect_eq(wf_expr_eval("8/=", 2, lookup, &asked, &value, NULL), WF_INVALID);
    cr_expect_eq(wf_expr_eval("1\0 2", 4, lookup, &asked, &value, NULL), WF_INVALID);
}

Test(expr, lists_are_parted_outside_parentheses)
{
    static const struct {
        const char *text;
        char mark;
        const char *items;
    } rows[] = {
        {"V,H", ',', "V;H;"},
        {" V , (a,b) ", ',', "V;(a,b);"},
        {"", ',', ""},
        {"a|b || c|d", '|', "a;b || c;d;"},
        {"x == 1: it is one", ':', "x == 1;it is one;"},
        {"layer mtp", ' ', "layer;mtp;"},
        {"a,,b", ',', "a;;b;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char found[256] = "";
        const char *text = rows[i].text, *item = NULL;
        size_t len = 0;
        while (wf_expr_next(&text, rows[i].mark, &item, &len)) {
            size_t used = strlen(found);
            snprintf(found + used, sizeof found - used, "%.*s;", (int)len, item);
        }
        cr_expect_str_eq(found, rows[i].items, "%s", rows[i].text);
    }
}
