"""What a page in a browser runs, with nothing but Python and msgspec."""
