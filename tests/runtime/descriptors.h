/* descriptors.h - how many descriptors this process has open, so that a test sees one that leaks.
 */
#ifndef WEFT_TESTS_RUNTIME_DESCRIPTORS_H
#define WEFT_TESTS_RUNTIME_DESCRIPTORS_H

#include <dirent.h>
#include <stdlib.h>

static inline unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        abort(); /* no test can go on */
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

#endif
