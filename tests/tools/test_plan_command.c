/* test_plan_command.c - `weft plan` as a user meets it: exit status, words, JSON. */
#include <criterion/criterion.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "models/json.h"

#define QWEN3_8B                                                                        \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"num_hidden_layers\": 36, "    \
    "\"vocab_size\": 151936, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, " \
    "\"head_dim\": 128, \"intermediate_size\": 12288, \"tie_word_embeddings\": false, " \
    "\"torch_dtype\": \"bfloat16\"}"

#define MOE "tests/golden/models/tiny-qwen3-moe.json"

#define PARAMS_8B 8190735360 /* of which each is needed once */

struct command {
    char folder[64], output[1 << 16];
    int status; /* exit status; -1: ended otherwise */
};

/* Tables of experts for MOE: exchange.json places them the other way round in one layer. */
static const struct {
    const char *name, *text;
} tables[] = {
    {"rule.json", "[[0,1,2,3,4,5,6,7],[0,1,2,3,4,5,6,7]]"},
    {"exchange.json", "[[0,1,2,3,4,5,6,7],[7,1,2,3,4,5,6,0]]"},
    {"short.json", "[[0, 1]]"},
    {"none.json", "{}"},
};

static void write_tables(const char *folder)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, tables[i].name);
        FILE *file = fopen(path, "w");
        cr_assert_not_null(file);
        fputs(tables[i].text, file);
        fclose(file);
    }
}

/* `arguments` may say $CONFIG; both streams are read. */
static void run(struct command *command, const char *arguments)
{
    char line[2048], config[128];
    snprintf(command->folder, sizeof command->folder, "/tmp/weft-plan-XXXXXX");
    cr_assert_not_null(mkdtemp(command->folder));
    snprintf(config, sizeof config, "%s/config.json", command->folder);
    FILE *file = fopen(config, "w");
    cr_assert_not_null(file);
    fputs(QWEN3_8B, file);
    fclose(file);
    write_tables(command->folder);
    setenv("CONFIG", config, 1);
    setenv("FOLDER", command->folder, 1);
    snprintf(line, sizeof line, "\"$WEFT\" plan %s 2>&1", arguments);
    FILE *pipe = popen(line, "r");
    cr_assert_not_null(pipe);
    size_t len = fread(command->output, 1, sizeof command->output - 1, pipe);
    command->output[len] = '\0';
    int status = pclose(pipe);
    command->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void clean(struct command *command)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", command->folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/plan.json", command->folder);
    unlink(path);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", command->folder, tables[i].name);
        unlink(path);
    }
    cr_expect_eq(rmdir(command->folder), 0, "something was left in %s", command->folder);
}

#define JOB "--model $CONFIG --train megatron:tp=4,pp=2,dp=2 --infer vllm:tp=2,engines=4 "
#define PLACED \
    "--model " MOE " --train megatron:ep=2,dp=2 --infer vllm:tp=2,ep=2 --placement $FOLDER/"
#define DOWN "model.layers.3.mlp.down_proj.weight"

struct row {
    const char *name, *arguments;
    int status;
    const char *says[4];
};

static const struct row rows[] = {
    {"help", "--help", 0, {"--train", "--infer", "explain"}},
    {"the table",
     JOB "--link 400",
     0,
     {"proof      ok", "10 layout classes", "1.000 of the mean", "400 Gbit/s"}},
    {"a folder as model", "--model $FOLDER --train megatron: --infer vllm:", 0, {"proof      ok"}},
    {"two groups", JOB "--infer vllm:tp=4", 0, {"ranks 0..7, 4 engines", "ranks 8..11, 1 engine"}},
    {"one rank", JOB "--rank infer:3", 0, {"edges of infer rank 3", "-> infer      3"}},
    {"explain",
     "explain --param " DOWN " " JOB "--rank infer:1",
     0,
     {"train rank 2 decoder.layers.3.mlp.linear_fc2.weight [rows 0..4095]",
      "infer rank 1 " DOWN " [rows 0..4095, columns 0..3071]", "2 boxes"}},
    {"explain says what a cast does",
     "explain --param model.norm.weight --model $CONFIG --train megatron:dtype=f32 --infer vllm:",
     0,
     {"cast from f32 to bf16 while it moves, for it has one reader", "elements 0..4095", "1 box"}},
    {"explain says what has no room",
     "explain --param model.embed_tokens.weight --model $CONFIG --train megatron:dtype=f32 --infer "
     "vllm:engines=2 --transit-budget 1MiB",
     0,
     {"cast from f32 to bf16 while it moves, for it does not fit into --transit-budget"}},
    {"explain says what the origin casts once",
     "explain --param model.norm.weight --model $CONFIG --train megatron:dtype=f32 --infer "
     "vllm:engines=2",
     0,
     {"cast from f32 to bf16 once by the origin", "2 boxes"}},
    {"a plan says what its casts are",
     "--model $CONFIG --train megatron:tp=4,dtype=f32 --infer vllm:tp=2,engines=3 "
     "--transit-budget 1GiB",
     0,
     {"casts      over a network 49.1 GB are narrower", "that origins cast once",
      "fits into --transit-budget, 1GiB for each train rank; into 390"}},
    {"a plan of one reader has nothing cast once",
     "--model $CONFIG --train megatron:tp=4,dtype=f32 --infer vllm:tp=4",
     0,
     {"at the engines: all are cast while they move", "those have one reader"}},
    {"a budget that a job file refuses too",
     "--model $CONFIG --train megatron: --infer vllm: --transit-budget 512KiB",
     2,
     {"from 1MiB to 1TiB, not \"512KiB\""}},
    {"a budget that is none",
     "--model $CONFIG --train megatron: --infer vllm: --transit-budget many",
     2,
     {"--transit-budget is bytes such as 64MiB or 2GiB"}},
    {"explain says what is prepared, and why",
     "explain --param " DOWN "@vllm --model $CONFIG --train megatron:tp=2 --infer "
     "vllm:tp=2,quant=vllm",
     0,
     {"prepared:" DOWN "@vllm", "prepared by the origin: codes of " DOWN " by rule vllm",
      "move then instead of"}},
    {"a block that is cut",
     "--model $CONFIG --train fsdp:dp=3 --infer vllm:tp=2,quant=vllm",
     0,
     {"quantised  ", "are cut between train ranks 0, 1", "rows 1280..1407", "proof      ok"}},
    {"a block that is cut, as JSON",
     "--model $CONFIG --train fsdp:dp=3 --infer vllm:tp=2,quant=vllm --json -",
     0,
     {"\"quantised_by_engines\":{", "\"matrices\":", "\"bytes_max\":", "rows 1280..1407"}},
    {"a row that is cut",
     "--model $CONFIG --train megatron:tp=2 --infer vllm:tp=2,quant=channel_div",
     0,
     {"blocks of 72 matrices", "o_proj.weight: rows 0..0, columns 0..4095 are cut between",
      "proof      ok"}},
    {"explain says who quantises",
     "explain --param " DOWN "@vllm --model $CONFIG --train fsdp:dp=3 --infer vllm:tp=2,quant=vllm",
     0,
     {"prepared:" DOWN "@vllm [rows 0..1279, columns 0..6143]",
      "quantised by engines in fp8 with rule vllm: blocks that no train rank has whole",
      "are cut between train ranks 0, 1"}},
    {"explain says what is assembled",
     "explain --param " DOWN " --model $CONFIG --train fsdp:dp=3 --infer vllm:tp=2,quant=vllm",
     0,
     {"train rank 0 " DOWN " [rows 1280..1365, columns 0..6143]", "assembled:" DOWN " [rows 0..85]",
      "quantised by engines"}},
    {"no model", "--train megatron: --infer vllm:", 2, {"--model"}},
    {"no infer", "--model $CONFIG --train megatron:", 2, {"--infer"}},
    {"two trainers", JOB "--train megatron:", 2, {"--train is given twice"}},
    {"unknown option", JOB "--trian x", 2, {"trian"}},
    {"unknown word", JOB "explian", 2, {"explain"}},
    {"explain what", "explain " JOB, 2, {"--param NAME"}},
    {"param without explain", JOB "--param x", 2, {"explain"}},
    {"unknown parameter",
     "explain --param model.layers.3.mlp.down_prj.weight " JOB,
     2,
     {"did you mean \"" DOWN "\""}},
    {"part of a parameter's name",
     "explain --param mlp.down_proj " JOB,
     2,
     {"36 have that in their names, the first is \"model.layers.0.mlp.down_proj.weight\""}},
    {"no parameter's name",
     "explain --param X " JOB,
     2,
     {"expected a name of the checkpoint, such as \"model.embed_tokens.weight\""}},
    {"unknown engine", "--model $CONFIG --train megatrn: --infer vllm:", 2, {"megatron"}},
    {"sizes that do not divide",
     "--model $CONFIG --train megatron:tp=7 --infer vllm:",
     2,
     {"--train", "7"}},
    {"a link of nothing", JOB "--link 0", 2, {"--link"}},
    {"a link of hosts", JOB "--link 0x10", 2, {"--link"}},
    {"no such rank", JOB "--rank infer:8", 2, {"rank 8"}},
    {"no such side", JOB "--rank inter:0", 2, {"train:R or infer:R"}},
    {"a rank with a sign", JOB "--rank infer:-1", 2, {"infer:-1"}},
    {"a placement", PLACED "rule.json", 0, {"proof      ok"}},
    {"a placement of the second group",
     "--model " MOE " --train megatron: --infer hf: --infer sglang:tp=2,ep=2 --placement "
     "$FOLDER/exchange.json",
     0,
     {"proof      ok"}},
    {"a placement of the trainer",
     "--model " MOE " --train megatron: --placement $FOLDER/rule.json --infer vllm:",
     2,
     {"behind the --infer"}},
    {"two placements",
     PLACED "rule.json --placement $FOLDER/rule.json",
     2,
     {"twice for --infer vllm:tp=2,ep=2"}},
    {"a placement of other slots",
     PLACED "short.json",
     2,
     {"--infer \"vllm:tp=2,ep=2\"", "expected 8 slots"}},
    {"a placement that is no table", PLACED "none.json", 2, {"list of layers"}},
    {"a placement that is not there", PLACED "nowhere.json", 2, {"nowhere.json"}},
    {"a placement without experts",
     JOB "--placement $FOLDER/rule.json",
     2,
     {"this model (qwen3) has none"}},
    {"a placement of files",
     "--model " MOE " --train megatron: --infer hf: --placement $FOLDER/rule.json",
     2,
     {"for vllm and sglang; hf"}},
    {"nobody per host", JOB "--per-host 0", 2, {"--per-host"}},
    {"no such file", "--model $FOLDER/none --train megatron: --infer vllm:", 1, {"none"}},
    {"a report that cannot be written", JOB "--json $FOLDER/none/plan.json", 1, {"none/plan.json"}},
};

Test(plan_command, says_what_it_did)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct command command;
        run(&command, rows[i].arguments);
        cr_expect_eq(command.status, rows[i].status, "%s: exit status %d: %s", rows[i].name,
                     command.status, command.output);
        for (size_t s = 0; s < 4 && rows[i].says[s] != NULL; s++) {
            cr_expect(strstr(command.output, rows[i].says[s]) != NULL, "%s: no \"%s\" in %s",
                      rows[i].name, rows[i].says[s], command.output);
        }
        clean(&command);
    }
}

static void check_report(const char *name, const char *text, bool link)
{
    struct json_object *root = NULL, *value = NULL;
    struct wf_error error;
    cr_assert_eq(wf_json_parse(text, strlen(text), WF_JSON_STRICT, &root, &error), WF_OK, "%s: %s",
                 name, text);
    cr_expect_eq(json_object_object_length(root), 15, "%s", name);
    cr_expect(json_object_object_get_ex(root, "hash", &value) &&
              json_object_get_string_len(value) == 32);
    cr_expect(json_object_object_get_ex(root, "ops", &value) &&
              json_object_get_int64(value) > 399 * 8);
    cr_expect(json_object_object_get_ex(root, "bytes_unique", &value));
    cr_expect_eq(json_object_get_int64(value), INT64_C(2) * PARAMS_8B);
    cr_expect(json_object_object_get_ex(root, "bytes_moved", &value));
    cr_expect_geq(json_object_get_int64(value), INT64_C(8) * PARAMS_8B);
    cr_expect(json_object_object_get_ex(root, "egress_max_over_mean", &value));
    cr_expect(json_object_get_double(value) >= 1 && json_object_get_double(value) <= 1.05);
    cr_expect(json_object_object_get_ex(root, "ingress_max_over_mean", &value));
    cr_expect(json_object_get_double(value) >= 1 && json_object_get_double(value) <= 1.05);
    cr_expect(json_object_object_get_ex(root, "build_seconds", &value));
    cr_expect_gt(json_object_get_double(value), 0);
    cr_expect(json_object_object_get_ex(root, "cast_moving_bytes", &value));
    cr_expect_eq(json_object_get_int64(value), 0);
    cr_expect(json_object_object_get_ex(root, "bound_seconds", &value));
    cr_expect(link ? json_object_get_double(value) > 1 : value == NULL);
    cr_expect(json_object_object_get_ex(root, "proof", &value));
    cr_expect_str_eq(json_object_get_string(value), "ok");
    cr_expect(json_object_object_get_ex(root, "classes", &value) &&
              json_object_get_int64(value) == 10);
    json_object_put(root);
}

/* Expert 7 of the exchanged layer stands on the first rank, and nothing else moved. */
Test(plan_command, places_experts)
{
    static const struct {
        const char *name, *arguments, *says;
    } placed[] = {
        {"as the rule", PLACED "rule.json", "infer rank 1 "},
        {"exchanged", PLACED "exchange.json", "infer rank 0 "},
        {"exchanged, another layer", PLACED "exchange.json", "infer rank 1 "},
    };
    static const unsigned layers[] = {1, 1, 0};
    for (size_t i = 0; i < sizeof placed / sizeof placed[0]; i++) {
        struct command command;
        char arguments[1024];
        snprintf(arguments, sizeof arguments,
                 "explain --param model.layers.%u.mlp.experts.7.down_proj.weight %s", layers[i],
                 placed[i].arguments);
        run(&command, arguments);
        cr_expect_eq(command.status, 0, "%s: %s", placed[i].name, command.output);
        cr_expect(strstr(command.output, placed[i].says) != NULL, "%s: no \"%s\" in %s",
                  placed[i].name, placed[i].says, command.output);
        clean(&command);
    }
}

Test(plan_command, reports_in_json)
{
    struct command command;
    run(&command, JOB "--json -");
    check_report("to standard output", command.output, false);
    clean(&command);
    run(&command,
        JOB "--link 400 --json $FOLDER/plan.json && cat $FOLDER/plan.json | tr '\\n' ' '");
    char *json = strchr(command.output, '{');
    cr_assert_not_null(json, "%s", command.output);
    check_report("to a file", json, true);
    clean(&command);
}
