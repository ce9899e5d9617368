/* manifest_text.h - manifests for tests, written as JSON: the same values as msgpack. */
#ifndef WEFT_TESTS_MODELS_MANIFEST_TEXT_H
#define WEFT_TESTS_MODELS_MANIFEST_TEXT_H

#include <msgpack.h>
#include <string.h>

#include "tests/models/golden.h"

static inline void manifest_pack(msgpack_packer *packer, struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_array:
        msgpack_pack_array(packer, json_object_array_length(value));
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            manifest_pack(packer, json_object_array_get_idx(value, i));
        }
        break;
    case json_type_string:
        msgpack_pack_str(packer, (size_t)json_object_get_string_len(value));
        msgpack_pack_str_body(packer, json_object_get_string(value),
                              (size_t)json_object_get_string_len(value));
        break;
    case json_type_int:
        msgpack_pack_int64(packer, json_object_get_int64(value));
        break;
    case json_type_boolean: /* of no use in a manifest */
        msgpack_pack_true(packer);
        break;
    default:
        msgpack_pack_nil(packer);
    }
}

/* End with msgpack_sbuffer_destroy. */
static inline void manifest_of_text(const char *text, msgpack_sbuffer *out)
{
    struct json_object *root = NULL;
    struct wf_error error = {0};
    msgpack_packer packer;
    msgpack_sbuffer_init(out);
    msgpack_packer_init(&packer, out, msgpack_sbuffer_write);
    cr_assert_eq(wf_json_parse(text, strlen(text), 0, &root, &error), WF_OK, "%s: %s", text,
                 error.text);
    manifest_pack(&packer, root);
    json_object_put(root);
}

#endif
