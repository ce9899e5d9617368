/* test_planner.c - a plan whose proof fails is forgotten: the next one of the same members is made
 * and proven again.
 *
 * The linker puts the proof below between the planner and the real one (--wrap, meson.build).
 */
#include <criterion/criterion.h>

#include "actors/plan.h"
#include "tests/actors/stage.h"

enum wf_status __real_wf_plan_prove(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_error *error);
enum wf_status __wrap_wf_plan_prove(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_error *error);

static struct stage stage;
static uint32_t proofs, failing; /* the first `failing` of them fail */

enum wf_status __wrap_wf_plan_prove(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_error *error)
{
    return ++proofs <= failing ? wf_error_set(error, WF_MISMATCH, "a box is written twice")
                               : __real_wf_plan_prove(input, plan, error);
}

static void plan(enum wf_status wanted)
{
    stage.epoch++;
    stage_send_plan(&stage, stage_infer(&stage, 0), UINT32_MAX);
    struct wf_local_msg *answer = stage_wait(&stage, stage_infer(&stage, 0), WF_LOCAL_PLANNED);
    cr_assert_not_null(answer);
    cr_assert_eq(answer->status, wanted, "after %u proofs: %s", proofs, answer->error.text);
    stage_drop(answer);
}

Test(planner, a_plan_whose_proof_failed_is_not_taken_for_proven)
{
    const struct stage_options options = {.train = "hf:", .infer = "vllm:tp=1"};
    stage_open(&stage, &options);
    proofs = 0;
    failing = 2;
    plan(WF_MISMATCH);
    plan(WF_MISMATCH);
    plan(WF_OK);
    cr_assert_eq(proofs, 3);
    plan(WF_OK);
    cr_assert_eq(proofs, 3, "what is proven is not proven again");
    stage_close(&stage);
}
