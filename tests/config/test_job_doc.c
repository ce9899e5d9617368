/* test_job_doc.c - docs/job-file.md against the schema: every key is there, with its true default.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/job.h"
#include "config/units.h"

#define DOCUMENT "docs/job-file.md"

enum { CELL_MAX = 64 };

static char *read_document(void)
{
    FILE *file = fopen(DOCUMENT, "rb");
    cr_assert(file != NULL, DOCUMENT " cannot be opened");
    char *text = calloc(1, 1 << 20);
    cr_assert(text != NULL && fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The default's cell in the row of a key, without its backquotes. */
static bool find_default(const char *document, const char *path, char cell_out[CELL_MAX])
{
    char row[2 * CELL_MAX];
    snprintf(row, sizeof row, "\n| `%s` | ", path);
    const char *at = strstr(document, row);
    if (at == NULL) {
        return false;
    }
    at += strlen(row);
    at += *at == '`';
    size_t len = strcspn(at, "`|");
    len -= len > 0 && at[len] == '|' && at[len - 1] == ' ';
    snprintf(cell_out, CELL_MAX, "%.*s", (int)len, at);
    return true;
}

struct search {
    const char *document;
    unsigned keys;
};

static void look_for(void *user, const char *path, enum wf_job_key kind)
{
    struct search *search = user;
    char cell[CELL_MAX];
    search->keys++;
    bool found = find_default(search->document, path, cell);
    cr_expect(found, "%s has no row in the table of " DOCUMENT, path);
    bool needed = found && strcmp(cell, "needed") == 0;
    cr_expect_eq(needed, kind == WF_JOB_KEY_NEEDED,
                 "%s: the schema and " DOCUMENT " disagree on whether it is needed", path);
}

Test(job_doc, every_key_has_its_row)
{
    char *document = read_document();
    struct search search = {.document = document};
    wf_job_keys(look_for, &search);
    cr_expect_gt(search.keys, 40);
    free(document);
}

static enum wf_status load(const char *text, size_t len, struct wf_job_file *job,
                           struct wf_error *error)
{
    char path[] = "/tmp/weft-test-doc-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, len), (ssize_t)len);
    close(fd);
    enum wf_status status = wf_job_load(path, job, error);
    unlink(path);
    return status;
}

/* The example claims to show the defaults: it must mean the same as a file that leaves them out. */
Test(job_doc, the_example_shows_the_defaults)
{
    static const char short_one[] = "job: j\nmodel: m\ntrain: {spec: \"megatron:tp=2\"}\n"
                                    "infer: {spec: \"vllm:tp=2\"}\n";
    char *document = read_document();
    struct wf_job_file *shown = calloc(2, sizeof *shown), *defaults = shown + 1;
    struct wf_error error = {.text = ""};
    const char *from = strstr(document, "```yaml\n"), *end = NULL;
    cr_assert(shown != NULL && from != NULL);
    from += strlen("```yaml\n");
    end = strstr(from, "```");
    cr_assert(end != NULL);
    cr_assert_eq(load(from, (size_t)(end - from), shown, &error), WF_OK, "%s", error.text);
    cr_assert_eq(load(short_one, strlen(short_one), defaults, &error), WF_OK, "%s", error.text);
    cr_expect_eq(shown->publish, defaults->publish);
    cr_expect_str_eq(shown->infer[0].name, defaults->infer[0].name);
    cr_expect_eq(shown->infer[0].mode, defaults->infer[0].mode);
    cr_expect_str_eq(shown->infer[0].staging, defaults->infer[0].staging);
    cr_expect_eq(shown->infer[0].ignore_count, defaults->infer[0].ignore_count);
    cr_expect_arr_eq(&shown->policy, &defaults->policy, sizeof shown->policy, "policy");
    cr_expect_arr_eq(&shown->transport, &defaults->transport, sizeof shown->transport, "transport");
    cr_expect_arr_eq(&shown->timeouts, &defaults->timeouts, sizeof shown->timeouts, "timeouts");
    cr_expect_arr_eq(&shown->run, &defaults->run, sizeof shown->run, "run");
    free(shown);
    free(document);
}

Test(job_doc, the_table_has_the_default_of_every_timeout)
{
    const struct wf_timeouts *t = &wf_timeouts_default;
    const struct {
        const char *key;
        uint64_t ns;
    } rows[] = {
        {"timeouts.connect", t->connect_ns},     {"timeouts.lease", t->lease_ns},
        {"timeouts.heartbeat", t->heartbeat_ns}, {"timeouts.join", t->join_ns},
        {"timeouts.plan", t->plan_ns},           {"timeouts.publish", t->publish_ns},
        {"timeouts.round", t->round_ns},         {"timeouts.quiesce", t->quiesce_ns},
        {"timeouts.flip", t->flip_ns},           {"timeouts.repeat", t->repeat_ns},
        {"timeouts.frozen", 10000000000},        {"timeouts.reconnect", t->reconnect_ns},
    };
    cr_assert_eq(sizeof rows / sizeof rows[0], sizeof *t / sizeof t->connect_ns + 1,
                 "a timeout is missing in this test");
    char *document = read_document();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char cell[CELL_MAX] = "";
        uint64_t ns = 0;
        find_default(document, rows[i].key, cell);
        cr_expect(wf_parse_duration(cell, &ns) && ns == rows[i].ns,
                  "%s: " DOCUMENT " says \"%s\", the code %llu ns", rows[i].key, cell,
                  (unsigned long long)rows[i].ns);
    }
    free(document);
}
