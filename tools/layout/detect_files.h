/* detect_files.h - `weft layout detect`: which files are whose, and the answer for people and
 * scripts.
 *
 * Each file is one rank's tensors, in the order given. A folder with rank_00, rank_01, ... (.tsv,
 * .safetensors, .pt) is those ranks; any other folder is one rank whose shards are its
 * *.safetensors files. Where all tensors of several ranks have one dimension, they are FSDP1's flat
 * parameters: what a rank does not list it has no elements of.
 */
#ifndef WEFT_TOOLS_LAYOUT_DETECT_FILES_H
#define WEFT_TOOLS_LAYOUT_DETECT_FILES_H

#include <json-c/json.h>
#include <stdio.h>

#include "tools/layout/detect.h"

struct wf_detect_files {
    struct wf_dump_rank *dumps; /* owned */
    uint32_t count;
};

/* Fini also after a failure. */
enum wf_status wf_detect_read(char *const *paths, size_t path_count, struct wf_detect_files *out,
                              struct wf_error *error);
void wf_detect_files_fini(struct wf_detect_files *files);

void wf_detected_print(FILE *out, const struct wf_detected *detected);
/* {fits: [{family, spec, config, sizes, free, padded, quant, dtype, also: [spec]}], more, gave_up,
 * single, nearest}; the caller puts it. */
struct json_object *wf_detected_to_json(const struct wf_detected *detected);

#endif
