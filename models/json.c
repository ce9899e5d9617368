/* json.c - reads JSON text into json-c's tree, refusing what json-c's own reader lets through.
 *
 * Tried with json-c 0.16: its reader keeps the last of two equal keys, cuts a key at an escaped
 * NUL (so "a\u0000b" becomes "a"), turns an integer beyond 64 bits into the largest one, and takes
 * bytes that are no UTF-8. None of that can be switched off or seen afterwards. So the text is read
 * here, in one pass, and json-c gives the tree, its lookups and its writer.
 */
#include "models/json.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 64,
    NUMBER_BYTES_MAX = 4096, /* of one number's text; longer ones are refused */
};

struct reader {
    const char *text;
    size_t len, at;
    bool python;
    unsigned depth;
    char *scratch; /* a string's bytes after its escapes; never longer than the text */
    locale_t locale;
    struct wf_error *error;
};

static enum wf_status read_value(struct reader *r, struct json_object **out);

/* Writes the sentence, with line and column (in bytes, from 1) of `at`. */
static enum wf_status refuse(struct reader *r, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column++;
        if (r->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return wf_error_set(r->error, WF_INVALID, "JSON line %zu column %zu: %s", line, column, what);
}

static enum wf_status no_memory(struct reader *r)
{
    return wf_error_set(r->error, WF_NO_MEMORY, "no memory for %zu bytes of JSON", r->len);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->len && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at] != '\0') {
        r->at++;
    }
}

static bool take(struct reader *r, const char *word)
{
    size_t len = strlen(word);
    if (r->len - r->at < len || memcmp(r->text + r->at, word, len) != 0) {
        return false;
    }
    r->at += len;
    return true;
}

/* Bytes of the UTF-8 sequence at `s`, 0 if it is none (overlong, surrogate, beyond U+10FFFF). */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) {
        return 1;
    }
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < n) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
               (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

/* Appends a code point; a lone surrogate keeps its number (three bytes), so that two different
 * strings stay different. */
static size_t utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static bool take_hex4(struct reader *r, uint32_t *out)
{
    if (r->len - r->at < 4) {
        return false;
    }
    uint32_t value = 0;
    for (unsigned i = 0; i < 4; i++) {
        char c = r->text[r->at + i];
        if (c >= '0' && c <= '9') {
            value = value << 4 | (uint32_t)(c - '0');
        } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
            value = value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
        } else {
            return false;
        }
    }
    r->at += 4;
    *out = value;
    return true;
}

/* After "\u". Joins a surrogate pair; a lone one only in Python mode. */
static enum wf_status read_unicode(struct reader *r, uint32_t *out)
{
    size_t start = r->at;
    uint32_t c = 0, low = 0;
    if (!take_hex4(r, &c)) {
        return refuse(r, start, "\\u needs four hexadecimal digits");
    }
    if (c >= 0xd800 && c <= 0xdbff && take(r, "\\u")) {
        size_t second = r->at;
        if (!take_hex4(r, &low)) {
            return refuse(r, second, "\\u needs four hexadecimal digits");
        }
        if (low >= 0xdc00 && low <= 0xdfff) {
            *out = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            return WF_OK;
        }
        r->at = second - 2;
    }
    if (c >= 0xd800 && c <= 0xdfff && !r->python) {
        return refuse(r, start, "half of a surrogate pair is no character");
    }
    *out = c;
    return WF_OK;
}

static enum wf_status read_escape(struct reader *r, size_t *used)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->len) {
        return refuse(r, r->at, "the text ends inside a string");
    }
    char c = r->text[r->at++];
    if (c == 'u') {
        uint32_t point = 0;
        enum wf_status status = read_unicode(r, &point);
        if (status == WF_OK) {
            *used += utf8_put(r->scratch + *used, point);
        }
        return status;
    }
    const char *found = c == '\0' ? NULL : strchr(names, c);
    if (!found) {
        return refuse(r, r->at - 1, "unknown escape in a string");
    }
    r->scratch[(*used)++] = values[found - names];
    return WF_OK;
}

/* The string at the opening quote goes to scratch (bytes before *used_out). */
static enum wf_status read_string(struct reader *r, size_t *used_out)
{
    size_t used = 0;
    r->at++;
    while (r->at < r->len) {
        unsigned char c = (unsigned char)r->text[r->at];
        if (c == '"') {
            r->at++;
            *used_out = used;
            return WF_OK;
        }
        if (c == '\\') {
            r->at++;
            enum wf_status status = read_escape(r, &used);
            if (status != WF_OK) {
                return status;
            }
            continue;
        }
        if (c < 0x20) {
            return refuse(r, r->at, "a control character stands unescaped in a string");
        }
        size_t n = utf8_length((const unsigned char *)r->text + r->at, r->len - r->at);
        if (n == 0) {
            return refuse(r, r->at, "this is no UTF-8");
        }
        memcpy(r->scratch + used, r->text + r->at, n);
        used += n;
        r->at += n;
    }
    return refuse(r, r->at, "the text ends inside a string");
}

static size_t digits(struct reader *r)
{
    size_t start = r->at;
    while (r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9') {
        r->at++;
    }
    return r->at - start;
}

/* JSON's grammar of a number; *integer_out says that it has neither fraction nor exponent. */
static enum wf_status scan_number(struct reader *r, bool *integer_out)
{
    size_t start = r->at;
    bool integer = true;
    (void)take(r, "-");
    bool zero = r->at < r->len && r->text[r->at] == '0';
    size_t whole = digits(r);
    if (whole == 0) {
        return refuse(r, start, "expected a value");
    }
    if (zero && whole > 1) {
        return refuse(r, start, "a number may not begin with a zero");
    }
    if (take(r, ".")) {
        integer = false;
        if (digits(r) == 0) {
            return refuse(r, r->at, "a digit must follow the decimal point");
        }
    }
    if (take(r, "e") || take(r, "E")) {
        integer = false;
        if (!take(r, "+")) {
            (void)take(r, "-");
        }
        if (digits(r) == 0) {
            return refuse(r, r->at, "the exponent has no digits");
        }
    }
    *integer_out = integer;
    return WF_OK;
}

static bool magnitude(const char *text, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

static enum wf_status read_number(struct reader *r, struct json_object **out)
{
    size_t start = r->at;
    bool integer = false;
    enum wf_status status = scan_number(r, &integer);
    if (status != WF_OK) {
        return status;
    }
    size_t len = r->at - start;
    bool negative = r->text[start] == '-';
    uint64_t value = 0;
    if (integer && magnitude(r->text + start + negative, len - negative, &value)) {
        if (!negative && value > INT64_MAX) {
            *out = json_object_new_uint64(value);
            return *out ? WF_OK : no_memory(r);
        }
        if (value <= (uint64_t)INT64_MAX + negative) {
            *out = json_object_new_int64(negative ? (int64_t)(0 - value) : (int64_t)value);
            return *out ? WF_OK : no_memory(r);
        }
    }
    if (integer && !r->python) {
        return refuse(r, start, "the integer does not fit 64 bits");
    }
    /* An integer of any size becomes a double, and a double is never taken for an integer. */
    char copy[NUMBER_BYTES_MAX + 1];
    size_t kept = len < NUMBER_BYTES_MAX ? len : NUMBER_BYTES_MAX;
    if (kept < len && !integer) {
        return refuse(r, start, "the number is longer than 4096 bytes");
    }
    memcpy(copy, r->text + start, kept);
    copy[kept] = '\0';
    /* A number that is written out again (the config in a dump's recipe.json) is spelt as it was:
     * 1e-06 and not 9.9999999999999995e-07. */
    double number = strtod_l(copy, NULL, r->locale);
    *out = integer ? json_object_new_double(number) : json_object_new_double_s(number, copy);
    return *out ? WF_OK : no_memory(r);
}

static enum wf_status read_array(struct reader *r, struct json_object *array)
{
    r->at++;
    skip_space(r);
    if (take(r, "]")) {
        return WF_OK;
    }
    for (;;) {
        struct json_object *item = NULL;
        enum wf_status status = read_value(r, &item);
        if (status != WF_OK) {
            return status;
        }
        if (json_object_array_add(array, item) != 0) {
            json_object_put(item);
            return no_memory(r);
        }
        skip_space(r);
        if (take(r, "]")) {
            return WF_OK;
        }
        if (!take(r, ",")) {
            return refuse(r, r->at, "expected , or ] in an array");
        }
    }
}

/* One key, colon and value. A key that holds NUL cannot be asked for in C: strict text is refused,
 * in Python mode nobody needs it and it is left out. */
static enum wf_status read_member(struct reader *r, struct json_object *object)
{
    skip_space(r);
    size_t start = r->at, used = 0;
    if (r->at == r->len || r->text[r->at] != '"') {
        return refuse(r, r->at, "expected a key in double quotes");
    }
    enum wf_status status = read_string(r, &used);
    if (status != WF_OK) {
        return status;
    }
    bool nul = memchr(r->scratch, '\0', used) != NULL;
    if (nul && !r->python) {
        return refuse(r, start, "a key holds the character NUL");
    }
    r->scratch[used] = '\0';
    if (!nul && json_object_object_get_ex(object, r->scratch, NULL)) {
        return refuse(r, start, "this key stands in the same object before; give it once");
    }
    char *key = strdup(r->scratch);
    if (!key) {
        return no_memory(r);
    }
    struct json_object *value = NULL;
    skip_space(r);
    status = take(r, ":") ? read_value(r, &value) : refuse(r, r->at, "expected : after a key");
    if (status == WF_OK && nul) {
        json_object_put(value);
    } else if (status == WF_OK &&
               json_object_object_add_ex(object, key, value, JSON_C_OBJECT_ADD_KEY_IS_NEW) != 0) {
        json_object_put(value);
        status = no_memory(r);
    }
    free(key);
    return status;
}

static enum wf_status read_object(struct reader *r, struct json_object *object)
{
    r->at++;
    skip_space(r);
    if (take(r, "}")) {
        return WF_OK;
    }
    for (;;) {
        enum wf_status status = read_member(r, object);
        if (status != WF_OK) {
            return status;
        }
        skip_space(r);
        if (take(r, "}")) {
            return WF_OK;
        }
        if (!take(r, ",")) {
            return refuse(r, r->at, "expected , or } in an object");
        }
    }
}

static enum wf_status read_container(struct reader *r, struct json_object **out)
{
    bool is_object = r->text[r->at] == '{';
    if (r->depth == DEPTH_MAX) {
        return refuse(r, r->at, "nested deeper than 64");
    }
    struct json_object *made = is_object ? json_object_new_object() : json_object_new_array();
    if (!made) {
        return no_memory(r);
    }
    r->depth++;
    enum wf_status status = is_object ? read_object(r, made) : read_array(r, made);
    r->depth--;
    if (status != WF_OK) {
        json_object_put(made);
        return status;
    }
    *out = made;
    return WF_OK;
}

static bool read_word(struct reader *r, struct json_object **out, bool *made_out)
{
    *made_out = true;
    if (take(r, "null")) {
        *out = NULL; /* json-c's null */
        *made_out = false;
    } else if (take(r, "true") || take(r, "false")) {
        *out = json_object_new_boolean(r->text[r->at - 2] == 'u');
    } else if (r->python && take(r, "NaN")) {
        *out = json_object_new_double((double)NAN);
    } else if (r->python && take(r, "Infinity")) {
        *out = json_object_new_double((double)INFINITY);
    } else if (r->python && take(r, "-Infinity")) {
        *out = json_object_new_double(-(double)INFINITY);
    } else {
        return false;
    }
    return true;
}

static enum wf_status read_value(struct reader *r, struct json_object **out)
{
    skip_space(r);
    if (r->at == r->len) {
        return refuse(r, r->at, "the text ends where a value is expected");
    }
    char c = r->text[r->at];
    if (c == '{' || c == '[') {
        return read_container(r, out);
    }
    if (c == '"') {
        size_t used = 0;
        enum wf_status status = read_string(r, &used);
        if (status != WF_OK) {
            return status;
        }
        *out = json_object_new_string_len(r->scratch, (int)used);
        return *out ? WF_OK : no_memory(r);
    }
    bool made = false;
    if (read_word(r, out, &made)) {
        return made && !*out ? no_memory(r) : WF_OK;
    }
    return read_number(r, out);
}

static enum wf_status read_text(struct reader *r, struct json_object **out)
{
    if (r->len >= 2 &&
        (memcmp(r->text, "\xff\xfe", 2) == 0 || memcmp(r->text, "\xfe\xff", 2) == 0)) {
        return refuse(r, 0, "this is UTF-16; write it as UTF-8");
    }
    if (r->python) {
        (void)take(r, "\xef\xbb\xbf");
    }
    struct json_object *value = NULL;
    enum wf_status status = read_value(r, &value);
    if (status != WF_OK) {
        return status;
    }
    skip_space(r);
    if (r->at != r->len) {
        json_object_put(value);
        return refuse(r, r->at, "something follows the value");
    }
    *out = value;
    return WF_OK;
}

enum wf_status wf_json_parse(const char *text, size_t len, unsigned flags,
                             struct json_object **value_out, struct wf_error *error)
{
    if (len > WF_JSON_BYTES_MAX) {
        return wf_error_set(error, WF_INVALID, "JSON of %zu bytes; the limit is %d bytes", len,
                            WF_JSON_BYTES_MAX);
    }
    struct reader r = {.text = text, .len = len, .python = flags & WF_JSON_PYTHON, .error = error};
    r.scratch = malloc(len + 1);
    r.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* strtod's decimal point is a point */
    enum wf_status status = r.scratch && r.locale ? read_text(&r, value_out) : no_memory(&r);
    if (r.locale) {
        freelocale(r.locale);
    }
    free(r.scratch);
    return status;
}

static enum wf_status wrong(struct wf_error *error, const char *key, struct json_object *value,
                            const char *expected)
{
    const char *found = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
    return wf_error_set(error, WF_INVALID, "\"%s\": expected %s, found %.80s", key, expected,
                        found ? found : "something else");
}

enum wf_status wf_json_get_u64(struct json_object *object, const char *key, uint64_t min,
                               uint64_t max, uint64_t *value_out, struct wf_error *error)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value) || !value) {
        return wf_error_set(error, WF_NOT_FOUND, "\"%s\" is needed and missing or null", key);
    }
    char expected[96];
    snprintf(expected, sizeof expected, "an integer from %llu to %llu", (unsigned long long)min,
             (unsigned long long)max);
    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0) {
        return wrong(error, key, value, expected);
    }
    uint64_t number = json_object_get_uint64(value);
    if (number < min || number > max) {
        return wrong(error, key, value, expected);
    }
    *value_out = number;
    return WF_OK;
}

enum wf_status wf_json_get_bool(struct json_object *object, const char *key, bool *value_out,
                                struct wf_error *error)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value) || !value) {
        return wf_error_set(error, WF_NOT_FOUND, "\"%s\" is needed and missing or null", key);
    }
    if (!json_object_is_type(value, json_type_boolean)) {
        return wrong(error, key, value, "true or false");
    }
    *value_out = json_object_get_boolean(value);
    return WF_OK;
}
