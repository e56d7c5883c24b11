"""Autoscaling, simulated over a day and proven on a real node."""
