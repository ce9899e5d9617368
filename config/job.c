/* job.c - the job file's schema, and how its values become a struct wf_job_file. */
#include "config/job.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/address.h"
#include "config/host_name.h"
#include "config/job_raw.h"
#include "config/units.h"
#include "config/yaml_check.h"

enum { SAID_MAX = 200, KEY_MAX = 64 };

/* Shorter ones would keep the loops awake, sums with longer ones could wrap. */
#define TIMEOUT_MIN_NS UINT64_C(1000000)
#define TIMEOUT_MAX_NS (UINT64_C(3600000000000) * 1000)
#define FROZEN_DEFAULT_NS (10 * UINT64_C(1000000000))

/* --- what libcyaml fills: NULL where a key is absent -------------------------------------------
 */
struct raw_group {
    char *name, *spec, *staging, *host;
    enum wf_update_mode mode;
    char **ignore;
    unsigned ignore_count;
    struct raw_placement *placements;
    unsigned placements_count;
};

struct raw_train {
    char *spec, *deadline;
    enum wf_publish_mode publish;
};

struct raw_policy {
    enum wf_commit_policy *commit;
    uint64_t *every, *validate_every;
    bool *drop_to_latest;
    char *fill;
    int *extras;
};

struct raw_timeouts {
    char *connect, *reconnect, *lease, *heartbeat, *join, *plan, *publish, *round, *quiesce, *flip,
        *repeat;
    char *frozen;
};

struct raw_server {
    char *listen, *address, *journal, *token_file;
};

struct raw_run {
    uint64_t *versions;
    bool *readers, *skip_pause, *skip_derived, *packed_head;
    char *launcher, *side;
};

struct raw_job {
    char *job, *model, *report, **families;
    unsigned families_count;
    struct raw_train train;
    struct raw_group *infer;
    unsigned infer_count;
    struct raw_policy *policy;
    struct raw_files *files;
    struct raw_transport *transport;
    struct raw_fault *faults;
    unsigned faults_count;
    struct raw_timeouts *timeouts;
    struct raw_server *server;
    struct raw_run *run;
};

/* --- the schema ----------------------------------------------------------------------------------
 */
static const cyaml_strval_t publish_words[] = {{"hold", WF_PUBLISH_HOLD},
                                               {"snapshot", WF_PUBLISH_SNAPSHOT}};
static const cyaml_strval_t mode_words[] = {{"staged", WF_MODE_STAGED},
                                            {"in_place", WF_MODE_IN_PLACE}};
static const cyaml_strval_t commit_words[] = {{"all", WF_COMMIT_ALL}, {"each", WF_COMMIT_EACH}};
static const cyaml_strval_t extras_words[] = {{"warn", 0}, {"refuse", 1}};

#define TEXT(key, member, of, max) \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, of, member, 1, max)
#define NEEDED_TEXT(key, member, of, max) \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER, of, member, 1, max)
#define NUMBER(key, member, of) \
    CYAML_FIELD_UINT_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, of, member)
#define FLAG(key, member, of) \
    CYAML_FIELD_BOOL_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, of, member)
#define MAPPING(key, member, of, fields) \
    CYAML_FIELD_MAPPING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, of, member, fields)

static const cyaml_schema_value_t ignore_entry = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, WF_NAME_MAX - 1)};

static const cyaml_schema_field_t group_fields[] = {
    TEXT("name", name, struct raw_group, WF_LABEL_MAX - 1),
    NEEDED_TEXT("spec", spec, struct raw_group, WF_SPEC_MAX - 1),
    CYAML_FIELD_ENUM("mode", CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, struct raw_group, mode,
                     mode_words, CYAML_ARRAY_LEN(mode_words)),
    TEXT("staging", staging, struct raw_group, 31),
    TEXT("host", host, struct raw_group, WF_HOST_MAX - 1),
    CYAML_FIELD_SEQUENCE("ignore", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_group,
                         ignore, &ignore_entry, 0, WF_IGNORE_MAX),
    CYAML_FIELD_SEQUENCE("placements", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_group,
                         placements, &wf_job_placement_entry, 0, WF_JOB_PLACEMENTS_MAX),
    CYAML_FIELD_END};

static const cyaml_schema_field_t train_fields[] = {
    NEEDED_TEXT("spec", spec, struct raw_train, WF_SPEC_MAX - 1),
    CYAML_FIELD_ENUM("publish", CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, struct raw_train, publish,
                     publish_words, CYAML_ARRAY_LEN(publish_words)),
    TEXT("deadline", deadline, struct raw_train, 31), CYAML_FIELD_END};

static const cyaml_schema_field_t policy_fields[] = {
    CYAML_FIELD_ENUM_PTR("commit", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT,
                         struct raw_policy, commit, commit_words, CYAML_ARRAY_LEN(commit_words)),
    NUMBER("every", every, struct raw_policy),
    FLAG("drop_to_latest", drop_to_latest, struct raw_policy),
    NUMBER("validate_every", validate_every, struct raw_policy),
    TEXT("fill", fill, struct raw_policy, 63),
    CYAML_FIELD_ENUM_PTR("extras", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT,
                         struct raw_policy, extras, extras_words, CYAML_ARRAY_LEN(extras_words)),
    CYAML_FIELD_END};

#define TIMEOUT(name) TEXT(#name, name, struct raw_timeouts, 31)
static const cyaml_schema_field_t timeout_fields[] = {
    TIMEOUT(connect), TIMEOUT(reconnect), TIMEOUT(lease), TIMEOUT(heartbeat), TIMEOUT(join),
    TIMEOUT(plan),    TIMEOUT(publish),   TIMEOUT(round), TIMEOUT(quiesce),   TIMEOUT(flip),
    TIMEOUT(repeat),  TIMEOUT(frozen),    CYAML_FIELD_END};

static const cyaml_schema_field_t server_fields[] = {
    TEXT("listen", listen, struct raw_server, WF_ADDRESS_MAX - 1),
    TEXT("address", address, struct raw_server, WF_ADDRESS_MAX - 1),
    TEXT("journal", journal, struct raw_server, WF_PATH_MAX - 1),
    TEXT("token_file", token_file, struct raw_server, WF_PATH_MAX - 1), CYAML_FIELD_END};

static const cyaml_schema_field_t run_fields[] = {
    NUMBER("versions", versions, struct raw_run),
    FLAG("readers", readers, struct raw_run),
    FLAG("skip_pause", skip_pause, struct raw_run),
    FLAG("skip_derived", skip_derived, struct raw_run),
    FLAG("packed_head", packed_head, struct raw_run),
    TEXT("launcher", launcher, struct raw_run, 31),
    TEXT("side", side, struct raw_run, 31),
    CYAML_FIELD_END};

static const cyaml_schema_value_t family_entry = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, WF_PATH_MAX - 1)};
static const cyaml_schema_value_t group_entry = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_group, group_fields)};

#define COMMON_FIELDS                                                                              \
    NEEDED_TEXT("job", job, struct raw_job, WF_JOB_NAME_MAX - 1),                                  \
        NEEDED_TEXT("model", model, struct raw_job, WF_PATH_MAX - 1),                              \
        CYAML_FIELD_MAPPING("train", CYAML_FLAG_DEFAULT, struct raw_job, train, train_fields),     \
        MAPPING("policy", policy, struct raw_job, policy_fields),                                  \
        MAPPING("files", files, struct raw_job, wf_job_files_fields),                              \
        MAPPING("transport", transport, struct raw_job, wf_job_transport_fields),                  \
        MAPPING("timeouts", timeouts, struct raw_job, timeout_fields),                             \
        MAPPING("server", server, struct raw_job, server_fields),                                  \
        MAPPING("run", run, struct raw_job, run_fields),                                           \
        CYAML_FIELD_SEQUENCE("faults", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_job,   \
                             faults, &wf_job_fault_entry, 1, WF_FAULTS_MAX),                       \
        CYAML_FIELD_SEQUENCE("families", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_job, \
                             families, &family_entry, 0, WF_FAMILY_FILES_MAX),                     \
        TEXT("report", report, struct raw_job, WF_PATH_MAX - 1)

/* `infer` may be one group or a list of them: two schemas, chosen by what the document has. */
static const cyaml_schema_field_t list_fields[] = {
    COMMON_FIELDS,
    CYAML_FIELD_SEQUENCE("infer", CYAML_FLAG_POINTER, struct raw_job, infer, &group_entry, 1,
                         WF_GROUPS_MAX),
    CYAML_FIELD_END};
static const cyaml_schema_field_t single_fields[] = {
    COMMON_FIELDS,
    CYAML_FIELD_MAPPING_PTR("infer", CYAML_FLAG_POINTER, struct raw_job, infer, group_fields),
    CYAML_FIELD_END};
static const cyaml_schema_value_t list_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw_job, list_fields)};
static const cyaml_schema_value_t single_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw_job, single_fields)};

static void visit_fields(const cyaml_schema_field_t *fields, const char *before,
                         wf_job_visit_t *visit, void *user)
{
    for (const cyaml_schema_field_t *field = fields; field->key != NULL; field++) {
        char path[KEY_MAX];
        int len =
            snprintf(path, sizeof path, "%s%s%s", before, before[0] != '\0' ? "." : "", field->key);
        WF_ASSERT(len < KEY_MAX);
        bool optional = (field->value.flags & CYAML_FLAG_OPTIONAL) != 0;
        visit(user, path, optional ? WF_JOB_KEY_OPTIONAL : WF_JOB_KEY_NEEDED);
        if (field->value.type == CYAML_MAPPING) {
            visit_fields(field->value.mapping.fields, path, visit, user);
        }
    }
}

void wf_job_keys(wf_job_visit_t *visit, void *user)
{
    visit_fields(single_fields, "", visit, user);
}

/* --- turning it into plain values
 * ------------------------------------------------------------------ */
static enum wf_status duration(const char *text, const char *key, uint64_t *ns,
                               struct wf_error *error)
{
    if (text != NULL &&
        (!wf_parse_duration(text, ns) || *ns < TIMEOUT_MIN_NS || *ns > TIMEOUT_MAX_NS)) {
        return wf_error_set(error, WF_INVALID,
                            "%s: expected a duration such as 500ms, 5s or 2m, from 1ms to 1000h, "
                            "found \"%.40s\"",
                            key, text);
    }
    return WF_OK;
}

static enum wf_status take_timeouts(const struct raw_timeouts *raw, struct wf_job_file *job,
                                    struct wf_error *error)
{
    struct wf_timeouts *out = &job->timeouts;
    *out = wf_timeouts_default;
    job->run.frozen_ns = FROZEN_DEFAULT_NS;
    if (raw == NULL) {
        return WF_OK;
    }
    const struct {
        const char *text, *key;
        uint64_t *ns;
    } rows[] = {
        {raw->connect, "timeouts.connect", &out->connect_ns},
        {raw->reconnect, "timeouts.reconnect", &out->reconnect_ns},
        {raw->lease, "timeouts.lease", &out->lease_ns},
        {raw->heartbeat, "timeouts.heartbeat", &out->heartbeat_ns},
        {raw->join, "timeouts.join", &out->join_ns},
        {raw->plan, "timeouts.plan", &out->plan_ns},
        {raw->publish, "timeouts.publish", &out->publish_ns},
        {raw->round, "timeouts.round", &out->round_ns},
        {raw->quiesce, "timeouts.quiesce", &out->quiesce_ns},
        {raw->flip, "timeouts.flip", &out->flip_ns},
        {raw->repeat, "timeouts.repeat", &out->repeat_ns},
        {raw->frozen, "timeouts.frozen", &job->run.frozen_ns},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum wf_status status = duration(rows[i].text, rows[i].key, rows[i].ns, error);
        if (status != WF_OK) {
            return status;
        }
    }
    if (out->heartbeat_ns >= out->lease_ns) {
        return wf_error_set(error, WF_INVALID,
                            "timeouts.heartbeat must be shorter than timeouts.lease");
    }
    return WF_OK;
}

enum wf_status wf_job_take_path(const char *key, const char *job_path, const char *text,
                                char out[WF_PATH_MAX], struct wf_error *error)
{
    const char *slash = strrchr(job_path, '/');
    int folder = text[0] == '/' || slash == NULL ? 0 : (int)(slash - job_path) + 1;
    int wanted = snprintf(out, WF_PATH_MAX, "%.*s%s", folder, job_path, text);
    if (wanted >= WF_PATH_MAX) {
        return wf_error_set(error, WF_INVALID, "%s: the path is longer than %d bytes", key,
                            WF_PATH_MAX - 1);
    }
    return WF_OK;
}

static void copy_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

static enum wf_status take_group(const struct raw_group *raw, unsigned index,
                                 struct wf_job_file *job, struct wf_error *error)
{
    struct wf_job_group *group = &job->infer[index];
    if (raw->name != NULL) {
        copy_text(group->name, sizeof group->name, raw->name);
    } else {
        snprintf(group->name, sizeof group->name, "infer%u", index);
    }
    for (unsigned i = 0; i < index; i++) {
        if (strcmp(job->infer[i].name, group->name) == 0) {
            return wf_error_set(error, WF_INVALID, "infer[%u].name: \"%s\" is taken by infer[%u]",
                                index, group->name, i);
        }
    }
    copy_text(group->spec, sizeof group->spec, raw->spec);
    if (raw->mode == WF_MODE_IN_PLACE && raw->staging != NULL) {
        return wf_error_set(error, WF_INVALID,
                            "infer[%u].staging: an engine updated in place has none: leave it out",
                            index);
    }
    copy_text(group->staging, sizeof group->staging, raw->staging != NULL ? raw->staging : "host");
    if (strcmp(group->staging, "host") != 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "infer[%u].staging: expected host (device, pinned_host and window are "
                            "not supported yet), found \"%s\"",
                            index, group->staging);
    }
    if (raw->host != NULL) {
        enum wf_status status = wf_host_name_check(raw->host, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "infer[%u].host", index);
            return status;
        }
        copy_text(group->host, sizeof group->host, raw->host);
    }
    group->mode = raw->mode;
    for (unsigned i = 0; i < raw->ignore_count; i++) {
        copy_text(group->ignore[i], sizeof group->ignore[i], raw->ignore[i]);
    }
    group->ignore_count = raw->ignore_count;
    return wf_job_take_placements(raw->placements, raw->placements_count, index, job, error);
}

static enum wf_status take_policy(const struct raw_policy *raw, struct wf_job_file *job,
                                  struct wf_error *error)
{
    job->policy.commit = WF_COMMIT_ALL;
    job->policy.every = 1;
    job->policy.validate_every = 1;
    enum wf_status status = wf_job_take_fill(raw != NULL ? raw->fill : NULL, job, error);
    if (raw == NULL || status != WF_OK) {
        return status;
    }
    if (raw->commit != NULL) {
        job->policy.commit = *raw->commit;
    }
    if (raw->every != NULL) {
        job->policy.every = *raw->every;
    }
    if (raw->validate_every != NULL) {
        job->policy.validate_every = *raw->validate_every;
    }
    job->policy.drop_to_latest = raw->drop_to_latest != NULL && *raw->drop_to_latest;
    job->policy.extras_refuse = raw->extras != NULL && *raw->extras == 1;
    if (job->policy.every == 0) {
        return wf_error_set(error, WF_INVALID, "policy.every: expected 1 or more, found 0");
    }
    if (job->policy.drop_to_latest && job->publish != WF_PUBLISH_SNAPSHOT) {
        return wf_error_set(error, WF_INVALID,
                            "policy.drop_to_latest needs train.publish: snapshot (a held version "
                            "is never dropped)");
    }
    return WF_OK;
}

static enum wf_status take_server(const struct raw_server *raw, struct wf_job_file *job,
                                  struct wf_error *error)
{
    if (raw == NULL) {
        return WF_OK;
    }
    if (raw->listen != NULL && raw->address != NULL) {
        return wf_error_set(error, WF_INVALID,
                            "server: give listen (start one here) or address (join one), not both");
    }
    const char *key = raw->listen != NULL ? "server.listen" : "server.address";
    enum wf_status status = WF_OK;
    if (raw->listen != NULL) {
        status = wf_address_complete(raw->listen, job->server.listen, error);
    } else if (raw->address != NULL) {
        status = wf_address_complete(raw->address, job->server.address, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", key);
    } else if (raw->journal != NULL) {
        status =
            wf_job_take_path("server.journal", job->path, raw->journal, job->server.journal, error);
    }
    if (status == WF_OK && raw->token_file != NULL) {
        status = wf_job_take_path("server.token_file", job->path, raw->token_file,
                                  job->server.token_file, error);
    }
    return status;
}

bool wf_job_part_parse(const char *word, enum wf_job_part *part_out)
{
    static const char *const words[] = {"all", "train", "infer"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(word, words[i]) == 0) {
            *part_out = (enum wf_job_part)i;
            return true;
        }
    }
    return false;
}

static enum wf_status take_run(const struct raw_run *raw, struct wf_job_file *job,
                               struct wf_error *error)
{
    job->run.versions = 5;
    job->run.readers = true;
    job->run.launcher = WF_LAUNCHER_UNSAID;
    if (raw == NULL) {
        return WF_OK;
    }
    job->run.versions = raw->versions != NULL ? *raw->versions : 5;
    job->run.readers = raw->readers == NULL || *raw->readers;
    job->run.skip_pause = raw->skip_pause != NULL && *raw->skip_pause;
    job->run.skip_derived = raw->skip_derived != NULL && *raw->skip_derived;
    job->run.packed_head = raw->packed_head != NULL && *raw->packed_head;
    if (job->run.versions == 0) {
        return wf_error_set(error, WF_INVALID, "run.versions: expected 1 or more, found 0");
    }
    if (raw->launcher != NULL && !wf_launcher_parse(raw->launcher, &job->run.launcher)) {
        return wf_error_set(error, WF_INVALID, "run.launcher: expected %s, found \"%s\"",
                            wf_launcher_words(), raw->launcher);
    }
    if (raw->side != NULL && !wf_job_part_parse(raw->side, &job->run.part)) {
        return wf_error_set(error, WF_INVALID,
                            "run.side: expected all, train or infer, found \"%s\"", raw->side);
    }
    return WF_OK;
}

static enum wf_status take_job(const struct raw_job *raw, struct wf_job_file *job,
                               struct wf_error *error)
{
    /* The name stands in addresses, file names and pictures. */
    if (strspn(raw->job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") !=
        strlen(raw->job)) {
        return wf_error_set(error, WF_INVALID,
                            "job: expected a name of letters, digits, '_', '.' and '-', found "
                            "\"%.64s\"",
                            raw->job);
    }
    copy_text(job->name, sizeof job->name, raw->job);
    copy_text(job->train_spec, sizeof job->train_spec, raw->train.spec);
    job->publish = raw->train.publish;
    job->infer_count = raw->infer_count;
    enum wf_status status = wf_job_take_path("model", job->path, raw->model, job->model, error);
    if (status == WF_OK) {
        status = duration(raw->train.deadline, "train.deadline", &job->deadline_ns, error);
    }
    for (unsigned i = 0; status == WF_OK && i < raw->families_count && i < WF_FAMILY_FILES_MAX;
         i++) {
        status = wf_job_take_path("families", job->path, raw->families[i], job->families[i], error);
        job->family_count = i + 1;
    }
    if (status == WF_OK && raw->report != NULL) {
        status = wf_job_take_path("report", job->path, raw->report, job->report, error);
    }
    for (unsigned i = 0; status == WF_OK && i < raw->infer_count; i++) {
        status = take_group(&raw->infer[i], i, job, error);
    }
    if (status == WF_OK) {
        status = wf_job_take_files(raw->files, job, error);
    }
    if (status == WF_OK) {
        status = take_policy(raw->policy, job, error);
    }
    if (status == WF_OK) {
        status = wf_job_take_transport(raw->transport, job, error);
    }
    if (status == WF_OK) {
        status = wf_job_take_faults(raw->faults, raw->faults_count, job, error);
    }
    if (status == WF_OK) {
        status = take_timeouts(raw->timeouts, job, error);
    }
    if (status == WF_OK) {
        status = take_server(raw->server, job, error);
    }
    return status == WF_OK ? take_run(raw->run, job, error) : status;
}

/* --- loading
 * ------------------------------------------------------------------------------------------ */
static enum wf_status read_file(const char *path, char **text_out, size_t *len_out,
                                struct wf_error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return wf_error_set(error, WF_IO, "cannot open: %s; expected a job file (docs/job-file.md)",
                            strerror(errno));
    }
    char *text = malloc(WF_YAML_BYTES_MAX + 1);
    WF_ASSERT(text != NULL);
    size_t len = fread(text, 1, WF_YAML_BYTES_MAX + 1, file);
    bool failed = ferror(file) != 0;
    int saved = errno;
    fclose(file);
    if (failed) {
        free(text);
        return wf_error_set(error, WF_IO, "cannot read: %s; expected a job file (docs/job-file.md)",
                            strerror(saved));
    }
    *text_out = text;
    *len_out = len;
    return WF_OK;
}

/* Keeps the last thing libcyaml says: its own words if it refuses what our check let pass. */
static void keep_log(cyaml_log_t level, void *user, const char *format, va_list args)
{
    (void)level;
    char *kept = user;
    if (kept[0] == '\0') {
        vsnprintf(kept, SAID_MAX, format, args);
    }
}

static enum wf_status load_values(const char *text, size_t len, const cyaml_schema_value_t *schema,
                                  unsigned *count, struct wf_job_file *job, struct wf_error *error)
{
    char said[SAID_MAX] = "";
    cyaml_config_t config = {.log_fn = keep_log,
                             .log_ctx = said,
                             .mem_fn = cyaml_mem,
                             .log_level = CYAML_LOG_ERROR,
                             .flags = CYAML_CFG_NO_ALIAS};
    struct raw_job *raw = NULL;
    cyaml_err_t failed =
        cyaml_load_data((const uint8_t *)text, len, &config, schema, (cyaml_data_t **)&raw, NULL);
    if (failed == CYAML_ERR_ALIAS) {
        return wf_error_set(error, WF_INVALID, "aliases (*name) are not accepted; write it out");
    }
    if (failed != CYAML_OK) {
        return wf_error_set(error, WF_INVALID, "%s (%s)", cyaml_strerror(failed), said);
    }
    if (count != NULL) {
        raw->infer_count = *count;
    }
    enum wf_status status = take_job(raw, job, error);
    cyaml_free(&config, schema, raw, 0);
    return status;
}

enum wf_status wf_job_parse(const char *path, const char *text, size_t len,
                            struct wf_job_file *job_out, struct wf_error *error)
{
    yaml_document_t document;
    enum wf_status status = wf_yaml_parse(text, len, &document, error);
    if (status != WF_OK) {
        return status;
    }
    const yaml_node_t *infer = wf_yaml_root_value(&document, "infer");
    bool single = infer != NULL && infer->type == YAML_MAPPING_NODE;
    status = wf_yaml_check(&document, single ? single_fields : list_fields, NULL, 0, error);
    struct wf_job_file *job = calloc(1, sizeof *job);
    WF_ASSERT(job != NULL);
    if (status == WF_OK) {
        status = wf_job_take_ucx(&document, job, error);
    }
    yaml_document_delete(&document);
    if (status != WF_OK) {
        free(job);
        return status;
    }
    unsigned one = 1;
    snprintf(job->path, sizeof job->path, "%s", path);
    status = load_values(text, len, single ? &single_schema : &list_schema, single ? &one : NULL,
                         job, error);
    if (status == WF_OK) {
        *job_out = *job;
    }
    free(job);
    return status;
}

enum wf_status wf_job_load(const char *path, struct wf_job_file *job_out, struct wf_error *error)
{
    char *text = NULL;
    size_t len = 0;
    enum wf_status status = read_file(path, &text, &len, error);
    if (status == WF_OK) {
        status = wf_job_parse(path, text, len, job_out, error);
        free(text);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
    }
    return status;
}
