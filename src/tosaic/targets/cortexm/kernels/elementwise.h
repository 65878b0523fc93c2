/* Elements of TOSA's elementwise operators; loops over them are in the network's own C. */
#ifndef TOSAIC_ELEMENTWISE_H
#define TOSAIC_ELEMENTWISE_H

#include "common.h"

TK_HOT int32_t tk_add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

TK_HOT int32_t tk_sub(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }

TK_HOT int32_t tk_mul(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }

TK_HOT int64_t tk_add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

TK_HOT int64_t tk_sub64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

TK_HOT int64_t tk_mul64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* A product, rounded and shifted down. */
TK_HOT int32_t tk_mul_shift(int32_t a, int32_t b, int32_t shift)
{
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << (shift - 1))) >> shift);
}

/* A quotient towards zero; what TOSA leaves open is 0, or wraps. */
TK_HOT int32_t tk_div(int32_t a, int32_t b)
{
    return b == 0 ? 0 : b == -1 ? tk_sub(0, a) : a / b;
}

TK_HOT int64_t tk_div64(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? tk_sub64(0, a) : a / b;
}

TK_HOT int32_t tk_shift_left(int32_t a, int32_t b) { return (int32_t)((uint32_t)a << (b & 31)); }

TK_HOT int64_t tk_shift_left64(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a << (b & 63));
}

/* The bits of an element of some width, shifted down without its sign. */
TK_HOT int32_t tk_shift_right_logical(int32_t a, int32_t b, int32_t bits)
{
    return (int32_t)(((uint32_t)a & (0xFFFFFFFFu >> (32 - bits))) >> (b & 31));
}

TK_HOT int64_t tk_shift_right_logical64(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a >> (b & 63));
}

TK_HOT int32_t tk_shift_right(int32_t a, int32_t b) { return a >> (b & 31); }

TK_HOT int64_t tk_shift_right64(int64_t a, int64_t b) { return a >> (b & 63); }

TK_HOT int32_t tk_shift_right_round(int32_t a, int32_t b)
{
    return b > 0 ? tk_add(a >> (b & 31), (a >> ((b - 1) & 31)) & 1) : a;
}

TK_HOT int64_t tk_shift_right_round64(int64_t a, int64_t b)
{
    return b > 0 ? tk_add64(a >> (b & 63), (a >> ((b - 1) & 63)) & 1) : a;
}

/* A shift by a literal that rounds half up; the sum may need 64 bits. */
TK_HOT int32_t tk_round_shift(int64_t a, int32_t b)
{
    return (int32_t)((a + ((int64_t)1 << (b - 1))) >> b);
}

TK_HOT int32_t tk_clz(int32_t a)
{
    uint32_t v = (uint32_t)a;
    int32_t count = 32;
    while (v != 0) {
        v >>= 1;
        --count;
    }
    return count;
}

#if defined(__GNUC__)
#define TK_CLZ(a) ((a) == 0 ? 32 : (int32_t)__builtin_clz((unsigned)(a)))
#else
#define TK_CLZ(a) tk_clz(a)
#endif

TK_HOT int64_t tk_clz64(int64_t a)
{
    const int32_t high = (int32_t)((uint64_t)a >> 32);
    return high != 0 ? tk_clz(high) : 32 + tk_clz((int32_t)(uint32_t)(uint64_t)a);
}

TK_HOT int32_t tk_table8(int32_t v, const int8_t *table) { return table[v + 128]; }

/* 512 segments of 128 steps: the high 9 bits choose one, the low 7 a place in it. */
TK_HOT int32_t tk_table16(int32_t v, const int16_t *table)
{
#if TK_DSP
    /* Both entries in one word, and both weights in another. */
    const int32_t entries = tk_load32(table + 256 + (v >> 7)), weights = (v & 127) * 65535 + 128;
    int32_t made;
    __asm__("smuad %0, %1, %2" : "=r"(made) : "r"(entries), "r"(weights));
    return made;
#else
    const int32_t place = v + 32768;
    const int32_t base = table[place >> 7];
    return base * 128 + (table[(place >> 7) + 1] - base) * (place & 127);
#endif
}

/* RESCALE with DOUBLE_ROUND: a shift above 31 rounds at bit 30 as well, away from zero. */
TK_HOT int32_t tk_rescale_double(int64_t v, int32_t multiplier, int32_t shift)
{
    int64_t half = (int64_t)1 << (shift - 1);
    if (shift > 31) {
        half += v >= 0 ? (int64_t)1 << 30 : -((int64_t)1 << 30);
    }
    return (int32_t)((v * multiplier + half) >> shift);
}

/* A float to the nearest integer, ties to even, within int32. */
TK_HOT int32_t tk_nearest(float v)
{
    int32_t whole;
    float rest;
    if (v >= 2147483648.0F) {
        return 2147483647;
    }
    if (v < -2147483648.0F) {
        return -2147483647 - 1;
    }
    whole = (int32_t)v;
    rest = v - (float)whole;
    if (rest > 0.5F || (rest == 0.5F && (whole & 1))) {
        ++whole;
    } else if (rest < -0.5F || (rest == -0.5F && (whole & 1))) {
        --whole;
    }
    return whole;
}

/* RESCALE with INEXACT_ROUND, as TOSA's reference model has it: in float32. */
TK_HOT int32_t tk_rescale_inexact(int64_t v, float slope)
{
    const float product = (float)v * slope;
    return tk_nearest(product);
}

#endif
