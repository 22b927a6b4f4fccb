/* What both ends of the benchmark share: the clock, the checksum, and the form of the mark that carries it. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdint.h>
#include <string.h>
#include <time.h>

/* Every body ends "...<SUM_MARK><16 hex digits><fixed ending>": the checksum of all body bytes before the mark.
 * The mark occurs nowhere else in a body, so the client can check every byte without knowing any beforehand. */
#define SUM_MARK '#'
#define SUM_DIGITS 16

/* Every event carries "@<nanoseconds, 16 digits or more>@": when the provider wrote it. */
#define TIME_MARK '@'

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* A rolling checksum over a stream of bytes, eight at a time, whatever pieces it comes in. It tells changed,
 * lost, doubled and swapped bytes; it is no defence against anyone who wants it to match. */
struct sum {
    uint64_t state;
    uint64_t length;
    unsigned char rest[8];
};

static inline void sum_start(struct sum *s)
{
    memset(s, 0, sizeof *s);
    s->state = 0x9e3779b97f4a7c15ull;
}

static inline uint64_t sum_mix(uint64_t state, uint64_t word)
{
    state = (state ^ word) * 0x2127599bf4325c37ull;
    return state ^ (state >> 29);
}

static inline void sum_add(struct sum *s, const char *bytes, size_t n)
{
    size_t held = s->length & 7;
    s->length += n;
    if (held) {
        size_t take = 8 - held < n ? 8 - held : n;
        memcpy(s->rest + held, bytes, take);
        bytes += take;
        n -= take;
        if (held + take < 8)
            return;
        uint64_t word;
        memcpy(&word, s->rest, 8);
        s->state = sum_mix(s->state, word);
    }
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        s->state = sum_mix(s->state, word);
    }
    memcpy(s->rest, bytes, n);
}

static inline uint64_t sum_value(const struct sum *s)
{
    uint64_t word = 0;
    memcpy(&word, s->rest, s->length & 7);
    return sum_mix(sum_mix(s->state, word), s->length);
}

#endif
