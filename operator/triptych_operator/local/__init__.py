"""A service on one machine: its tiers as processes, started, watched and drained.

``plan`` is pure: which processes, in which order, and how long to wait before a restart.
``process`` is one child process, the only place that starts and signals any. ``supervisor`` drives
the processes of a plan and reports what happens as events.
"""
