"""Handlers of opcodes, one file a family; interp/opcodes.py has them all."""
