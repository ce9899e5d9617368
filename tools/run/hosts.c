/* hosts.c - reads a list of hosts and places a job's ranks on it. */
#include "tools/run/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/host_name.h"

enum { SLOTS_MAX = 4096, WORDS_MAX = 8 };

/* --- the list --------------------------------------------------------------------------------- */
static bool parse_slots(const char *text, uint32_t *slots_out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 4 || text[digits] != '\0' || text[0] == '0') {
        return false;
    }
    *slots_out = (uint32_t)strtoul(text, NULL, 10);
    return *slots_out <= SLOTS_MAX;
}

static enum wf_status take_word(struct wf_run_host *host, const char *word, struct wf_error *error)
{
    if (strncmp(word, "slots=", 6) == 0) {
        return parse_slots(word + 6, &host->slots)
                   ? WF_OK
                   : wf_error_set(error, WF_INVALID, "slots: expected 1 to %d, found \"%.40s\"",
                                  SLOTS_MAX, word + 6);
    }
    if (strcmp(word, "side=train") == 0 || strcmp(word, "side=infer") == 0) {
        host->takes[WF_TRAIN] = word[5] == 't';
        host->takes[WF_INFER] = word[5] == 'i';
        return WF_OK;
    }
    /* A word that begins with '-' would be an option of the remote shell. */
    if (strncmp(word, "address=", 8) == 0 && word[8] != '\0' && word[8] != '-' &&
        strlen(word + 8) < sizeof host->address) {
        snprintf(host->address, sizeof host->address, "%s", word + 8);
        return WF_OK;
    }
    return wf_error_set(error, WF_INVALID,
                        "expected slots=N, side=train, side=infer or address=A, found \"%.40s\"",
                        word);
}

static enum wf_status take_line(char *line, struct wf_hosts *hosts, struct wf_error *error)
{
    struct wf_run_host host = {.takes = {true, true}};
    enum wf_status status = WF_OK;
    line[strcspn(line, "#\r")] = '\0';
    for (char *word, *rest = line; status == WF_OK && (word = strsep(&rest, " \t")) != NULL;) {
        if (word[0] == '\0') {
            continue;
        }
        if (host.name[0] != '\0') {
            status = take_word(&host, word, error);
        } else if (word[0] == '-') {
            status = wf_error_set(error, WF_INVALID, "\"%.40s\" is no host's name", word);
        } else if ((status = wf_host_name_check(word, error)) == WF_OK) {
            snprintf(host.name, sizeof host.name, "%s", word);
        }
    }
    if (status != WF_OK || host.name[0] == '\0') {
        return status;
    }
    for (uint32_t i = 0; i < hosts->count; i++) {
        if (strcmp(hosts->hosts[i].name, host.name) == 0) {
            return wf_error_set(error, WF_INVALID, "%s is named a second time", host.name);
        }
    }
    if (hosts->count == WF_HOSTS_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d hosts", WF_HOSTS_MAX);
    }
    host.local = strcmp(host.name, "localhost") == 0;
    if (host.address[0] == '\0') {
        snprintf(host.address, sizeof host.address, "%s", host.name);
    }
    hosts->hosts = realloc(hosts->hosts, (hosts->count + 1) * sizeof *hosts->hosts);
    WF_ASSERT(hosts->hosts != NULL);
    hosts->hosts[hosts->count++] = host;
    return WF_OK;
}

enum wf_status wf_hosts_parse(const char *text, size_t len, struct wf_hosts *hosts_out,
                              struct wf_error *error)
{
    struct wf_hosts hosts = {.count = 0};
    enum wf_status status = WF_OK;
    if (memchr(text, '\0', len) != NULL) {
        return wf_error_set(error, WF_INVALID, "the file holds a NUL byte");
    }
    char *copy = strndup(text, len);
    WF_ASSERT(copy != NULL);
    unsigned number = 1;
    for (char *line, *rest = copy; status == WF_OK && (line = strsep(&rest, "\n")) != NULL;
         number++) {
        status = take_line(line, &hosts, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "line %u", number);
        }
    }
    if (status == WF_OK && hosts.count == 0) {
        status = wf_error_set(error, WF_INVALID, "no host is named");
    }
    free(copy);
    if (status != WF_OK) {
        wf_hosts_fini(&hosts);
        return status;
    }
    *hosts_out = hosts;
    return WF_OK;
}

enum wf_status wf_hosts_load(const char *path, struct wf_hosts *hosts_out, struct wf_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return wf_error_set(error, WF_IO,
                            "%s: cannot open: %s; expected a list of hosts (docs/operations.md)",
                            path, strerror(errno));
    }
    char *text = malloc(WF_HOSTS_BYTES_MAX + 1);
    WF_ASSERT(text != NULL);
    size_t len = fread(text, 1, WF_HOSTS_BYTES_MAX + 1, file);
    enum wf_status status = WF_OK;
    if (ferror(file)) {
        status = wf_error_set(error, WF_IO,
                              "%s: cannot read: %s; expected a list of hosts (docs/operations.md)",
                              path, strerror(errno));
    } else if (len > WF_HOSTS_BYTES_MAX) {
        status =
            wf_error_set(error, WF_INVALID, "%s: longer than %d bytes", path, WF_HOSTS_BYTES_MAX);
    } else if ((status = wf_hosts_parse(text, len, hosts_out, error)) != WF_OK) {
        wf_error_prefix(error, "%s", path);
    }
    fclose(file);
    free(text);
    return status;
}

void wf_hosts_fini(struct wf_hosts *hosts)
{
    free(hosts->hosts);
    free(hosts->train);
    free(hosts->infer);
    memset(hosts, 0, sizeof *hosts);
}

/* --- placing ---------------------------------------------------------------------------------- */
static uint32_t room(const struct wf_run_host *host, enum wf_side side)
{
    return !host->takes[side] ? 0
           : host->slots == 0 ? UINT32_MAX - host->placed
                              : host->slots - host->placed;
}

static enum wf_status too_little(const struct wf_hosts *hosts, const char *side, uint32_t ranks,
                                 uint32_t placed, struct wf_error *error)
{
    return wf_error_set(error, WF_INVALID,
                        "%u hosts have room for %u of the %u %s ranks; give more slots, hosts or "
                        "hosts for that side",
                        hosts->count, placed, ranks, side);
}

static enum wf_status place_train(struct wf_hosts *hosts, uint32_t ranks, struct wf_error *error)
{
    uint32_t takers = 0, rank = 0;
    for (uint32_t i = 0; i < hosts->count; i++) {
        takers += hosts->hosts[i].takes[WF_TRAIN];
    }
    uint32_t share = takers > 0 ? (ranks + takers - 1) / takers : 0;
    for (uint32_t i = 0; i < hosts->count; i++) {
        struct wf_run_host *host = &hosts->hosts[i];
        uint32_t most = host->slots == 0 ? share : host->slots;
        for (uint32_t n = 0; n < most && rank < ranks && room(host, WF_TRAIN) > 0; n++) {
            hosts->train[rank++] = i;
            host->placed++;
        }
    }
    return rank == ranks ? WF_OK : too_little(hosts, "train", ranks, rank, error);
}

static uint32_t roomiest(const struct wf_hosts *hosts)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < hosts->count; i++) {
        if (room(&hosts->hosts[i], WF_INFER) > room(&hosts->hosts[best], WF_INFER)) {
            best = i;
        }
    }
    return best;
}

static enum wf_status place_infer(struct wf_hosts *hosts, const struct wf_run_setup *setup,
                                  struct wf_error *error)
{
    for (uint32_t rank = 0; rank < setup->infer_ranks;) {
        uint32_t size = wf_run_place(setup, rank).engine_ranks, best = roomiest(hosts);
        bool whole = room(&hosts->hosts[best], WF_INFER) >= size;
        for (uint32_t end = rank + size; rank < end; rank++) {
            uint32_t at = whole ? best : 0;
            while (!whole && at < hosts->count && room(&hosts->hosts[at], WF_INFER) == 0) {
                at++;
            }
            if (at == hosts->count) {
                return too_little(hosts, "inference", setup->infer_ranks, rank, error);
            }
            hosts->infer[rank] = at;
            hosts->hosts[at].placed++;
        }
    }
    return WF_OK;
}

enum wf_status wf_hosts_place(struct wf_hosts *hosts, const struct wf_run_setup *setup,
                              struct wf_error *error)
{
    hosts->train = calloc(setup->train_ranks, sizeof *hosts->train);
    hosts->infer = calloc(setup->infer_ranks, sizeof *hosts->infer);
    WF_ASSERT(hosts->train != NULL && hosts->infer != NULL);
    enum wf_status status = place_train(hosts, setup->train_ranks, error);
    return status == WF_OK ? place_infer(hosts, setup, error) : status;
}

const struct wf_run_host *wf_hosts_engine(const struct wf_hosts *hosts,
                                          const struct wf_run_setup *setup, uint32_t engine)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t rank = 0; rank < setup->infer_ranks; rank++) {
        if (wf_run_place(setup, rank).engine == engine) {
            if (found != UINT32_MAX && found != hosts->infer[rank]) {
                return NULL;
            }
            found = hosts->infer[rank];
        }
    }
    return found == UINT32_MAX ? NULL : &hosts->hosts[found];
}
