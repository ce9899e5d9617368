/* token.c - tokens as text, and keyed hashes: all calls of libsodium. */
#include "actors/token.h"

#include <sodium.h>
#include <string.h>

_Static_assert(WF_TOKEN_BYTES >= (int)crypto_generichash_KEYBYTES_MIN &&
                   WF_TOKEN_BYTES <= (int)crypto_generichash_KEYBYTES_MAX &&
                   WF_TOKEN_BYTES == (int)crypto_generichash_BYTES,
               "a token is a key of the hash, and as long as what it gives");

static const char space[] = " \t\r\n";

enum wf_status wf_token_parse(const char *text, size_t len, struct wf_token *token_out,
                              struct wf_error *error)
{
    while (len > 0 && text[0] != '\0' && strchr(space, text[0]) != NULL) {
        text++;
        len--;
    }
    while (len > 0 && text[len - 1] != '\0' && strchr(space, text[len - 1]) != NULL) {
        len--;
    }
    struct wf_token token = {.is_set = true};
    size_t got = 0;
    bool hex = len == 2 * WF_TOKEN_BYTES &&
               sodium_hex2bin(token.bytes, sizeof token.bytes, text, len, NULL, &got, NULL) == 0;
    bool good = (hex || sodium_base642bin(token.bytes, sizeof token.bytes, text, len, NULL, &got,
                                          NULL, sodium_base64_VARIANT_ORIGINAL) == 0) &&
                got == WF_TOKEN_BYTES;
    if (good) {
        *token_out = token;
    }
    wf_token_wipe(&token);
    return good ? WF_OK
                : wf_error_set(error, WF_INVALID,
                               "expected a job token: 64 hex digits or the base64 of 32 bytes, "
                               "found %zu other bytes; make one with: head -c 32 /dev/urandom | "
                               "base64",
                               len);
}

void wf_token_format(const struct wf_token *token, char text_out[WF_TOKEN_TEXT])
{
    sodium_bin2hex(text_out, WF_TOKEN_TEXT, token->bytes, sizeof token->bytes);
}

void wf_token_hash(const struct wf_token *token, const void *bytes, size_t len,
                   uint8_t hash_out[WF_TOKEN_BYTES])
{
    crypto_generichash(hash_out, WF_TOKEN_BYTES, bytes, len, token->bytes, sizeof token->bytes);
}

void wf_token_derive(const struct wf_token *token, const char *purpose, struct wf_token *secret_out)
{
    struct wf_token secret = {.is_set = true};
    wf_token_hash(token, purpose, strlen(purpose), secret.bytes);
    *secret_out = secret;
    wf_token_wipe(&secret);
}

bool wf_token_equal(const uint8_t a[WF_TOKEN_BYTES], const uint8_t b[WF_TOKEN_BYTES])
{
    return sodium_memcmp(a, b, WF_TOKEN_BYTES) == 0;
}

bool wf_token_base64(const char *base64, char *text_out, size_t size)
{
    size_t len = 0;
    memset(text_out, 0, size);
    return sodium_base642bin((unsigned char *)text_out, size - 1, base64, strlen(base64), NULL,
                             &len, NULL, sodium_base64_VARIANT_ORIGINAL) == 0 &&
           strlen(text_out) == len;
}

void wf_token_wipe(struct wf_token *token)
{
    sodium_memzero(token, sizeof *token);
}
