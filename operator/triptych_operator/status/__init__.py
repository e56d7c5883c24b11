"""What the resource's status says, as pure functions of what is observed.

``snapshot`` reads the API server's objects into frozen data; ``troubles`` finds the causes that a
person can act on; ``conditions`` turns both into ``ServiceStatus``. Time is passed in.
"""
