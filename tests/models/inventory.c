/* inventory.c - see inventory.h. */
#include "inventory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

uint64_t inventory_read(const char *path, const char *where, inventory_each_t *each, void *user)
{
    size_t len = 0;
    char *text = golden_text(path, &len), *rest = text;
    uint64_t total = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        unsigned long long number = 0;
        if (sscanf(line, "# total %llu", &number) == 1) {
            total = number;
        }
        if (line[0] == '#' || line[0] == '\0') {
            continue;
        }
        const char *first = where ? strsep(&line, "\t") : "";
        struct inventory_line entry = {strsep(&line, "\t"), strsep(&line, "\t"),
                                       strsep(&line, "\t"), 0};
        cr_assert(line, "%s", path);
        entry.count = (unsigned)strtoul(line, NULL, 10);
        if (!where || strcmp(first, where) == 0) {
            each(user, &entry);
        }
    }
    free(text);
    return total;
}

static void expect_tensor(const struct wf_layout *layout, const char *title, const char *name,
                          const char *shape)
{
    uint32_t index = wf_layout_find(layout, name, strlen(name));
    cr_assert_neq(index, UINT32_MAX, "%s: %s is missing", title, name);
    const struct wf_tensor *tensor = &layout->tensors[index];
    char found[128] = "";
    for (uint32_t axis = 0; axis < tensor->ndim; axis++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%llu", axis ? "x" : "",
                 (unsigned long long)tensor->shape[axis]);
    }
    cr_assert_str_eq(found, shape, "%s: %s", title, name);
}

/* The name with a number in place of a mark. */
static void fill(const char *pattern, const char *mark, unsigned number, char out[WF_NAME_MAX])
{
    const char *at = strstr(pattern, mark);
    if (at) {
        snprintf(out, WF_NAME_MAX, "%.*s%u%s", (int)(at - pattern), pattern, number,
                 at + strlen(mark));
    } else {
        snprintf(out, WF_NAME_MAX, "%s", pattern);
    }
}

static unsigned expect_layer(const struct wf_layout *layout, uint64_t experts, const char *title,
                             const struct inventory_line *line, unsigned layer)
{
    char pattern[WF_NAME_MAX], name[WF_NAME_MAX];
    fill(line->pattern, "{layer}", layer, pattern);
    unsigned times = strstr(pattern, "{expert}") ? (unsigned)experts : 1;
    for (unsigned expert = 0; expert < times; expert++) {
        fill(pattern, "{expert}", expert, name);
        expect_tensor(layout, title, name, line->shape);
    }
    return times;
}

unsigned inventory_expect(const struct wf_layout *layout, uint64_t experts, const char *title,
                          const struct inventory_line *line)
{
    unsigned count = 0;
    if (strcmp(line->layers, "-") == 0) {
        count = expect_layer(layout, experts, title, line, 0);
    }
    for (const char *at = line->layers; *at >= '0' && *at <= '9';) {
        char *end = NULL;
        unsigned first = (unsigned)strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            last = (unsigned)strtoul(end + 1, &end, 10);
        }
        for (unsigned layer = first; layer <= last; layer++) {
            count += expect_layer(layout, experts, title, line, layer);
        }
        at = end + (*end == ',');
    }
    cr_expect_eq(count, line->count, "%s: %s", title, line->pattern);
    return count;
}

struct wf_layout *inventory_layout(const struct wf_model *model, const char *spec,
                                   const char *title)
{
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, NULL, &recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s: %s", title,
                 error.text);
    return layout;
}
