/* The NPU beside a program of Linux: registers and memory are a shared file, pipes ring and answer.
   A real NPU needs these functions alone: fw_npu_base, fw_npu_reached, fw_arena and fw_ring. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "board.h"
#include "ethosu.h"
#include "networks.h"

enum { REGISTERS = 65536, ALIGNED = 16 };

/* Bytes that the NPU reads, beside those that the program has; a list of all of them. */
struct copy {
    const void *start;
    struct copy *next;
};

static uint8_t *window;
static uint32_t used = REGISTERS;

/* The shared memory, at the address that the NPU has for it; NULL if there is none. */
static uint8_t *mapped(void)
{
    if (window == NULL) {
        void *const wanted = (void *)(uintptr_t)BOARD_NPU_WINDOW;
        const int file = open("npu.memory", O_RDWR);
        if (file >= 0) {
            void *const got = mmap(wanted, BOARD_NPU_WINDOW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (got == wanted)
                window = (uint8_t *)got;
            else if (got != MAP_FAILED)
                munmap(got, BOARD_NPU_WINDOW_SIZE);
            close(file);
        }
    }
    return window;
}

static void *taken(uint32_t size)
{
    const uint32_t whole = (size + ALIGNED - 1) & ~(uint32_t)(ALIGNED - 1);
    if (mapped() == NULL || whole < size || whole > BOARD_NPU_WINDOW_SIZE - used)
        return NULL;
    used += whole;
    return window + used - whole;
}

uintptr_t fw_npu_base(void)
{
    static uint32_t absent[256]; /* the registers of no NPU: all are 0 */
    return mapped() != NULL ? (uintptr_t)window : (uintptr_t)absent;
}

/* Constants are copied once to where the NPU reads them; what has no room stays, and is a bus fault. */
const void *fw_npu_reached(const void *start, uint32_t size)
{
    static struct copy *copies;
    struct copy *each = copies;
    const uintptr_t place = (uintptr_t)start - BOARD_NPU_WINDOW;
    if (start == NULL || mapped() == NULL || place < BOARD_NPU_WINDOW_SIZE)
        return start;
    while (each != NULL && each->start != start)
        each = each->next;
    if (each == NULL) {
        each = (struct copy *)taken((uint32_t)sizeof *each + size);
        if (each == NULL)
            return start;
        each->start = start;
        each->next = copies;
        copies = each;
        memcpy(each + 1, start, size);
    }
    return each + 1;
}

void *fw_arena(void)
{
    static void *arena;
    if (arena == NULL)
        arena = taken(NETWORKS_ARENA_SIZE);
    return arena;
}

void fw_ring(void)
{
    static int32_t rings = -1, answers = -1;
    uint8_t byte = 1;
    if (rings < 0) {
        rings = open("npu.ring", O_WRONLY);
        answers = open("npu.done", O_RDONLY);
    }
    if (rings < 0 || fw_write(rings, &byte, 1) != 1 || fw_read(answers, &byte, 1) != 1)
        fw_fail(FW_FILE);
    if ((byte & 1u) != 0) /* the NPU raises its interrupt */
        ethosu_interrupt();
}
