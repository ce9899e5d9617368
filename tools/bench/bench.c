/* bench.c - measuring cases against their limits, and the report. */
#include "tools/bench/bench.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/measure/samples.h"

enum { PAIRS_MAX = 1000, NAME_MAX_BYTES = 256 };

struct wf_bench {
    unsigned pairs;
    bool quiet;
    const char *address, *peer;
    char machine[NAME_MAX_BYTES];
    struct json_object *results; /* the list for --json */
};

/* What was measured of one side of a case. */
struct series {
    double samples[PAIRS_MAX]; /* in the order of measuring */
    double low, median, high;  /* the middle 80 % lie between low and high */
};

uint64_t wf_bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void wf_bench_set_hosts(struct wf_bench *bench, const char *address, const char *peer)
{
    bench->address = address;
    bench->peer = peer;
}

const char *wf_bench_address(const struct wf_bench *bench)
{
    return bench->address;
}

const char *wf_bench_peer(const struct wf_bench *bench)
{
    return bench->peer;
}

static void describe_machine(char *text, size_t size)
{
    char model[NAME_MAX_BYTES] = "unknown processor", line[512];
    FILE *info = fopen("/proc/cpuinfo", "re");
    while (info != NULL && fgets(line, sizeof line, info) != NULL) {
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            snprintf(model, sizeof model, "%.200s", strchr(line, ':') + 2);
            model[strcspn(model, "\n")] = '\0';
            break;
        }
    }
    if (info != NULL) {
        fclose(info);
    }
    struct utsname system;
    uname(&system);
    snprintf(text, size, "%.120s, %ld processors, %.30s %.60s", model,
             sysconf(_SC_NPROCESSORS_ONLN), system.sysname, system.release);
}

struct wf_bench *wf_bench_new(unsigned pairs, bool quiet)
{
    struct wf_bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL) {
        return NULL;
    }
    bench->pairs = pairs == 0 ? WF_BENCH_PAIRS : pairs;
    bench->quiet = quiet;
    bench->results = json_object_new_array();
    describe_machine(bench->machine, sizeof bench->machine);
    return bench;
}

void wf_bench_free(struct wf_bench *bench)
{
    if (bench != NULL) {
        json_object_put(bench->results);
        free(bench);
    }
}

static void summarise(struct series *series, unsigned count)
{
    double sorted[PAIRS_MAX];
    memcpy(sorted, series->samples, count * sizeof *sorted);
    series->median = wf_quantile(sorted, count, 0.5);
    series->low = wf_quantile(sorted, count, 0.1);
    series->high = wf_quantile(sorted, count, 0.9);
}

/* "a=1,b=x" as an object; numbers become numbers. */
static struct json_object *params_object(const char *params)
{
    struct json_object *object = json_object_new_object();
    char text[NAME_MAX_BYTES], *rest = text, *item;
    snprintf(text, sizeof text, "%s", params != NULL ? params : "");
    while ((item = strsep(&rest, ",")) != NULL) {
        char *value = strchr(item, '=');
        if (value == NULL) {
            continue;
        }
        *value++ = '\0';
        char *end;
        long long number = strtoll(value, &end, 10);
        bool is_number = *value != '\0' && *end == '\0';
        json_object_object_add(object, item,
                               is_number ? json_object_new_int64(number)
                                         : json_object_new_string(value));
    }
    return object;
}

static void add_series(struct json_object *object, const struct series *series, unsigned count)
{
    struct json_object *samples = json_object_new_array();
    for (unsigned i = 0; i < count; i++) {
        json_object_array_add(samples, json_object_new_double(series->samples[i]));
    }
    json_object_object_add(object, "samples", samples);
    json_object_object_add(object, "median", json_object_new_double(series->median));
}

static double ratio_of(const struct wf_bench_case *spec, const struct series *own,
                       const struct series *limit)
{
    return spec->lower_is_better ? limit->median / own->median : own->median / limit->median;
}

static void keep(struct wf_bench *bench, const struct wf_bench_case *spec, const struct series *own,
                 const struct series *limit, unsigned count)
{
    struct json_object *row = json_object_new_object(), *limit_object = NULL, *ratio = NULL;
    json_object_object_add(row, "name", json_object_new_string(spec->name));
    json_object_object_add(row, "params", params_object(spec->params));
    json_object_object_add(row, "machine", json_object_new_string(bench->machine));
    json_object_object_add(row, "unit", json_object_new_string(spec->unit));
    add_series(row, own, count);
    if (spec->limit != NULL) {
        limit_object = json_object_new_object();
        json_object_object_add(limit_object, "how", json_object_new_string(spec->limit_how));
        add_series(limit_object, limit, count);
        ratio = json_object_new_double(ratio_of(spec, own, limit));
    }
    json_object_object_add(row, "limit", limit_object);
    json_object_object_add(row, "ratio", ratio);
    json_object_array_add(bench->results, row);
}

static void print_value(double value)
{
    static const struct {
        double above, divide_by;
        const char *suffix;
    } rows[] = {{1e9, 1e9, " G"}, {1e6, 1e6, " M"}, {1e4, 1e3, " k"}, {-1, 1, " "}};
    size_t i = 0;
    while (value < rows[i].above) {
        i++;
    }
    printf("%.3g%s", value / rows[i].divide_by, rows[i].suffix);
}

static void print_series(const struct series *series, const char *unit)
{
    print_value(series->median);
    printf("%s (", unit);
    print_value(series->low);
    printf(".. ");
    print_value(series->high);
    printf(")");
}

static void print_case(const struct wf_bench_case *spec, const struct series *own,
                       const struct series *limit)
{
    printf("%-28s %-34s ", spec->name, spec->params != NULL ? spec->params : "");
    print_series(own, spec->unit);
    if (spec->limit != NULL) {
        printf("; limit ");
        print_series(limit, spec->unit);
        printf(" = %s; ratio %.2f", spec->limit_how, ratio_of(spec, own, limit));
    }
    printf("\n");
    fflush(stdout);
}

enum wf_status wf_bench_case(struct wf_bench *bench, const struct wf_bench_case *spec,
                             void *context, struct wf_error *error)
{
    unsigned pairs = spec->pairs != 0 ? spec->pairs : bench->pairs;
    WF_ASSERT(pairs <= PAIRS_MAX);
    struct series own, limit;
    /* The first pair warms caches, pages and clocks; it is written over. */
    for (unsigned i = 0; i <= pairs; i++) {
        unsigned at = i == 0 ? 0 : i - 1;
        own.samples[at] = spec->measure(context);
        limit.samples[at] = spec->limit != NULL ? spec->limit(context) : 0;
        if (own.samples[at] < 0 || limit.samples[at] < 0) {
            return wf_error_set(error, WF_IO, "benchmark %s (%s): measuring %s failed", spec->name,
                                spec->params != NULL ? spec->params : "",
                                own.samples[at] < 0 ? "it" : "its limit");
        }
    }
    summarise(&own, pairs);
    summarise(&limit, pairs);
    keep(bench, spec, &own, &limit, pairs);
    if (!bench->quiet) {
        print_case(spec, &own, &limit);
    }
    return WF_OK;
}

const char *wf_bench_json(struct wf_bench *bench)
{
    return json_object_to_json_string_ext(bench->results,
                                          JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
}
