/* Results far beyond the cache are written past it, line by line: else the processor first reads what
   is written over, a third of all that memory moves, and what the cache held is lost. The same bytes,
   so the same bits. */
#pragma once
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    STREAM_FROM = 1 << 26, /* bytes: what is shorter may still be there when it is read next */
    STREAM_LINE = 64,
    STREAM_AHEAD = 1 << 12 /* bytes from what is copied to what is asked for */
};

/* Whether so many bytes are written there so. */
static inline int stream_pays(const char *out, int64_t bytes) {
#ifdef __SSE2__
    return bytes >= STREAM_FROM && (uintptr_t)out % STREAM_LINE == 0;
#else
    (void)out, (void)bytes;
    return 0;
#endif
}

/* A whole line, to where one begins. */
static inline void stream_line(char *to, const char *from) {
#ifdef __SSE2__
    for (int i = 0; i < STREAM_LINE; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
#else
    memcpy(to, from, STREAM_LINE);
#endif
}

/* Has the line there come while others are written; it need not be anybody's memory. */
static inline void stream_ask(const char *from) {
#ifdef __SSE2__
    _mm_prefetch(from, _MM_HINT_T0);
#else
    (void)from;
#endif
}

/* Other threads see what was written so after this. */
static inline void stream_end(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* `bytes` of memory that begins with a line. */
static inline void stream_copy(char *to, const char *from, int64_t bytes) {
    int64_t at = 0;
    for (; at + STREAM_LINE <= bytes; at += STREAM_LINE) {
        stream_ask(from + at + STREAM_AHEAD);
        stream_line(to + at, from + at);
    }
    memcpy(to + at, from + at, (size_t)(bytes - at));
    stream_end();
}
