"""Our operator beside one in Go: the same children for the same resources on one API server."""
