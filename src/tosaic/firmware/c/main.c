/* Runs each network of the image over the inputs of the host's files, and tells what it took. */
#include "firmware.h"
#include "networks.h"

static uint8_t arena[NETWORKS_ARENA_SIZE] __attribute__((aligned(16), section(".arena")));
static uint8_t tensors[NETWORKS_TENSORS_SIZE] __attribute__((aligned(16), section(".tensors")));

/* "NAME.in0" or "NAME.out0". */
static const char *path_of(const char *name, const char *way, uint32_t number)
{
    static char path[64];
    uint32_t at = 0;
    while (*name != 0 && at < sizeof path - 16)
        path[at++] = *name++;
    path[at++] = '.';
    while (*way != 0)
        path[at++] = *way++;
    if (number >= 10)
        path[at++] = (char)('0' + (char)(number / 10 % 10));
    path[at++] = (char)('0' + (char)(number % 10));
    path[at] = 0;
    return path;
}

static void told(const char *label, uint64_t number)
{
    fw_print(label);
    fw_print_number(number);
}

/* All inferences of one network: as many as its input files have. */
static void run_all(const struct fw_network *net)
{
    int32_t files[NETWORKS_MOST_PORTS];
    void *places[NETWORKS_MOST_PORTS];
    const uint32_t ports = net->inputs + net->outputs;
    uint32_t at = 0, runs = 0, unused = sizeof arena;
    uint64_t ticks = 0;
    for (uint32_t i = 0; i < ports; i++) {
        const int is_output = i >= net->inputs;
        places[i] = tensors + at;
        at += (net->ports[i].size + 15u) & ~15u;
        files[i] = fw_open(path_of(net->name, is_output ? "out" : "in", is_output ? i - net->inputs : i), is_output);
        if (files[i] < 0)
            fw_fail(FW_FILE);
    }
    net->init();
    for (;;) {
        uint32_t whole = 0, some = 0;
        for (uint32_t i = 0; i < net->inputs; i++) {
            const uint32_t came = fw_read(files[i], places[i], net->ports[i].size);
            whole += came == net->ports[i].size;
            some += came != 0;
        }
        if (net->inputs != 0 ? some == 0 : runs == 1)
            break;
        if (whole != net->inputs)
            fw_fail(FW_FILE);
        fw_paint(arena, sizeof arena);
        const uint64_t start = fw_ticks();
        const enum fw_status status = net->run((const void *const *)places, places + net->inputs, arena, sizeof arena);
        ticks += fw_ticks() - start;
        if (status != FW_OK)
            fw_fail(status);
        const uint32_t left = fw_untouched(arena, sizeof arena);
        unused = left < unused ? left : unused;
        for (uint32_t i = net->inputs; i < ports; i++)
            if (fw_write(files[i], places[i], net->ports[i].size) != net->ports[i].size)
                fw_fail(FW_FILE);
        runs++;
    }
    for (uint32_t i = 0; i < ports; i++)
        fw_close(files[i]);
    fw_print(net->name);
    told(": runs=", runs);
    told(" ticks=", runs != 0 ? ticks / runs : 0);
    told(" arena=", sizeof arena - unused);
    told(" of=", net->arena);
    fw_print("\n");
}

int main(void)
{
    for (uint32_t i = 0; i < fw_network_count; i++)
        run_all(fw_networks[i]);
    told("stack=", fw_stack_used());
    told(" of=", fw_stack_size());
    told(" ticks=", fw_ticks());
    fw_print("\n");
    return 0;
}
