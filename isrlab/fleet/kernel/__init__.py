"""The compiled kernel of a cell: what it remembers (state), and what happens to that (clock)."""
