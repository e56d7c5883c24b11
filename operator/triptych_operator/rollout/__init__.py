"""The order in which a change reaches the cluster, so that it serves all along.

``step`` is arithmetic over what is observed: the next step follows from the resource and the
snapshot alone, so an operator that restarts anywhere in the middle goes on where it was.
"""
