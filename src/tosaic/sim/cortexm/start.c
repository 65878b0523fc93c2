/* Start-up code of a program on an emulated core, and its semihosting calls. */
#include "harness.h"

extern uint32_t board_stack, board_bss, board_bss_end, board_data, board_data_end, board_data_image;
extern uint8_t board_large, board_large_end;

static uint32_t ask(uint32_t operation, const void *block)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void host_exit(uint32_t status)
{
    uint32_t block[2] = {0x20026u, status};
    ask(0x20u, block);
    for (;;) {
    }
}

void host_print(const char *text)
{
    ask(0x04u, text);
}

static uint32_t transfer(const char *path, uint32_t mode, uint32_t operation, const void *data, uint32_t size)
{
    uint32_t length = 0;
    while (path[length] != 0)
        length++;
    uint32_t opening[3] = {(uint32_t)(uintptr_t)path, mode, length};
    uint32_t handle = ask(0x01u, opening);
    if (handle == 0xffffffffu)
        return 1;
    uint32_t block[3] = {handle, (uint32_t)(uintptr_t)data, size};
    uint32_t left = ask(operation, block);
    ask(0x02u, &handle);
    return left;
}

void host_read(const char *path, void *data, uint32_t size)
{
    if (size != 0 && transfer(path, 1, 0x06u, data, size) != 0) {
        host_print("cannot read ");
        host_print(path);
        host_exit(3);
    }
}

void host_write(const char *path, const void *data, uint32_t size)
{
    if (transfer(path, 5, 0x05u, data, size) != 0) {
        host_print("cannot write ");
        host_print(path);
        host_exit(3);
    }
}

void *host_memory(uint32_t size)
{
    static uint32_t used;
    uint32_t start = ((uint32_t)(uintptr_t)&board_large + 15u & ~15u) + used;
    used += (size + 15u) & ~15u;
    if (size > (uint32_t)(uintptr_t)&board_large_end - start) {
        host_print("the board's memory is too small for the tensors");
        host_exit(4);
    }
    return (void *)(uintptr_t)start;
}

__attribute__((noinline)) void mark_start(void)
{
    __asm__ volatile("");
}

__attribute__((noinline)) void mark_stop(void)
{
    __asm__ volatile("");
}

static void fault(void)
{
    host_print("the program faulted");
    host_exit(5);
}

static void reset(void)
{
#if __ARM_ARCH >= 7
    *(volatile uint32_t *)0xE000ED88u |= 0xf00000u; /* CPACR: FPU and MVE */
    __asm__ volatile("dsb\n\tisb");
#endif
    uint32_t *from = &board_data_image;
    for (uint32_t *to = &board_data; to < &board_data_end;)
        *to++ = *from++;
    for (uint32_t *to = &board_bss; to < &board_bss_end;)
        *to++ = 0;
    host_exit((uint32_t)main());
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &board_stack, (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
    0, 0, 0, (const void *)fault, (const void *)fault, 0, (const void *)fault, (const void *)fault,
};
