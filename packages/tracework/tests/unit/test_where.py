"""`tracework where NAME` finds each rule by all names of what it is for, and marks the one in force."""

import importlib
import keyword
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from tracework import where
from tracework.where_terms import OPERATORS_OF, SAME_TERMS, STATEMENTS, TERMS
from tracework_capture.interp.opcodes import OPCODES
from tracework_capture.values.policy import rule_of
from tracework_capture.values.protocol.calls import CALLS
from tracework_inductor.lowering import NOT_LOWERED
from tracework_primops.decomp import DECOMPS


def test_every_row_of_calls_is_found_by_all_of_its_names():
    named = [(name, row) for key, row in CALLS.items() for name in where.names_of(key)]
    places = {name: {found.place for found in where.places(name)} for name, _ in named}
    assert not [(name, row.key) for name, row in named if row.place not in places[name]]


def test_every_decomposition_is_found_by_all_names_of_its_operator():
    missing = [
        (name, key)
        for key in DECOMPS
        for name in where.names_of(key)
        if not any(found.what in ("decomposition", f"decomposition {key}") for found in where.places(name))
    ]
    assert not missing


@pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("softmax", "tracework_primops/decomp/normalization.py:", "decomposition aten._softmax.default"),
        ("torch.softmax", "tracework_capture/values/torch/graph_functions.py:", "call of torch.softmax: a node of the graph"),
        ("F.softmax", "tracework_primops/decomp/normalization.py:", "decomposition aten._softmax.default"),
        ("aten._softmax", "tracework_primops/decomp/normalization.py:", "decomposition aten._softmax.default"),
        ("numpy.pad", "tracework_capture/polyfills/numpy_functions.py:", "call of numpy.pad: its Python code is traced"),
        ("np.pad", "tracework_capture/polyfills/numpy_functions.py:", "call of numpy.pad: its Python code is traced"),
        ("numpy.full", "numpy/_core/numeric.py:", "call of numpy.full: its Python code is traced"),
        ("list.sort", "tracework_capture/values/plain/sequence_methods.py:", "call of list.sort: modelled by a row of its own"),
        (
            "torch.cond",
            "tracework_capture/values/torch/regions/control_flow.py:",
            "call of torch.cond: modelled by a row of its own",
        ),
        ("lru_cache", "functools.py:", "call of functools.lru_cache: its Python code is traced"),
        ("lru_cache", "objects/lru_cache.py:", "call of what functools.lru_cache gives: modelled by a row of its own"),
        ("Tensor.softmax", "values/torch/tensor.py:", "call of torch.Tensor.softmax: a node of the graph"),
        ("Tensor.sigmoid_", "tracework_primops/decomp/pointwise.py:", "decomposition aten.sigmoid.default"),
        ("collections.Counter", "collections/__init__.py:", "call of collections.Counter: its Python code is traced"),
        ("datetime.date", "objects/refused_classes.py:", "call of datetime.date: breaks the graph (call_unknown)"),
        ("torch.save", "tracework_capture/values/torch/functions.py:", "call of torch.save: breaks the graph (serialization)"),
        ("FOR_ITER", "tracework_capture/interp/handlers/loops.py:", "opcode handler"),
        ("gcd", "tracework_inductor/lowering/not_lowered.py:", f"no lowering ({NOT_LOWERED['gcd']})"),
        ("re.compile", "tracework_capture/values/objects/libraries.py:", "call of re.compile: modelled by a row of its own"),
    ],
)
def test_names_that_a_user_writes(name, place, what):
    found = [each for each in where.places(name) if each.what == what]
    assert len(found) == 1 and place in found[0].place
    assert found[0].in_force is what.startswith("call of")


@pytest.mark.parametrize(
    "space", ["torch", "torch.nn.functional", "numpy", "builtins", "math", "operator", "itertools", "functools"]
)
def test_the_rule_of_every_public_callable_is_in_force(space):
    for name, obj in vars(__import__(space, fromlist=["_"])).items():
        if callable(obj) and not name.startswith("_"):
            dotted = f"{space}.{name}".removeprefix("builtins.")
            assert rule_of(obj).place in {found.place for found in where.places(dotted) if found.in_force}, dotted


def test_a_name_that_nothing_bears():
    assert where.places("no_such_thing") == [] and where.places("torch.no_such_thing") == []


def test_of_two_rows_the_one_in_force_is_marked():
    """The method and the function."""
    found = {each.what: each.in_force for each in where.places("torch.Tensor.item")}
    assert found == {"call of torch.Tensor.item: modelled by a row of its own": True}
    assert rule_of(torch.Tensor.item).place == where.places("torch.Tensor.item")[0].place


LOOK_UPS = {
    "FOR_ITER": "interp/handlers/loops.py",
    "lru_cache": "values/objects/lru_cache.py",
    "numpy.pad": "polyfills/numpy_functions.py",
    "softmax": "decomp/normalization.py",
    "torch.cond": "values/torch/regions/control_flow.py",
    "generator": "interp/inline.py",
    "unknown size": "values/number/symint.py",
    "dict.update": "values/plain/mapping.py",
    "overridden method": "values/objects/function.py",
    "retry": "capture/plan.py",
    "side effect": "graph/mutations.py",
    "guard": "guards/kinds.py",
    "module": "values/torch/module.py",
    "with": "interp/handlers/blocks.py",
    "resume function": "bytecode/resume.py",
    "Graph-Breaks": "interp/breaks.py",
    "F.linear": "decomp/matmul.py",
    "F.grid_sample": "decomp/window.py",
}
"""What a newcomer asks for -> the file that answers."""


@pytest.mark.parametrize("name", LOOK_UPS)
def test_one_look_up_answers(name):
    assert any(LOOK_UPS[name] in found.place for found in where.places(name))


def test_every_keyword_is_found_by_its_opcodes():
    words = {*keyword.kwlist, *keyword.softkwlist} - {"_"}
    assert words <= STATEMENTS.keys() and {name for names in STATEMENTS.values() for name in names} <= OPCODES.keys()
    assert not [word for word in words if not any(found.what.startswith("opcode handler") for found in where.places(word))]


def test_every_term_is_found_in_a_file_that_is_there():
    assert {*SAME_TERMS.values()} <= TERMS.keys()
    for term in [*TERMS, *SAME_TERMS]:
        found = [each for each in where.places(term) if each.what.startswith(f"{SAME_TERMS.get(term, term)}: ")]
        assert len(found) == len(TERMS[SAME_TERMS.get(term, term)]), term
        for each, address in zip(found, TERMS[SAME_TERMS.get(term, term)]):
            module, _, name = address.partition(":")
            file, _, line = each.place.rpartition(":")
            assert file == importlib.import_module(module).__file__
            first = int(line) - 1  # of the decorators, where there are some
            assert any(name in text for text in Path(file).read_text().splitlines()[first : first + 3]), address


X1, X2, X3, LABEL = torch.ones(2, 4, 8), torch.ones(2, 4, 8, 8), torch.ones(2, 4, 8, 8, 8), torch.tensor([1, 2])
CALLS_OF = {
    "conv1d": [lambda: F.conv1d(X1, torch.ones(3, 4, 2))],
    "conv2d": [lambda: F.conv2d(X2, torch.ones(3, 4, 2, 2))],
    "conv3d": [lambda: F.conv3d(X3, torch.ones(3, 4, 2, 2, 2))],
    "conv_transpose1d": [lambda: F.conv_transpose1d(X1, torch.ones(4, 3, 2))],
    "conv_transpose2d": [lambda: F.conv_transpose2d(X2, torch.ones(4, 3, 2, 2))],
    "conv_transpose3d": [lambda: F.conv_transpose3d(X3, torch.ones(4, 3, 2, 2, 2))],
    "adaptive_avg_pool2d": [lambda: F.adaptive_avg_pool2d(X2, 3)],
    "cosine_similarity": [lambda: F.cosine_similarity(X1, X1)],
    "cross_entropy": [
        lambda: F.cross_entropy(X1[:, 0], LABEL),
        lambda: F.cross_entropy(X2, torch.ones(2, 8, 8, dtype=torch.int64)),
    ],
    "einsum": [lambda: torch.einsum("bij,bjk->bik", X2[0], X2[0]), lambda: torch.einsum("bij->i", X1)],
    "grid_sample": [lambda: F.grid_sample(X2, torch.zeros(2, 3, 3, 2), align_corners=False)],
    "instance_norm": [lambda: F.instance_norm(X1)],
    "interpolate": [
        lambda: [F.interpolate(X2, scale_factor=2.0, mode=mode) for mode in ("nearest", "bilinear", "bicubic")],
        lambda: F.interpolate(X2, 3, mode="area"),
    ],
    "linear": [lambda: F.linear(X1[0], torch.ones(3, 8)), lambda: F.linear(X1[0], torch.ones(3, 8), torch.ones(3))],
    "logsigmoid": [lambda: F.logsigmoid(X1)],
    "matmul": [
        lambda: [torch.matmul(a, b) for a, b in ((X1[0], X1[0].T), (X2[0], X2[0]), (X1[0], X1[0, 0]), (X1[0, 0], X1[0, 0]))]
    ],
    "max_pool1d": [lambda: F.max_pool1d(X1.clone().requires_grad_(), 2)],
    "max_pool2d": [lambda: F.max_pool2d(X2, 2)],
    "max_pool3d": [lambda: F.max_pool3d(X3, 2)],
    "max_unpool1d": [lambda: F.max_unpool1d(*F.max_pool1d(X1, 2, return_indices=True), 2)],
    "nll_loss": [lambda: F.nll_loss(X1[:, 0], LABEL), lambda: F.nll_loss(X2, torch.ones(2, 8, 8, dtype=torch.int64))],
    "normalize": [lambda: F.normalize(X1)],
    "one_hot": [lambda: F.one_hot(LABEL, 4)],
    "pad": [lambda: [F.pad(X2, (1, 1, 1, 1), mode) for mode in ("constant", "reflect", "replicate")]],
    "pairwise_distance": [lambda: F.pairwise_distance(X1[0], X1[0])],
    "prelu": [lambda: F.prelu(X1, torch.ones(4))],
    "softmin": [lambda: F.softmin(X1, 0)],
    "softsign": [lambda: F.softsign(X1)],
    "tanhshrink": [lambda: F.tanhshrink(X1)],
    "tile": [lambda: torch.tile(X1, (2,))],
    "upsample_bilinear": [lambda: F.upsample_bilinear(X2, 3)],
    "upsample_nearest": [lambda: F.upsample_nearest(X2, 3)],
}


class _Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names |= {operator.overloadpacket.__name__, operator.overloadpacket.__name__.rstrip("_")}
        return operator(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS_OF)
def test_operators_of_functions_are_those_that_they_call(name):
    with _Operators() as seen:
        for call in CALLS_OF[name]:
            call()
    assert {*OPERATORS_OF[name]} <= seen.names
    assert any(found.what.startswith("decomposition") for found in where.places(f"torch.nn.functional.{name}"))
