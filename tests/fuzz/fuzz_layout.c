/* fuzz_layout.c - layouts of drawn models and recipes, their tensors changed in drawn ways: what
 * stands at an element is found as the pieces say, an unchanged rank matches its layout, and a
 * changed one is refused by name or is the same; its dump is read back.
 *
 * An input is no text: HEAD_BYTES draw family, engine, sizes and rank (tests/layouts/zoo), each
 * EDIT_BYTES after them change one tensor. WEFT_FUZZ_COUNTS in the environment counts what was
 * reached. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "models/layout.h"
#include "tests/layouts/zoo.h"
#include "tools/files/dump.h"
#include "tools/layout/look.h"

enum {
    HEAD_BYTES = 5, /* family, engine, 2 of a seed, rank */
    EDIT_BYTES = 4, /* what, 1 for a tensor, 2 for a place or value */
    EDITS_MAX = 16,
    EDIT_KINDS = 8,
    LOOKS = 16,
    ENGINES = 5,
    ZOO_MAX = 64,
};

/* A rank, as registration and a dump see it. */
struct rank {
    struct wf_model *model;
    struct wf_recipe recipe;
    uint32_t number;
    struct wf_layout *layout;
    char **names; /* of the tensors; changed in place */
    struct wf_live_tensor *live;
    uint32_t name_count, live_count;
};

/* What inputs reached, of each family and engine. */
struct counts {
    unsigned derived[ZOO_MAX][ENGINES], matched, refused, dumped, undumped, looks;
};

static const struct wf_engine *const engines[ENGINES] = {
    &wf_engine_megatron, &wf_engine_fsdp, &wf_engine_vllm, &wf_engine_sglang, &wf_engine_hf};

static uint32_t zoo_count(void)
{
    uint32_t count = 0;
    while (zoo_families[count].name != NULL) {
        count++;
    }
    WF_ASSERT(count <= ZOO_MAX);
    return count;
}

/* --- drawing --------------------------------------------------------------------------------- */

static bool draw_rank(const uint8_t head[HEAD_BYTES], struct rank *rank)
{
    char config[ZOO_CONFIG_MAX], spec[WF_SPEC_MAX];
    struct wf_error error = {0};
    uint64_t state = 1 + (uint64_t)(head[2] | head[3] << 8);
    zoo_config(&zoo_families[head[0] % zoo_count()], &state, config);
    WF_ASSERT(wf_model_parse(config, strlen(config), NULL, &rank->model, &error) == WF_OK);
    zoo_spec(engines[head[1] % ENGINES], rank->model, &state, spec);
    if (wf_recipe_parse(spec, rank->model, &rank->recipe, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0');
        return false;
    }
    rank->number = head[4] % wf_recipe_world(&rank->recipe);
    if (wf_layout_derive(rank->model, &rank->recipe, rank->number, &rank->layout, &error) !=
        WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && rank->layout == NULL);
        return false;
    }
    return true;
}

/* Without the mark that layouts put before the names of what is no parameter ("buffer:"). */
static const char *plain_name(const struct wf_tensor *tensor)
{
    const char *mark = strchr(tensor->name, ':');
    return mark != NULL ? mark + 1 : tensor->name;
}

static void make_live(struct rank *rank)
{
    const struct wf_layout *layout = rank->layout;
    rank->names = calloc(layout->tensor_count + 1, sizeof *rank->names);
    rank->live = calloc(layout->tensor_count + EDITS_MAX, sizeof *rank->live);
    WF_ASSERT(rank->names != NULL && rank->live != NULL);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        rank->names[t] = strdup(plain_name(tensor));
        rank->live[t] = (struct wf_live_tensor){
            .name = rank->names[t], .dtype = tensor->dtype, .ndim = tensor->ndim};
        memcpy(rank->live[t].shape, tensor->shape, sizeof tensor->shape);
        memcpy(rank->live[t].strides, tensor->strides, sizeof tensor->strides);
    }
    rank->name_count = rank->live_count = layout->tensor_count;
}

static void drop_rank(struct rank *rank)
{
    for (uint32_t i = 0; i < rank->name_count; i++) {
        free(rank->names[i]);
    }
    free(rank->names);
    free(rank->live);
    wf_layout_free(rank->layout);
    wf_model_free(rank->model);
}

/* --- changing -------------------------------------------------------------------------------- */

static void edit(struct rank *rank, const uint8_t bytes[EDIT_BYTES])
{
    if (rank->live_count == 0) {
        return;
    }
    struct wf_live_tensor *live = &rank->live[bytes[1] % rank->live_count], kept = *live;
    struct wf_live_tensor *last = &rank->live[rank->live_count - 1];
    uint32_t axis = live->ndim > 0 ? bytes[2] % live->ndim : 0;
    switch (bytes[0] % 8) {
    case 0: /* another length of an axis */
        live->shape[axis] = live->ndim > 0 ? bytes[3] : live->shape[axis];
        break;
    case 1:
        live->dtype = (enum wf_dtype)(1 + bytes[3] % (WF_DTYPE_COUNT - 1));
        break;
    case 2: /* another letter; no control character or tab */
        ((char *)live->name)[bytes[2] % strlen(live->name)] = (char)(bytes[3] % 94 + '!');
        break;
    case 3: /* another order in memory */
        live->strides[axis] = bytes[3];
        break;
    case 4: /* one dimension less */
        live->ndim -= live->ndim > 0;
        break;
    case 5: /* gone */
        *live = *last;
        rank->live_count--;
        break;
    case 6: /* twice */
        rank->live[rank->live_count++] = kept;
        break;
    default: /* two change places: this is no change */
        *live = *last;
        *last = kept;
        break;
    }
}

/* --- registration ---------------------------------------------------------------------------- */

static bool is_same(const struct wf_tensor *tensor, const struct wf_live_tensor *live)
{
    bool same = strcmp(plain_name(tensor), live->name) == 0 && tensor->dtype == live->dtype &&
                tensor->ndim == live->ndim;
    for (uint32_t axis = 0; axis < tensor->ndim && same; axis++) {
        bool free_stride =
            tensor->bytes == 0 || tensor->shape[axis] <= 1 || tensor->kind == WF_TENSOR_VIEW;
        same = tensor->shape[axis] == live->shape[axis] &&
               (free_stride || tensor->strides[axis] == live->strides[axis]);
    }
    return same;
}

/* Everything that is needed is there once, and nothing is there that is not in the layout. */
static bool is_unchanged(const struct rank *rank)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < rank->layout->tensor_count; t++) {
        const struct wf_tensor *tensor = &rank->layout->tensors[t];
        uint32_t times = 0;
        for (uint32_t i = 0; i < rank->live_count; i++) {
            times += is_same(tensor, &rank->live[i]);
        }
        bool needed = tensor->kind == WF_TENSOR_WEIGHTS || tensor->kind == WF_TENSOR_KEEP;
        if (times > 1 || (times == 0 && needed)) {
            return false;
        }
        found += times;
    }
    return found == rank->live_count;
}

static bool has_alias(const struct rank *rank)
{
    for (uint32_t i = 0; i < rank->live_count; i++) {
        for (uint32_t a = 0; a < rank->layout->alias_count; a++) {
            if (strcmp(rank->layout->aliases[a].name, rank->live[i].name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void check_match(const struct rank *rank, struct counts *counts)
{
    uint32_t *order = calloc(rank->layout->tensor_count + 1, sizeof *order);
    struct wf_error error = {0};
    WF_ASSERT(order != NULL);
    enum wf_status status =
        wf_layout_match(rank->layout, rank->live, rank->live_count, NULL, 0, order, &error);
    WF_ASSERT(status == WF_OK || (status == WF_MISMATCH && error.text[0] != '\0'));
    WF_ASSERT(has_alias(rank) || (status == WF_OK) == is_unchanged(rank));
    counts->matched += status == WF_OK;
    counts->refused += status != WF_OK;
    free(order);
}

/* --- places ---------------------------------------------------------------------------------- */

/* Every place of what is written is found, in its parameter, and its neighbour where a run says. */
static void look_at(const struct rank *rank, uint32_t number, uint64_t place, struct counts *counts)
{
    const struct wf_layout *layout = rank->layout;
    const struct wf_tensor *tensor = &layout->tensors[number];
    uint64_t elements = tensor->bytes / wf_dtype_bytes(tensor->dtype);
    bool written = tensor->kind == WF_TENSOR_WEIGHTS;
    struct wf_look look, end;
    WF_ASSERT(wf_layout_covered(layout, number) == (written ? elements : 0));
    WF_ASSERT(!wf_layout_look(layout, number, elements, &look));
    if (!written || elements == 0) {
        return;
    }
    place %= elements;
    WF_ASSERT(wf_layout_look(layout, number, place, &look) && look.run > 0);
    WF_ASSERT(look.run <= elements - place);
    WF_ASSERT(wf_layout_look(layout, number, place + look.run - 1, &end));
    WF_ASSERT(end.fill == look.fill);
    if (!look.fill) {
        WF_ASSERT(look.param < rank->model->param_count && end.param == look.param);
        WF_ASSERT(end.element == look.element + look.run - 1);
        WF_ASSERT(end.element < rank->model->params[look.param].elements);
    }
    counts->looks++;
}

/* --- dumps ----------------------------------------------------------------------------------- */

static char *print_dump(const struct rank *rank, size_t *len_out)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, len_out);
    WF_ASSERT(out != NULL);
    for (uint32_t i = 0; i < rank->live_count; i++) {
        const struct wf_live_tensor *live = &rank->live[i];
        fprintf(out, "%s\t%s\t%s", live->name, wf_dtype_torch(live->dtype),
                live->ndim == 0 ? "-" : "");
        for (uint32_t axis = 0; axis < live->ndim; axis++) {
            fprintf(out, "%s%" PRIu64, axis > 0 ? "x" : "", live->shape[axis]);
        }
        fputc('\n', out);
    }
    fclose(out);
    return text;
}

static bool has_twice(const struct rank *rank)
{
    for (uint32_t i = 0; i < rank->live_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(rank->live[i].name, rank->live[k].name) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* A first line's # makes it a remark, so tensors may be fewer; nothing else is lost. */
static void check_dump(const struct rank *rank, struct counts *counts)
{
    size_t len = 0;
    char *text = print_dump(rank, &len);
    struct wf_dump_rank dump = {0};
    struct wf_error error = {0};
    enum wf_status status = wf_dump_rank_parse(&dump, text, len, len, &error);
    status = status == WF_OK ? wf_dump_rank_sort(&dump, &error) : status;
    WF_ASSERT(status == WF_OK || error.text[0] != '\0');
    WF_ASSERT(status == WF_OK || has_twice(rank));
    WF_ASSERT(dump.count <= rank->live_count);
    counts->dumped += status == WF_OK;
    counts->undumped += status != WF_OK;
    wf_dump_rank_fini(&dump);
    free(text);
}

/* --- inputs ---------------------------------------------------------------------------------- */

/* To standard error at the end, where somebody wants it. */
static void show_counts(const struct counts *counts)
{
    unsigned families = 0;
    for (uint32_t f = 0; f < zoo_count(); f++) {
        unsigned all = 0;
        fprintf(stderr, "%-20s", zoo_families[f].name);
        for (uint32_t e = 0; e < ENGINES; e++) {
            fprintf(stderr, " %s %u", engines[e]->name, counts->derived[f][e]);
            all += counts->derived[f][e];
        }
        fprintf(stderr, "\n");
        families += all > 0;
    }
    fprintf(stderr,
            "%u families; %u ranks match, %u are refused; %u places; dumps: %u read, %u refused\n",
            families, counts->matched, counts->refused, counts->looks, counts->dumped,
            counts->undumped);
}

static struct counts *the_counts(void)
{
    static struct counts counts;
    return &counts;
}

static void show_at_exit(void)
{
    show_counts(the_counts());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    struct counts *counts = the_counts();
    struct rank rank = {0};
    if (!begun && getenv("WEFT_FUZZ_COUNTS") != NULL) {
        atexit(show_at_exit);
    }
    begun = true;
    if (size >= HEAD_BYTES && draw_rank(data, &rank)) {
        counts->derived[data[0] % zoo_count()][data[1] % ENGINES]++;
        make_live(&rank);
        for (uint32_t i = 0; i < LOOKS && rank.layout->tensor_count > 0; i++) {
            uint32_t drawn = (data[3] + 1u + i) * 2654435761u;
            look_at(&rank, (drawn >> 8) % rank.layout->tensor_count, drawn, counts);
        }
        for (size_t at = HEAD_BYTES, i = 0; at + EDIT_BYTES <= size && i < EDITS_MAX;
             at += EDIT_BYTES, i++) {
            edit(&rank, data + at);
        }
        check_match(&rank, counts);
        check_dump(&rank, counts);
    }
    drop_rank(&rank);
    return 0;
}

/* Every family in every engine, as it is and with one edit of each kind. */
size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    uint32_t families = zoo_count(), kind = index / (families * ENGINES);
    WF_ASSERT(cap >= HEAD_BYTES + EDIT_BYTES);
    if (kind > EDIT_KINDS) {
        return 0;
    }
    const uint8_t bytes[HEAD_BYTES + EDIT_BYTES] = {(uint8_t)(index % families),
                                                    (uint8_t)(index / families % ENGINES),
                                                    (uint8_t)(index * 7),
                                                    1,
                                                    (uint8_t)index,
                                                    (uint8_t)(kind - 1),
                                                    (uint8_t)(index * 3),
                                                    1,
                                                    6};
    size_t len = kind == 0 ? HEAD_BYTES : sizeof bytes;
    memcpy(out, bytes, len);
    return len;
}
