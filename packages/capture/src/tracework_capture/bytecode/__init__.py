"""Code objects in and out: decoding, and writing the code that replaces a frame."""
