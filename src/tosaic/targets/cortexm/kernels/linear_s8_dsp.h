/* Linear layer of int8 on one row with the DSP extension: two output channels at a time.
 *
 * The row is widened once to pairs of int16. The packed weights are those of conv_s8_dsp.h for a patch
 * of `ic` elements, with zeros up to a multiple of eight. */
#ifndef TOSAIC_LINEAR_S8_DSP_H
#define TOSAIC_LINEAR_S8_DSP_H

#include "dsp.h"

/* Lies directly behind the widened row, where the multiplication arrives. */
struct tk_row_dsp {
    int8_t *y;
    const int32_t *row;
    uint32_t steps;     /* groups of eight elements in the row, plus one */
    const uint8_t *end; /* of the packed weights */
    int32_t lo, hi;
};

#if TK_DSP
#define TK_WORD(w, x) "sxtb16 r12, " w "\n\tsmlad r3, " w ", " x ", r3\n\tsmlad r2, r12, " x ", r2\n\t"
#define TK_WORD_APART(w, x)                                                                         \
    "sxtb16 r12, " w "\n\tsxtb16 " w ", " w ", ror #8\n\tsmlad r3, " w ", " x ", r3\n\t"            \
    "smlad r2, r12, " x ", r2\n\t"
#define TK_EIGHT(word)                                                                              \
    "ldm r0!, {r4, r5, r6, r7}\n\t"                                                                 \
    "ldm r1!, {r8, r9, r10, r11}\n\t" word("r4", "r8") word("r5", "r9") word("r6", "r10")           \
        word("r7", "r11")
#define TK_ROW_BOUND(a)                                                                             \
    "cmp " a ", r4\n\tit lt\n\tmovlt " a ", r4\n\tcmp " a ", r5\n\tit gt\n\tmovgt " a ", r5\n\t"
/* All pairs of channels from `packed` to the row's end. */
#define TK_ROW(name, word, combine, op, size)                                                       \
    TK_SHARED void name(struct tk_row_dsp *row, const uint8_t *packed)                              \
    {                                                                                               \
        register const uint8_t *w __asm__("r0") = packed;                                           \
        register struct tk_row_dsp *b __asm__("r1") = row;                                          \
        __asm__ volatile(                                                                           \
            TK_WITH_R7("1:\n\t"                                                                     \
            "ldr lr, [r1, #8]\n\t"                                                                  \
            "ldr r2, [r0], #4\n\t"                                                                  \
            "ldr r1, [r1, #4]\n\t"                                                                  \
            "lsrs lr, lr, #1\n\t"                                                                   \
            "mov r3, r2\n\t"                                                                        \
            "bcc 3f\n"                                                                              \
            "2:\n\t" TK_EIGHT(word) "\n3:\n\t" TK_EIGHT(word) "subs lr, lr, #1\n\t"                 \
            "bne 2b\n\t"                                                                            \
            "ldm r0!, {r4, r5, r6, r7, r8, r9, r10}\n\t" combine                                    \
            "ldrd r4, r11, [r1, #16]\n\t"                                                           \
            "lsr r12, r7, #8\n\t"                                                                   \
            "lsl r2, r2, r12\n\t"                                                                   \
            "lsr r12, r10, #8\n\t"                                                                  \
            "lsl r3, r3, r12\n\t"                                                                   \
            "smmla r2, r2, r5, r6\n\t"                                                              \
            "asr r2, r2, r7\n\t"                                                                    \
            "smmla r3, r3, r8, r9\n\t"                                                              \
            "asr r3, r3, r10\n\t"                                                                   \
            "mov r5, r11\n\t" TK_ROW_BOUND("r2") TK_ROW_BOUND("r3")                                 \
            "ldr r4, [r1]\n\t"                                                                      \
            "ldr r5, [r1, #12]\n\t" op " r2, [r4], #" size "\n\t" op " r3, [r4], #" size "\n\t"     \
            "str r4, [r1]\n\t"                                                                      \
            "cmp r0, r5\n\t"                                                                        \
            "bne 1b")                                                                               \
            : "+r"(w), "+r"(b)                                                                      \
            :                                                                                       \
            : "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc",            \
            "memory");                                                                              \
    }
TK_ROW(tk_row_limited_dsp, TK_WORD, "subs r3, r3, r2\n\tadd r3, r4, r3, asr #8\n\t", "strb", "1")
TK_ROW(tk_row_exact_dsp, TK_WORD_APART, "add r3, r3, r4\n\t", "strb", "1")
TK_ROW(tk_row_int16_dsp, TK_WORD_APART, "add r3, r3, r4\n\t", "strh", "2")
TK_ROW(tk_row_int16_quick_dsp, TK_WORD, "subs r3, r3, r2\n\tadd r3, r4, r3, asr #8\n\t", "strh", "2")

TK_HOT void tk_linear_row_dsp(struct tk_row_dsp *row, const uint8_t *w, int32_t kind)
{
    if (kind < 2) {
        tk_row_limited_dsp(row, w);
    } else if (kind == 2) {
        tk_row_exact_dsp(row, w);
    } else if (kind == 3) {
        tk_row_int16_dsp(row, w);
    } else {
        tk_row_int16_quick_dsp(row, w);
    }
}

#else

TK_COLD void tk_linear_row_dsp(struct tk_row_dsp *row, const uint8_t *w, int32_t kind)
{
    const int32_t words = (int32_t)(row->steps - 1) * 4;
    for (; w != row->end; w += 4 * (words + 8)) {
        uint32_t sums[2];
        int32_t c;
        tk_sums_dsp(w, row->row, 1, words, kind == 2 || kind == 3, sums);
        for (c = 0; c < 2; ++c) {
            const uint8_t *scales = w + 4 * (words + 2 + 3 * c);
            tk_store(row->y, 0, tk_clamp(tk_scaled_dsp((int32_t)sums[c], tk_load32(scales),
                tk_load32(scales + 4), tk_load32(scales + 8)), row->lo, row->hi), kind > 2 ? 16 : 8);
            row->y += kind > 2 ? 2 : 1;
        }
    }
}
#endif

TK_HOT void tk_linear_s8_dsp(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t ic, int32_t oc, int32_t lo, int32_t hi,
    int32_t kind)
{
    const int32_t groups = (ic + 7) / 8, pair = 4 * (4 * groups + 8);
    int32_t *const row = (int32_t *)(void *)scratch;
    struct tk_row_dsp *const block = (struct tk_row_dsp *)(void *)(row + 4 * groups);
    int32_t i;
    (void)y0;
    (void)y1;
    for (i = 0; i < 2 * groups; ++i) {
        int32_t word = 0;
        if (i < ic / 4) {
            word = tk_load32(x + 4 * i);
        } else if (i == ic / 4) {
            memcpy(&word, x + 4 * i, (size_t)(ic % 4));
        }
        row[2 * i] = tk_even_bytes(word);
        row[2 * i + 1] = tk_odd_bytes(word);
    }
    block->y = (int8_t *)y;
    block->row = row;
    block->steps = (uint32_t)groups + 1;
    block->lo = lo;
    block->hi = hi;
    block->end = w + (oc >> 1) * pair;
    tk_linear_row_dsp(block, w, kind);
    if (oc & 1) {
        block->y -= kind > 2 ? 2 : 1;
        block->end += pair;
        tk_linear_row_dsp(block, w + (oc >> 1) * pair, kind);
    }
    if (lut != NULL) {
        for (i = 0; i < oc; ++i) {
            ((int8_t *)y)[i] = lut[((int8_t *)y)[i] + 128];
        }
    }
}

#endif
