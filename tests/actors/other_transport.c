/* other_transport.c - passes everything on to the transport underneath, but under another name. */
#include "tests/actors/other_transport.h"

#include <stdlib.h>
#include <unistd.h>

struct other {
    struct wf_transport base; /* first */
    struct wf_transport_ops ops;
    struct wf_transport *inner;
    struct other_options options;
    struct wf_import *held[16];
    unsigned held_count;
    struct wf_read *held_read;
};

static struct wf_transport *inner_of(struct wf_transport *t)
{
    return ((struct other *)t)->inner;
}

static enum wf_status export_region(struct wf_transport *t, const struct wf_region *region,
                                    struct wf_handle *handle_out, struct wf_error *error)
{
    const struct other *other = (struct other *)t;
    struct wf_region bare = *region;
    if (other->options.exports_bad) {
        return wf_error_set(error, WF_NO_RESOURCE, "no more memory can be registered");
    }
    bare.fd = other->options.maps ? region->fd : -1;
    return other->inner->ops->export_region(other->inner, &bare, handle_out, error);
}

static void withdraw_region(struct wf_transport *t, const struct wf_handle *handle)
{
    inner_of(t)->ops->withdraw_region(inner_of(t), handle);
}

static void import_region(struct wf_transport *t, struct wf_import *import)
{
    struct other *other = (struct other *)t;
    if (other->options.holds) {
        WF_ASSERT(other->held_count < sizeof other->held / sizeof other->held[0]);
        other->held[other->held_count++] = import;
        return;
    }
    if (!other->options.refuses) {
        inner_of(t)->ops->import_region(inner_of(t), import);
        return;
    }
    if (import->handle.fd >= 0) {
        close(import->handle.fd);
    }
    import->remote = NULL;
    import->status = wf_error_set(&import->error, WF_UNSUPPORTED, "mapping is forbidden here");
    wf_send(import->owner, &import->done);
}

static void release_region(struct wf_transport *t, struct wf_remote *remote)
{
    inner_of(t)->ops->release_region(inner_of(t), remote);
}

static void read_start(struct wf_transport *t, struct wf_read *read)
{
    struct other *other = (struct other *)t;
    if (other->options.holds_read && other->held_read == NULL) {
        other->held_read = read;
        return;
    }
    inner_of(t)->ops->read(inner_of(t), read);
}

static void read_cancel(struct wf_transport *t, struct wf_read *read)
{
    inner_of(t)->ops->cancel(inner_of(t), read);
}

static void close_other(struct wf_transport *t)
{
    inner_of(t)->ops->close(inner_of(t));
    free(t);
}

struct wf_transport *other_transport_new(struct wf_transport *inner,
                                         const struct other_options *options)
{
    struct other *other = calloc(1, sizeof *other);
    WF_ASSERT(other != NULL);
    other->inner = inner;
    other->options = *options;
    other->ops = (struct wf_transport_ops){.name = options->name,
                                           .caps = WF_CAP_GET | WF_CAP_CAST |
                                                   (options->maps ? WF_CAP_MAP : 0),
                                           .export_region = export_region,
                                           .withdraw_region = withdraw_region,
                                           .import_region = import_region,
                                           .release_region = release_region,
                                           .read = read_start,
                                           .cancel = read_cancel,
                                           .close = close_other};
    other->base.ops = &other->ops;
    return &other->base;
}

unsigned other_transport_held(const struct wf_transport *t)
{
    return ((const struct other *)t)->held_count;
}

void other_transport_go(struct wf_transport *t)
{
    struct other *other = (struct other *)t;
    other->options.holds = other->options.holds_read = false;
    if (other->held_read != NULL) {
        inner_of(t)->ops->read(inner_of(t), other->held_read);
        other->held_read = NULL;
    }
    for (unsigned i = 0; i < other->held_count; i++) {
        inner_of(t)->ops->import_region(inner_of(t), other->held[i]);
    }
    other->held_count = 0;
}
