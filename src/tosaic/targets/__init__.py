"""Devices and specifications to compile for: one folder each, found by entry point."""
