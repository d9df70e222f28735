"""The page for a browser: its build, and the code that it runs with only Python and msgspec."""
