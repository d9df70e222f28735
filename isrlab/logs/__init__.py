"""Real broker logs: lines to statements (reader), statements to what is known (history), and from
there to what happened and who did it (incidents). Each room imports only from those before it."""
