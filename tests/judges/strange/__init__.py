"""Modules as people write them who have never heard of a compiler, on every kind of target."""
