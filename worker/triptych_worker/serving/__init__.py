"""The worker as a process: gRPC services, composition of a tier, metrics, lifecycle."""
