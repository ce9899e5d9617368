/* splitmix.h - splitmix64: numbers that look random and are the same everywhere, from a state of 8
 * bytes (Steele, Lea and Flood, "Fast splittable pseudorandom number generators"). For draws that
 * may be guessed; secrets come from env->random. */
#ifndef WEFT_RUNTIME_SPLITMIX_H
#define WEFT_RUNTIME_SPLITMIX_H

#include <stdint.h>

static inline uint64_t wf_splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
