"""Tensors that one process holds and others read: an arena with leases, and two ways to read it.

``service`` is the way in. Layers, top down: ``service`` composes; ``source`` and ``servicer`` are
the receiving and the holding side; ``grpc_stream`` and ``nixl_read`` move bytes; ``store``,
``landing`` and ``arena`` are memory; ``layout`` and ``transport`` are words.
"""
