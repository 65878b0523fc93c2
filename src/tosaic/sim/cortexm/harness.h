/* Semihosting: what a program on an emulated core asks of the host. */
#ifndef TOSAIC_HARNESS_H
#define TOSAIC_HARNESS_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Read exactly `size` bytes of a file; the program ends with status 3 where it cannot. */
void host_read(const char *path, void *data, uint32_t size);
/* Write `size` bytes to a new file; the program ends with status 3 where it cannot. */
void host_write(const char *path, const void *data, uint32_t size);
/* Print a line on the host's standard error. */
void host_print(const char *text);
void host_exit(uint32_t status);
/* `size` bytes of the board's large memory, 16-byte aligned, never freed. */
void *host_memory(uint32_t size);
/* A program's own entry. */
int main(void);
/* Empty: instructions between two marks are counted where these are entered. */
void mark_start(void);
void mark_stop(void);
#ifdef __cplusplus
}
#endif
#endif
