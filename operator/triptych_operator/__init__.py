"""The operator and the `triptych` command. Holds no torch."""
