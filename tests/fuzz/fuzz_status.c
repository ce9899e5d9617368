/* fuzz_status.c - what weft status makes of the frame that a server sends it: tables, sentences,
 * and JSON that is JSON, whatever texts and numbers came. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tools/watch/metrics.h"
#include "tools/watch/print.h"
#include "tools/watch/status_json.h"

static void check_lines(const struct wf_frame_status *status)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    WF_ASSERT(out != NULL);
    wf_status_print(status, out);
    wf_status_print_waits(status, out);
    WF_ASSERT(fclose(out) == 0);
    for (size_t i = 0; i < len; i++) { /* nothing that a terminal would obey */
        WF_ASSERT(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_frame frame;
    struct wf_error error;
    if (wf_frame_decode(data, size, &frame, &error) != WF_OK) {
        return 0;
    }
    if (frame.type == WF_FRAME_status) {
        size_t len = 0;
        char *text = wf_status_json(&frame.status, &len);
        struct json_object *object = json_tokener_parse(text);
        WF_ASSERT(object != NULL && strlen(text) == len);
        json_object_put(object);
        free(text);
        check_lines(&frame.status);
        free(wf_metrics_text(&frame.status, &len));
    }
    wf_frame_fini(&frame);
    return 0;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    struct wf_el_status_engine engine = {.engine = 1, .ranks = 2, .current = {1, 2, 3}};
    struct wf_el_status_rank rank = {
        .side = WF_INFER, .host = "b", .doing = "reading", .presence = 2};
    struct wf_el_status_round round = {.round = {.version = {1, 2, 3}, .attempt = 1},
                                       .label = "l",
                                       .state = WF_REPORT_ABORTED,
                                       .culprit = {.host = "b", .reason = "was late"}};
    struct wf_el_status_wait wait = {.who = "round 1", .what = "to vote", .since_ns = 5};
    const struct wf_frame_status status = {.weft_version = "1",
                                           .job = "j",
                                           .state = "idle",
                                           .agreed = index,
                                           .engines = &engine,
                                           .engines_count = 1,
                                           .ranks = &rank,
                                           .ranks_count = 1,
                                           .rounds = &round,
                                           .rounds_count = 1,
                                           .waits = &wait,
                                           .waits_count = 1};
    uint8_t *bytes = NULL;
    size_t len = 0;
    struct wf_error error;
    if (index > 1) {
        return 0;
    }
    WF_ASSERT(wf_frame_encode(WF_FRAME_status, &status, &bytes, &len, &error) == WF_OK);
    WF_ASSERT(len <= cap);
    memcpy(out, bytes, len);
    free(bytes);
    return len;
}
