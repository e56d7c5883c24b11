"""What is observed of a resource's children, as frozen data.

``snapshot`` reads the API server's objects; ``troubles`` finds in them the causes that a person
can act on. Both are pure: whoever watches the API server hands the objects in.
"""
