"""Benchmarks: this repository's services beside the field's, in one run on one machine."""
