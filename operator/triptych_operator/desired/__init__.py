"""What should exist in the cluster for a resource: pure functions that return manifests.

One builder file per kind; ``naming`` owns every name, label and selector; ``state`` puts the
builders together into one sorted list. No clock, no I/O, no randomness: the same resource always
gives the same list, byte for byte.
"""
