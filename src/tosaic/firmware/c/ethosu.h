/* A driver of Ethos-U55, U65 and U85: it starts a command stream and waits for its end. */
#ifndef ETHOSU_H
#define ETHOSU_H
#include "firmware.h"

/* What Vela made of a graph. */
struct ethosu_job {
    const void *stream; /* with the driver's actions before it */
    uint32_t stream_size;
    const void *bases[8]; /* of regions; NULL for those that the stream does not use */
    uint32_t sizes[8];
};

/* Run a job to its end; what went wrong otherwise. */
enum fw_status ethosu_run(const struct ethosu_job *job);
/* The NPU's interrupt handler. */
void ethosu_interrupt(void);
#endif
