/* doctor.c - gathers findings, prints them for people and for programs. */
#include "tools/doctor/doctor.h"

#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 79, LEFT = 10, MORE = 17 };

static const char *const state_words[] = {"ok", "slow", "missing"};

struct wf_finding *wf_doctor_add(struct wf_doctor *doctor, const char *id,
                                 enum wf_doctor_state state, const char *format, ...)
{
    doctor->findings = realloc(doctor->findings, (doctor->count + 1) * sizeof *doctor->findings);
    WF_ASSERT(doctor->findings != NULL);
    struct wf_finding *finding = &doctor->findings[doctor->count++];
    *finding = (struct wf_finding){.group = doctor->group, .state = state};
    snprintf(finding->id, sizeof finding->id, "%s", id);
    va_list args;
    va_start(args, format);
    vsnprintf(finding->found, sizeof finding->found, format, args);
    va_end(args);
    return finding;
}

void wf_doctor_costs(struct wf_finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->costs, sizeof finding->costs, format, args);
    va_end(args);
}

void wf_doctor_remedy(struct wf_finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->remedy, sizeof finding->remedy, format, args);
    va_end(args);
}

void wf_doctor_value(struct wf_finding *finding, double value, const char *unit)
{
    finding->value = value;
    finding->unit = unit;
}

void wf_doctor_fini(struct wf_doctor *doctor)
{
    free(doctor->findings);
    memset(doctor, 0, sizeof *doctor);
}

bool wf_doctor_unfit(const struct wf_doctor *doctor)
{
    for (uint32_t i = 0; i < doctor->count; i++) {
        if (doctor->findings[i].needed && doctor->findings[i].state == WF_DOCTOR_MISSING) {
            return true;
        }
    }
    return false;
}

/* --- for people -------------------------------------------------------------------------------
 */
/* Writes `text` from column `column` on; lines after the first begin at `indent`. */
static void print_wrapped(FILE *out, const char *text, int column, int indent)
{
    bool first = true;
    for (const char *word = text + strspn(text, " "); *word != '\0'; word += strspn(word, " ")) {
        int len = (int)strcspn(word, " ");
        if (!first && column + 1 + len > COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", len, word);
        column += len;
        word += len;
        first = false;
    }
    fputc('\n', out);
}

static void print_more(FILE *out, const char *word, const char *text)
{
    if (text[0] != '\0') {
        fprintf(out, "%*s%-*s", LEFT, "", MORE - LEFT, word);
        print_wrapped(out, text, MORE, MORE);
    }
}

void wf_doctor_print(const struct wf_doctor *doctor, FILE *out)
{
    const char *group = "";
    uint32_t counts[3] = {0};
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct wf_finding *finding = &doctor->findings[i];
        if (strcmp(group, finding->group) != 0) {
            group = finding->group;
            fprintf(out, "%s%s\n", i > 0 ? "\n" : "", group);
        }
        fprintf(out, "  %-*s", LEFT - 2, state_words[finding->state]);
        print_wrapped(out, finding->found, LEFT, LEFT);
        print_more(out, "costs", finding->costs);
        print_more(out, "do", finding->remedy);
        counts[finding->state]++;
    }
    fprintf(out, "\n%u ok, %u slow, %u missing%s\n", counts[WF_DOCTOR_OK], counts[WF_DOCTOR_SLOW],
            counts[WF_DOCTOR_MISSING], wf_doctor_unfit(doctor) ? "; jobs cannot run here" : "");
}

/* --- for programs ----------------------------------------------------------------------------- */
static struct json_object *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_object_new_string(text) : NULL;
}

static struct json_object *finding_json(const struct wf_finding *finding)
{
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "group", json_object_new_string(finding->group));
    json_object_object_add(object, "id", json_object_new_string(finding->id));
    json_object_object_add(object, "state", json_object_new_string(state_words[finding->state]));
    json_object_object_add(object, "found", json_object_new_string(finding->found));
    json_object_object_add(object, "value",
                           finding->unit != NULL ? json_object_new_double(finding->value) : NULL);
    json_object_object_add(object, "unit", text_or_null(finding->unit));
    json_object_object_add(object, "costs", text_or_null(finding->costs));
    json_object_object_add(object, "do", text_or_null(finding->remedy));
    json_object_object_add(object, "needed", json_object_new_boolean(finding->needed));
    return object;
}

void wf_doctor_write_json(FILE *out, const void *user)
{
    const struct wf_doctor *doctor = user;
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();
    for (uint32_t i = 0; i < doctor->count; i++) {
        json_object_array_add(list, finding_json(&doctor->findings[i]));
    }
    json_object_object_add(object, "weft_version", json_object_new_string(WEFT_VERSION));
    json_object_object_add(object, "fit", json_object_new_boolean(!wf_doctor_unfit(doctor)));
    json_object_object_add(object, "findings", list);
    fputs(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY), out);
    fputc('\n', out);
    json_object_put(object);
}
