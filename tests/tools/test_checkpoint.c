/* test_checkpoint.c - Hugging Face folders: which files count, what must match, what may be extra.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/folder.h"
#include "tools/files/checkpoint.h"
#include "tools/files/known_values.h"

struct notes {
    uint32_t count;
    char text[2048];
};

static void take_note(void *user, const char *sentence)
{
    struct notes *notes = user;
    notes->count++;
    strncat(notes->text, sentence, sizeof notes->text - strlen(notes->text) - 2);
    strcat(notes->text, "\n");
}

static enum wf_status open_folder(const char *folder, const struct wf_model *model, bool refuse,
                                  struct notes *notes, struct wf_checkpoint **out,
                                  struct wf_error *error)
{
    const struct wf_checkpoint_options options = {
        .extras_refuse = refuse, .note = take_note, .user = notes};
    memset(notes, 0, sizeof *notes);
    return wf_checkpoint_open(folder, model, &options, out, error);
}

#define Q "model.layers.1.self_attn.q_proj.weight"

struct row {
    const char *name, *config;
    struct edit edit;
    bool refuse;
    const char *expected; /* of the sentence; NULL: opens */
    const char *note;     /* of the notes; NULL: none at all */
};

static const struct row rows[] = {
    {"as it should be", "tiny-qwen3.json", {0}, true, NULL, NULL},
    {"tied, as it should be", "tiny-llama.json", {0}, true, NULL, NULL},
    {"missing",
     "tiny-qwen3.json",
     {EDIT_DROP, Q, 0, 0, NULL},
     false,
     "\"" Q "\" is missing (1 of",
     NULL},
    {"head missing",
     "tiny-qwen3.json",
     {EDIT_DROP, "lm_head.weight", 0, 0, NULL},
     false,
     "head is not tied",
     NULL},
    {"other dtype",
     "tiny-qwen3.json",
     {EDIT_RETYPE, Q, WF_DTYPE_F32, 0, NULL},
     false,
     "is F32, the config says BF16",
     NULL},
    {"other shape",
     "tiny-qwen3.json",
     {EDIT_RESHAPE, Q, 0, 8192, NULL},
     false,
     "has shape [8192], the config says [128, 64]",
     NULL},
    {"all with a prefix",
     "tiny-qwen3.json",
     {EDIT_PREFIX_ALL, "module.", 0, 0, NULL},
     false,
     "prefix",
     NULL},
    {"extra, warned of",
     "tiny-qwen3.json",
     {EDIT_ADD, "model.value_head.weight", WF_DTYPE_BF16, 8, NULL},
     false,
     NULL,
     "model.value_head.weight"},
    {"extra, refused",
     "tiny-qwen3.json",
     {EDIT_ADD, "model.value_head.weight", WF_DTYPE_BF16, 8, NULL},
     true,
     "model.value_head.weight",
     NULL},
    {"extra of an unknown dtype",
     "tiny-qwen3.json",
     {EDIT_ADD, "counter", WF_DTYPE_I64, 1, NULL},
     false,
     NULL,
     "counter"},
    {"inv_freq",
     "tiny-qwen3.json",
     {EDIT_ADD, "model.layers.0.self_attn.rotary_emb.inv_freq", WF_DTYPE_F32, 8, NULL},
     true,
     NULL,
     "inv_freq"},
    {"tensor without elements",
     "tiny-qwen3.json",
     {EDIT_ADD, "nothing", WF_DTYPE_F32, 0, NULL},
     true,
     NULL,
     "no elements"},
    {"needed tensor without elements",
     "tiny-qwen3.json",
     {EDIT_RESHAPE, Q, 0, 0, NULL},
     false,
     "has shape [0]",
     NULL},
    {"scales",
     "tiny-qwen3.json",
     {EDIT_ADD, Q "_scale_inv", WF_DTYPE_F32, 1, NULL},
     false,
     "quantised",
     NULL},
    {"bias of a known weight",
     "tiny-qwen3.json",
     {EDIT_ADD, "model.layers.1.self_attn.q_proj.bias", WF_DTYPE_BF16, 128, NULL},
     false,
     "bias",
     NULL},
    {"tied head, equal",
     "tiny-llama.json",
     {EDIT_ADD, "lm_head.weight", WF_DTYPE_BF16, 384 * 72, "model.embed_tokens.weight"},
     true,
     NULL,
     "equals the embedding"},
    {"tied head, other values",
     "tiny-llama.json",
     {EDIT_ADD, "lm_head.weight", WF_DTYPE_BF16, 384 * 72, NULL},
     false,
     "tie_word_embeddings",
     NULL},
    {"tied head, other size",
     "tiny-llama.json",
     {EDIT_ADD, "lm_head.weight", WF_DTYPE_BF16, 72, NULL},
     false,
     "tie_word_embeddings",
     NULL},
};

Test(checkpoint, one_file_against_the_config)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        char folder[FOLDER_PATH_MAX];
        struct notes notes;
        struct wf_error error = {0};
        struct wf_checkpoint *checkpoint = NULL;
        struct wf_model *model = folder_model(row->config);
        folder_make(folder);
        folder_write_weights(folder, "model.safetensors", model, 0, model->param_count, &row->edit,
                             1);
        enum wf_status status =
            open_folder(folder, model, row->refuse, &notes, &checkpoint, &error);
        if (row->expected == NULL) {
            cr_assert_eq(status, WF_OK, "%s: %s", row->name, error.text);
            cr_assert_eq(notes.count, row->note != NULL, "%s: %s", row->name, notes.text);
            cr_assert(row->note == NULL || strstr(notes.text, row->note) != NULL, "%s: %s",
                      row->name, notes.text);
        } else {
            cr_assert_neq(status, WF_OK, "%s: accepted", row->name);
            cr_assert_not_null(strstr(error.text, row->expected), "%s: %s", row->name, error.text);
            cr_assert_null(checkpoint);
        }
        wf_checkpoint_free(checkpoint);
        wf_model_free(model);
        folder_remove(folder);
    }
}

/* --- sharded folders ---------------------------------------------------------------------------
 */

struct sharded {
    const char *name;
    /* What happens to the index of a folder of two shards, s1 (parameters 0..9) and s2 (the rest).
     */
    const char *replace, *with;
    bool single, drop_s2, drop_both; /* also a model.safetensors; shards removed */
    const char *expected, *note;
};

#define EMBED "\"model.embed_tokens.weight\": \"s1.safetensors\""

static const struct sharded sharded[] = {
    {"as it should be", NULL, NULL, false, false, false, NULL, NULL},
    {"unneeded figures of any kind", "\"total_size\": 1", "\"total_size\": NaN, \"x\": 1e999",
     false, false, false, NULL, NULL},
    {"shard absent", NULL, NULL, false, true, false, "names a file that is not there", NULL},
    {"tensor that no file holds", EMBED, EMBED ", \"ghost\": \"s1.safetensors\"", false, false,
     false, "stale", NULL},
    {"tensor said to be in the other file", EMBED,
     "\"model.embed_tokens.weight\": \"s2.safetensors\"", false, false, false, "stale", NULL},
    {"needed tensor not listed", EMBED ", ", "", false, false, false, "does not list", NULL},
    {"parent folder", EMBED, "\"model.embed_tokens.weight\": \"../s1.safetensors\"", false, false,
     false, "plain file names", NULL},
    {"absolute path", EMBED, "\"model.embed_tokens.weight\": \"/etc/passwd\"", false, false, false,
     "plain file names", NULL},
    {"folder itself", EMBED, "\"model.embed_tokens.weight\": \"..\"", false, false, false,
     "plain file names", NULL},
    {"empty name", EMBED, "\"model.embed_tokens.weight\": \"\"", false, false, false,
     "plain file names", NULL},
    {"name with NUL", EMBED, "\"model.embed_tokens.weight\": \"s1.safetensors\\u0000x\"", false,
     false, false, "plain file names", NULL},
    {"number for a name", EMBED, "\"model.embed_tokens.weight\": 1", false, false, false,
     "no string", NULL},
    {"key twice", EMBED, EMBED ", " EMBED, false, false, false, "before", NULL},
    {"no weight_map", "weight_map", "weightmap", false, false, false, "weight_map", NULL},
    {"single file beside", NULL, NULL, true, false, false, "both", NULL},
    {"single file beside, one shard left", NULL, NULL, true, true, false, "both", NULL},
    {"single file beside a stale index", NULL, NULL, true, true, true, NULL, "stale"},
};

static void write_index(const char *folder, const struct wf_model *model, const struct sharded *row)
{
    char *text = NULL, *at;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (uint32_t i = 0; i < model->param_count; i++) {
        fprintf(out, "%s\"%s\": \"s%d.safetensors\"", i > 0 ? ", " : "", model->params[i].name,
                i < 10 ? 1 : 2);
    }
    fprintf(out, "}}");
    fclose(out);
    if (row->replace != NULL) {
        at = strstr(text, row->replace);
        cr_assert_not_null(at, "%s", row->name);
        char *edited = NULL;
        int len = asprintf(&edited, "%.*s%s%s", (int)(at - text), text, row->with,
                           at + strlen(row->replace));
        folder_write(folder, "model.safetensors.index.json", edited, (size_t)len);
        free(edited);
    } else {
        folder_write(folder, "model.safetensors.index.json", text, size);
    }
    free(text);
}

static void remove_from(const char *folder, const char *name)
{
    char path[2 * FOLDER_PATH_MAX];
    cr_assert_eq(unlink(folder_join(path, folder, name)), 0);
}

Test(checkpoint, index_and_shards)
{
    struct wf_model *model = folder_model("tiny-qwen3.json");
    for (size_t i = 0; i < sizeof sharded / sizeof sharded[0]; i++) {
        const struct sharded *row = &sharded[i];
        char folder[FOLDER_PATH_MAX];
        struct notes notes;
        struct wf_error error = {0};
        struct wf_checkpoint *checkpoint = NULL;
        folder_make(folder);
        folder_write_weights(folder, "s1.safetensors", model, 0, 10, NULL, 0);
        folder_write_weights(folder, "s2.safetensors", model, 10, model->param_count, NULL, 0);
        write_index(folder, model, row);
        if (row->single) {
            folder_write_weights(folder, "model.safetensors", model, 0, model->param_count, NULL,
                                 0);
        }
        if (row->drop_both) {
            remove_from(folder, "s1.safetensors");
        }
        if (row->drop_s2) {
            remove_from(folder, "s2.safetensors");
        }
        enum wf_status status = open_folder(folder, model, true, &notes, &checkpoint, &error);
        if (row->expected == NULL) {
            cr_assert_eq(status, WF_OK, "%s: %s", row->name, error.text);
            cr_assert_eq(notes.count, row->note != NULL, "%s: %s", row->name, notes.text);
        } else {
            cr_assert_neq(status, WF_OK, "%s: accepted", row->name);
            cr_assert_not_null(strstr(error.text, row->expected), "%s: %s", row->name, error.text);
        }
        wf_checkpoint_free(checkpoint);
        folder_remove(folder);
    }
    wf_model_free(model);
}

Test(checkpoint, a_tensor_in_two_shards_is_refused)
{
    static const struct {
        const char *name;
        uint32_t s1_end, s2_first; /* what the files hold; the index always says 10 */
        const char *expected;
    } cases[] = {
        {"in both", 11, 10, "two files"},
        {"in both, the other way", 10, 9, "two files"},
    };
    struct wf_model *model = folder_model("tiny-qwen3.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[FOLDER_PATH_MAX];
        struct notes notes;
        struct wf_error error = {0};
        struct wf_checkpoint *checkpoint = NULL;
        folder_make(folder);
        folder_write_weights(folder, "s1.safetensors", model, 0, cases[i].s1_end, NULL, 0);
        folder_write_weights(folder, "s2.safetensors", model, cases[i].s2_first, model->param_count,
                             NULL, 0);
        write_index(folder, model, &sharded[0]);
        cr_assert_neq(open_folder(folder, model, false, &notes, &checkpoint, &error), WF_OK, "%s",
                      cases[i].name);
        cr_assert_not_null(strstr(error.text, cases[i].expected), "%s: %s", cases[i].name,
                           error.text);
        folder_remove(folder);
    }
    wf_model_free(model);
}

/* --- files of the wrong kind -------------------------------------------------------------------
 */

enum plant { NOTHING, FIFO, SUBFOLDER, LINK, OTHER_WEIGHTS, SHORT, LONG, HUGE_HEADER, TINY };

Test(checkpoint, files_of_another_kind)
{
    static const struct {
        const char *name;
        enum plant plant;
        const char *expected;
    } cases[] = {
        {"empty folder", NOTHING, "has neither"},
        {"FIFO", FIFO, "is a FIFO"},
        {"folder", SUBFOLDER, "is a folder"},
        {"link, as caches have", LINK, NULL},
        {"pickle only", OTHER_WEIGHTS, "pytorch_model.bin"},
        {"cut", SHORT, "truncated"},
        {"something behind", LONG, "belongs to no tensor"},
        {"absurd header", HUGE_HEADER, "the header claims"},
        {"less than a prefix", TINY, "the file has 3 bytes"},
    };
    struct wf_model *model = folder_model("tiny-llama.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX], other[2 * FOLDER_PATH_MAX];
        struct notes notes;
        struct wf_error error = {0};
        struct wf_checkpoint *checkpoint = NULL;
        struct stat info;
        folder_make(folder);
        folder_join(path, folder, "model.safetensors");
        if (cases[i].plant == FIFO) {
            cr_assert_eq(mkfifo(path, 0600), 0);
        } else if (cases[i].plant == SUBFOLDER) {
            cr_assert_eq(mkdir(path, 0700), 0);
        } else if (cases[i].plant == LINK) {
            folder_write_weights(folder, "blob", model, 0, model->param_count, NULL, 0);
            cr_assert_eq(symlink(folder_join(other, folder, "blob"), path), 0);
        } else if (cases[i].plant == OTHER_WEIGHTS) {
            folder_write(folder, "pytorch_model.bin", "x", 1);
        } else if (cases[i].plant == HUGE_HEADER) {
            folder_write(folder, "model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
        } else if (cases[i].plant == TINY) {
            folder_write(folder, "model.safetensors", "abc", 3);
        } else if (cases[i].plant != NOTHING) {
            folder_write_weights(folder, "model.safetensors", model, 0, model->param_count, NULL,
                                 0);
            cr_assert_eq(stat(path, &info), 0);
            cr_assert_eq(truncate(path, info.st_size + (cases[i].plant == SHORT ? -1 : 1)), 0);
        }
        enum wf_status status = open_folder(folder, model, true, &notes, &checkpoint, &error);
        if (cases[i].expected == NULL) {
            cr_assert_eq(status, WF_OK, "%s: %s", cases[i].name, error.text);
        } else {
            cr_assert_neq(status, WF_OK, "%s", cases[i].name);
            cr_assert_not_null(strstr(error.text, cases[i].expected), "%s: %s", cases[i].name,
                               error.text);
        }
        wf_checkpoint_free(checkpoint);
        folder_remove(folder);
    }
    wf_model_free(model);
}

/* --- reading -----------------------------------------------------------------------------------
 */

Test(checkpoint, reads_any_range_and_survives_a_file_that_shrinks)
{
    char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX];
    struct notes notes;
    struct wf_error error = {0};
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_model *model = folder_model("tiny-llama.json");
    folder_make(folder);
    folder_write_weights(folder, "model.safetensors", model, 0, model->param_count, NULL, 0);
    cr_assert_eq(open_folder(folder, model, true, &notes, &checkpoint, &error), WF_OK, "%s",
                 error.text);
    for (uint32_t p = 0; p < model->param_count; p++) {
        uint16_t read[64], known[64];
        uint64_t first = model->params[p].elements / 3, left = model->params[p].elements - first;
        uint64_t count = left < 64 ? left : 64;
        cr_assert_eq(wf_checkpoint_read(checkpoint, p, first, count, read, &error), WF_OK);
        wf_known_values_fill(model->params[p].name, first, count, WF_DTYPE_BF16, known);
        cr_assert_arr_eq(read, known, count * 2, "%s", model->params[p].name);
    }
    cr_assert_eq(truncate(folder_join(path, folder, "model.safetensors"), 4096), 0);
    uint16_t last;
    uint32_t p = model->param_count - 1;
    cr_assert_eq(wf_checkpoint_read(checkpoint, p, 0, 1, &last, &error), WF_IO);
    cr_assert_not_null(strstr(error.text, "was cut"), "%s", error.text);
    wf_checkpoint_free(checkpoint);
    wf_model_free(model);
    folder_remove(folder);
}
