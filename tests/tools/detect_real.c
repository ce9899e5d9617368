/* detect_real.c - how many executed layouts `weft layout detect` finds: one line for each folder
 * below DIR (tests/golden/real and others of its form), then the counts. -v prints answers too. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/detect_case.h"

enum { CLASSES = DETECT_UNREAD + 1, PATH_ROOM = 4096 };

static int by_no_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strchr(entry->d_name, '.') == NULL;
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    bool verbose = argc > 2 && strcmp(argv[1], "-v") == 0;
    const char *root = argc > 1 ? argv[argc - 1] : "tests/golden/real";
    int count = scandir(root, &entries, by_no_dot, alphasort), counts[CLASSES] = {0};
    if (count < 0) {
        perror(root);
        return 1;
    }
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        char path[PATH_ROOM];
        static struct detect_case one;
        snprintf(path, sizeof path, "%s/%s", root, entries[i]->d_name);
        detect_case_run(path, &one);
        counts[one.class]++;
        seconds += one.seconds;
        printf("%-9s %2u of %2u%s%s %6.2f s  %-50s %s %s\n", detect_class_names[one.class],
               one.class <= DETECT_AMBIGUOUS ? one.place + 1 : 0, one.fits,
               one.more ? ", more" : "", one.gave_up ? ", gave up" : "", one.seconds,
               entries[i]->d_name, one.family, one.truth);
        if (verbose || one.class == DETECT_NOTHING) {
            fputs(one.text, stdout);
        }
        fflush(stdout);
    }
    for (int c = 0; c < CLASSES; c++) {
        printf("%s %d%s", detect_class_names[c], counts[c], c + 1 < CLASSES ? ", " : "");
    }
    printf("; %.1f s\n", seconds);
    return 0;
}
