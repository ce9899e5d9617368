/* ucx_selected.h - what UCX chose for a connection, read from what it prints about it. Pure.
 * Private to transports/ucx*.c and its tests.
 *
 * UCX 1.13 has no call that tells; ucp_ep_print_info writes a line for each lane:
 *   lane[0]:  2:rc_mlx5/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[255] rma_bw#0 am am_bw#0
 */
#ifndef WEFT_TRANSPORTS_UCX_SELECTED_H
#define WEFT_TRANSPORTS_UCX_SELECTED_H

#include <stdbool.h>
#include <stddef.h>

enum { UCX_SELECTED_LANES = 16 };

struct ucx_selected {
    unsigned lanes;
    struct ucx_selected_lane {
        char transport[24], device[40];
        bool bulk; /* moves large messages, by remote memory access or active messages */
        bool get;  /* moves them by remote memory access */
        bool am;   /* moves messages, and large ones too where no lane is named for those */
    } lane[UCX_SELECTED_LANES];
    /* Every lane that moves large messages reads remote memory without the other CPU: only then are
     * one-sided reads worth asking for. False when the text is not understood. */
    bool native_get;
};

struct ucx_selected ucx_selected_parse(const char *text);
/* Whether every lane that moves messages, large ones above all, is of this transport, and there is
 * one. */
bool ucx_selected_is_bulk(const struct ucx_selected *selected, const char *transport);
/* "rc_mlx5/mlx5_0:1 (one-sided)", "tcp/eth0", "something unknown". */
void ucx_selected_text(const struct ucx_selected *selected, char *text_out, size_t room);
/* Whether `list`, "first; text; another", has `text` behind its first part. */
bool ucx_selected_is_listed(const char *list, const char *text);

#endif
