"""Pure functions from a Frame to lines of text with tones; screens and plain output share them."""
