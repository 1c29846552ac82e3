/* Which way a pass goes through memory that no cache of a core holds as a whole: the other way than
   the last one, for what that touched last is still there, and is gone by the time one arrives that
   begins where it began. Of an element's bits it says nothing. */
#pragma once
#include <stdint.h>

enum {
    TURNS_FROM = 1 << 21,  /* bytes of a thread: less is all there anyway, */
    TURNS_BELOW = 3 << 22, /* and of so many next to nothing */
    TURNS_BLOCK = 1 << 13  /* elements, each of which blocks is gone through forwards */
};

/* Whether to begin at the end, where passes go through so many bytes in all. */
static inline int turns_back(int64_t bytes, int threads) {
    static int last = 0;
    bytes /= threads;
    return bytes >= TURNS_FROM && bytes < TURNS_BELOW &&
           __atomic_xor_fetch(&last, 1, __ATOMIC_RELAXED);
}
