"""A scenario that the reader can play further: link, words, pictures, widget, film."""
