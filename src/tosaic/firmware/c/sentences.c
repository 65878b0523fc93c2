/* What each status means, in a sentence. */
#include "firmware.h"

const char *fw_sentence(enum fw_status status)
{
    static const char *const sentences[FW_STATUS_COUNT] = {
        "all is well",
        "the command stream is damaged: it does not begin with the actions of Vela's driver payload",
        "no NPU answers at the board's NPU address: check 'base' of the board file, clock and power",
        "the command stream was compiled for another NPU than the board has: compile for the board's",
        "the NPU does not leave its reset in the state that was asked for: check 'access' of the board file",
        "the NPU met a bus fault: a region of the stream lies in memory that the NPU does not reach",
        "the NPU cannot read the command stream: it is damaged, or for another NPU",
        "the NPU cannot decode its weights: they are damaged, or lie at another address",
        "the NPU found a memory error that it cannot correct",
        "the NPU stopped before the end of the command stream",
        "the NPU did not end within the board's timeout",
        "the NPU ended, and its interrupt did not come: check 'interrupt' of the board file",
        "the stream, the weights or the arena are not aligned to 16 bytes: check the linker script",
        "the arena is smaller than the network needs",
        "the arena is not aligned to 16 bytes",
        "the stack overflowed: the board file's 'stack' is too small",
        "the processor met a fault",
        "the program trapped: undefined behaviour, or a check of the compiler's",
        "a file of the host cannot be opened, read or written",
    };
    return (unsigned)status < FW_STATUS_COUNT ? sentences[status] : "an unknown status";
}
