/* A board for those who look at the C without one. */
#ifndef BOARD_H
#define BOARD_H
#define BOARD_CLOCK 32000000u
#define BOARD_HAS_CACHE 1
#define BOARD_HAS_NPU 1
#define BOARD_IS_EMULATED 1
#define BOARD_NPU_IRQ 56
#define BOARD_NPU_ACCESS 3u
#define BOARD_NPU_TIMEOUT 1000u
#define BOARD_NPU_QCONFIG 3u
#define BOARD_NPU_REGIONCFG 3u
#define BOARD_NPU_LIMITS {0u, 0u, 0u, 0u}
#define BOARD_NPU_BASE 0x60000000u
#define BOARD_STACK 262144
#define BOARD_NPU_WINDOW 0x60000000u
#define BOARD_NPU_WINDOW_SIZE 0x10000000u
#define BOARD_NPU_REACHED(start, size) (start)
void fw_ring(void);
#define BOARD_NPU_RING() fw_ring()
#endif
