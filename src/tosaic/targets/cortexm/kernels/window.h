/* The taps of a window that lie inside of an image. */
#ifndef TOSAIC_WINDOW_H
#define TOSAIC_WINDOW_H

#include "common.h"

/* Of taps whose first is at a place along an axis, those from `first` up to `end` are inside. */
struct tk_inside {
    int32_t first, end;
};

TK_HOT struct tk_inside tk_inside_of(int32_t place, int32_t dilation, int32_t taps, int32_t size)
{
    struct tk_inside made;
    made.first = place >= 0 ? 0 : tk_min(taps, (dilation - 1 - place) / dilation);
    made.end = place >= size ? 0 : tk_min(taps, (size - place + dilation - 1) / dilation);
    made.end = tk_max(made.first, made.end);
    return made;
}

#endif
