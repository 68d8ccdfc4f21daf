"""Layouts of images inside of graphs, chosen for a graph as a whole."""

from .apply import lay_out

__all__ = ["lay_out"]
