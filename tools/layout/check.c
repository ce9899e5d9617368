/* check.c - compares every rank's derived layout with what really ran. */
#include "tools/layout/check.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/json.h"
#include "tools/files/io.h"
#include "tools/layout/check_private.h"

enum { FILE_BYTES_MAX = 256 << 20 };

/* --- one rank -------------------------------------------------------------------------------- */

static enum wf_status check_rank(struct wf_checker *c, uint32_t rank)
{
    char name[32], *text = NULL;
    size_t len = 0;
    struct wf_case_lines lines = {0};
    bool *seen = NULL;
    snprintf(name, sizeof name, "rank_%02" PRIu32 ".tsv", rank);
    enum wf_status status =
        wf_file_read_all(c->folder, name, FILE_BYTES_MAX, &text, &len, c->error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_layout_derive(c->it.model, &c->it.recipe, rank, &c->layout, c->error);
    if (status == WF_OK) {
        status = wf_case_tensors(text, len, &lines, c->error);
    }
    if (status == WF_OK) {
        seen = calloc(c->layout->tensor_count + c->layout->alias_count + 1, sizeof *seen);
        status = seen ? wf_check_lines(c, &lines, seen)
                      : wf_error_set(c->error, WF_NO_MEMORY, "no memory for a rank");
    }
    if (status != WF_OK) {
        wf_error_prefix(c->error, "%s", name);
    }
    free(seen);
    free(lines.lines);
    wf_layout_free(c->layout);
    c->layout = NULL;
    free(text);
    return status;
}

/* --- one folder ------------------------------------------------------------------------------ */

/* A file of a rank that the recipe does not have says that the sizes are wrong. */
static enum wf_status check_no_more_ranks(struct wf_checker *c, uint32_t world)
{
    DIR *folder = wf_folder_entries(c->folder, ".");
    if (!folder) {
        return wf_error_set(c->error, WF_IO, "cannot list the folder: %s", strerror(errno));
    }
    enum wf_status status = WF_OK;
    for (struct dirent *entry; (entry = readdir(folder)) && status == WF_OK;) {
        unsigned rank = 0;
        int used = 0;
        if (sscanf(entry->d_name, "rank_%6u.tsv%n", &rank, &used) == 1 && used > 0 &&
            entry->d_name[used] == '\0' && rank >= world) {
            status = wf_error_set(c->error, WF_MISMATCH,
                                  "%s: the derived group has only %" PRIu32 " ranks", entry->d_name,
                                  world);
        }
    }
    closedir(folder);
    return status;
}

static enum wf_status read_case(struct wf_checker *c)
{
    char *text = NULL;
    size_t len = 0;
    enum wf_status status =
        wf_file_read_all(c->folder, "case.json", FILE_BYTES_MAX, &text, &len, c->error);
    if (status == WF_OK) {
        status = wf_case_parse(text, len, c->tables, &c->it, c->error);
    }
    free(text);
    return status;
}

static enum wf_status check_files(struct wf_checker *c)
{
    size_t len = 0;
    enum wf_status status =
        wf_file_read_all(c->folder, "params.tsv", FILE_BYTES_MAX, &c->params_text, &len, c->error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_case_params(c->params_text, len, &c->params, c->error);
    if (status == WF_OK) {
        status = wf_check_params(c);
    }
    if (status != WF_OK) {
        wf_error_prefix(c->error, "params.tsv");
        return status;
    }
    uint32_t world = wf_recipe_world(&c->it.recipe);
    for (uint32_t rank = 0; rank < world && status == WF_OK; rank++) {
        status = check_rank(c, rank);
        c->result->ranks += status == WF_OK;
    }
    return status == WF_OK ? check_no_more_ranks(c, world) : status;
}

/* The last part of a path, without the slashes behind it. */
static void name_case(const char *folder, char out[WF_CASE_NAME_MAX])
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && folder[start - 1] != '/') {
        start--;
    }
    size_t len = end - start < WF_CASE_NAME_MAX ? end - start : WF_CASE_NAME_MAX - 1;
    memcpy(out, folder + start, len);
    out[len] = '\0';
}

/* --- what kind of folder ---------------------------------------------------------------------- */

static bool has_file(const struct wf_checker *c, const char *name)
{
    return faccessat(c->folder, name, R_OK, 0) == 0;
}

/* An inventory is tables of names and shapes: each begins by saying which columns it has. */
static bool is_inventory(const struct wf_checker *c)
{
    static const char begin[] = "# where, pattern, shape";
    DIR *folder = wf_folder_entries(c->folder, ".");
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        size_t len = strlen(entry->d_name), text_len = 0;
        char *text = NULL;
        struct wf_error ignored = {0};
        if (len > 4 && strcmp(entry->d_name + len - 4, ".tsv") == 0 &&
            wf_file_read_all(c->folder, entry->d_name, FILE_BYTES_MAX, &text, &text_len,
                             &ignored) == WF_OK) {
            found = text_len >= sizeof begin - 1 && memcmp(text, begin, sizeof begin - 1) == 0;
        }
        free(text);
    }
    if (folder) {
        closedir(folder);
    }
    return found;
}

/* An oracle's case.json says which files of values it has, and nothing of a model. */
static bool is_oracle(const struct wf_checker *c)
{
    char *text = NULL;
    size_t len = 0;
    struct json_object *root = NULL;
    struct wf_error ignored = {0};
    bool read =
        !has_file(c, "params.tsv") &&
        wf_file_read_all(c->folder, "case.json", FILE_BYTES_MAX, &text, &len, &ignored) == WF_OK &&
        wf_json_parse(text, len, WF_JSON_PYTHON, &root, &ignored) == WF_OK;
    bool oracle = read && json_object_is_type(root, json_type_object) &&
                  json_object_object_get_ex(root, "files", NULL) &&
                  !json_object_object_get_ex(root, "hf_config", NULL);
    json_object_put(root);
    free(text);
    return oracle;
}

static enum wf_case_kind find_kind(const struct wf_checker *c)
{
    if (has_file(c, "case.json")) {
        return is_oracle(c) ? WF_CASE_ORACLE : WF_CASE_LAYOUT;
    }
    return is_inventory(c) ? WF_CASE_INVENTORY : WF_CASE_LAYOUT;
}

static void fini(struct wf_checker *c)
{
    for (size_t i = 0; i < WF_CHECK_STORED_MAX; i++) {
        wf_layout_free(c->stored[i]);
    }
    free(c->sources);
    free(c->params.lines);
    free(c->params_text);
    wf_case_fini(&c->it);
    if (c->folder >= 0) {
        close(c->folder);
    }
}

void wf_case_check(const char *folder, const struct wf_case_tables *tables,
                   struct wf_case_result *result_out)
{
    *result_out = (struct wf_case_result){0};
    struct wf_checker c = {
        .folder = -1, .tables = tables, .result = result_out, .error = &result_out->difference};
    name_case(folder, result_out->name);
    enum wf_status status = wf_folder_open(folder, &c.folder, c.error);
    if (status == WF_OK) {
        result_out->kind = find_kind(&c);
    }
    if (status != WF_OK || (result_out->kind == WF_CASE_LAYOUT && !has_file(&c, "case.json"))) {
        char why[200] = "there is no case.json in it";
        if (status != WF_OK) {
            snprintf(why, sizeof why, "%.190s", c.error->text);
        }
        status = wf_error_set(c.error, WF_NOT_FOUND,
                              "expected a folder with what ranks held (case.json, params.tsv, "
                              "rank_00.tsv; tests/golden/real/README.md): %s",
                              why);
        result_out->kind = WF_CASE_LAYOUT;
        result_out->refused = true;
    }
    if (status == WF_OK && result_out->kind == WF_CASE_LAYOUT) {
        status = read_case(&c);
        result_out->refused = status != WF_OK;
        status = status == WF_OK ? check_files(&c) : status;
    }
    result_out->refused = result_out->refused || c.folder < 0;
    result_out->ok = status == WF_OK;
    fini(&c);
}
