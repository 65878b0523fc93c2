/* Watches memory: painted words differ from place to place, so that no data looks like paint. */
#include "firmware.h"

uint32_t fw_paint_word(const uint32_t *place)
{
    const uint32_t x = (uint32_t)(uintptr_t)place * 0x9e3779b1u;
    return x ^ x >> 15 ^ 0x5bd1e995u;
}

void fw_paint(void *start, uint32_t size)
{
    uint32_t *at = (uint32_t *)start;
    for (uint32_t i = 0; i < size / 4; i++)
        at[i] = fw_paint_word(at + i);
}

uint32_t fw_untouched(const void *start, uint32_t size)
{
    const uint32_t *at = (const uint32_t *)start;
    uint32_t words = size / 4;
    while (words > 0 && at[words - 1] == fw_paint_word(at + words - 1))
        words--;
    return size - 4 * words;
}

void fw_print_number(uint64_t number)
{
    char text[21];
    uint32_t at = sizeof text - 1;
    text[at] = 0;
    do {
        text[--at] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0);
    fw_print(text + at);
}

void fw_print_bytes(const uint8_t *data, uint32_t size)
{
    static const char digits[] = "0123456789abcdef";
    char text[65];
    uint32_t at = 0;
    for (uint32_t i = 0; i < size; i++) {
        text[at++] = digits[data[i] >> 4];
        text[at++] = digits[data[i] & 15];
        if (at == sizeof text - 1 || i + 1 == size) {
            text[at] = 0;
            fw_print(text);
            at = 0;
        }
    }
}

void fw_fail(enum fw_status status)
{
    fw_print("error: ");
    fw_print(fw_sentence(status));
    fw_print("\n");
    fw_exit(FW_EXIT + (uint32_t)status);
}

/* What -fstack-protector asks for; the libraries of Linux have a guard that nobody can guess. */
#ifndef __linux__
extern const uintptr_t __stack_chk_guard;
const uintptr_t __stack_chk_guard = 0x5bd1e995u;
#endif
void __stack_chk_fail(void);

void __stack_chk_fail(void)
{
    fw_fail(FW_STACK);
    for (;;) {
    }
}
