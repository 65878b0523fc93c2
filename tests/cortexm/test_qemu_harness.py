"""The QEMU harness: files, counted instructions; faults and missing tools as sentences."""

from __future__ import annotations

import pytest

from tosaic.errors import InvalidInput, ToolFailed
from tosaic.sim.cortexm import qemu
from tosaic.sim.cortexm.boards import BOARDS

COUNTED = """
#include "harness.h"
static uint8_t data[100];
__attribute__((noinline)) void work(int n)
{
    __asm__ volatile("nop\\n1: subs %0, #1\\n\\tbne 1b" : "+r"(n) : : "cc");
}
int main(void)
{
    host_read("in", data, 100);
    mark_start();
    work(1000);
    mark_stop();
    data[1] = (uint8_t)(data[0] + data[99]);
    host_write("out", data, 100);
    return 0;
}
"""
needs_tools = pytest.mark.skipif(qemu.counting() is not None, reason=str(qemu.counting()))


@needs_tools
@pytest.mark.parametrize("core", ["m3", "m33", "m55"])
def test_a_program_reads_and_writes_files_and_its_instructions_are_counted(core: str) -> None:
    given = bytes(range(7, 107))
    ran = qemu.run(core, {"main.c": COUNTED}, {"in": given}, count=True, marks=("work",))
    assert ran.files == {"out": given[:1] + bytes([7 + 106]) + given[2:]}
    assert 2000 <= ran.by_function["work"] <= 2006  # two in a round
    assert ran.by_function["work"] <= ran.instructions <= ran.by_function["work"] + 16
    assert [name for name, _ in ran.entered] == ["mark_start", "work", "mark_stop"]


@needs_tools
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('host_read("none", 0, 4)', "cannot read none"),
        ("*(volatile int *)0xf0000000 = 1", "the program faulted"),
        ("host_exit(9)", "status 9"),
    ],
)
def test_what_goes_wrong_on_the_core_is_told(body: str, why: str) -> None:
    main = f'#include "harness.h"\nint main(void) {{ {body}; return 0; }}\n'
    with pytest.raises(ToolFailed, match=why):
        qemu.run("m3", {"main.c": main}, {})


@needs_tools
def test_a_program_that_does_not_end_is_stopped() -> None:
    main = '#include "harness.h"\nint main(void) { for (;;) {} }\n'
    with pytest.raises(ToolFailed, match="took longer than 1 s"):
        qemu.run("m4", {"main.c": main}, {}, timeout=1)


def test_a_core_without_a_board_is_told() -> None:
    with pytest.raises(InvalidInput, match=f"no board for 'm23'.*{', '.join(BOARDS)}"):
        qemu.run("m23", {}, {})


def test_missing_tools_are_told_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolFailed, match="not found: install the packages gcc-arm-none-eabi"):
        qemu.run("m4", {"main.c": COUNTED}, {})
