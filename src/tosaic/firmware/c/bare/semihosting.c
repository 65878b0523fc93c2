/* Text, files and the end by semihosting: a debugger or an emulator answers. */
#include "firmware.h"

enum { OPEN = 1, CLOSE = 2, PRINT = 4, WRITE = 5, READ = 6, EXIT = 0x20 };

static uint32_t ask(uint32_t operation, const void *block)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void fw_print(const char *text)
{
    ask(PRINT, text);
}

void fw_exit(uint32_t status)
{
    const uint32_t block[2] = {0x20026u, status};
    ask(EXIT, block);
    for (;;) {
    }
}

int32_t fw_open(const char *path, int writes)
{
    uint32_t length = 0;
    while (path[length] != 0)
        length++;
    const uint32_t block[3] = {(uint32_t)(uintptr_t)path, writes ? 5u : 1u, length};
    return (int32_t)ask(OPEN, block);
}

uint32_t fw_read(int32_t file, void *data, uint32_t size)
{
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, size};
    return size - ask(READ, block);
}

uint32_t fw_write(int32_t file, const void *data, uint32_t size)
{
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, size};
    return size - ask(WRITE, block);
}

void fw_close(int32_t file)
{
    const uint32_t block[1] = {(uint32_t)file};
    ask(CLOSE, block);
}
