"""Targets: the devices and specifications that a program is compiled for."""
