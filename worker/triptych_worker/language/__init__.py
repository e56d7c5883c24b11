"""Language models and the one engine that runs them, for prefill, decode and both.

``scheduler``, ``answer`` and ``text`` are pure; ``model``, ``attention`` and ``sampling`` hold the
tensors; ``engine`` is the one place with a thread, a clock and an event loop.
"""
