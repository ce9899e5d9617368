/* ucx_get.c - reading a source's memory without it: keys, one-sided reads.
 *
 * Only where UCX selected a transport whose hardware does it: emulated, a get over TCP moves a
 * third of what a stream does. It has run on emulated gets alone; on RDMA hardware it has not.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "transports/ucx_internal.h"

/* RMA costs lanes and room in addresses, so a host without RDMA devices does not ask for it. */
bool ucx_get_wanted(const struct ucx *ucx)
{
    if (ucx->get != WF_UCX_GET_NATIVE) {
        return ucx->get == WF_UCX_GET_ALWAYS;
    }
    DIR *folder = opendir("/sys/class/infiniband");
    bool any = false;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        any = any || entry->d_name[0] != '.';
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return any;
}

/* --- the reader's side -------------------------------------------------------------------------
 */

void ucx_get_keep(struct ucx_remote *remote, const uint8_t *body, uint32_t len)
{
    if (len <= sizeof remote->address || !remote->peer->can_get) {
        return;
    }
    remote->key_len = len - (uint32_t)sizeof remote->address;
    remote->key = malloc(remote->key_len);
    if (remote->key != NULL) {
        memcpy(&remote->address, body, sizeof remote->address);
        memcpy(remote->key, body + sizeof remote->address, remote->key_len);
        remote->next = remote->peer->ucx->reader.keyed;
        remote->peer->ucx->reader.keyed = remote;
    }
}

static void drop_key(struct ucx_remote *remote)
{
    if (remote->rkey != NULL) {
        remote->peer->ucx->library.ucp_rkey_destroy(remote->rkey);
        remote->rkey = NULL;
    }
}

void ucx_get_forget(struct ucx_remote *remote)
{
    struct ucx_remote **link = &remote->peer->ucx->reader.keyed;
    while (*link != NULL && *link != remote) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = remote->next;
    }
    drop_key(remote);
    free(remote->key);
}

void ucx_get_drop_keys(struct ucx *ucx)
{
    for (struct ucx_remote *remote = ucx->reader.keyed; remote != NULL; remote = remote->next) {
        drop_key(remote);
    }
}

static bool have_key(struct ucx_remote *remote)
{
    struct ucx_peer *peer = remote->peer;
    if (remote->key == NULL) {
        return false;
    }
    if (remote->rkey_of != peer->connection) {
        drop_key(remote);
        remote->rkey_of = peer->connection;
        if (peer->ucx->library.ucp_ep_rkey_unpack(peer->eps[0], remote->key, &remote->rkey) !=
            UCS_OK) {
            remote->rkey = NULL;
        }
    }
    return remote->rkey != NULL;
}

static void got(void *request, ucs_status_t status, void *user)
{
    struct ucx_slot *slot = user;
    slot->ucx->library.ucp_request_free(request);
    ucx_slot_landed(slot, status);
}

bool ucx_get_start(struct ucx_slot *slot)
{
    struct ucx *ucx = slot->ucx;
    struct ucx_remote *remote = slot->remote;
    if (remote == NULL || !have_key(remote)) {
        return false;
    }
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = got,
        .user_data = slot,
    };
    slot->state = UCX_SLOT_ARRIVING;
    ucx->reader.receives++;
    ucs_status_ptr_t request = ucx->library.ucp_get_nbx(
        slot->peer->eps[0], slot->direct != NULL ? slot->direct : slot->buffer, slot->wire_bytes,
        remote->address + slot->remote_offset, remote->rkey, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        ucx_slot_landed(slot, UCS_PTR_STATUS(request));
    }
    return true;
}
