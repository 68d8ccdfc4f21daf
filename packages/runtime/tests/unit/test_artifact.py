import pytest
import torch
from tracework_runtime import (
    Artifact,
    ArtifactError,
    CacheCorrupt,
    KernelSource,
    OutputRecipe,
    SymbolBinding,
    TensorCheck,
    container,
)
from tracework_runtime.artifact import LANGUAGES
from tracework_runtime.load import BUILDERS


def sample() -> Artifact:
    kernel = KernelSource("k0", "cpp", "int x;", ("*fp32", "i64"), {"entry": "k", "flags": ("-O1",)})
    return Artifact(
        key="abc",
        host_source="def call(args):\n    return tuple(args)\n",
        kernels=(kernel,),
        constants={"c": torch.arange(6.0).reshape(2, 3).t(), "b": b"xyz", "h": torch.ones(2, dtype=torch.bfloat16)},
        checks=(TensorCheck(0, "x", "float32", "cpu", ("s0", 3), (3, 1)),),
        outputs=(OutputRecipe("buffer", "float32", ("s0",), (1,)),),
        devices=frozenset({"cpu"}),
        static_inputs=frozenset({1}),
        symbols=(SymbolBinding("s0", "size", 0, 0),),
        places={"k0": {"a.py:3 in f add": (0, 2), "a.py:4 in f mul": (1,)}, "aten::mm": {"a.py:5 in f mm": (3,)}},
    )


def test_round_trip():
    old = sample()
    new = Artifact.from_bytes(old.to_bytes())
    assert new.replace(constants={}) == old.replace(constants={})
    assert torch.equal(new.constants["c"], old.constants["c"])
    assert new.constants["c"].stride() == (1, 3)
    assert new.constants["h"].dtype == torch.bfloat16
    assert new.constants["b"] == b"xyz"


def test_an_equal_graph_of_other_lines():
    """One text may become several, several one; a call whose place is not known is left out."""
    places = ["b.py:1 in g add", "b.py:2 in g mul", "b.py:2 in g mul", ""]
    placed = sample().placed(places)
    assert placed.places == {"k0": {"b.py:1 in g add": (0,), "b.py:2 in g mul": (1, 2)}, "aten::mm": {}}
    assert "#   from b.py:1 in g add\n#   from b.py:2 in g mul\n" in placed.text()
    there_and_back = placed.placed(["a.py:3 in f add", "a.py:4 in f mul", "a.py:3 in f add", "a.py:5 in f mm"])
    assert there_and_back.places["k0"] == sample().places["k0"]


def test_every_damaged_byte_is_noticed():
    data = bytearray(sample().to_bytes())
    for at in range(0, len(data), 7):
        data[at] ^= 1
        with pytest.raises(CacheCorrupt):
            Artifact.from_bytes(bytes(data))
        data[at] ^= 1


def test_other_format_is_refused(monkeypatch):
    monkeypatch.setattr(container, "FORMAT", 99)
    data = sample().to_bytes()
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match="format 99"):
        Artifact.from_bytes(data)


def test_unknown_language():
    with pytest.raises(ArtifactError, match="language"):
        KernelSource("k", "fortran", "")


def test_every_language_of_kernels_has_a_builder():
    assert set(BUILDERS) == set(LANGUAGES)
