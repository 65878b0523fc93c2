/* Linux as a board: text, files, time, a painted stack, and faults as sentences. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "firmware.h"

enum { PAGE = 65536, SPACE = BOARD_STACK + 2 * PAGE }; /* a page: the largest of aarch64 */
static uint8_t *stack;            /* a page that nobody may touch, then what is painted */
static const uint32_t *stack_top; /* below what the thread itself has there */

void fw_print(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

void fw_exit(uint32_t status)
{
    _exit((int)status);
}

int32_t fw_open(const char *path, int writes)
{
    return open(path, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
}

uint32_t fw_read(int32_t file, void *data, uint32_t size)
{
    uint32_t came = 0;
    while (came < size) {
        const ssize_t some = read(file, (uint8_t *)data + came, size - came);
        if (some <= 0)
            break;
        came += (uint32_t)some;
    }
    return came;
}

uint32_t fw_write(int32_t file, const void *data, uint32_t size)
{
    uint32_t gone = 0;
    while (gone < size) {
        const ssize_t some = write(file, (const uint8_t *)data + gone, size - gone);
        if (some <= 0)
            break;
        gone += (uint32_t)some;
    }
    return gone;
}

void fw_close(int32_t file)
{
    close(file);
}

uint64_t fw_ticks(void)
{
    static uint64_t first;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ticks = (uint64_t)now.tv_sec * BOARD_CLOCK + (uint64_t)now.tv_nsec;
    if (first == 0)
        first = ticks;
    return ticks - first;
}

uint32_t fw_milliseconds(void)
{
    return (uint32_t)(fw_ticks() / (BOARD_CLOCK / 1000u));
}

/* Caches of a processor with Linux are coherent with what it maps as shared. */
void fw_cache_clean(const void *start, uint32_t size)
{
    (void)start;
    (void)size;
}

void fw_cache_invalidate(const void *start, uint32_t size)
{
    (void)start;
    (void)size;
}

void fw_wait(void)
{
    const struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL);
}

uint32_t fw_stack_size(void)
{
    return BOARD_STACK;
}

__attribute__((no_sanitize("address"))) uint32_t fw_stack_used(void)
{
    const uint32_t *at = (const uint32_t *)(stack + PAGE);
    while (at < stack_top && *at == fw_paint_word(at))
        at++;
    return 4u * (uint32_t)(stack_top - at);
}

#ifndef FW_SANITIZERS
static void fault(int number, siginfo_t *about, void *context)
{
    const uintptr_t place = (uintptr_t)about->si_addr;
    (void)context;
    if (number == SIGSEGV && place >= (uintptr_t)stack && place < (uintptr_t)stack + PAGE)
        fw_fail(FW_STACK);
    fw_fail(number == SIGILL || number == SIGTRAP ? FW_TRAP : FW_FAULT);
}

static void catch_faults(void)
{
    static uint8_t emergency[PAGE]; /* the stack of the handler */
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    const stack_t place = {.ss_sp = emergency, .ss_size = sizeof emergency};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaltstack(&place, NULL);
    for (uint32_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}
#else /* the sanitizer tells them itself */
static void catch_faults(void)
{
}
#endif

static void *enter(void *program)
{
    static int result;
    stack_top = (const uint32_t *)__builtin_frame_address(0);
    catch_faults();
    result = (*(int (**)(void))program)();
    return &result;
}

int fw_begin(const char *folder, int (*program)(void))
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = NULL;
    if (chdir(folder) != 0)
        fw_fail(FW_FILE);
    stack = (uint8_t *)mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((void *)stack == MAP_FAILED)
        fw_fail(FW_STACK);
    fw_paint(stack, SPACE);
    fw_ticks();
    pthread_attr_init(&attributes);
    if (mprotect(stack, PAGE, PROT_NONE) != 0
        || pthread_attr_setstack(&attributes, stack + PAGE, SPACE - PAGE) != 0
        || pthread_create(&thread, &attributes, enter, &program) != 0
        || pthread_join(thread, &result) != 0)
        fw_fail(FW_STACK);
    return *(const int *)result;
}
