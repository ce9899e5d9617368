/* registry.c - the families that this build knows. */
#include "models/families/family.h"

const struct wf_family *const wf_families[] = {
    &wf_family_llama, &wf_family_mistral, &wf_family_qwen2, &wf_family_qwen3, NULL,
};
