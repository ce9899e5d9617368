/* job_transport.c - the keys of a job file that say how bytes move, and how they go wrong. */
#include <stdio.h>
#include <string.h>

#include "config/job_raw.h"
#include "config/units.h"
#include "config/yaml_check.h"
#include "transports/ucx.h"

#define DELAY_MAX_NS (UINT64_C(3600000000000) * 1000)

#define TEXT(key, member, of, max) \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, of, member, 1, max)
#define NUMBER(key, member, of) \
    CYAML_FIELD_UINT_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, of, member)

const cyaml_schema_field_t wf_job_transport_fields[] = {
    TEXT("prefer", prefer, struct raw_transport, 63),
    CYAML_FIELD_BOOL_PTR("share_memory", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                         struct raw_transport, share_memory),
    TEXT("interfaces", interfaces, struct raw_transport, WF_INTERFACES_TEXT - 1),
    TEXT("transit_budget", transit_budget, struct raw_transport, 31),
    NUMBER("lanes", lanes, struct raw_transport),
    CYAML_FIELD_IGNORE("ucx", CYAML_FLAG_OPTIONAL),
    CYAML_FIELD_END};

static const cyaml_strval_t kind_words[] = {
#define WORD(name, text) {text, WF_FAULT_##name},
    WF_FAULT_KIND_MAP(WORD)
#undef WORD
};
static const cyaml_schema_value_t rank_entry = {CYAML_VALUE_UINT(CYAML_FLAG_DEFAULT, uint32_t)};
static const cyaml_schema_field_t fault_fields[] = {
    CYAML_FIELD_ENUM("kind", CYAML_FLAG_STRICT, struct raw_fault, kind, kind_words,
                     CYAML_ARRAY_LEN(kind_words)),
    TEXT("transport", transport, struct raw_fault, 15),
    NUMBER("at", at, struct raw_fault),
    NUMBER("rate", rate, struct raw_fault),
    TEXT("delay", delay, struct raw_fault, 31),
    CYAML_FIELD_SEQUENCE("ranks", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_fault, ranks,
                         &rank_entry, 1, WF_FAULT_RANKS_MAX),
    NUMBER("seed", seed, struct raw_fault),
    CYAML_FIELD_END};
const cyaml_schema_value_t wf_job_fault_entry = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_fault, fault_fields)};

/* --- transport -------------------------------------------------------------------------------- */

static bool is_transport(const char *word)
{
    return strcmp(word, "shm") == 0 || strcmp(word, "ucx") == 0;
}

/* "auto", or "shm,ucx": in order of preference. */
static enum wf_status take_prefer(const char *text, struct wf_job_file *job, struct wf_error *error)
{
    if (strcmp(text, "auto") == 0) {
        return WF_OK;
    }
    for (const char *at = text; *at != '\0';) {
        char word[WF_JOB_TRANSPORT_NAME] = "";
        at += strspn(at, " ");
        size_t len = strcspn(at, ", ");
        bool known = len < sizeof word;
        memcpy(word, at, known ? len : 0);
        for (uint32_t i = 0; i < job->transport.prefer_count; i++) {
            known = known && strcmp(job->transport.prefer[i], word) != 0;
        }
        if (!known || !is_transport(word)) {
            return wf_error_set(error, WF_INVALID,
                                "transport.prefer: expected auto, or transports in order of "
                                "preference such as shm,ucx (known: shm, ucx; each once), found "
                                "\"%s\"",
                                text);
        }
        memcpy(job->transport.prefer[job->transport.prefer_count++], word, sizeof word);
        at += len;
        at += strspn(at, " ");
        at += *at == ',' && at[1 + strspn(at + 1, " ")] != '\0';
        if (*at == ',') {
            return wf_error_set(error, WF_INVALID, "transport.prefer: \"%s\" ends in a comma",
                                text);
        }
    }
    return WF_OK;
}

static enum wf_status take_budget(const char *text, uint64_t *bytes_out, struct wf_error *error)
{
    if (!wf_parse_bytes(text, bytes_out) || *bytes_out < WF_TRANSIT_MIN ||
        *bytes_out > WF_TRANSIT_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "transport.transit_budget: expected bytes such as 64MiB or 2GiB, from "
                            "1MiB to 1TiB, found \"%s\"",
                            text);
    }
    return WF_OK;
}

static enum wf_status take_lanes(uint64_t lanes, uint32_t *lanes_out, struct wf_error *error)
{
    if (lanes == 0 || lanes > WF_UCX_LANES_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "transport.lanes: expected 1 to %d connections to each source, found "
                            "%llu",
                            WF_UCX_LANES_MAX, (unsigned long long)lanes);
    }
    *lanes_out = (uint32_t)lanes;
    return WF_OK;
}

enum wf_status wf_job_take_transport(const struct raw_transport *raw, struct wf_job_file *job,
                                     struct wf_error *error)
{
    job->transport.share_memory = true;
    job->transport.transit_bytes = WF_TRANSIT_DEFAULT;
    job->transport.lanes = 1;
    if (raw == NULL) {
        return WF_OK;
    }
    job->transport.share_memory = raw->share_memory == NULL || *raw->share_memory;
    struct wf_interface_rules rules;
    if (raw->interfaces != NULL && wf_interfaces_parse(raw->interfaces, &rules, error) != WF_OK) {
        wf_error_prefix(error, "transport.interfaces");
        return WF_INVALID;
    }
    snprintf(job->transport.interfaces, sizeof job->transport.interfaces, "%s",
             raw->interfaces != NULL ? raw->interfaces : "");
    enum wf_status status = WF_OK;
    if (raw->prefer != NULL) {
        status = take_prefer(raw->prefer, job, error);
    }
    if (status == WF_OK && raw->transit_budget != NULL) {
        status = take_budget(raw->transit_budget, &job->transport.transit_bytes, error);
        job->transport.transit_is_set = true;
    }
    if (status == WF_OK && raw->lanes != NULL) {
        status = take_lanes(*raw->lanes, &job->transport.lanes, error);
    }
    return status;
}

/* --- transport.ucx -----------------------------------------------------------------------------
 */

static enum wf_status ucx_error(const yaml_node_t *node, struct wf_error *error, const char *text)
{
    return wf_error_set(error, WF_INVALID, "line %zu: transport.ucx: %s", node->start_mark.line + 1,
                        text);
}

static bool take_text(const yaml_node_t *node, size_t size, char *out)
{
    const char *text = (const char *)node->data.scalar.value;
    size_t len = node->type == YAML_SCALAR_NODE ? node->data.scalar.length : size;
    if (len == 0 || len >= size || strlen(text) != len) {
        return false;
    }
    memcpy(out, text, len + 1);
    return true;
}

enum wf_status wf_job_take_ucx(yaml_document_t *document, struct wf_job_file *job,
                               struct wf_error *error)
{
    const yaml_node_t *transport = wf_yaml_root_value(document, "transport");
    const yaml_node_t *ucx = transport != NULL ? wf_yaml_value(document, transport, "ucx") : NULL;
    if (ucx == NULL) {
        return WF_OK;
    }
    if (ucx->type != YAML_MAPPING_NODE) {
        return ucx_error(ucx, error, "expected a mapping of UCX's options, such as {TLS: tcp}");
    }
    for (const yaml_node_pair_t *pair = ucx->data.mapping.pairs.start;
         pair < ucx->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(document, pair->value);
        struct wf_job_ucx_option option;
        if (!take_text(key, sizeof option.name, option.name) || strcmp(option.name, "UCX_") == 0 ||
            strspn(option.name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != strlen(option.name)) {
            return ucx_error(key, error,
                             "an option's name has 1 to 63 capital letters, digits and _, with or "
                             "without UCX_ before them, as in UCX's own list (ucx_info -c)");
        }
        if (!take_text(value, sizeof option.value, option.value)) {
            return ucx_error(value, error, "an option's value is one text of 1 to 255 bytes");
        }
        for (uint32_t i = 0; i < job->transport.ucx_count; i++) {
            if (strcmp(job->transport.ucx[i].name, option.name) == 0) {
                return ucx_error(key, error, "an option is given a second time; keep one");
            }
        }
        if (job->transport.ucx_count == WF_JOB_UCX_MAX) {
            return ucx_error(key, error, "more options than 64");
        }
        job->transport.ucx[job->transport.ucx_count++] = option;
    }
    return WF_OK;
}

/* --- faults ------------------------------------------------------------------------------------
 */

static enum wf_status fault_error(unsigned index, struct wf_error *error, const char *text)
{
    return wf_error_set(error, WF_INVALID, "faults[%u]%s", index, text);
}

static enum wf_status take_fault(const struct raw_fault *raw, unsigned index,
                                 struct wf_job_fault *out, struct wf_error *error)
{
    if (raw->transport != NULL && !is_transport(raw->transport)) {
        return fault_error(index, error, ".transport: expected shm or ucx");
    }
    if ((raw->at != NULL) == (raw->rate != NULL)) {
        return fault_error(index, error,
                           ": give at (which read of a rank, from 1) or rate (reads in a "
                           "million), one of them");
    }
    if (raw->at != NULL && *raw->at == 0) {
        return fault_error(index, error, ".at: expected 1 or more, found 0");
    }
    if (raw->rate != NULL && (*raw->rate == 0 || *raw->rate > 1000000)) {
        return fault_error(index, error, ".rate: expected 1 to 1000000 reads in a million");
    }
    if ((raw->kind == WF_FAULT_DELAY) != (raw->delay != NULL)) {
        return fault_error(index, error, ".delay belongs to kind: delay, which needs it");
    }
    if (raw->delay != NULL && (!wf_parse_duration(raw->delay, &out->fault.delay_ns) ||
                               out->fault.delay_ns > DELAY_MAX_NS)) {
        return fault_error(index, error,
                           ".delay: expected a duration such as 500ms or 5s, at most 1000h");
    }
    out->fault.kind = raw->kind;
    out->fault.at = raw->at != NULL ? *raw->at : 0;
    out->fault.per_million = raw->rate != NULL ? (uint32_t)*raw->rate : 0;
    out->seed = raw->seed != NULL ? *raw->seed : 1;
    snprintf(out->transport, sizeof out->transport, "%s",
             raw->transport != NULL ? raw->transport : "");
    out->rank_count = raw->ranks_count;
    for (unsigned i = 0; i < raw->ranks_count; i++) {
        out->ranks[i] = raw->ranks[i];
    }
    return WF_OK;
}

enum wf_status wf_job_take_faults(const struct raw_fault *raw, unsigned count,
                                  struct wf_job_file *job, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (unsigned i = 0; status == WF_OK && i < count; i++) {
        status = take_fault(&raw[i], i, &job->faults[i], error);
    }
    job->fault_count = count;
    return status;
}
