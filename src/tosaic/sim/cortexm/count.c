/* A QEMU plugin that counts executed instructions: by block of code, and at marks.
 *
 * It declares what it needs of the plugin API (version 1) itself. Arguments: `out=FILE`, and
 * `mark=ADDRESS` as often as wanted. The file has a line `block ADDRESS INSTRUCTIONS` for each
 * translated block, and a line `mark ADDRESS TOTAL` each time that a marked address is reached,
 * with how many instructions were executed before. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
enum { INLINE_ADD_U64 = 0, NO_REGISTERS = 0 };
typedef void (*translated_t)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*ended_t)(qemu_plugin_id_t, void *);
typedef void (*executed_t)(unsigned int, void *);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_t);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, executed_t, int, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, ended_t, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct block {
    struct block *next;
    uint64_t address, size, instructions;
};
enum { BUCKETS = 1 << 14, MARKS = 4096 };
static struct block *table[BUCKETS];
static uint64_t total;
static uint64_t marks[MARKS];
static size_t mark_count;
static FILE *out;

static struct block *block_at(uint64_t address, uint64_t size)
{
    struct block **bucket = &table[(address >> 1) % BUCKETS];
    for (struct block *found = *bucket; found != NULL; found = found->next)
        if (found->address == address && found->size == size)
            return found;
    struct block *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    made->address = address;
    made->size = size;
    made->next = *bucket;
    *bucket = made;
    return made;
}

static void marked(unsigned int cpu, void *data)
{
    (void)cpu;
    fprintf(out, "mark %llx %llu\n", (unsigned long long)(uintptr_t)data, (unsigned long long)total);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *code)
{
    (void)id;
    uint64_t size = qemu_plugin_tb_n_insns(code), address = qemu_plugin_tb_vaddr(code);
    /* The callback is registered first, so that the mark sees the total before this block. */
    for (size_t i = 0; i < mark_count; i++)
        if (marks[i] == address)
            qemu_plugin_register_vcpu_tb_exec_cb(code, marked, NO_REGISTERS, (void *)(uintptr_t)address);
    struct block *block = block_at(address, size);
    qemu_plugin_register_vcpu_tb_exec_inline(code, INLINE_ADD_U64, &block->instructions, size);
    qemu_plugin_register_vcpu_tb_exec_inline(code, INLINE_ADD_U64, &total, size);
}

static void ended(qemu_plugin_id_t id, void *data)
{
    (void)id;
    (void)data;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct block *block = table[i]; block != NULL; block = block->next)
            if (block->instructions != 0)
                fprintf(out, "block %llx %llu\n", (unsigned long long)block->address,
                        (unsigned long long)block->instructions);
    fclose(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(
    qemu_plugin_id_t id, const struct qemu_info_t *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], "out=", 4) == 0)
            out = fopen(arguments[i] + 4, "w");
        else if (strncmp(arguments[i], "mark=", 5) == 0 && mark_count < MARKS)
            marks[mark_count++] = strtoull(arguments[i] + 5, NULL, 0);
    }
    if (out == NULL)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
