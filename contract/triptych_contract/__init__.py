"""What every part agrees on: wire format, fingerprints, keys, errors, names, configuration.

Imports nothing of ours; holds no I/O.
"""
