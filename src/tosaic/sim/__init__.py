"""Simulators of devices."""
