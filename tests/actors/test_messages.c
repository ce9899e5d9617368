/* test_messages.c - frames survive the trip; nothing but a well-formed frame is believed. */
#include <criterion/criterion.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "actors/messages.h"
#include "frames_random.h"
#include "runtime/splitmix.h"

enum { RANDOM_ROUNDS = 40, MUTATIONS = 200 };

static size_t encode(const struct wf_frame *frame, uint8_t **bytes_out)
{
    size_t len = 0;
    struct wf_error error = {0};
    enum wf_status status =
        wf_frame_encode(frame->type, &frame->challenge, bytes_out, &len, &error);
    cr_assert_eq(status, WF_OK, "%s: %s", wf_frame_name(frame->type), error.text);
    return len;
}

Test(messages, every_frame_survives_the_trip)
{
    uint64_t seed = 1;
    for (const enum wf_frame_type *type = all_frame_types; *type != WF_FRAME_TYPE_NONE; type++) {
        for (int round = 0; round < RANDOM_ROUNDS; round++) {
            struct wf_frame sent, got;
            random_frame(&seed, *type, &sent);
            uint8_t *bytes = NULL;
            size_t len = encode(&sent, &bytes);
            struct wf_error error = {0};
            cr_assert_eq(wf_frame_decode(bytes, len, &got, &error), WF_OK, "%s: %s",
                         wf_frame_name(*type), error.text);
            cr_assert(frames_equal(&sent, &got), "%s", wf_frame_name(*type));
            wf_frame_fini(&sent);
            wf_frame_fini(&got);
            free(bytes);
        }
    }
}

Test(messages, msgpack_itself_can_read_our_frames)
{
    uint64_t seed = 2;
    for (const enum wf_frame_type *type = all_frame_types; *type != WF_FRAME_TYPE_NONE; type++) {
        struct wf_frame sent;
        random_frame(&seed, *type, &sent);
        uint8_t *bytes = NULL;
        size_t len = encode(&sent, &bytes), used = 0;
        msgpack_zone zone;
        msgpack_zone_init(&zone, 4096);
        msgpack_object object;
        cr_assert_eq(msgpack_unpack((const char *)bytes, len, &used, &zone, &object),
                     MSGPACK_UNPACK_SUCCESS, "%s", wf_frame_name(*type));
        cr_assert_eq(used, len);
        cr_assert_eq(object.type, MSGPACK_OBJECT_ARRAY);
        cr_assert_eq(object.via.array.ptr[0].via.u64, (uint64_t)*type);
        msgpack_zone_destroy(&zone);
        wf_frame_fini(&sent);
        free(bytes);
    }
}

Test(messages, a_cut_frame_is_refused_at_every_byte)
{
    uint64_t seed = 3;
    for (const enum wf_frame_type *type = all_frame_types; *type != WF_FRAME_TYPE_NONE; type++) {
        struct wf_frame sent, got;
        random_frame(&seed, *type, &sent);
        uint8_t *bytes = NULL;
        size_t len = encode(&sent, &bytes);
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *part = malloc(cut + 1); /* its own block: a read past the cut is seen */
            memcpy(part, bytes, cut);
            struct wf_error error = {0};
            cr_assert_eq(wf_frame_decode(part, cut, &got, &error), WF_PROTOCOL, "%s at %zu",
                         wf_frame_name(*type), cut);
            cr_assert_neq(error.text[0], '\0');
            free(part);
        }
        wf_frame_fini(&sent);
        free(bytes);
    }
}

Test(messages, changed_bytes_are_refused_or_another_valid_frame)
{
    uint64_t seed = 4;
    for (const enum wf_frame_type *type = all_frame_types; *type != WF_FRAME_TYPE_NONE; type++) {
        struct wf_frame sent, got;
        random_frame(&seed, *type, &sent);
        uint8_t *bytes = NULL;
        size_t len = encode(&sent, &bytes);
        for (int i = 0; i < MUTATIONS; i++) {
            uint8_t *changed = malloc(len);
            memcpy(changed, bytes, len);
            changed[wf_splitmix64(&seed) % len] = (uint8_t)wf_splitmix64(&seed);
            if (wf_frame_decode(changed, len, &got, NULL) == WF_OK) {
                uint8_t *again = NULL;
                encode(&got, &again);
                free(again);
                wf_frame_fini(&got);
            }
            free(changed);
        }
        wf_frame_fini(&sent);
        free(bytes);
    }
}

struct refused_row {
    const char *name;
    const char *hex;
    const char *sentence; /* contained in the error */
};

static const struct refused_row refused_rows[] = {
    {"empty", "", "not a frame: expected a list, found the end of the frame"},
    {"not a list", "07", "not a frame: expected a list, found something else (0x07)"},
    {"never used form", "c1", "something else (0xc1)"},
    {"unknown type", "9163", "expected a known frame type up to 49, found 99"},
    {"type is a text", "91a178", "expected an integer, found something else (0xa1)"},
    {"too few fields", "9107", "frame heartbeat: expected 4 fields, found 0"},
    {"too many fields", "96070102039004", "frame heartbeat: expected 4 fields, found 5"},
    {"negative", "950701ff", "frame heartbeat, field sent_ns: expected an integer"},
    {"trailing byte",
     "95070102009700000000000000"
     "00",
     "frame heartbeat: expected the end of the frame"},
    {"over the bound",
     "93"
     "0c"
     "97"
     "01010101010101"
     "a0",
     "frame open: expected 7 fields"},
    {"text too long",
     "92"
     "1c"
     "db"
     "00ffffff"
     "41",
     "frame leave, field reason: expected a text with a length up to 399, found 16777215"},
    {"text with a zero",
     "92"
     "1c"
     "a3"
     "410042",
     "one with a zero byte in it"},
    {"list longer than the frame",
     "93"
     "0e"
     "97"
     "01010101010101"
     "dd"
     "00000fff"
     "9101",
     "frame decide, field engines: expected as many elements as the list says"},
    {"list over its bound",
     "93"
     "0e"
     "97"
     "01010101010101"
     "dd"
     "7fffffff"
     "9101",
     "frame decide, field engines: expected a list with a length up to 4096, found 2147483647"},
    {"element over its bound",
     "93"
     "0e"
     "97"
     "01010101010101"
     "92"
     "9101"
     "91cd2000",
     "frame decide, field engines[1].engine: expected an integer up to 4096, found 8192"},
    {"no term is left above",
     "95"
     "01"
     "0101"
     "cfffffffffffffffff"
     "c400",
     "frame challenge, field term: expected an integer up to 9223372036854775807, found "
     "18446744073709551615"},
    {"no term is left above a key's",
     "93"
     "0e"
     "97"
     "cf8000000000000000"
     "010101010101"
     "90",
     "frame decide, field round: expected a term up to 9223372036854775807, found "
     "9223372036854775808"},
    {"no term is left above a key's version's",
     "93"
     "0e"
     "97"
     "010101"
     "cf8000000000000000"
     "010101"
     "90",
     "frame decide, field round: expected a term up to 9223372036854775807"},
    {"no term is left above a version's",
     "92"
     "0b"
     "93"
     "cf8000000000000000"
     "0101",
     "frame idle, field version: expected a term up to 9223372036854775807"},
    {"key too short",
     "93"
     "0e"
     "96"
     "010101010101"
     "90",
     "frame decide, field round: expected 7 values, found 6"},
};

static size_t from_hex(const char *hex, uint8_t *bytes_out)
{
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        bytes_out[i] = (uint8_t)byte;
    }
    return len;
}

Test(messages, refusals_name_the_frame_and_the_field)
{
    for (size_t i = 0; i < sizeof refused_rows / sizeof refused_rows[0]; i++) {
        const struct refused_row *row = &refused_rows[i];
        uint8_t bytes[128];
        size_t len = from_hex(row->hex, bytes);
        struct wf_frame frame;
        struct wf_error error = {0};
        cr_expect_eq(wf_frame_decode(bytes, len, &frame, &error), WF_PROTOCOL, "%s", row->name);
        cr_expect(strstr(error.text, row->sentence) != NULL, "%s: got \"%s\"", row->name,
                  error.text);
        cr_expect_null(frame.memory, "%s", row->name);
    }
}

Test(messages, our_own_term_over_its_bound_is_not_sent)
{
    struct wf_frame_decide decide = {.round = {.version = {.term = WF_TERM_MAX + 1}}};
    struct wf_frame_idle idle = {.version = {.term = WF_TERM_MAX + 1}};
    uint8_t *bytes = NULL;
    size_t len = 0;
    struct wf_error error = {0};
    cr_assert_eq(wf_frame_encode(WF_FRAME_decide, &decide, &bytes, &len, &error), WF_INVALID);
    cr_assert_not_null(strstr(error.text, "frame decide: field round has term"), "%s", error.text);
    cr_assert_eq(wf_frame_encode(WF_FRAME_idle, &idle, &bytes, &len, &error), WF_INVALID);
    cr_assert_not_null(strstr(error.text, "frame idle: field version has term"), "%s", error.text);
}

Test(messages, our_own_field_over_its_bound_is_not_sent)
{
    struct wf_frame_hello hello = {.rank = WF_RANKS_MAX + 1};
    uint8_t *bytes = NULL;
    size_t len = 0;
    struct wf_error error = {0};
    cr_assert_eq(wf_frame_encode(WF_FRAME_hello, &hello, &bytes, &len, &error), WF_INVALID);
    cr_assert_str_eq(error.text, "frame hello: field rank is 65537, the limit is 65536");
}

Test(messages, a_frame_over_the_limit_is_not_sent)
{
    struct wf_frame_chunks chunks = {.chunks_count = 65536};
    chunks.chunks = calloc(chunks.chunks_count, sizeof chunks.chunks[0]);
    for (uint32_t i = 0; i < chunks.chunks_count; i++) {
        chunks.chunks[i] = (struct wf_el_chunk){UINT32_MAX, UINT32_MAX, UINT64_MAX};
    }
    uint8_t *bytes = NULL;
    size_t len = 0;
    cr_assert_eq(wf_frame_encode(WF_FRAME_chunks, &chunks, &bytes, &len, NULL), WF_OK);
    free(bytes);
    free(chunks.chunks);
    struct wf_frame_members members = {.peers_count = WF_RANKS_MAX};
    members.peers = calloc(members.peers_count, sizeof members.peers[0]);
    for (uint32_t i = 0; i < members.peers_count; i++) {
        memset(members.peers[i].address, 'a', sizeof members.peers[i].address - 1);
    }
    struct wf_error error = {0};
    cr_assert_eq(wf_frame_encode(WF_FRAME_members, &members, &bytes, &len, &error), WF_NO_RESOURCE);
    cr_assert(strstr(error.text, "frame members would be") != NULL, "%s", error.text);
    free(members.peers);
}

Test(messages, types_have_names)
{
    cr_assert_str_eq(wf_frame_name(WF_FRAME_hello), "hello");
    cr_assert_str_eq(wf_frame_name(WF_FRAME_peer_refused), "peer_refused");
    cr_assert_str_eq(wf_frame_name(0), "unknown");
    cr_assert_str_eq(wf_frame_name(59), "unknown");
    cr_assert_str_eq(wf_frame_name(-1), "unknown");
}
