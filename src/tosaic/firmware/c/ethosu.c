/* A driver of Ethos-U55, U65 and U85: registers, faults, timeout; no memory of its own but a flag. */
#include "ethosu.h"
#include "board.h"

enum {
    ID = 0x00, STATUS = 0x04, CMD = 0x08, RESET = 0x0c, QBASE = 0x10, QCONFIG = 0x1c, QSIZE = 0x20,
    PROT = 0x24, CONFIG = 0x28, REGIONCFG = 0x3c, LIMITS = 0x40, BASEP = 0x80
};
enum { RUNNING = 1, IRQ = 2, BUS = 4, RESETTING = 8, PARSE = 16, ENDED = 32, WEIGHTS = 128, ECC = 256 };
enum { RUN = 1, CLEAR = 2, POWER = 12 };
enum { ACTION_CONFIG = 1, ACTION_STREAM = 2, ACTION_NOP = 5, ALIGNED = 15 };
#define COP1 0x31504f43u

static volatile int done;

static uint32_t get(uint32_t place)
{
    return *(volatile uint32_t *)(uintptr_t)(BOARD_NPU_BASE + place);
}

static void set(uint32_t place, uint32_t value)
{
    *(volatile uint32_t *)(uintptr_t)(BOARD_NPU_BASE + place) = value;
}

static void set_address(uint32_t place, const void *address)
{
    const uint64_t whole = (uint64_t)(uintptr_t)address;
    set(place, (uint32_t)whole);
    set(place + 4, (uint32_t)(whole >> 32));
}

void ethosu_interrupt(void)
{
    set(CMD, (get(CMD) & POWER) | CLEAR);
    BOARD_NPU_RING();
    done = 1;
}

/* The words of the stream behind the driver's actions, and what NPU they are for. */
static enum fw_status parse(const struct ethosu_job *job, const uint32_t **stream, uint32_t *words, uint32_t *config)
{
    const uint32_t *at = (const uint32_t *)BOARD_NPU_REACHED(job->stream, job->stream_size);
    const uint32_t *end = at + job->stream_size / 4;
    *config = 0;
    if (job->stream_size < 8 || job->stream_size % 4 != 0 || *at++ != COP1)
        return FW_STREAM_HEADER;
    while (at < end) {
        const uint32_t action = *at & 255u;
        if (action == ACTION_CONFIG && end - at > 2) {
            *config = at[1];
            at += 3;
        } else if (action == ACTION_NOP) {
            at++;
        } else if (action == ACTION_STREAM) {
            *words = (*at & 0xff00u) << 8 | *at >> 16;
            *stream = at + 1;
            if (*words == 0 || *words > (uint32_t)(end - *stream))
                return FW_STREAM_HEADER;
            return ((uintptr_t)*stream & ALIGNED) != 0 ? FW_ALIGNMENT : FW_OK;
        } else {
            return FW_STREAM_HEADER;
        }
    }
    return FW_STREAM_HEADER;
}

static enum fw_status reset(uint32_t config)
{
    const uint32_t start = fw_milliseconds();
    if (get(ID) == 0)
        return FW_NPU_ABSENT;
    if (get(CONFIG) != config)
        return FW_NPU_CONFIG;
    set(RESET, BOARD_NPU_ACCESS);
    BOARD_NPU_RING();
    while ((get(STATUS) & RESETTING) != 0)
        if (fw_milliseconds() - start > BOARD_NPU_TIMEOUT)
            return FW_NPU_RESET;
    return get(PROT) == BOARD_NPU_ACCESS ? FW_OK : FW_NPU_RESET;
}

static enum fw_status wait(void)
{
    const uint32_t start = fw_milliseconds();
    while (!done) {
        if (fw_milliseconds() - start > BOARD_NPU_TIMEOUT)
            return (get(STATUS) & RUNNING) != 0 ? FW_NPU_TIMEOUT : FW_NPU_INTERRUPT;
        fw_wait();
    }
    return FW_OK;
}

static enum fw_status judged(uint32_t status)
{
    if ((status & BUS) != 0)
        return FW_NPU_BUS;
    if ((status & PARSE) != 0)
        return FW_NPU_PARSE;
    if ((status & WEIGHTS) != 0)
        return FW_NPU_WEIGHTS;
    if ((status & ECC) != 0)
        return FW_NPU_ECC;
    return (status & ENDED) != 0 ? FW_OK : FW_NPU_UNFINISHED;
}

enum fw_status ethosu_run(const struct ethosu_job *job)
{
    static const uint32_t limits[] = BOARD_NPU_LIMITS;
    const uint32_t *stream = NULL;
    uint32_t words = 0, config = 0;
    enum fw_status status = parse(job, &stream, &words, &config);
    if (status == FW_OK)
        status = reset(config);
    if (status != FW_OK)
        return status;
    set(QCONFIG, BOARD_NPU_QCONFIG);
    set(REGIONCFG, BOARD_NPU_REGIONCFG);
    for (uint32_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        set(LIMITS + 4 * i, limits[i]);
    set_address(QBASE, stream);
    set(QSIZE, 4 * words);
    for (uint32_t i = 0; i < 8; i++) {
        if (((uintptr_t)job->bases[i] & ALIGNED) != 0)
            return FW_ALIGNMENT;
        set_address(BASEP + 8 * i, BOARD_NPU_REACHED(job->bases[i], job->sizes[i]));
        fw_cache_clean(job->bases[i], job->sizes[i]);
    }
    done = 0;
    set(CMD, (get(CMD) & POWER) | RUN);
    BOARD_NPU_RING();
    status = wait();
    if (status == FW_OK)
        status = judged(get(STATUS));
    for (uint32_t i = 0; i < 8; i++)
        fw_cache_invalidate(job->bases[i], job->sizes[i]);
    return status;
}
