/* job_placements.c - the keys of a job file that say where an engine's experts stand. */
#include <stdio.h>

#include "config/job_raw.h"

const cyaml_schema_field_t wf_job_placement_fields[] = {
    CYAML_FIELD_STRING_PTR("table", CYAML_FLAG_POINTER, struct raw_placement, table, 1,
                           WF_PATH_MAX - 1),
    CYAML_FIELD_UINT_PTR("after", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_placement,
                         after),
    CYAML_FIELD_END};
const cyaml_schema_value_t wf_job_placement_entry = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_placement, wf_job_placement_fields)};

enum wf_status wf_job_take_placements(const struct raw_placement *raw, unsigned count,
                                      unsigned index, struct wf_job_file *job,
                                      struct wf_error *error)
{
    struct wf_job_group *group = &job->infer[index];
    for (unsigned i = 0; i < count; i++) {
        struct wf_job_placement *placement = &group->placements[i];
        char key[64];
        snprintf(key, sizeof key, "infer[%u].placements[%u]", index, i);
        placement->after = raw[i].after != NULL ? *raw[i].after : 0;
        if (i > 0 && placement->after <= group->placements[i - 1].after) {
            return wf_error_set(error, WF_INVALID, "%s.after: expected more than %llu, found %llu",
                                key, (unsigned long long)group->placements[i - 1].after,
                                (unsigned long long)placement->after);
        }
        enum wf_status status =
            wf_job_take_path(key, job->path, raw[i].table, placement->table, error);
        if (status != WF_OK) {
            return status;
        }
    }
    group->placement_count = count;
    return WF_OK;
}
