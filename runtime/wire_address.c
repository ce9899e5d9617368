/* wire_address.c - reads and writes address strings, looks names up. */
#include "runtime/wire_address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_MAX = 65535, PORT_DIGITS_MAX = 5 };

static enum wf_status parse_unix(const char *name, struct wf_wire_address *address,
                                 struct wf_error *error)
{
    address->is_unix = true;
    address->is_abstract = name[0] == '@';
    name += address->is_abstract;
    size_t len = strlen(name);
    if (len > 0 && name[len - 1] == '*') {
        address->is_wildcard = true;
        len--;
    }
    /* Room for the NUL of a path, the leading NUL of an abstract name, and what replaces '*'. */
    size_t room = sizeof address->path - 1 - (address->is_wildcard ? 16 : 0);
    if (len > room) {
        return wf_error_set(error, WF_INVALID,
                            "expected a unix socket name of at most %zu bytes, found %zu "
                            "(\"%.40s...\"); use a shorter path or an abstract name (unix:@NAME)",
                            room, len, name);
    }
    if (len == 0 && !address->is_wildcard) {
        return wf_error_set(error, WF_INVALID, "expected unix:PATH or unix:@NAME, found no name");
    }
    memcpy(address->path, name, len);
    address->path[len] = '\0';
    return WF_OK;
}

/* Something of digits and dots (or 0x...) that is no address: inet_aton would read octal, hex or
 * short forms in it, other resolvers would not. */
static bool looks_like_a_number(const char *host)
{
    return host[strspn(host, "0123456789.")] == '\0' || strncasecmp(host, "0x", 2) == 0;
}

static bool is_numeric(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static enum wf_status parse_tcp(const char *text, struct wf_wire_address *address,
                                struct wf_error *error)
{
    const char *host = text, *colon = strrchr(text, ':');
    bool portless = text[0] == '[' && text[strlen(text) - 1] == ']';
    if (colon == NULL || colon == text || portless || strstr(text, "//") != NULL) {
        return wf_error_set(error, WF_INVALID, "expected tcp:HOST:PORT, found \"tcp:%.100s\"",
                            text);
    }
    size_t len = (size_t)(colon - host);
    bool bracketed = host[0] == '[' && host[len - 1] == ']';
    if (bracketed) {
        host++;
        len -= 2;
    } else if (memchr(host, ':', len) != NULL) {
        return wf_error_set(error, WF_INVALID,
                            "an IPv6 address needs brackets: expected tcp:[ADDRESS]:PORT, found "
                            "\"tcp:%.100s\"",
                            text);
    }
    if (len == 0 || len >= sizeof address->host) {
        return wf_error_set(error, WF_INVALID,
                            "expected a host name of 1 to %zu bytes, found %zu bytes",
                            sizeof address->host - 1, len);
    }
    memcpy(address->host, host, len);
    address->host[len] = '\0';
    const char *port = colon + 1;
    size_t digits = strspn(port, "0123456789");
    unsigned long number =
        digits > 0 && digits <= PORT_DIGITS_MAX ? strtoul(port, NULL, 10) : PORT_MAX + 1UL;
    if (port[digits] != '\0' || number > PORT_MAX) {
        return wf_error_set(error, WF_INVALID, "expected a port of 0 to %d, found \"%.40s\"",
                            PORT_MAX, port);
    }
    address->port = (unsigned short)number;
    if ((bracketed && !is_numeric(address->host)) ||
        (!is_numeric(address->host) && looks_like_a_number(address->host))) {
        return wf_error_set(error, WF_INVALID,
                            "\"%.100s\" looks like a number but is no IP address; write all four "
                            "parts in decimal",
                            address->host);
    }
    return WF_OK;
}

enum wf_status wf_wire_address_parse(const char *text, struct wf_wire_address *address_out,
                                     struct wf_error *error)
{
    struct wf_wire_address address = {0};
    enum wf_status status = WF_OK;
    if (strlen(text) >= WF_ADDRESS_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "expected an address of less than %d bytes, found %zu", WF_ADDRESS_MAX,
                            strlen(text));
    }
    if (strncmp(text, "tcp:", 4) == 0) {
        status = parse_tcp(text + 4, &address, error);
    } else if (strncmp(text, "unix:", 5) == 0) {
        status = parse_unix(text + 5, &address, error);
    } else {
        return wf_error_set(error, WF_INVALID,
                            "expected tcp:HOST:PORT, unix:PATH or unix:@NAME, found \"%.100s\"",
                            text);
    }
    if (status == WF_OK) {
        *address_out = address;
    }
    return status;
}

static void add_unix(const struct wf_wire_address *address, struct wf_wire_targets *targets)
{
    struct wf_wire_target *target = &targets->target[targets->count++];
    size_t len = strlen(address->path);
    target->un.sun_family = AF_UNIX;
    memcpy(target->un.sun_path + address->is_abstract, address->path, len);
    /* The length counts a path's NUL, and is all that ends an abstract name. */
    target->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
}

static bool add_numeric(const char *host, unsigned short port, struct wf_wire_targets *targets)
{
    struct wf_wire_target *target = &targets->target[targets->count];
    struct sockaddr_in *in = (struct sockaddr_in *)&target->storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&target->storage;
    if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        target->len = sizeof *in;
    } else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        target->len = sizeof *in6;
    } else {
        return false;
    }
    targets->count++;
    return true;
}

enum wf_status wf_wire_address_inline(const struct wf_wire_address *address, bool listening,
                                      struct wf_wire_targets *targets_out)
{
    memset(targets_out, 0, sizeof *targets_out);
    if (address->is_unix) {
        add_unix(address, targets_out);
        return WF_OK;
    }
    if (strcmp(address->host, "localhost") == 0) {
        add_numeric("127.0.0.1", address->port, targets_out);
        if (!listening) {
            add_numeric("::1", address->port, targets_out);
        }
        return WF_OK;
    }
    const char *host = listening && strcmp(address->host, "*") == 0 ? "0.0.0.0" : address->host;
    return add_numeric(host, address->port, targets_out) ? WF_OK : WF_NOT_FOUND;
}

enum wf_status wf_wire_address_resolve(const struct wf_wire_address *address,
                                       struct wf_wire_targets *targets_out, struct wf_error *error)
{
    char port[PORT_DIGITS_MAX + 1];
    snprintf(port, sizeof port, "%u", address->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(address->host, port, &hints, &found);
    if (code != 0) {
        return wf_error_set(error, WF_NOT_FOUND, "cannot resolve host name \"%s\": %s",
                            address->host, gai_strerror(code));
    }
    memset(targets_out, 0, sizeof *targets_out);
    for (struct addrinfo *each = found; each != NULL && targets_out->count < WF_WIRE_TRIES_MAX;
         each = each->ai_next) {
        if (each->ai_addrlen <= sizeof(struct sockaddr_storage)) {
            struct wf_wire_target *target = &targets_out->target[targets_out->count++];
            memcpy(&target->storage, each->ai_addr, each->ai_addrlen);
            target->len = each->ai_addrlen;
        }
    }
    freeaddrinfo(found);
    return WF_OK;
}

static void format_unix(const struct sockaddr_un *un, socklen_t len, char out[WF_ADDRESS_MAX])
{
    size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t name = len > head ? len - head : 0;
    bool is_abstract = name > 0 && un->sun_path[0] == '\0';
    const char *from = un->sun_path + is_abstract;
    name -= is_abstract;
    if (!is_abstract) {
        name = strnlen(from, name);
    }
    int used = snprintf(out, WF_ADDRESS_MAX, "unix:%s", is_abstract ? "@" : "");
    for (size_t i = 0; i < name && used < WF_ADDRESS_MAX - 1; i++) {
        out[used++] = isprint((unsigned char)from[i]) ? from[i] : '?';
    }
    out[used] = '\0';
}

void wf_wire_address_format(const struct sockaddr *any, socklen_t len, char out[WF_ADDRESS_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (any->sa_family == AF_UNIX) {
        format_unix((const struct sockaddr_un *)any, len, out);
    } else if (any->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)any;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(out, WF_ADDRESS_MAX, "tcp:%s:%u", host, ntohs(in->sin_port));
    } else if (any->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)any;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(out, WF_ADDRESS_MAX, "tcp:[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(out, WF_ADDRESS_MAX, "unknown");
    }
}
