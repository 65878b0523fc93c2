/* Linear layer of int8 on one row with the vector extension: four output channels at a time.
 *
 * Packed for four channels: [step][4][16] weights, zeros behind the last element; four biases, four
 * multipliers, four negative shifts less 31. The last four channels overlap. */
#ifndef TOSAIC_LINEAR_S8_MVE_H
#define TOSAIC_LINEAR_S8_MVE_H

#include "mve.h"

#if TK_MVE
#define TK_ROW_STEP(mac)                                                                            \
    "vldrb.8 q0, [r1], #16\n\tvldrb.8 q1, [r5], #16\n\t" mac " r0, q0, q1\n\t"                      \
    "vldrb.8 q2, [r5], #16\n\t" mac " r2, q0, q2\n\tvldrb.8 q3, [r5], #16\n\t" mac                  \
    " r4, q0, q3\n\tvldrb.8 q4, [r5], #16\n\t" mac " r6, q0, q4\n\t"

/* All channels from `packed` to `end` of a row of `more` vectors and one. */
#define TK_ROW_MVE(name, store)                                                                     \
    TK_SHARED void name(const int8_t *x, int8_t *y, const uint8_t *packed,                          \
        const uint8_t *end, int32_t more, const int32_t *zp_lo_hi)                                  \
    {                                                                                               \
        register const uint8_t *w __asm__("r5") = packed;                                           \
        register int8_t *to __asm__("r3") = y;                                                      \
        register const int8_t *from __asm__("r10") = x;                                             \
        register int32_t steps __asm__("r11") = more;                                               \
        register const uint8_t *last __asm__("r8") = end;                                           \
        register const int32_t *limits __asm__("r12") = zp_lo_hi;                                   \
        __asm__ volatile(                                                                           \
            "ldrd r9, r6, [r12]\n\t"                                                                \
            "ldr r12, [r12, #8]\n\t"                                                                \
            "vdup.32 q6, r6\n\t"                                                                    \
            "vdup.32 q7, r12\n"                                                                     \
            "1:\n\t"                                                                                \
            "mov r1, r10\n\t" TK_ROW_STEP("vmladav.s8") "wls lr, r11, 3f\n"                         \
            "2:\n\t" TK_ROW_STEP("vmladava.s8") "le lr, 2b\n"                                       \
            "3:\n\t"                                                                                \
            "vldrw.32 q1, [r5], #16\n\tvldrw.32 q2, [r5], #16\n\tvldrw.32 q3, [r5], #16\n\t"        \
            "vmov q0[2], q0[0], r0, r4\n\tvmov q0[3], q0[1], r2, r6\n\t"                            \
            "vadd.i32 q0, q0, q1\n\tvshr.u32 q4, q3, #8\n\tvshl.s32 q0, q0, q4\n\tvqdmulh.s32 q0, q0, q2\n\tvrshl.s32 q0, q0, q3\n\t"\
            "cmp r5, r8\n\t"                                                                        \
            "vadd.i32 q0, q0, r9\n\tvmax.s32 q0, q0, q6\n\tvmin.s32 q0, q0, q7\n\t"                 \
            store                                                                                   \
            "bne 1b"                                                                                \
            : "+r"(w), "+r"(to), "+r"(limits)                                                       \
            : "r"(from), "r"(steps), "r"(last)                                                      \
            : "r0", "r1", "r2", "r4", "r6", "r9", "lr", "cc", "memory", TK_VECTORS);                \
    }
TK_ROW_MVE(tk_row_int8_mve, "vstrb.32 q0, [r3], #4\n\t")
TK_ROW_MVE(tk_row_int16_mve, "vstrh.32 q0, [r3], #8\n\t")

TK_HOT void tk_linear_row_mve(const int8_t *x, int8_t *y, const uint8_t *w, const uint8_t *end,
    int32_t more, const int32_t *zp_lo_hi, int32_t size)
{
    if (size == 1) {
        tk_row_int8_mve(x, y, w, end, more, zp_lo_hi);
    } else {
        tk_row_int16_mve(x, y, w, end, more, zp_lo_hi);
    }
}

#else

TK_COLD void tk_linear_row_mve(const int8_t *x, int8_t *y, const uint8_t *packed,
    const uint8_t *end, int32_t more, const int32_t *zp_lo_hi, int32_t size)
{
    int32_t lane, k;
    for (; packed != end; packed += 64 * (more + 1) + 48) {
        const uint8_t *scales = packed + 64 * (more + 1);
        for (lane = 0; lane < 4; ++lane, scales += 4) {
            uint32_t sum = (uint32_t)tk_load32(scales);
            for (k = 0; k < 16 * (more + 1); ++k) {
                sum += (uint32_t)(x[k] * (int8_t)packed[k / 16 * 64 + 16 * lane + k % 16]);
            }
            k = tk_clamp(zp_lo_hi[0] + tk_scaled_mve((int32_t)sum, tk_load32(scales + 16),
                tk_load32(scales + 32)), zp_lo_hi[1], zp_lo_hi[2]);
            tk_store(y, 0, k, 8 * size);
            y += size;
        }
    }
}
#endif

TK_HOT void tk_linear_s8_mve(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t ic, int32_t oc, int32_t y_zp, int32_t lo,
    int32_t hi, int32_t size)
{
    const int32_t steps = (ic + 15) / 16, four = 64 * steps + 48;
    int8_t *to = (int8_t *)y;
    int32_t limits[3], few[2], i;
    limits[0] = y_zp;
    limits[1] = lo;
    limits[2] = hi;
    (void)y0;
    (void)y1;
    if (ic % 16 != 0) {
        x = (const int8_t *)memcpy(scratch, x, (size_t)ic);
    }
    if (oc < 4) {
        tk_linear_row_mve(x, (int8_t *)few, w, w + four, steps - 1, limits, size);
        memcpy(to, few, (size_t)((oc & 3) * size));
    } else {
        tk_linear_row_mve(x, to, w, w + (oc >> 2) * four, steps - 1, limits, size);
        if ((oc & 3) != 0) {
            w += (oc >> 2) * four;
            tk_linear_row_mve(x, to + (oc - 4) * size, w, w + four, steps - 1, limits, size);
        }
    }
    if (lut != NULL) {
        for (i = 0; i < oc; ++i) {
            to[i] = lut[to[i] + 128];
        }
    }
}

#endif
