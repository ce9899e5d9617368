/* case_sglang.c - case.json of SGLang: SPEC text of the engine sglang. */
#include "tools/layout/case_private.h"

enum wf_status wf_case_sglang(struct json_object *root, struct wf_case *it,
                              struct wf_case_spec *spec, struct wf_error *error)
{
    (void)it;
    static const char *const keys[] = {"tp", "pp"};
    enum wf_status status = wf_case_put_version(spec, root, error);
    if (status == WF_OK) {
        status = wf_case_put_parallel(spec, root, keys, sizeof keys / sizeof keys[0], error);
    }
    return status;
}
