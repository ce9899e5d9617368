/* print_frames.c - prints the tables of frames as docs/protocol.md has them; with a file as
 * argument it compares instead: the file must end with exactly these tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/messages.h"

static char *read_all(FILE *file)
{
    size_t len = 0, cap = 1 << 16;
    char *text = malloc(cap);
    WF_ASSERT(text != NULL);
    while (!feof(file) && len + 1 < cap) {
        len += fread(text + len, 1, cap - len - 1, file);
        if (ferror(file)) {
            break;
        }
    }
    text[len] = '\0';
    return text;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        wf_frame_describe(stdout);
        return 0;
    }
    char *expected = NULL;
    size_t len = 0;
    FILE *memory = open_memstream(&expected, &len);
    WF_ASSERT(memory != NULL);
    wf_frame_describe(memory);
    fclose(memory);
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL) {
        perror(argv[1]);
        return 1;
    }
    char *text = read_all(file);
    fclose(file);
    size_t have = strlen(text);
    int differs = have < len || strcmp(text + have - len, expected) != 0;
    if (differs) {
        fprintf(stderr, "the end of %s is not what `%s` prints: replace it\n", argv[1], argv[0]);
    }
    free(text);
    free(expected);
    return differs;
}
