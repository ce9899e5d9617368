/* test_mutants.c - tables with one thing changed on purpose: the executed layouts, and those worked
 * out by hand beside them, must notice.
 *
 * Rows of every engine and family are changed in each way that their fields allow (a cut of the
 * other dimension, parts exchanged, groups dropped, one row more, another name, ...), in a copy of
 * the table that stands before the built-in one; then the fixtures of that engine or family are
 * checked. A row whose name may change without notice stands in no fixture: such rows are counted,
 * and their other changes left out. No other change may go unnoticed: a field that decides nothing
 * has no place in a table.
 *
 * The suite changes every EVERY-th row; WEFT_MUTANTS=all in the environment changes all.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "tests/sanitized.h"
#include "tools/layout/check.h"

static const char *const folders[] = {"tests/golden/real", "tests/golden/derived"};

enum {
    EVERY = SANITIZED ? 23 : 5,
    CASES_MAX = 256,
    TITLE_MAX = 256,
    TEXT_MAX = 1024,
    ROWS_MAX = 256,
    ENGINES_MAX = 16,
    CAUGHT_WANTED = 100 / EVERY, /* 20 where every fifth row is changed */
};

/* --- fixtures -------------------------------------------------------------------------------- */

struct fixture {
    char path[256];
    const struct wf_engine *engine;
    const struct wf_family *family;
};

struct fixtures {
    struct fixture all[CASES_MAX];
    size_t count, last; /* the fixture that noticed last is asked first */
    unsigned caught, missed, unseen;
};

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct fixture *)a)->path, ((const struct fixture *)b)->path);
}

static bool read_fixture(struct fixture *fixture)
{
    char path[512], *text = malloc(1 << 20);
    struct wf_case it;
    snprintf(path, sizeof path, "%s/case.json", fixture->path);
    FILE *file = fopen(path, "rb");
    size_t len = file != NULL ? fread(text, 1, 1 << 20, file) : 0;
    bool good = file != NULL && wf_case_parse(text, len, NULL, &it, NULL) == WF_OK;
    if (good) {
        struct wf_case_result result;
        wf_case_check(fixture->path, NULL, &result);
        cr_expect(result.ok, "%s fails unchanged: %s", fixture->path, result.difference.text);
        fixture->engine = it.recipe.engine;
        fixture->family = it.model->family;
        wf_case_fini(&it);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(text);
    return good;
}

static struct fixtures *read_fixtures(void)
{
    struct fixtures *fixtures = calloc(1, sizeof *fixtures);
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        DIR *folder = opendir(folders[f]);
        cr_assert(folder);
        for (struct dirent *entry; (entry = readdir(folder));) {
            struct fixture *next = &fixtures->all[fixtures->count];
            cr_assert_lt(fixtures->count, (size_t)CASES_MAX);
            snprintf(next->path, sizeof next->path, "%s/%.200s", folders[f], entry->d_name);
            fixtures->count += entry->d_name[0] != '.' && read_fixture(next);
        }
        closedir(folder);
    }
    qsort(fixtures->all, fixtures->count, sizeof fixtures->all[0], by_path);
    return fixtures;
}

/* Whether a fixture of the engine or of the family (the other is NULL) differs with the changed
 * table in its place. */
static bool is_noticed(struct fixtures *fixtures, const struct wf_engine *engine,
                       const struct wf_family *family)
{
    const struct wf_engine *engines[] = {engine, NULL};
    const struct wf_family *families[] = {family, NULL};
    const struct wf_case_tables tables = {.families = family != NULL ? families : NULL,
                                          .engines = engine != NULL ? engines : NULL};
    for (size_t i = 0; i < fixtures->count; i++) {
        size_t at = (fixtures->last + i) % fixtures->count;
        const struct fixture *fixture = &fixtures->all[at];
        const char *of = engine != NULL ? fixture->engine->name : fixture->family->name;
        struct wf_case_result result;
        if (strcmp(of, engine != NULL ? engine->name : family->name) != 0) {
            continue;
        }
        wf_case_check(fixture->path, &tables, &result);
        if (!result.ok) {
            fixtures->last = at;
            return true;
        }
    }
    return false;
}

static void expect_noticed(struct fixtures *fixtures, const char *title, bool noticed)
{
    fixtures->caught += noticed;
    fixtures->missed += !noticed;
    cr_expect(noticed, "no fixture notices %s", title);
}

/* --- changes --------------------------------------------------------------------------------- */

/* Each writes the changed text and gives true, or false where it does not apply. */
typedef bool change_t(const char *text, char out[TEXT_MAX]);

/* "0/tp" cuts columns, "1/tp" rows. */
static bool other_dimension(const char *text, char out[TEXT_MAX])
{
    snprintf(out, TEXT_MAX, "%s", text);
    char *digit = strpbrk(out, "01");
    if (digit == NULL) {
        return false;
    }
    *digit = *digit == '0' ? '1' : '0';
    return true;
}

/* The first two of parts that are parted by spaces. */
static bool exchange(const char *text, char out[TEXT_MAX])
{
    size_t first = strcspn(text, " ("), second;
    if (text[first] != ' ') {
        return false;
    }
    second = strcspn(text + first + 1, " (");
    if (text[first + 1 + second] == '(') {
        return false;
    }
    snprintf(out, TEXT_MAX, "%.*s %.*s%s", (int)second, text + first + 1, (int)first, text,
             text + first + 1 + second);
    return true;
}

/* The first of expressions that are parted by commas, and one more. */
static bool one_more(const char *text, char out[TEXT_MAX])
{
    size_t depth = 0, len = 0;
    for (; text[len] != '\0' && (text[len] != ',' || depth > 0); len++) {
        depth += text[len] == '(';
        depth -= text[len] == ')';
    }
    snprintf(out, TEXT_MAX, "(%.*s) + 1%s", (int)len, text, text + len);
    return true;
}

static bool negate(const char *text, char out[TEXT_MAX])
{
    snprintf(out, TEXT_MAX, "!(%s)", text);
    return true;
}

/* One that no fixture has. */
static bool other_dtype(const char *text, char out[TEXT_MAX])
{
    (void)text;
    snprintf(out, TEXT_MAX, "f16");
    return true;
}

/* The last letter before a dot or the end. */
static bool misspell(const char *text, char out[TEXT_MAX])
{
    snprintf(out, TEXT_MAX, "%sx", text);
    return true;
}

static bool drop_it(const char *text, char out[TEXT_MAX])
{
    (void)text;
    out[0] = '\0'; /* NULL then */
    return true;
}

struct way {
    const char *field;
    size_t offset;
    change_t *change;
};

/* The first way of each says whether the row stands in a fixture at all. */
static const struct way row_ways[] = {
    {"name", offsetof(struct wf_engine_row, name), misspell},
    {"cuts", offsetof(struct wf_engine_row, cuts), other_dimension},
    {"parts", offsetof(struct wf_engine_row, parts), exchange},
    {"groups", offsetof(struct wf_engine_row, groups), drop_it},
    {"pad", offsetof(struct wf_engine_row, pad), one_more},
    {"view", offsetof(struct wf_engine_row, view), drop_it},
    {"shape", offsetof(struct wf_engine_row, shape), one_more},
    {"extra", offsetof(struct wf_engine_row, extra), drop_it},
    {"dtype", offsetof(struct wf_engine_row, dtype), other_dtype},
    {"when", offsetof(struct wf_engine_row, when), negate},
};
/* Of a row that nothing writes the order of parts shows in nothing. */
static const struct way kept_ways[] = {
    {"name", offsetof(struct wf_engine_row, name), misspell},
    {"cuts", offsetof(struct wf_engine_row, cuts), other_dimension},
    {"shape", offsetof(struct wf_engine_row, shape), one_more},
    {"dtype", offsetof(struct wf_engine_row, dtype), other_dtype},
    {"when", offsetof(struct wf_engine_row, when), negate},
};
static const struct way family_ways[] = {
    {"name", offsetof(struct wf_family_row, name), misspell},
    {"shape", offsetof(struct wf_family_row, shape), one_more},
    {"when", offsetof(struct wf_family_row, when), negate},
    {"unit", offsetof(struct wf_family_row, unit), one_more},
};

enum {
    ROW_WAYS = sizeof row_ways / sizeof row_ways[0],
    KEPT_WAYS = sizeof kept_ways / sizeof kept_ways[0],
    FAMILY_WAYS = sizeof family_ways / sizeof family_ways[0]
};

static const char **field_of(void *row, const struct way *way)
{
    return (const char **)((char *)row + way->offset);
}

/* Changes one field of *row, sees, and changes it back. `first`: the way that says whether the row
 * is used; gives what was seen. */
static bool change_field(struct fixtures *fixtures, const char *title, void *row,
                         const struct way *way, bool first, const struct wf_engine *engine,
                         const struct wf_family *family)
{
    char changed[TEXT_MAX];
    const char **field = field_of(row, way), *was = *field;
    if (was == NULL || !way->change(was, changed)) {
        return true;
    }
    *field = changed[0] != '\0' ? changed : NULL;
    bool noticed = is_noticed(fixtures, engine, family);
    *field = was;
    if (first && !noticed) {
        fixtures->unseen++;
    } else {
        expect_noticed(fixtures, title, noticed);
    }
    return noticed;
}

/* Every way of one row, until it turns out to stand in no fixture. */
static void change_row(struct fixtures *fixtures, const char *table, const char *row_name,
                       void *row, const struct way *ways, size_t way_count,
                       const struct wf_engine *engine, const struct wf_family *family)
{
    for (size_t w = 0; w < way_count; w++) {
        char title[TITLE_MAX];
        snprintf(title, sizeof title, "%s %.180s %s", table, row_name, ways[w].field);
        if (!change_field(fixtures, title, row, &ways[w], w == 0, engine, family) && w == 0) {
            return;
        }
    }
}

static void change_engine_row(struct fixtures *fixtures, const char *table, const char *row_name,
                              struct wf_engine_row *row, const struct wf_engine *engine,
                              const struct wf_family *family)
{
    const bool kept = row->kind == WF_ROW_KEEP;
    change_row(fixtures, table, row_name, row, kept ? kept_ways : row_ways,
               kept ? KEPT_WAYS : ROW_WAYS, engine, family);
}

/* Rows of one table that this run changes. */
static size_t row_step(void)
{
    const char *all = getenv("WEFT_MUTANTS");
    return all != NULL && strcmp(all, "all") == 0 ? 1 : EVERY;
}

static void report(const struct fixtures *fixtures, const char *what)
{
    fprintf(stderr, "%s: %u changed tables, %u noticed, %u not; %u rows in no fixture\n", what,
            fixtures->caught + fixtures->missed, fixtures->caught, fixtures->missed,
            fixtures->unseen);
}

/* --- the tests ------------------------------------------------------------------------------- */

static void mutate_engine(const struct wf_engine *engine)
{
    struct fixtures *fixtures = read_fixtures();
    struct wf_engine_row rows[ROWS_MAX];
    struct wf_engine copy = *engine;
    cr_assert_leq(engine->row_count, (size_t)ROWS_MAX);
    memcpy(rows, engine->rows, engine->row_count * sizeof rows[0]);
    copy.rows = rows;
    for (size_t i = 0; i < engine->row_count; i += row_step()) {
        char name[TITLE_MAX];
        snprintf(name, sizeof name, "%s of %.120s", rows[i].name != NULL ? rows[i].name : "none",
                 rows[i].parts);
        change_engine_row(fixtures, engine->name, name, &rows[i], &copy, NULL);
    }
    report(fixtures, engine->name);
    cr_expect_geq(fixtures->caught, CAUGHT_WANTED);
    free(fixtures);
}

Test(mutants, megatron)
{
    mutate_engine(&wf_engine_megatron);
}

Test(mutants, vllm)
{
    mutate_engine(&wf_engine_vllm);
}

Test(mutants, sglang)
{
    mutate_engine(&wf_engine_sglang);
}

static bool has_fixture(const struct fixtures *fixtures, const struct wf_family *family)
{
    for (size_t i = 0; i < fixtures->count; i++) {
        if (strcmp(fixtures->all[i].family->name, family->name) == 0) {
            return true;
        }
    }
    return false;
}

static void mutate_family(struct fixtures *fixtures, const struct wf_family *family)
{
    struct wf_family_row rows[WF_FAMILY_ROWS_MAX];
    struct wf_family_engine engines[ENGINES_MAX];
    struct wf_engine_row own[ROWS_MAX];
    struct wf_family copy = *family;
    memcpy(rows, family->rows, family->row_count * sizeof rows[0]);
    copy.rows = rows;
    for (size_t i = 0; i < family->row_count; i += row_step()) {
        char name[TITLE_MAX];
        snprintf(name, sizeof name, "%s %.150s", rows[i].role, rows[i].name);
        change_row(fixtures, family->name, name, &rows[i], family_ways, FAMILY_WAYS, NULL, &copy);
    }
    cr_assert_leq(family->engine_count, (size_t)ENGINES_MAX);
    memcpy(engines, family->engines, family->engine_count * sizeof engines[0]);
    copy.engines = engines;
    for (size_t e = 0; e < family->engine_count; e++) {
        const struct wf_engine_row *was = engines[e].rows;
        cr_assert_leq(engines[e].row_count, (size_t)ROWS_MAX);
        memcpy(own, was, engines[e].row_count * sizeof own[0]);
        engines[e].rows = own;
        for (size_t i = 0; i < engines[e].row_count; i += row_step()) {
            char name[TITLE_MAX];
            snprintf(name, sizeof name, "in %s %.60s of %.100s", engines[e].engine,
                     own[i].name != NULL ? own[i].name : "none", own[i].parts);
            change_engine_row(fixtures, family->name, name, &own[i], NULL, &copy);
        }
        engines[e].rows = was;
    }
}

Test(mutants, families)
{
    struct fixtures *fixtures = read_fixtures();
    for (size_t f = 0; wf_families[f] != NULL; f++) {
        if (has_fixture(fixtures, wf_families[f])) {
            mutate_family(fixtures, wf_families[f]);
        } else {
            fprintf(stderr, "no fixture of family %s\n", wf_families[f]->name);
        }
    }
    report(fixtures, "families");
    cr_expect_geq(fixtures->caught, CAUGHT_WANTED);
    free(fixtures);
}
