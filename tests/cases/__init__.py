"""What the tests of the engine share: benches that drive one state machine, and tables of steps."""
