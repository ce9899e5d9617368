/* interfaces.c - reads rules for network interfaces and holds addresses against them. */
#include "config/interfaces.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of an address that rules look at, or NULL. */
static const uint8_t *bytes_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET
               ? (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr
           : address->sa_family == AF_INET6
               ? (const uint8_t *)&((const struct sockaddr_in6 *)address)->sin6_addr
               : NULL;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    return memcmp(a, b, whole) == 0 &&
           (rest == 0 || (uint8_t)((a[whole] ^ b[whole]) >> (8 - rest)) == 0);
}

static enum wf_status parse_network(char *text, const char *slash, struct wf_interface_rule *rule,
                                    struct wf_error *error)
{
    char network[INET6_ADDRSTRLEN + 1] = "";
    size_t len = (size_t)(slash - text), digits = strspn(slash + 1, "0123456789");
    if (len < sizeof network) {
        memcpy(network, text, len);
    }
    rule->family = inet_pton(AF_INET, network, rule->network) == 1    ? AF_INET
                   : inet_pton(AF_INET6, network, rule->network) == 1 ? AF_INET6
                                                                      : 0;
    unsigned most = rule->family == AF_INET ? 32 : 128;
    rule->bits = digits > 0 && digits < 4 && slash[1 + digits] == '\0'
                     ? (unsigned)strtoul(slash + 1, NULL, 10)
                     : most + 1;
    if (rule->family == 0 || rule->bits > most) {
        return wf_error_set(error, WF_INVALID,
                            "expected a network such as 10.1.0.0/16 or fd00::/8, found \"%s\"",
                            text);
    }
    for (unsigned bit = rule->bits; bit < most; bit++) {
        if ((rule->network[bit / 8] >> (7 - bit % 8) & 1) != 0) {
            return wf_error_set(error, WF_INVALID,
                                "\"%s\" has bits behind its prefix of %u; write the network's own "
                                "address",
                                text, rule->bits);
        }
    }
    return WF_OK;
}

static enum wf_status parse_rule(char *text, struct wf_interface_rule *rule, struct wf_error *error)
{
    *rule = (struct wf_interface_rule){0};
    const char *slash = strchr(text, '/');
    if (slash != NULL) {
        return parse_network(text, slash, rule, error);
    }
    size_t len = strlen(text);
    if (len == 0 || len >= sizeof rule->name) {
        return wf_error_set(error, WF_INVALID,
                            "expected names of interfaces or networks, parted by commas; found an "
                            "empty or overlong one");
    }
    rule->prefix = text[len - 1] == '*';
    memcpy(rule->name, text, len - rule->prefix);
    return WF_OK;
}

enum wf_status wf_interfaces_parse(const char *text, struct wf_interface_rules *rules_out,
                                   struct wf_error *error)
{
    struct wf_interface_rules rules = {.count = 0};
    char copy[WF_INTERFACES_TEXT];
    size_t len = strlen(text);
    if (len >= sizeof copy) {
        return wf_error_set(error, WF_INVALID, "expected less than %zu bytes, found %zu",
                            sizeof copy, len);
    }
    memcpy(copy, text, len + 1);
    for (char *next = copy, *one; (one = strsep(&next, ",")) != NULL;) {
        one += strspn(one, " ");
        size_t end = strlen(one);
        while (end > 0 && one[end - 1] == ' ') {
            one[--end] = '\0';
        }
        if (rules.count == WF_INTERFACE_RULES_MAX) {
            return wf_error_set(error, WF_INVALID, "more than %d rules", WF_INTERFACE_RULES_MAX);
        }
        enum wf_status status = parse_rule(one, &rules.rules[rules.count++], error);
        if (status != WF_OK) {
            return status;
        }
    }
    *rules_out = rules;
    return WF_OK;
}

bool wf_interfaces_allow(const struct wf_interface_rules *rules, const char *interface,
                         const struct sockaddr *address)
{
    for (unsigned i = 0; i < rules->count; i++) {
        const struct wf_interface_rule *rule = &rules->rules[i];
        if (rule->family == 0) {
            size_t len = strlen(rule->name);
            if (strncmp(interface, rule->name, len) == 0 &&
                (rule->prefix || interface[len] == '\0')) {
                return true;
            }
        } else if (rule->family == address->sa_family &&
                   same_bits(bytes_of(address), rule->network, rule->bits)) {
            return true;
        }
    }
    return rules->count == 0;
}
