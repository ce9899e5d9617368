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

/* Takes `sign` if it is next and does not begin "!=". */
static bool take(struct reader *r, char sign)
{
    skip_space(r);
    if (r->at == r->end || *r->at != sign ||
        (sign == '!' && r->at + 1 < r->end && r->at[1] == '=')) {
        return false;
    }
    r->at++;
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
    } else if (take(r, '!')) {
        value = !read_unary(r, live);
    } else if (take(r, '(')) {
        value = read_choice(r, live);
        if (r->status == WF_OK && !take(r, ')')) {
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

/* --- operators between two values ------------------------------------------------------------ */

enum precedence { NOT_BINARY, OR, AND, COMPARISON, SUM, PRODUCT, UNARY };

enum operation { ANY, ALL, LT, LE, GT, GE, EQ, NE, PLUS, MINUS, TIMES, EXACT, DOWN, UP, REST };

struct binary {
    enum precedence precedence;
    enum operation operation;
    unsigned len;
};

/* The operator that is next; NOT_BINARY if none is. */
static struct binary next_operator(struct reader *r)
{
    skip_space(r);
    const char first = r->at < r->end ? *r->at : '\0';
    const char second = r->at + 1 < r->end ? r->at[1] : '\0';
    switch (first) {
    case '|':
        return (struct binary){second == '|' ? OR : NOT_BINARY, ANY, 2};
    case '&':
        return (struct binary){second == '&' ? AND : NOT_BINARY, ALL, 2};
    case '<':
        return second == '=' ? (struct binary){COMPARISON, LE, 2}
                             : (struct binary){COMPARISON, LT, 1};
    case '>':
        return second == '=' ? (struct binary){COMPARISON, GE, 2}
                             : (struct binary){COMPARISON, GT, 1};
    case '=':
        return (struct binary){second == '=' ? COMPARISON : NOT_BINARY, EQ, 2};
    case '!':
        return (struct binary){second == '=' ? COMPARISON : NOT_BINARY, NE, 2};
    case '+':
        return (struct binary){SUM, PLUS, 1};
    case '-':
        return (struct binary){SUM, MINUS, 1};
    case '*':
        return (struct binary){PRODUCT, TIMES, 1};
    case '/':
        return second == '/' ? (struct binary){PRODUCT, DOWN, 2}
                             : (struct binary){PRODUCT, EXACT, 1};
    case '%':
        return (struct binary){PRODUCT, REST, 1};
    case '^':
        return (struct binary){PRODUCT, UP, 1};
    default:
        return (struct binary){NOT_BINARY, ANY, 0};
    }
}

static uint64_t divide(struct reader *r, const char *from, enum operation how, uint64_t a,
                       uint64_t b)
{
    if (b == 0) {
        fail_at(r, from, r->at, "division by zero");
        return 0;
    }
    if (how == EXACT && a % b != 0) {
        fail_at(r, from, r->at, "does not divide without a rest");
        return 0;
    }
    return how == REST ? a % b : a / b + (how == UP && a % b != 0);
}

/* `from` to where the reader stands is the text of both. */
static uint64_t apply(struct reader *r, const char *from, enum operation how, uint64_t a,
                      uint64_t b)
{
    uint64_t value = 0;
    switch (how) {
    case ANY:
        return a || b;
    case ALL:
        return a && b;
    case LT:
        return a < b;
    case LE:
        return a <= b;
    case GT:
        return a > b;
    case GE:
        return a >= b;
    case EQ:
        return a == b;
    case NE:
        return a != b;
    case PLUS:
        if (__builtin_add_overflow(a, b, &value)) {
            fail_at(r, from, r->at, "the sum does not fit into 64 bits");
        }
        return value;
    case MINUS:
        if (__builtin_sub_overflow(a, b, &value)) {
            fail_at(r, from, r->at, "the difference is negative");
        }
        return value;
    case TIMES:
        if (__builtin_mul_overflow(a, b, &value)) {
            fail_at(r, from, r->at, "the product does not fit into 64 bits");
        }
        return value;
    case EXACT:
    case DOWN:
    case UP:
    case REST:
        return divide(r, from, how, a, b);
    }
    return value;
}

/* Operators that bind at least as closely as `lowest`, from left to right; of comparisons one. */
static uint64_t read_binary(struct reader *r, enum precedence lowest, bool live)
{
    skip_space(r);
    const char *from = r->at;
    enum precedence highest = PRODUCT;
    uint64_t value = read_unary(r, live);
    while (r->status == WF_OK) {
        struct binary next = next_operator(r);
        if (next.precedence < lowest || next.precedence > highest) {
            break;
        }
        r->at += next.len;
        bool needed = next.precedence == OR ? !value : next.precedence == AND ? value != 0 : true;
        uint64_t right = read_binary(r, next.precedence + 1, live && needed);
        if (r->status == WF_OK && live && !r->checking) {
            value = apply(r, from, next.operation, value, right);
        }
        /* What binds closer stands right of it; a second comparison is left over. */
        highest = next.precedence == COMPARISON ? AND : next.precedence;
    }
    return value;
}

static uint64_t read_choice(struct reader *r, bool live)
{
    uint64_t value = read_binary(r, OR, live);
    if (r->status != WF_OK || !take(r, '?')) {
        return value;
    }
    if (++r->nesting > NESTING_MAX) {
        fail_at(r, r->at, r->end, "nested too deep");
    }
    uint64_t yes = read_choice(r, live && value);
    if (r->status == WF_OK && !take(r, ':')) {
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
