"""A model that ran in a process runs in those that are forked from it."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import numpy as np
import torch
from tosaic.interp.model import Model
from tosaic.ir.build import Builder
from tosaic.spec.dtypes import F32
from tosaic.spec.env import Env

b = Builder(Env.parse("TOSA-1.0+FP"))
b.output(b.MATMUL(b.input(F32, (1, 256, 256)), b.input(F32, (1, 256, 256)),
                  b.const([0.0], F32), b.const([0.0], F32)))
model, x = Model(b.graph), np.ones((1, 256, 256), np.float32)
model.run(x, x)
assert torch.get_num_threads() == 2
child = os.fork()
if child == 0:
    os._exit(0 if float(model.run(x, x)[0][0, 0, 0]) == 256 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent() -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, timeout=300, check=False)
    assert done.returncode == 0
