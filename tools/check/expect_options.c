/* expect_options.c - which options of an engine the retelling knows.
 *
 * A SPEC names every option that is not at its default. Those whose effect nobody has retold are
 * refused: a check that took no notice of them would call right elements wrong.
 */
#include <string.h>

#include "models/engines/engine.h"
#include "tools/check/expect.h"

/* KEY: whatever it says; KEY=WORD: that alone. The last five decide, of tensors as they are loaded
 * (stage=post is refused), at most in which type they are, which is the live tensor's to say. */
static const char *const known[] = {
    "dtype",
    "version",
    "quant",
    "tp",
    "pp",
    "ep",
    "engines",
    "eplb",
    "redundant",
    "vision",
    "shared_experts",
    "strategy",
    "moe_backend=triton",
    "deep_gemm",
    "fp8_gemm",
    "attention",
    "capability",
};

static bool is_known(const char *option, size_t len)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t size = strlen(known[i]);
        bool begins = len >= size && strncmp(option, known[i], size) == 0;
        bool whole = strchr(known[i], '=') != NULL ? len == size : option[size] == '=';
        if (begins && whole) {
            return true;
        }
    }
    return false;
}

enum wf_status wf_expect_options(const struct wf_recipe *recipe, struct wf_error *error)
{
    char spec[WF_SPEC_MAX];
    wf_recipe_format(recipe, spec);
    const char *at = strchr(spec, ':');
    while (at != NULL && at[1] != '\0') {
        const char *option = at + 1;
        size_t len = strcspn(option, ",");
        if (!is_known(option, len)) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "the element check does not know what %s changes with %.*s",
                                recipe->engine->name, (int)len, option);
        }
        at = option[len] == ',' ? option + len : NULL;
    }
    return WF_OK;
}
