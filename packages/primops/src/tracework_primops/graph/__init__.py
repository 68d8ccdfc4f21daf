"""PrimGraph, the legal nodes of each level, the verifier, and the text form."""

from .levels import LEVELS
from .parse import GraphReader, parse_graph
from .prim_graph import InputSpec, PrimGraph
from .text import print_graph
from .verify import verify, verify_level

__all__ = ["LEVELS", "GraphReader", "InputSpec", "PrimGraph", "parse_graph", "print_graph", "verify", "verify_level"]
