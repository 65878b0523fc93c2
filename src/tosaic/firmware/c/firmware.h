/* What the parts of the firmware ask of one another: status, networks, board, host. */
#ifndef FIRMWARE_H
#define FIRMWARE_H
#include <stddef.h>
#include <stdint.h>

/* What a run ends with; a failing program exits with FW_EXIT + status. */
enum fw_status {
    FW_OK = 0,
    FW_STREAM_HEADER, /* the command stream does not begin with the driver's actions */
    FW_NPU_ABSENT,
    FW_NPU_CONFIG, /* the stream was compiled for another NPU */
    FW_NPU_RESET,
    FW_NPU_BUS,
    FW_NPU_PARSE,
    FW_NPU_WEIGHTS,
    FW_NPU_ECC,
    FW_NPU_UNFINISHED,
    FW_NPU_TIMEOUT,
    FW_NPU_INTERRUPT, /* the NPU has ended, and its interrupt has not come */
    FW_ALIGNMENT,
    FW_ARENA_SIZE,
    FW_ARENA_ALIGNMENT,
    FW_STACK,
    FW_FAULT,
    FW_TRAP,
    FW_FILE,
    FW_STATUS_COUNT
};
enum { FW_EXIT = 16 };

struct fw_port {
    const char *name;
    uint32_t size; /* bytes */
};

/* The memory of a static array, where the linker script has sections for it. */
#ifdef __linux__
#define FW_PLACED(section_name) __attribute__((aligned(16)))
#else
#define FW_PLACED(section_name) __attribute__((aligned(16), section(section_name)))
#endif

/* A network of the image; tensors are the caller's, the arena is shared by all networks. */
struct fw_network {
    const char *name;
    uint32_t inputs, outputs, arena;
    const struct fw_port *ports; /* inputs, then outputs */
    void (*init)(void);          /* gives its state the first values */
    enum fw_status (*run)(const void *const *inputs, void *const *outputs, void *arena, uint32_t size);
};
extern const struct fw_network *const fw_networks[];
extern const uint32_t fw_network_count;

/* Inputs that are part of the image, with INPUTS=image: of all networks in their order. */
struct fw_input {
    const uint8_t *start, *end;
};
extern const struct fw_input fw_inputs[];

/* NETWORKS_ARENA_SIZE bytes that the NPU reaches, too; NULL where there are none. */
void *fw_arena(void);

/* A sentence on a status. */
const char *fw_sentence(enum fw_status status);

/* The board: time since reset, caches, the NPU's interrupt. */
uint32_t fw_milliseconds(void);
uint64_t fw_ticks(void);
void fw_cache_clean(const void *start, uint32_t size);
void fw_cache_invalidate(const void *start, uint32_t size);
void fw_wait(void);

/* Memory that is watched: painted words show what was never written. */
uint32_t fw_paint_word(const uint32_t *place);
void fw_paint(void *start, uint32_t size);
uint32_t fw_untouched(const void *start, uint32_t size); /* painted bytes at the end */
uint32_t fw_stack_size(void);
uint32_t fw_stack_used(void);

/* Text for whoever watches, files of a host (semihosting), and the end. */
void fw_print(const char *text);
void fw_print_number(uint64_t number);
void fw_print_bytes(const uint8_t *data, uint32_t size); /* hexadecimal */
int32_t fw_open(const char *path, int writes); /* negative: there is none */
uint32_t fw_read(int32_t file, void *data, uint32_t size); /* bytes that came */
uint32_t fw_write(int32_t file, const void *data, uint32_t size); /* bytes that went */
void fw_close(int32_t file);
void fw_exit(uint32_t status);
void fw_fail(enum fw_status status); /* says the sentence, and ends */

#ifdef __linux__
/* Run a program in a folder, on a painted stack of its own, with faults as sentences. */
int fw_begin(const char *folder, int (*program)(void));
#else
int main(void);
#endif
#endif
