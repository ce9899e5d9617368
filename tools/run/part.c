/* part.c - from launcher, job file and command line to one part of the job. */
#include "tools/run/part.h"

#include <stdio.h>
#include <string.h>

#include "models/hash.h"
#include "runtime/wire_address.h"

enum { NAME_DIGITS = 16 };

static bool is_any_host(const char *host)
{
    return strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* How ranks reach a server that listens at `listen`. */
static enum wf_status address_for(const char *listen, const struct wf_launcher_place *place,
                                  enum wf_job_part started, char out[WF_ADDRESS_MAX],
                                  struct wf_error *error)
{
    struct wf_wire_address address;
    enum wf_status status = wf_wire_address_parse(listen, &address, error);
    if (status != WF_OK) {
        return status;
    }
    if (address.is_wildcard || (!address.is_unix && address.port == 0)) {
        return wf_error_set(error, WF_INVALID,
                            "server.listen: %s picks an address that only the server would know; "
                            "ranks that a launcher started need it written out: HOST:PORT",
                            listen);
    }
    if (address.is_unix || !is_any_host(address.host)) {
        snprintf(out, WF_ADDRESS_MAX, "%s", listen);
        return WF_OK;
    }
    /* Rank 0 of the launcher is the leader only if it starts the train side. */
    const char *host = place->rank0_host;
    if (host[0] == '\0' || started == WF_PART_INFER) {
        return wf_error_set(error, WF_INVALID,
                            "server.listen: %s does not say on which host, and %s does not either; "
                            "write the host of train rank 0: HOST:%u",
                            listen, wf_launcher_name(place->launcher), address.port);
    }
    bool numeric6 = strchr(host, ':') != NULL;
    int len = snprintf(out, WF_ADDRESS_MAX, "tcp:%s%s%s:%u", numeric6 ? "[" : "", host,
                       numeric6 ? "]" : "", address.port);
    return len < WF_ADDRESS_MAX ? wf_wire_address_parse(out, &address, error)
                                : wf_error_set(error, WF_INVALID, "the host's name is too long");
}

/* An address that follows from the launcher's job id, where all are on one host. */
static enum wf_status derive_address(const struct wf_run_setup *setup,
                                     const struct wf_launcher_place *place, uint32_t ranks,
                                     char out[WF_ADDRESS_MAX], struct wf_error *error)
{
    uint32_t all = setup->train_ranks + setup->infer_ranks;
    if (place->local_world != ranks || ranks != all || place->job_id[0] == '\0') {
        return wf_error_set(error, WF_INVALID,
                            "where is the server? Not all %u ranks of the job are known to be "
                            "started together on this host (%s: %s); give the job file "
                            "server.listen: HOST:PORT (of train rank 0) or server.address",
                            all, wf_launcher_name(place->launcher), place->said);
    }
    struct wf_hasher hasher;
    char hash[WF_HASH_TEXT];
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, place->launcher);
    wf_hasher_text(&hasher, place->job_id, strlen(place->job_id));
    wf_hasher_text(&hasher, setup->job.name, strlen(setup->job.name));
    wf_hash_format(wf_hasher_end(&hasher), hash);
    snprintf(out, WF_ADDRESS_MAX, "unix:@weft-server-%.*s", NAME_DIGITS, hash);
    return WF_OK;
}

/* Fills `server`, and `listen` where this process has to start it. */
static enum wf_status find_server(const struct wf_run_setup *setup, const struct wf_run_wish *wish,
                                  const struct wf_launcher_place *place, enum wf_job_part started,
                                  uint32_t ranks, struct wf_run_part *part, struct wf_error *error)
{
    const char *given = wish->server != NULL ? wish->server : setup->job.server.address;
    if (given[0] != '\0') {
        snprintf(part->server, sizeof part->server, "%s", given);
        return WF_OK;
    }
    if (wish->observe && setup->job.server.listen[0] == '\0') {
        return wf_error_set(error, WF_INVALID,
                            "--observe needs --server ADDRESS, or server.address or server.listen "
                            "in the job file");
    }
    enum wf_status status =
        setup->job.server.listen[0] != '\0'
            ? address_for(setup->job.server.listen, place, started, part->server, error)
            : derive_address(setup, place, ranks, part->server, error);
    if (status != WF_OK && wish->observe) {
        return wf_error_set(
            error, WF_INVALID,
            "--observe needs --server ADDRESS: server.listen: %s does not say where "
            "others reach the server",
            setup->job.server.listen);
    }
    if (status == WF_OK && part->kind == WF_RUN_RANK && part->side == WF_TRAIN && part->rank == 0) {
        part->kind = WF_RUN_LEADER;
        snprintf(part->listen, sizeof part->listen, "%s",
                 setup->job.server.listen[0] != '\0' ? setup->job.server.listen : part->server);
    }
    return status;
}

/* Without a token file each host would make a token of its own, and refuse the others'. */
static enum wf_status check_token(const struct wf_run_setup *setup, const struct wf_run_wish *wish,
                                  const struct wf_launcher_place *place,
                                  wf_variable_lookup_t *lookup, void *user, struct wf_error *error)
{
    const char *told = lookup(user, "WEFT_TOKEN_FILE");
    bool named = wish->token_file != NULL || setup->job.server.token_file[0] != '\0' ||
                 (told != NULL && told[0] != '\0');
    if (named || !place->several_hosts) {
        return WF_OK;
    }
    return wf_error_set(error, WF_INVALID,
                        "the job is started on several hosts (%s: %s), and nothing says where its "
                        "token is: give every process the same file by server.token_file of the "
                        "job file, --token-file or WEFT_TOKEN_FILE",
                        wf_launcher_name(place->launcher), place->said);
}

enum wf_status wf_run_part_find(const struct wf_run_setup *setup, const struct wf_run_wish *wish,
                                wf_variable_lookup_t *lookup, void *user,
                                struct wf_run_part *part_out, struct wf_error *error)
{
    struct wf_run_part part = {.kind = WF_RUN_OBSERVER};
    struct wf_launcher_place place = {.launcher = WF_LAUNCHER_NONE};
    enum wf_launcher launcher =
        wish->launcher != WF_LAUNCHER_UNSAID ? wish->launcher : setup->job.run.launcher;
    enum wf_job_part started = wish->part != NULL ? *wish->part : setup->job.run.part;
    uint32_t ranks = (started != WF_PART_INFER ? setup->train_ranks : 0) +
                     (started != WF_PART_TRAIN ? setup->infer_ranks : 0);
    if (!wish->observe) {
        enum wf_status status = wf_launcher_find(launcher, ranks, lookup, user, &place, error);
        if (status != WF_OK) {
            return status;
        }
        part.kind = place.launcher == WF_LAUNCHER_NONE ? WF_RUN_JOB : WF_RUN_RANK;
    }
    if (part.kind == WF_RUN_JOB) {
        *part_out = part;
        return WF_OK;
    }
    bool train =
        started == WF_PART_TRAIN || (started == WF_PART_ALL && place.rank < setup->train_ranks);
    part.side = train ? WF_TRAIN : WF_INFER;
    part.rank = train || started == WF_PART_INFER ? place.rank : place.rank - setup->train_ranks;
    part.local_world = place.local_world;
    enum wf_status status = find_server(setup, wish, &place, started, ranks, &part, error);
    if (status == WF_OK) {
        status = check_token(setup, wish, &place, lookup, user, error);
    }
    if (status == WF_OK) {
        *part_out = part;
    }
    return status;
}
