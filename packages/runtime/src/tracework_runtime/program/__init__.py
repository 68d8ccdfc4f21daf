"""Whole programs as files: graphs, what their kernels were built to, weights, and how a call's arguments and result are laid out."""

from tracework_runtime.program.program import Program, load_program

__all__ = ["Program", "load_program"]
