/* test_units.c - durations and sizes: what is read, what is refused. */
#include <criterion/criterion.h>

#include "config/units.h"

static const struct {
    const char *text;
    bool good;
    uint64_t value;
} durations[] = {
    {"5s", true, 5000000000},
    {"500ms", true, 500000000},
    {"0s", true, 0},
    {"2m", true, 120000000000},
    {"1h", true, 3600000000000},
    {"10us", true, 10000},
    {"5", false, 0},
    {"5 s", false, 0},
    {"-5s", false, 0},
    {"+5s", false, 0},
    {"05s", false, 0},
    {"5S", false, 0},
    {"0x5s", false, 0},
    {"", false, 0},
    {"s", false, 0},
    {"999999999999999999h", false, 0},
    {"1000000000000000000s", false, 0},
};

Test(units, durations)
{
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        uint64_t value = 0;
        cr_assert_eq(wf_parse_duration(durations[i].text, &value), durations[i].good, "\"%s\"",
                     durations[i].text);
        cr_assert_eq(value, durations[i].value, "\"%s\"", durations[i].text);
    }
}

static const struct {
    const char *text;
    bool good;
    uint64_t value;
} sizes[] = {
    {"64MiB", true, 64 << 20},  {"1B", true, 1},     {"3KiB", true, 3072},
    {"2GiB", true, 1ULL << 31}, {"64", false, 0},    {"64MB", false, 0},
    {"-1MiB", false, 0},        {"1 MiB", false, 0}, {"16777216TiB", false, 0},
};

Test(units, sizes)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t value = 0;
        cr_assert_eq(wf_parse_bytes(sizes[i].text, &value), sizes[i].good, "\"%s\"", sizes[i].text);
        cr_assert_eq(value, sizes[i].value, "\"%s\"", sizes[i].text);
    }
}

Test(units, figures)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},         {999, "999 B"},   {1000, "1 kB"},           {881234, "881 kB"},
        {999499, "999 kB"}, {999500, "1 MB"}, {49100000000, "49.1 GB"}, {UINT64_MAX, "1.84e+04 PB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[WF_BYTES_TEXT];
        cr_expect_str_eq(wf_bytes_format(rows[i].bytes, text), rows[i].text);
    }
}
