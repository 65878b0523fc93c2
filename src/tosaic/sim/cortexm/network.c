/* Runs a generated network once: inputs from files, outputs to files. */
#include "net.h"
#include "harness.h"

static void name(char *path, const char *stem, uint32_t index)
{
    while (*stem != 0)
        *path++ = *stem++;
    *path++ = (char)('0' + index / 100);
    *path++ = (char)('0' + index / 10 % 10);
    *path++ = (char)('0' + index % 10);
    *path = 0;
}
