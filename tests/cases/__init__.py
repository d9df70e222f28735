"""Shared by tests of the engine: benches that drive one state machine, and tables of steps."""
