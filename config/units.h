/* units.h - "5s", "64MiB": durations and sizes as people write and read them. Pure.
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

enum { WF_BYTES_TEXT = 32 };
/* As figures are told: "881 kB", "49.1 GB", three digits, units of 1000; gives `text_out`. */
const char *wf_bytes_format(uint64_t bytes, char text_out[WF_BYTES_TEXT]);

#endif
