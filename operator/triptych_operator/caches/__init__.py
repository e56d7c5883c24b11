"""Caches that follow the encoder: when its version changes, holders drop what the old one made.

A missed drop is never a wrong answer, as every key and handle carries the encoder's fingerprint.
It is memory held for nothing, and something nobody has proved; so the operator drops, in order,
asks every holder what it still holds, and only then says that the caches are coherent.
"""
