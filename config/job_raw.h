/* job_raw.h - what libcyaml makes of parts of a job file. Private to config/job*.c. */
#ifndef WEFT_CONFIG_JOB_RAW_H
#define WEFT_CONFIG_JOB_RAW_H

#include <cyaml/cyaml.h>
#include <yaml.h>

#include "config/job.h"

/* NULL where a key is absent. `transport.ucx` has UCX's own keys and is read from the document. */
struct raw_transport {
    char *prefer, *interfaces, *transit_budget;
    bool *share_memory;
    uint64_t *lanes;
};

struct raw_files {
    char *folder;
    uint64_t *keep, *every;
};

struct raw_placement {
    char *table;
    uint64_t *after;
};

struct raw_fault {
    char *transport, *delay;
    enum wf_fault_kind kind;
    uint64_t *at, *rate, *seed;
    uint32_t *ranks;
    unsigned ranks_count;
};

/* Tables that end with CYAML_FIELD_END. */
extern const cyaml_schema_field_t wf_job_transport_fields[];
extern const cyaml_schema_value_t wf_job_fault_entry;
extern const cyaml_schema_field_t wf_job_files_fields[];
extern const cyaml_schema_value_t wf_job_placement_entry;

/* `raw` may be NULL; the sentence of an error begins with the key. */
enum wf_status wf_job_take_transport(const struct raw_transport *raw, struct wf_job_file *job,
                                     struct wf_error *error);
enum wf_status wf_job_take_files(const struct raw_files *raw, struct wf_job_file *job,
                                 struct wf_error *error);
/* Of infer group `index`. */
enum wf_status wf_job_take_placements(const struct raw_placement *raw, unsigned count,
                                      unsigned index, struct wf_job_file *job,
                                      struct wf_error *error);
/* policy.fill, after `files`; NULL: absent. */
enum wf_status wf_job_take_fill(const char *text, struct wf_job_file *job, struct wf_error *error);
/* A path in the file is relative to the file's folder. */
enum wf_status wf_job_take_path(const char *key, const char *job_path, const char *text,
                                char out[WF_PATH_MAX], struct wf_error *error);
enum wf_status wf_job_take_faults(const struct raw_fault *raw, unsigned count,
                                  struct wf_job_file *job, struct wf_error *error);
enum wf_status wf_job_take_ucx(yaml_document_t *document, struct wf_job_file *job,
                               struct wf_error *error);

#endif
