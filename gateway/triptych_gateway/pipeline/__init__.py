"""One request's way over the tiers, with what happens when a pod does not answer."""
