"""Large arrays come from memory that was freed before."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Pages that the system hands out for four arrays of 64 MB, one after the other: as it is, and
# with memory used again.
SCRIPT = """
import resource, numpy
from tosaic.runtime.memory import reused_memory

def pages(largest):
    with reused_memory(largest):
        for count in range(10):
            if count == 6:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            numpy.ones(64 << 20, numpy.uint8)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(pages(0), pages(64 << 20))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is what is asked")
def test_large_arrays_take_their_pages_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    plain, kept = map(int, done.stdout.split())
    if plain < 16:
        pytest.skip("the allocator keeps large blocks by itself")
    assert kept * 4 < plain
