/* Copies of tensors. */
#ifndef TOSAIC_MOVE_H
#define TOSAIC_MOVE_H

#include "common.h"

TK_HOT void tk_copy(const void *x, void *y, const uint8_t *w, const int8_t *lut, uint8_t *scratch,
    int32_t size)
{
    (void)w;
    (void)lut;
    (void)scratch;
    memcpy(y, x, (size_t)size);
}

#endif
