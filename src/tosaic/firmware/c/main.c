/* Runs each network over inputs of the host's files or of the image, and tells what it took. */
#include <string.h>

#include "firmware.h"
#include "networks.h"

static uint8_t tensors[NETWORKS_TENSORS_SIZE] FW_PLACED(".tensors");

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
    if (number >= 100)
        path[at++] = (char)('0' + (char)(number / 100 % 10));
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

#ifdef FW_IMAGE_INPUTS
/* Inputs of the image; outputs are printed as bytes. */
static int32_t begin(const struct fw_network *net, uint32_t port)
{
    int32_t number = (int32_t)port;
    for (uint32_t i = 0; fw_networks[i] != net; i++)
        number += (int32_t)fw_networks[i]->inputs;
    return number;
}

static uint32_t take(int32_t number, void *place, uint32_t size, uint32_t run)
{
    const struct fw_input *input = &fw_inputs[number];
    const uint32_t whole = (uint32_t)(input->end - input->start);
    if (size == 0 || whole / size <= run)
        return 0;
    memcpy(place, input->start + run * size, size);
    return size;
}

static void give(const struct fw_network *net, uint32_t port, int32_t number, const void *place, uint32_t size)
{
    (void)number;
    fw_print(path_of(net->name, "out", port - net->inputs));
    fw_print("=");
    fw_print_bytes((const uint8_t *)place, size);
    fw_print("\n");
}

static void end(int32_t number)
{
    (void)number;
}
#else
/* Inputs and outputs are files of the host. */
static int32_t begin(const struct fw_network *net, uint32_t port)
{
    const int is_output = port >= net->inputs;
    const uint32_t number = is_output ? port - net->inputs : port;
    const int32_t file = fw_open(path_of(net->name, is_output ? "out" : "in", number), is_output);
    if (file < 0)
        fw_fail(FW_FILE);
    return file;
}

static uint32_t take(int32_t file, void *place, uint32_t size, uint32_t run)
{
    (void)run;
    return fw_read(file, place, size);
}

static void give(const struct fw_network *net, uint32_t port, int32_t file, const void *place, uint32_t size)
{
    (void)net;
    (void)port;
    if (fw_write(file, place, size) != size)
        fw_fail(FW_FILE);
}

static void end(int32_t file)
{
    fw_close(file);
}
#endif

/* All inferences of one network: as many as its inputs have. */
static void run_all(const struct fw_network *net)
{
    int32_t numbers[NETWORKS_MOST_PORTS];
    void *places[NETWORKS_MOST_PORTS];
    void *const arena = fw_arena();
    const uint32_t ports = net->inputs + net->outputs, size = NETWORKS_ARENA_SIZE;
    uint32_t at = 0, runs = 0, unused = size;
    uint64_t ticks = 0;
    if (arena == NULL)
        fw_fail(FW_NPU_ABSENT);
    for (uint32_t i = 0; i < ports; i++) {
        places[i] = tensors + at;
        at += (net->ports[i].size + 15u) & ~15u;
        numbers[i] = begin(net, i);
    }
    net->init();
    for (;;) {
        uint32_t whole = 0, some = 0;
        for (uint32_t i = 0; i < net->inputs; i++) {
            const uint32_t came = take(numbers[i], places[i], net->ports[i].size, runs);
            whole += came == net->ports[i].size;
            some += came != 0;
        }
        if (net->inputs != 0 ? some == 0 : runs == 1)
            break;
        if (whole != net->inputs)
            fw_fail(FW_FILE);
        fw_paint(arena, size);
        const uint64_t start = fw_ticks();
        const enum fw_status status = net->run((const void *const *)places, places + net->inputs, arena, size);
        ticks += fw_ticks() - start;
        if (status != FW_OK)
            fw_fail(status);
        const uint32_t left = fw_untouched(arena, size);
        unused = left < unused ? left : unused;
        for (uint32_t i = net->inputs; i < ports; i++)
            give(net, i, numbers[i], places[i], net->ports[i].size);
        runs++;
    }
    for (uint32_t i = 0; i < ports; i++)
        end(numbers[i]);
    fw_print(net->name);
    told(": runs=", runs);
    told(" ticks=", runs != 0 ? ticks / runs : 0);
    told(" arena=", size - unused);
    told(" of=", net->arena);
    fw_print("\n");
}

static int run_networks(void)
{
    for (uint32_t i = 0; i < fw_network_count; i++)
        run_all(fw_networks[i]);
    told("stack=", fw_stack_used());
    told(" of=", fw_stack_size());
    told(" ticks=", fw_ticks());
    fw_print("\n");
    return 0;
}

#ifdef __linux__
/* The argument is the folder of the files. */
int main(int argc, char **argv)
{
    return fw_begin(argc > 1 ? argv[1] : ".", run_networks);
}
#else
int main(void)
{
    return run_networks();
}
#endif
