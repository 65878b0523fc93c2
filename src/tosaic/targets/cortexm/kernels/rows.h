/* GATHER, ROW_GATHER and SCATTER: rows of bytes by index; an index outside is the nearest row. */
#ifndef TOSAIC_ROWS_H
#define TOSAIC_ROWS_H

#include "common.h"

TK_HOT int32_t tk_row(const void *indices, int32_t at, int32_t bits, int32_t last)
{
    const int64_t v = bits == 64 ? ((const int64_t *)indices)[at] : ((const int32_t *)indices)[at];
    return v < 0 ? 0 : v > last ? last : (int32_t)v;
}

/* `count` rows of `size` bytes from each index on. */
TK_COLD void tk_gather(const void *x, const void *indices, void *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t bits, int32_t n, int32_t k, int32_t width,
    int32_t size, int32_t count)
{
    int32_t b, i;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b) {
        for (i = 0; i < width; ++i) {
            const int32_t row = tk_row(indices, b * width + i, bits, k - count);
            memcpy((uint8_t *)y + (b * width + i) * count * size,
                (const uint8_t *)x + (b * k + row) * size, (size_t)(count * size));
        }
    }
}

TK_COLD void tk_scatter(const void *x, const void *indices, const void *update, void *y,
    const uint8_t *w, const int8_t *lut, uint8_t *scratch, int32_t bits, int32_t n, int32_t k,
    int32_t width, int32_t size)
{
    int32_t b, i;
    (void)w;
    (void)lut;
    (void)scratch;
    memcpy(y, x, (size_t)(n * k * size));
    for (b = 0; b < n; ++b) {
        for (i = 0; i < width; ++i) {
            const int32_t row = tk_row(indices, b * width + i, bits, k - 1);
            memcpy((uint8_t *)y + (b * k + row) * size,
                (const uint8_t *)update + (b * width + i) * size, (size_t)size);
        }
    }
}

#endif
