/* units.h - "5s": durations as people write them. Pure.
 *
 * A whole decimal number without sign or leading zeros, then a unit. Overflow is refused.
 */
#ifndef WEFT_CONFIG_UNITS_H
#define WEFT_CONFIG_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* Units us, ms, s, m, h. */
bool wf_parse_duration(const char *text, uint64_t *ns_out);

#endif
