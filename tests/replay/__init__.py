"""Replay: what the compiler emits for many networks, kept as text and compared."""
