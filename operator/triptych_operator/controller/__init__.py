"""From what happens in the cluster to what should stand there.

::

    kopf's watches ──> edge ──> store ──> queue ──> reconcile ──> cluster.api
                       audit ────┘  (lists what the watches may have missed)

Level-based: an event only says which resource to look at. What to do follows from the store.
"""
