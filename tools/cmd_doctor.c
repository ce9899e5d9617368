/* cmd_doctor.c - `weft doctor`: what this host offers, and what would be slow and why. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/doctor/doctor.h"
#include "tools/run/report.h"

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "write the findings to FILE as JSON (- is standard output)", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    const char **json = state->input;
    switch (key) {
    case 'j':
        *json = argument;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\" is one argument too many", argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool write_out(const struct wf_doctor *doctor, const char *json)
{
    struct wf_error error;
    if (json != NULL && strcmp(json, "-") != 0) {
        if (wf_report_replace(json, wf_doctor_write_json, doctor, &error) != WF_OK) {
            fprintf(stderr, "weft doctor: %s\n", error.text);
            return false;
        }
    }
    if (json != NULL && strcmp(json, "-") == 0) {
        wf_doctor_write_json(stdout, doctor);
    } else {
        wf_doctor_print(doctor, stdout);
    }
    if ((fflush(stdout) == 0 && !ferror(stdout)) || errno == EPIPE) {
        return true;
    }
    fprintf(stderr, "weft doctor: cannot write to standard output: %s\n", strerror(errno));
    return false;
}

int wf_cmd_doctor(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "",
        "Looks at what this host offers Weft and measures it for a second: what is ok, what works "
        "at a price, what is missing, what that costs and what to do. Changes nothing and needs no "
        "privileges.\v"
        "Exit status: 0, also where things are slow; 1 if no job can run here.",
        0,
        0,
        0};
    const char *json = NULL;
    struct wf_doctor doctor = {0};
    argp_err_exit_status = WF_EXIT_USAGE;
    argv[0] = (char *)"weft doctor";
    argp_parse(&argp, argc, argv, 0, 0, &json);
    wf_doctor_memory(&doctor);
    wf_doctor_processes(&doctor);
    wf_doctor_cores(&doctor);
    wf_doctor_network(&doctor);
    wf_doctor_libraries(&doctor);
    wf_doctor_disk(&doctor);
    bool good = write_out(&doctor, json) && !wf_doctor_unfit(&doctor);
    wf_doctor_fini(&doctor);
    return good ? WF_EXIT_OK : WF_EXIT_FAILED;
}
