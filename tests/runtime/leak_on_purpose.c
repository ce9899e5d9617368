/* leak_on_purpose.c - leaks under a sanitizer build, so that the runner can prove it would see one.
 */
#include <stdint.h>
#include <stdlib.h>

int main(void)
{
    volatile uintptr_t hidden = (uintptr_t)malloc(64) ^ 0x5a5a5a5aU;
    hidden = 0;
    return (int)hidden;
}
