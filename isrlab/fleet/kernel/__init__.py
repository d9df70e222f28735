"""The compiled kernel that simulates a cell: its tables (state) and its event loop (clock)."""
