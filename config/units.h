/* units.h - "5s", "64MiB": durations and sizes as people write them. Pure.
 *
 * A whole decimal number without sign or leading zeros, then a unit. Overflow is refused.
 */
#ifndef WEFT_CONFIG_UNITS_H
#define WEFT_CONFIG_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* Units us, ms, s, m, h. */
bool wf_parse_duration(const char *text, uint64_t *ns_out);
/* Units B, KiB, MiB, GiB, TiB. */
bool wf_parse_bytes(const char *text, uint64_t *bytes_out);

#endif
