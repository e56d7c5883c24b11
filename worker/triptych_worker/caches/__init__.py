"""Pure bookkeeping of bounded memory: ranges, least-recently-used entries, leases.

Nothing here takes a lock, reads a clock or does I/O. Whoever owns one of these guards it with one
lock (or keeps it on one thread) and passes the time in.
"""
