/* Types, macros and the requantization that all kernels share.
 *
 * Every function is static and inline, and gets shapes and parameters as literal constants, so that the compiler
 * specialises it for the layer that calls it. Sums wrap in unsigned arithmetic; a right shift of a
 * negative number is arithmetic, as with every compiler for these cores. */
#ifndef TOSAIC_COMMON_H
#define TOSAIC_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define TK_HOT static inline __attribute__((always_inline))
#define TK_NOINLINE static __attribute__((noinline))
#else
#define TK_HOT static inline
#define TK_NOINLINE static
#endif
#define TK_COLD static inline
/* Without a C library a compiler makes calls of small copies, unless it is told. */
#if defined(__GNUC__)
#define TK_MEMCPY __builtin_memcpy
#else
#define TK_MEMCPY memcpy
#endif
#define TK_RESTRICT __restrict

#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP
#define TK_DSP 1
#else
#define TK_DSP 0
#endif
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
#define TK_MVE 1
#else
#define TK_MVE 0
#endif

/* Out of line: layers share the code. */
#if defined(__clang__)
#define TK_SHARED static __attribute__((noinline, unused))
#elif defined(__GNUC__)
/* Inline assembly needs more registers than builds for debugging leave it. */
#define TK_SHARED static __attribute__((noinline, unused, optimize("O2", "omit-frame-pointer")))
#else
#define TK_SHARED static
#endif

/* Assembly that computes in r7, too: Clang's frame pointer, which no operand or clobber may name. Its
 * operands have registers of their own. */
#define TK_WITH_R7(text) "push {r7}\n\t" text "\n\tpop {r7}"

/* An address that the compiler does not know. GCC 12 may compute with the address of a symbol until
 * a pointer looks like 0 to it, and drops functions that read there as if they had no effect. */
TK_HOT const uint8_t *tk_opaque(const uint8_t *p)
{
#if defined(__GNUC__)
    __asm__("" : "+r"(p));
#endif
    return p;
}

TK_HOT int32_t tk_min(int32_t a, int32_t b) { return a < b ? a : b; }

TK_HOT int32_t tk_max(int32_t a, int32_t b) { return a > b ? a : b; }

/* Literal limits of 8 and 16 bits are one instruction where a core has it. */
TK_HOT int32_t tk_clamp(int32_t v, int32_t low, int32_t high)
{
#if defined(__ARM_FEATURE_SAT) && !TK_MVE
    if (__builtin_constant_p(low) && __builtin_constant_p(high)) {
        if (low == -32768 && high == 32767) {
            __asm__("ssat %0, #16, %1" : "=r"(v) : "r"(v));
            return v;
        }
        if (low == -128 && high == 127) {
            __asm__("ssat %0, #8, %1" : "=r"(v) : "r"(v));
            return v;
        }
    }
#endif
    return v < low ? low : v > high ? high : v;
}

TK_HOT int32_t tk_load32(const void *p)
{
    int32_t v;
    TK_MEMCPY(&v, p, sizeof v);
    return v;
}

TK_HOT int64_t tk_load64(const void *p)
{
    int64_t v;
    TK_MEMCPY(&v, p, sizeof v);
    return v;
}

/* TOSA's RESCALE of an integer without its zero point: rounded half up, by a shift of 2 to 62. */
TK_HOT int32_t tk_rescale(int64_t v, int32_t multiplier, int32_t shift)
{
    return (int32_t)((v * multiplier + ((int64_t)1 << (shift - 1))) >> shift);
}

/* The same of a number that may be shifted to the left by what the shift lacks of 32: the high word
 * of the product is all that is needed. */
TK_HOT int32_t tk_rescale32(int32_t v, int32_t multiplier, int32_t shift)
{
    if (shift > 32) {
        const int32_t half = (int32_t)1 << (shift - 33);
#if TK_DSP && !TK_MVE
        __asm__("smmla %0, %1, %2, %3" : "=r"(v) : "r"(v), "r"(multiplier), "r"(half));
        return v >> (shift - 32);
#else
        return ((int32_t)(((int64_t)v * multiplier) >> 32) + half) >> (shift - 32);
#endif
    }
    v = (int32_t)((uint32_t)v << (32 - shift));
#if TK_DSP && !TK_MVE
    __asm__("smmulr %0, %1, %2" : "=r"(v) : "r"(v), "r"(multiplier));
    return v;
#else
    return (int32_t)(((int64_t)v * multiplier + ((int64_t)1 << 31)) >> 32);
#endif
}

/* An element of 8, 16 or 32 bits; `bits` is a literal. */
TK_HOT void tk_store(void *y, int32_t index, int32_t v, int32_t bits)
{
    if (bits == 8) {
        ((int8_t *)y)[index] = (int8_t)v;
    } else if (bits == 16) {
        ((int16_t *)y)[index] = (int16_t)v;
    } else {
        ((int32_t *)y)[index] = v;
    }
}

/* The row of a ring of rows that holds row r of an image; a whole image is no ring. */
TK_HOT int32_t tk_ring(int32_t r, int32_t rows, int32_t height)
{
    return rows >= height ? r : r % rows;
}

/* An element of 8, 16 or 32 bits, signed; `bits` is a literal. */
TK_HOT int32_t tk_element(const void *x, int32_t index, int32_t bits)
{
    return bits == 8 ? ((const int8_t *)x)[index]
        : bits == 16 ? ((const int16_t *)x)[index] : ((const int32_t *)x)[index];
}

#endif
