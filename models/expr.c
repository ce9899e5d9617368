/* expr.c - reads and evaluates the expressions of the tables in one pass, by recursive descent.
 *
 * What is not needed (the other side of && || and ?:) is read with `live` 0: names are not looked
 * up, numbers are not worked out. A check reads everything with `checking`: names are asked for and
 * their values are thrown away, so that no value of today hides an error of tomorrow.
 */
#include "models/expr.h"

#include <string.h>

enum { NESTING_MAX = 32, QUOTE_MAX = 120 };

struct reader {
    const char *text, *at, *end;
    wf_expr_lookup_t *lookup;
    void *user;
    struct wf_error *error;
    unsigned nesting;
    bool checking;
    enum wf_status status;
};

static void fail_at(struct reader *r, const char *from, const char *to, const char *what)
{
    if (r->status != WF_OK) {
        return;
    }
    int len = to - from < QUOTE_MAX ? (int)(to - from) : QUOTE_MAX;
    int all = r->end - r->text < QUOTE_MAX ? (int)(r->end - r->text) : QUOTE_MAX;
    r->status = wf_error_set(r->error, WF_INVALID, "\"%.*s\" in the expression \"%.*s\": %s", len,
                             from, all, r->text, what);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) {
        r->at++;
    }
}

/* Takes `token` if it is next and no longer operator begins there. */
static bool take(struct reader *r, const char *token)
{
    skip_space(r);
    if (r->at == r->end || *r->at != *token) {
        return false; /* nearly always: most tokens are tried in vain */
    }
    size_t len = strlen(token), room = (size_t)(r->end - r->at);
    if (len > room || memcmp(r->at, token, len) != 0) {
        return false;
    }
    char next = len < room ? r->at[len] : '\0';
    bool longer = (len == 1 && strchr("<>!=", *token) && next == '=') ||
                  (len == 1 && *token == '/' && next == '/');
    if (longer) {
        return false;
    }
    r->at += len;
    return true;
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static uint64_t read_number(struct reader *r)
{
    const char *from = r->at;
    uint64_t value = 0;
    bool fits = true;
    while (r->at < r->end && is_digit(*r->at)) {
        fits = fits && !__builtin_mul_overflow(value, (uint64_t)10, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(*r->at - '0'), &value);
        r->at++;
    }
    if (!fits) {
        fail_at(r, from, r->at, "the number does not fit into 64 bits");
    } else if (r->at < r->end && is_name_start(*r->at)) {
        fail_at(r, from, r->at + 1, "a number goes over into a name");
    }
    return value;
}

static uint64_t read_name(struct reader *r, bool live)
{
    const char *from = r->at;
    while (r->at < r->end && (is_name_start(*r->at) || is_digit(*r->at) ||
                              (*r->at == '.' && r->at + 1 < r->end &&
                               (is_name_start(r->at[1]) || is_digit(r->at[1]))))) {
        r->at++;
    }
    uint64_t value = 0;
    if ((live || r->checking) && !r->lookup(r->user, from, (size_t)(r->at - from), &value)) {
        fail_at(r, from, r->at, "nothing has this name here");
    }
    return r->checking ? 0 : value;
}

static uint64_t read_choice(struct reader *r, bool live);

static uint64_t read_unary(struct reader *r, bool live)
{
    skip_space(r);
    const char *from = r->at;
    if (r->status != WF_OK) {
        return 0;
    }
    if (++r->nesting > NESTING_MAX) {
        fail_at(r, from, r->end, "nested too deep");
    }
    uint64_t value = 0;
    if (r->at == r->end) {
        fail_at(r, r->text, r->end, "ends where a number, a name or ( is expected");
    } else if (take(r, "!")) {
        value = !read_unary(r, live);
    } else if (take(r, "(")) {
        value = read_choice(r, live);
        if (r->status == WF_OK && !take(r, ")")) {
            fail_at(r, r->at, r->end, "expected )");
        }
    } else if (is_digit(*r->at)) {
        value = read_number(r);
    } else if (is_name_start(*r->at)) {
        value = read_name(r, live);
    } else {
        fail_at(r, r->at, r->end, "expected a number, a name or (");
    }
    r->nesting--;
    return value;
}

static uint64_t divide(struct reader *r, const char *from, char how, uint64_t a, uint64_t b)
{
    if (b == 0) {
        fail_at(r, from, r->at, "division by zero");
        return 0;
    }
    if (how == '/' && a % b != 0) {
        fail_at(r, from, r->at, "does not divide without a rest");
        return 0;
    }
    return how == '%' ? a % b : a / b + (how == '^' && a % b != 0);
}

static uint64_t read_product(struct reader *r, bool live)
{
    skip_space(r);
    const char *from = r->at;
    uint64_t value = read_unary(r, live);
    while (r->status == WF_OK) {
        char how = take(r, "*")    ? '*'
                   : take(r, "//") ? 'd'
                   : take(r, "/")  ? '/'
                   : take(r, "%")  ? '%'
                   : take(r, "^")  ? '^'
                                   : '\0';
        if (how == '\0') {
            break;
        }
        uint64_t factor = read_unary(r, live);
        if (r->status != WF_OK || !live || r->checking) {
            continue;
        }
        if (how != '*') {
            value = divide(r, from, how, value, factor);
        } else if (__builtin_mul_overflow(value, factor, &value)) {
            fail_at(r, from, r->at, "the product does not fit into 64 bits");
        }
    }
    return value;
}

static uint64_t read_sum(struct reader *r, bool live)
{
    skip_space(r);
    const char *from = r->at;
    uint64_t value = read_product(r, live);
    while (r->status == WF_OK) {
        bool plus = take(r, "+");
        if (!plus && !take(r, "-")) {
            break;
        }
        uint64_t term = read_product(r, live);
        if (r->status != WF_OK || !live || r->checking) {
            continue;
        }
        if (plus && __builtin_add_overflow(value, term, &value)) {
            fail_at(r, from, r->at, "the sum does not fit into 64 bits");
        } else if (!plus && __builtin_sub_overflow(value, term, &value)) {
            fail_at(r, from, r->at, "the difference is negative");
        }
    }
    return value;
}

static uint64_t read_comparison(struct reader *r, bool live)
{
    uint64_t a = read_sum(r, live);
    if (r->status != WF_OK) {
        return 0;
    }
    static const char *const signs[] = {"<=", ">=", "==", "!=", "<", ">"};
    size_t sign = 0;
    while (sign < sizeof signs / sizeof signs[0] && !take(r, signs[sign])) {
        sign++;
    }
    if (sign == sizeof signs / sizeof signs[0]) {
        return a;
    }
    uint64_t b = read_sum(r, live);
    const bool results[] = {a <= b, a >= b, a == b, a != b, a<b, a> b};
    return results[sign];
}

static uint64_t read_and(struct reader *r, bool live)
{
    uint64_t value = read_comparison(r, live);
    while (r->status == WF_OK && take(r, "&&")) {
        uint64_t next = read_comparison(r, live && value);
        value = value && next;
    }
    return value;
}

static uint64_t read_or(struct reader *r, bool live)
{
    uint64_t value = read_and(r, live);
    while (r->status == WF_OK && take(r, "||")) {
        uint64_t next = read_and(r, live && !value);
        value = value || next;
    }
    return value;
}

static uint64_t read_choice(struct reader *r, bool live)
{
    uint64_t value = read_or(r, live);
    if (r->status != WF_OK || !take(r, "?")) {
        return value;
    }
    if (++r->nesting > NESTING_MAX) {
        fail_at(r, r->at, r->end, "nested too deep");
    }
    uint64_t yes = read_choice(r, live && value);
    if (r->status == WF_OK && !take(r, ":")) {
        fail_at(r, r->at, r->end, "expected : and what holds otherwise");
    }
    uint64_t no = read_choice(r, live && !value);
    r->nesting--;
    return value ? yes : no;
}

static enum wf_status read_whole(struct reader *r, uint64_t *value_out)
{
    uint64_t value = read_choice(r, !r->checking);
    skip_space(r);
    if (r->status == WF_OK && r->at < r->end) {
        fail_at(r, r->at, r->end, "left over behind the expression");
    }
    if (r->status == WF_OK) {
        *value_out = value;
    }
    return r->status;
}

enum wf_status wf_expr_eval(const char *text, size_t len, wf_expr_lookup_t *lookup, void *user,
                            uint64_t *value_out, struct wf_error *error)
{
    struct reader r = {.text = text,
                       .at = text,
                       .end = text + len,
                       .lookup = lookup,
                       .user = user,
                       .error = error};
    return read_whole(&r, value_out);
}

enum wf_status wf_expr_check(const char *text, size_t len, wf_expr_lookup_t *lookup, void *user,
                             struct wf_error *error)
{
    struct reader r = {.text = text,
                       .at = text,
                       .end = text + len,
                       .lookup = lookup,
                       .user = user,
                       .error = error,
                       .checking = true};
    uint64_t unused = 0;
    return read_whole(&r, &unused);
}

bool wf_expr_next(const char **text, char mark, const char **item_out, size_t *len_out)
{
    const char *at = *text;
    if (!at || *at == '\0') {
        return false;
    }
    unsigned depth = 0;
    const char *end = at;
    for (; *end; end++) {
        depth += *end == '(';
        depth -= *end == ')' && depth > 0;
        if (*end == mark && depth == 0) {
            if (mark != '|' || end[1] != mark) {
                break;
            }
            end++; /* || is an operator, not two marks */
        }
    }
    *text = *end ? end + 1 : end;
    while (at < end && *at == ' ') {
        at++;
    }
    while (end > at && end[-1] == ' ') {
        end--;
    }
    *item_out = at;
    *len_out = (size_t)(end - at);
    return true;
}
