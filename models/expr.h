/* expr.h - integer expressions of the tables: sizes, shapes and conditions as text.
 *
 * Families and engines are data, built in or read from a user's file; what they compute is written
 * as one expression each. Numbers are unsigned 64 bits; a flag is 0 or 1. By falling precedence:
 *
 *     NUMBER  NAME  NAME.WORD  (E)      !E      * / %      + -      < <= > >= == !=
 *     &&      ||      C ? A : B
 *
 * `/` needs a divisor that divides ("hidden_size / heads" with a rest is a wrong config);
 * `E1 // E2` rounds down and `E1 ^ E2` rounds E1 / E2 up. && || and ?: leave what they do not need
 * unevaluated. Every overflow, negative difference, division by zero and unknown name is an error
 * that names the expression and the part of it. Pure; no allocation; nesting is bounded.
 */
#ifndef WEFT_MODELS_EXPR_H
#define WEFT_MODELS_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

/* Gives the value of a name ("H", "layer", "moe.triton"), false if there is none. */
typedef bool wf_expr_lookup_t(void *user, const char *name, size_t len, uint64_t *value_out);

/* Evaluates text[0..len). INVALID says what is wrong with the text or its numbers. */
enum wf_status wf_expr_eval(const char *text, size_t len, wf_expr_lookup_t *lookup, void *user,
                            uint64_t *value_out, struct wf_error *error);
/* Reads the text without evaluating it, so that branches that are not taken are read too: `lookup`
 * is asked for every name, its values are not used. */
enum wf_status wf_expr_check(const char *text, size_t len, wf_expr_lookup_t *lookup, void *user,
                             struct wf_error *error);
/* The next of several expressions parted by `mark`, outside parentheses; false when none is left.
 */
bool wf_expr_next(const char **text, char mark, const char **item_out, size_t *len_out);

#endif
