"""The symbolic interpreter: runs a frame's bytecode on Values."""
