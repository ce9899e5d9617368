/* alter.c - flips the one bit that a test asks for. */
#include "tools/run/alter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"

#define ALTER_VARIABLE "WEFT_TEST_ALTER"

void wf_alter_weights(struct wf_process *process, const struct wf_layout *layout,
                      const struct wf_run_memory *memory, uint64_t step)
{
    char who[32], wanted[32], tensor[WF_NAME_MAX], line[WF_NAME_MAX + 64];
    unsigned long long at_step, byte;
    const char *text = getenv(ALTER_VARIABLE);
    _Static_assert(WF_NAME_MAX == 256, "as the format says");
    if (text == NULL) {
        return;
    }
    if (sscanf(text, "%31[^,],%llu,%255[^,],%llu", wanted, &at_step, tensor, &byte) != 4) {
        wf_process_say(process, ALTER_VARIABLE " is not WHO,STEP,TENSOR,BYTE");
        wf_process_end(process, WF_EXIT_FAILED);
        return;
    }
    snprintf(who, sizeof who, "%s:%u", wf_side_name(process->options->side),
             process->options->rank);
    if (strcmp(who, wanted) != 0 || at_step != step) {
        return;
    }
    uint32_t index = wf_layout_find(layout, tensor, strlen(tensor));
    if (index == UINT32_MAX || byte >= layout->tensors[index].bytes) {
        wf_process_say(process, ALTER_VARIABLE " names a byte that this rank does not have");
        wf_process_end(process, WF_EXIT_FAILED);
        return;
    }
    ((uint8_t *)memory->tensors[index].address)[byte] ^= 1;
    snprintf(line, sizeof line, "flips a bit of byte %llu of %.255s, as a test asks", byte, tensor);
    wf_process_say(process, line);
}
