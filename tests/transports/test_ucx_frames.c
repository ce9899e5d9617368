/* test_ucx_frames.c - heads, slices and handles: round trips, and bytes that a peer made up. */
#include <criterion/criterion.h>
#include <string.h>

#include "transports/ucx_frames.h"
#include "transports/ucx_selected.h"

Test(ucx_frames, a_head_survives)
{
    struct ucx_head head = {.kind = UCX_CHUNK,
                            .lane = 3,
                            .in_parts = 1,
                            .status = 42,
                            .count = 7,
                            .timeout_ms = 5000,
                            .offset = 122880,
                            .tag = UINT64_C(0x0123456789abcdef),
                            .region = 9,
                            .len_bytes = UINT64_C(1) << 40};
    memset(head.source, 0x11, UCX_LIFE_BYTES);
    memset(head.reader, 0x22, UCX_LIFE_BYTES);
    uint8_t bytes[UCX_HEAD_BYTES];
    struct ucx_head got;
    memset(&got, 0, sizeof got);
    ucx_head_encode(&head, bytes);
    cr_assert(ucx_head_decode(bytes, sizeof bytes, &got));
    cr_assert_eq(got.kind, head.kind);
    cr_assert_eq(got.lane, head.lane);
    cr_assert_eq(got.in_parts, 1);
    cr_assert_eq(got.offset, head.offset);
    cr_assert_eq(got.status, head.status);
    cr_assert_eq(got.count, head.count);
    cr_assert_eq(got.timeout_ms, head.timeout_ms);
    cr_assert_eq(got.tag, head.tag);
    cr_assert_eq(got.region, head.region);
    cr_assert_eq(got.len_bytes, head.len_bytes);
    cr_assert_arr_eq(got.source, head.source, UCX_LIFE_BYTES);
    cr_assert_arr_eq(got.reader, head.reader, UCX_LIFE_BYTES);
    cr_assert_not(ucx_head_decode(bytes, sizeof bytes - 1, &got), "cut short");
    bytes[0] ^= 1;
    cr_assert_not(ucx_head_decode(bytes, sizeof bytes, &got), "another magic");
    bytes[0] ^= 1;
    bytes[4] = UCX_KIND_LIMIT;
    cr_assert_not(ucx_head_decode(bytes, sizeof bytes, &got), "an unknown kind");
}

enum { REGION = 1000 };

static const struct slice_row {
    const char *name;
    struct ucx_slice slice;
    bool is_good;
} slice_rows[] = {
    {"all of it", {1, 0, 0, REGION, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{REGION, 1}}}, true},
    {"one element without axes", {1, 996, 0, 1, WF_DTYPE_F32, WF_DTYPE_BF16, 0, {{0}}}, true},
    {"the last of two rows",
     {1, 0, 90, 10, WF_DTYPE_U8, WF_DTYPE_U8, 2, {{2, 500}, {50, 1}}},
     true},
    {"backwards", {1, 999, 0, REGION, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{REGION, -1}}}, true},
    {"one byte too far", {1, 1, 0, 10, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{REGION, 1}}}, false},
    {"far outside", {1, UINT64_MAX, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 0, {{0}}}, false},
    {"before the region", {1, 5, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{10, -1}}}, false},
    {"an element across the end", {1, 998, 0, 1, WF_DTYPE_F32, WF_DTYPE_F32, 0, {{0}}}, false},
    {"no elements", {1, 0, 0, 0, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{10, 1}}}, false},
    {"more than the box", {1, 0, 5, 6, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{10, 1}}}, false},
    {"first beyond the box", {1, 0, UINT64_MAX, 1, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{10, 1}}}, false},
    {"an empty axis", {1, 0, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{0, 1}}}, false},
    {"counts that overflow",
     {1, 0, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 3, {{1ull << 40, 0}, {1ull << 40, 0}, {2, 1}}},
     false},
    {"steps that overflow", {1, 0, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{4, INT64_MAX / 2}}}, false},
    {"the least step", {1, 0, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{2, INT64_MIN}}}, false},
    {"repeats without end", {1, 0, 0, 1, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{UINT64_MAX, 0}}}, false},
    {"no such type", {1, 0, 0, 1, 200, WF_DTYPE_U8, 0, {{0}}}, false},
    {"no such cast", {1, 0, 0, 1, WF_DTYPE_I32, WF_DTYPE_BF16, 0, {{0}}}, false},
};

Test(ucx_frames, slices_of_peers_are_checked)
{
    for (size_t i = 0; i < sizeof slice_rows / sizeof slice_rows[0]; i++) {
        const struct slice_row *row = &slice_rows[i];
        uint8_t bytes[UCX_SLICE_MAX_BYTES];
        struct ucx_slice got;
        struct wf_box box;
        struct wf_error error = {.text = ""};
        size_t len = ucx_slice_encode(&row->slice, bytes);
        cr_assert_leq(len, sizeof bytes, "%s", row->name);
        cr_assert_eq(ucx_slice_decode(bytes, len, &got), len, "%s", row->name);
        cr_assert_eq(ucx_slice_decode(bytes, len - 1, &got), 0, "%s: cut short", row->name);
        cr_assert_eq(ucx_slice_decode(bytes, len, &got), len, "%s", row->name);
        enum wf_status status = ucx_slice_box(&got, REGION, &box, &error);
        cr_assert_eq(status == WF_OK, row->is_good, "%s: %s", row->name, error.text);
        cr_assert_eq(error.text[0] != '\0', !row->is_good, "%s", row->name);
    }
    uint8_t bytes[UCX_SLICE_MAX_BYTES + 16];
    struct ucx_slice got;
    ucx_slice_encode(&slice_rows[0].slice, bytes);
    bytes[34] = WF_AXES_MAX + 1;
    cr_assert_eq(ucx_slice_decode(bytes, sizeof bytes, &got), 0, "too many axes");
}

static const struct run_row {
    const char *name;
    struct wf_box box;
    bool side_dst;
    uint64_t elem, first, run, offset;
} run_rows[] = {
    {"a run", {0, 6, 8, 100, 1, {{100, 2, 2}}}, false, 2, 10, 90, 26},
    {"a run, the other side", {0, 6, 8, 100, 1, {{100, 2, 4}}}, true, 4, 10, 90, 48},
    {"a run with gaps", {0, 0, 0, 100, 1, {{100, 4, 2}}}, false, 2, 3, 1, 12},
    {"rows that follow", {0, 0, 0, 50, 2, {{5, 20, 40}, {10, 2, 2}}}, false, 2, 12, 38, 24},
    {"rows apart", {0, 0, 0, 50, 2, {{5, 20, 40}, {10, 2, 2}}}, true, 2, 12, 8, 44},
    {"an axis of one", {0, 0, 0, 20, 2, {{20, 2, 2}, {1, 999, 7}}}, false, 2, 5, 15, 10},
    {"one element", {0, 4, 0, 1, 0, {{0}}}, false, 2, 0, 1, 4},
};

Test(ucx_frames, runs_of_boxes)
{
    for (size_t i = 0; i < sizeof run_rows / sizeof run_rows[0]; i++) {
        const struct run_row *row = &run_rows[i];
        cr_assert_eq(ucx_box_run(&row->box, row->side_dst, row->elem, row->first), row->run, "%s",
                     row->name);
        cr_assert_eq(ucx_box_offset(&row->box, row->side_dst, row->first), row->offset, "%s",
                     row->name);
    }
}

Test(ucx_frames, a_handle_survives_or_is_refused)
{
    uint8_t address[300];
    memset(address, 0x5a, sizeof address);
    struct ucx_handle from = {.host = 1,
                              .pid = 2,
                              .pid_start = 3,
                              .region = 4,
                              .len_bytes = 5,
                              .address_len = sizeof address,
                              .address = address};
    struct ucx_handle got;
    struct wf_handle handle;
    struct wf_error error;
    cr_assert_eq(ucx_handle_encode(&from, &handle, &error), WF_OK);
    cr_assert_eq(ucx_handle_decode(&handle, &got, &error), WF_OK, "%s", error.text);
    cr_assert_eq(got.pid_start, 3);
    cr_assert_arr_eq(got.address, address, sizeof address);
    for (uint32_t i = 0; i < handle.len; i++) {
        struct wf_handle spoiled = handle;
        spoiled.bytes[i] ^= 0x10;
        cr_assert_eq(ucx_handle_decode(&spoiled, &got, &error), WF_PROTOCOL, "byte %u", i);
    }
    from.address_len = WF_HANDLE_MAX;
    cr_assert_eq(ucx_handle_encode(&from, &handle, &error), WF_UNSUPPORTED);
    cr_assert_not_null(strstr(error.text, "transport.interfaces"));
}

/* As UCX 1.13 and 1.22 print them. */
static const struct selected_row {
    const char *name, *text, *said;
    bool native_get;
} selected_rows[] = {
    {"tcp",
     "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n"
     "#                 lane[0]:  0:tcp/lo.0 md[0]              -> md[0]/tcp/sysdev[255] rma_bw#0 "
     "am "
     "am_bw#0 wireup\n#\n",
     "tcp/lo", false},
    {"rc",
     "#                 lane[0]:  6:rc_mlx5/mlx5_0:1.0 md[3]   -> md[3]/ib/sysdev[4] rma_bw#0 am "
     "am_bw#0\n"
     "#                 lane[1]:  9:rc_mlx5/mlx5_1:1.0 md[4]   -> md[4]/ib/sysdev[4] rma_bw#1\n"
     "#                 lane[2]:  5:ud_mlx5/mlx5_0:1.0 md[3]   -> md[3]/ib/sysdev[4] wireup\n",
     "rc_mlx5/mlx5_0:1, rc_mlx5/mlx5_1:1, ud_mlx5/mlx5_0:1 (one-sided)", true},
    {"ud alone",
     "#    lane[0]:  5:ud_verbs/mlx5_0:1.0 md[3]  -> md[3]/ib/sysdev[4] am am_bw#0 wireup\n",
     "ud_verbs/mlx5_0:1", false},
    {"rc beside tcp",
     "# lane[0]:  6:rc_verbs/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[4] rma_bw#0 am\n"
     "# lane[1]:  1:tcp/eth0.0 md[1] -> md[1]/tcp/sysdev[4] rma_bw#1\n",
     "rc_verbs/mlx5_0:1, tcp/eth0", false},
    {"rc, but tcp moves large messages too",
     "# lane[0]:  6:rc_verbs/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[4] rma_bw#0 am\n"
     "# lane[1]:  1:tcp/eth0.0 md[1] -> md[1]/tcp/sysdev[4] am_bw#0\n",
     "rc_verbs/mlx5_0:1, tcp/eth0", false},
    {"rc, and tcp for small ones alone",
     "# lane[0]:  6:rc_verbs/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[4] rma_bw#0\n"
     "# lane[1]:  1:tcp/eth0.0 md[1] -> md[1]/tcp/sysdev[4] am wireup\n",
     "rc_verbs/mlx5_0:1, tcp/eth0 (one-sided)", true},
    {"atomics move nothing large",
     "# lane[0]:  6:rc_verbs/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[4] rma_bw#0 am\n"
     "# lane[1]:  1:tcp/eth0.0 md[1] -> md[1]/tcp/sysdev[4] amo#0\n",
     "rc_verbs/mlx5_0:1, tcp/eth0 (one-sided)", true},
    {"a name that begins another",
     "# lane[0]:  1:tcp/eth10.0 md[1] -> md[1]/tcp/sysdev[4] rma_bw#0 am am_bw#0\n"
     "# lane[1]:  1:tcp/eth1.0 md[1] -> md[1]/tcp/sysdev[4] rma_bw#1 am_bw#1\n"
     "# lane[2]:  1:tcp/eth1.0 md[1] -> md[1]/tcp/sysdev[4] wireup\n",
     "tcp/eth10, tcp/eth1", false},
    {"shared memory with cma",
     "# lane[0]:  3:posix/memory.0 md[2] -> md[2]/posix/sysdev[255] am am_bw#0\n"
     "# lane[1]:  5:cma/memory.0 md[5] -> md[4]/cma/sysdev[255] rma_bw#0\n",
     "posix/memory, cma/memory", false},
    {"nothing", "", "a transport that ucx does not name", false},
    {"another language", "lane[0]: who knows\n", "a transport that ucx does not name", false},
};

static const struct bulk_row {
    const char *name, *text;
    bool is_tcp;
} bulk_rows[] = {
    {"ucx 1.13", "# lane[0]:  0:tcp/lo.0 md[0] -> md[0]/tcp/sysdev[255] am am_bw#0 wireup\n", true},
    {"ucx 1.22", "# lane[0]:  1:tcp/lo.0 md[0] -> md[0]/tcp/sysdev[255] seg 4294967295 am wireup\n",
     true},
    {"two networks",
     "# lane[0]:  0:tcp/eth0.0 md[0] -> md[0]/tcp/sysdev[255] am am_bw#0\n"
     "# lane[1]:  1:tcp/eth1.0 md[0] -> md[0]/tcp/sysdev[255] am_bw#1 wireup\n",
     true},
    {"tcp to connect alone",
     "# lane[0]:  0:tcp/eth0.0 md[0] -> md[0]/tcp/sysdev[255] wireup\n"
     "# lane[1]:  1:rc_mlx5/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[255] rma_bw#0 am am_bw#0\n",
     false},
    {"messages over tcp, memory over rdma",
     "# lane[0]:  0:tcp/eth0.0 md[0] -> md[0]/tcp/sysdev[255] am wireup\n"
     "# lane[1]:  1:rc_mlx5/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[255] rma_bw#0\n",
     false},
    {"shared memory", "# lane[0]:  3:posix/memory.0 md[2] -> md[2]/posix/sysdev[255] am am_bw#0\n",
     false},
    {"nothing", "", false},
};

Test(ucx_frames, chunks_in_parts_are_for_tcp_alone)
{
    for (size_t i = 0; i < sizeof bulk_rows / sizeof bulk_rows[0]; i++) {
        struct ucx_selected selected = ucx_selected_parse(bulk_rows[i].text);
        cr_assert_eq(ucx_selected_is_bulk(&selected, "tcp"), bulk_rows[i].is_tcp, "%s",
                     bulk_rows[i].name);
    }
}

Test(ucx_frames, what_ucx_selected_is_parsed)
{
    for (size_t i = 0; i < sizeof selected_rows / sizeof selected_rows[0]; i++) {
        const struct selected_row *row = &selected_rows[i];
        char said[200];
        struct ucx_selected selected = ucx_selected_parse(row->text);
        ucx_selected_text(&selected, said, sizeof said);
        cr_assert_str_eq(said, row->said, "%s: %s", row->name, said);
        cr_assert_eq(selected.native_get, row->native_get, "%s", row->name);
    }
    cr_assert(ucx_selected_is_listed("ucx 1.13; tcp/eth10; tcp/eth1", "tcp/eth1"));
    cr_assert(ucx_selected_is_listed("ucx 1.13; tcp/eth1; tcp/eth10", "tcp/eth1"));
    cr_assert_not(ucx_selected_is_listed("ucx 1.13; tcp/eth10", "tcp/eth1"));
    cr_assert_not(ucx_selected_is_listed("tcp/eth1", "tcp/eth1"), "the first part is another");
}
