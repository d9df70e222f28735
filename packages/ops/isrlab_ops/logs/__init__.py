"""Real broker logs: `reader` turns lines into statements, `history` joins them into a history, and
`incidents` finds what happened and why. Each package imports only from those named before it."""
