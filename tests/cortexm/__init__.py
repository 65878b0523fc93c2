"""Judges of the Cortex-M targets: generated C on the host and on emulated cores."""
