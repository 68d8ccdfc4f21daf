"""About 250 primitive ops, decompositions from ATen, fake tensors and symbolic sizes."""

from . import eager, meta  # noqa: F401  (fill the rule tables)
from ._version import __version__
from .aten_graph import aten_graph
from .attention import attended, attention_of_bodies, with_laid_out_gradient
from .attention_bodies import trace_bodies
from .collectives import is_collective, is_wait, wait_tensor
from .decomp import DECOMPS, NUMERICS, PROFILES, contract_changes, decomposition, deterministic_changes
from .decompose import DecompositionError, decompose
from .errors import (
    DataDependentError,
    FakeTensorError,
    GuardOnUnbackedError,
    MixedTensorError,
    ParseError,
    Pickled,
    PrimError,
    VerifyError,
)
from .fake import FakeMode, FakeStorage, FakeTensor
from .fx_nodes import add_node, copy_node
from .graph import LEVELS, InputSpec, PrimGraph, parse_graph, verify, verify_level
from .index_checks import checks_indices, place_of
from .op import GraphBuilder, Kind, Op, PrimValue, Tag, prims
from .ops import OPS
from .passes import PRIM_PASSES, Pass, run_passes
from .spec import SizeSpec, TensorSpec
from .symbols import (
    Condition,
    Expr,
    RecordedCondition,
    Size,
    Symbol,
    SymbolTable,
    bounds,
    floordiv,
    maximum,
    minimum,
    mod,
    simplify,
    symbol,
)

__all__ = [
    "attended",
    "attention_of_bodies",
    "trace_bodies",
    "with_laid_out_gradient",
    "DECOMPS",
    "DecompositionError",
    "decompose",
    "decomposition",
    "Condition",
    "DataDependentError",
    "Expr",
    "FakeMode",
    "FakeStorage",
    "FakeTensor",
    "FakeTensorError",
    "GraphBuilder",
    "GuardOnUnbackedError",
    "InputSpec",
    "Kind",
    "LEVELS",
    "MixedTensorError",
    "NUMERICS",
    "OPS",
    "Op",
    "PRIM_PASSES",
    "PROFILES",
    "ParseError",
    "Pass",
    "Pickled",
    "PrimError",
    "PrimGraph",
    "PrimValue",
    "RecordedCondition",
    "Size",
    "SizeSpec",
    "Symbol",
    "SymbolTable",
    "Tag",
    "TensorSpec",
    "VerifyError",
    "__version__",
    "add_node",
    "aten_graph",
    "bounds",
    "checks_indices",
    "contract_changes",
    "deterministic_changes",
    "copy_node",
    "floordiv",
    "is_collective",
    "is_wait",
    "maximum",
    "minimum",
    "mod",
    "parse_graph",
    "place_of",
    "prims",
    "run_passes",
    "simplify",
    "symbol",
    "verify",
    "verify_level",
    "wait_tensor",
]
