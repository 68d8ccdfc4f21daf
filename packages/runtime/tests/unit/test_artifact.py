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


def sample() -> Artifact:
    kernel = KernelSource("k0", "cpp", "int x;", ("*fp32", "i64"), {"entry": "k", "flags": ("-O1",)}, origins=("a.py:3 add",))
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
    )


def test_round_trip():
    old = sample()
    new = Artifact.from_bytes(old.to_bytes())
    assert new.replace(constants={}) == old.replace(constants={})
    assert torch.equal(new.constants["c"], old.constants["c"])
    assert new.constants["c"].stride() == (1, 3)
    assert new.constants["h"].dtype == torch.bfloat16
    assert new.constants["b"] == b"xyz"


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
