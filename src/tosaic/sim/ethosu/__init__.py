"""A functional simulator of Ethos-U: it runs the very bytes that Vela emits.

Agreement is with TOSA over Vela's output. It is no cycle model and it is not silicon.
"""

from tosaic.sim.ethosu.memory import Sanitizer
from tosaic.sim.ethosu.simulation import Simulation, load
from tosaic.sim.ethosu.trace import Trace

__all__ = ["Sanitizer", "Simulation", "Trace", "load"]
