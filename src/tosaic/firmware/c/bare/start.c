/* Start-up of a Cortex-M: vector table, memory, faults as sentences, the clock, caches, the stack. */
#include "board.h"
#include "firmware.h"

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define SYSTICK_CONTROL REGISTER(0xE000E010u)
#define SYSTICK_RELOAD REGISTER(0xE000E014u)
#define SYSTICK_VALUE REGISTER(0xE000E018u)
#define NVIC_ENABLE(irq) REGISTER(0xE000E100u + 4u * ((irq) / 32u))
#define CCR REGISTER(0xE000ED14u)
#define CFSR REGISTER(0xE000ED28u)
#define BFAR REGISTER(0xE000ED38u)
#define DCIMVAC REGISTER(0xE000EF5Cu)
#define DCCMVAC REGISTER(0xE000EF68u)
enum { CACHE_ON = 1 << 16, CACHE_LINE = 32, STACK_OVERFLOW = 1 << 20, UNDEFINED = 1 << 16, BFAR_VALID = 1 << 15 };

extern uint32_t fw_stack_limit[], fw_stack_top[], fw_bss[], fw_bss_end[], fw_data[], fw_data_end[];
extern const uint32_t fw_data_image[];

static volatile uint32_t milliseconds;
uint32_t fw_emergency[128]; /* the stack of those who report faults */

uint32_t fw_milliseconds(void)
{
    return milliseconds;
}

uint64_t fw_ticks(void)
{
    for (;;) {
        const uint32_t before = milliseconds;
        const uint32_t left = SYSTICK_VALUE;
        if (before == milliseconds)
            return (uint64_t)before * (BOARD_CLOCK / 1000u) + (BOARD_CLOCK / 1000u - 1u - left);
    }
}

static void tick(void)
{
    milliseconds++;
}

void fw_wait(void)
{
    __asm__ volatile("wfe");
}

static void by_line(volatile uint32_t *operation, const void *start, uint32_t size)
{
#if BOARD_HAS_CACHE
    if ((CCR & CACHE_ON) == 0 || size == 0)
        return;
    __asm__ volatile("dsb" ::: "memory");
    for (uintptr_t line = (uintptr_t)start & ~(uintptr_t)(CACHE_LINE - 1); line < (uintptr_t)start + size; line += CACHE_LINE)
        *operation = (uint32_t)line;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#else
    (void)operation;
    (void)start;
    (void)size;
#endif
}

void fw_cache_clean(const void *start, uint32_t size)
{
    by_line(&DCCMVAC, start, size);
}

void fw_cache_invalidate(const void *start, uint32_t size)
{
    by_line(&DCIMVAC, start, size);
}

uint32_t fw_stack_size(void)
{
    return 4u * (uint32_t)(fw_stack_top - fw_stack_limit);
}

uint32_t fw_stack_used(void)
{
    const uint32_t *at = fw_stack_limit;
    while (at < fw_stack_top && *at == fw_paint_word(at))
        at++;
    return 4u * (uint32_t)(fw_stack_top - at);
}

/* Entered by fw_fault with a stack of its own. */
__attribute__((used, noreturn)) static void report(const uint32_t *frame)
{
    enum fw_status status = FW_FAULT;
#if __ARM_ARCH >= 7
    const uint32_t cause = CFSR;
    const uint32_t below = (uint32_t)(uintptr_t)fw_stack_limit - BFAR;
    if ((cause & STACK_OVERFLOW) != 0 || ((cause & BFAR_VALID) != 0 && below < 65536u))
        status = FW_STACK;
    else if ((cause & UNDEFINED) != 0)
        status = FW_TRAP;
#else
    const uint32_t cause = 0;
#endif
    if ((uintptr_t)frame < (uintptr_t)fw_stack_limit || (uintptr_t)frame + 32u > (uintptr_t)fw_stack_top) {
        status = FW_STACK;
    } else if (status != FW_STACK) {
        fw_print("at the address ");
        fw_print_number(frame[6]);
        fw_print(", cause ");
        fw_print_number(cause);
        fw_print("\n");
    }
    fw_fail(status);
    for (;;) {
    }
}

__attribute__((naked)) static void fault(void)
{
    __asm__ volatile(
        "mrs r0, msp\n\t"
#if __ARM_ARCH >= 8
        "movs r1, #0\n\t"
        "msr msplim, r1\n\t"
#endif
        "ldr r1, =fw_emergency + 512\n\t"
        "msr msp, r1\n\t"
        "ldr r1, =report\n\t"
        "bx r1\n\t"
        ".ltorg");
}

__attribute__((used, noreturn)) static void begin(void)
{
    const uint32_t *from = fw_data_image;
    for (uint32_t *to = fw_data; to < fw_data_end;)
        *to++ = *from++;
    for (uint32_t *to = fw_bss; to < fw_bss_end;)
        *to++ = 0;
    for (uint32_t *at = fw_stack_limit; at < (uint32_t *)__builtin_frame_address(0) - 64; at++)
        *at = fw_paint_word(at);
    SYSTICK_RELOAD = BOARD_CLOCK / 1000u - 1u;
    SYSTICK_VALUE = 0;
    SYSTICK_CONTROL = 7;
#if BOARD_HAS_NPU
    NVIC_ENABLE(BOARD_NPU_IRQ) = 1u << (BOARD_NPU_IRQ % 32u);
#endif
    fw_exit((uint32_t)main());
    for (;;) {
    }
}

__attribute__((naked, noreturn)) static void reset(void)
{
    __asm__ volatile(
#if __ARM_ARCH >= 8
        "ldr r0, =fw_stack_limit\n\t"
        "msr msplim, r0\n\t"
#endif
#if __ARM_ARCH >= 7
        "ldr r0, =0xE000ED88\n\t" /* CPACR: floats and vectors, which a compiler may use at once */
        "ldr r1, [r0]\n\t"
        "orr r1, r1, #0xf00000\n\t"
        "str r1, [r0]\n\t"
        "dsb\n\tisb\n\t"
#endif
        "ldr r0, =begin\n\t"
        "bx r0\n\t"
        ".ltorg");
}

#if BOARD_HAS_NPU
#include "ethosu.h"
#define VECTORS (16 + BOARD_NPU_IRQ + 1)
#else
#define VECTORS 16
#endif

union vector {
    uint32_t *stack;
    void (*handler)(void);
};

__attribute__((section(".vectors"), used)) const union vector fw_vectors[VECTORS] = {
    [0] = {.stack = fw_stack_top},
    [1] = {.handler = reset},
    [2] = {.handler = fault},
    [3] = {.handler = fault},
    [4] = {.handler = fault},
    [5] = {.handler = fault},
    [6] = {.handler = fault},
    [7] = {.handler = fault},
    [11] = {.handler = fault},
    [12] = {.handler = fault},
    [14] = {.handler = fault},
    [15] = {.handler = tick},
#if BOARD_HAS_NPU
    [16 + BOARD_NPU_IRQ] = {.handler = ethosu_interrupt},
#endif
};
