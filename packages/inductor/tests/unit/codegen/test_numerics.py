"""What a contract of numerics writes into kernels and their records: roundings, divisions, contraction."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.errors import InductorError
from tracework_primops import TensorSpec, prims
from tracework_runtime.build import triton as triton_build

HALF = {
    torch.bfloat16: ("tw_rounded<tw_bf16>", ".to(tl.bfloat16).to(tl.float32)"),
    torch.float16: ("tw_rounded<tw_half>", ".to(tl.float16).to(tl.float32)"),
}


def program(a, b):
    return prims.div(prims.add(prims.mul(a, b), a), b)


def artifact(device, dtype, word, program=program):
    specs = [TensorSpec(dtype, torch.device(device), (64, 64), (64, 1))] * 2
    return compile_graph(build(program, [None, None], specs), InductorOptions(numerics=word))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("word", ["default", "strict_pointwise", "strict_reduction", "strict"])
def test_roundings_and_flags_of_cpp(word, dtype):
    (kernel,) = artifact("cpu", dtype, word).kernels
    body = kernel.source[kernel.source.index(kernel.name) :]
    strict = word in ("strict_pointwise", "strict")
    assert body.count(HALF[dtype][0]) == (2 if strict else 0)  # the third when it is stored
    assert "-ffp-contract=off" in kernel.launch["flags"]
    assert ("-fno-trapping-math" in kernel.launch["flags"]) == (not strict)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("word", ["default", "strict_pointwise", "strict_reduction", "strict"])
def test_roundings_and_flags_of_triton(word, dtype):
    (kernel,) = artifact("cuda:0", dtype, word).kernels
    strict = word in ("strict_pointwise", "strict")
    assert kernel.source.count(HALF[dtype][1]) == (2 if strict else 0)  # the third when it is stored
    assert ("tl.div_rn(" in kernel.source) == strict
    request = triton_build.request(kernel, "kernel", kernel.launch["configs"][0], triton_build.Variant(), 90)
    assert request["fp_fusion"] == (not strict)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_truncated_division_is_exact_before_it_is_truncated(dtype):
    (kernel,) = artifact("cuda:0", dtype, "default", prims.trunc_divide).kernels
    division = "/" if dtype == torch.float64 else "tl.div_rn("
    line = next(line for line in kernel.source.splitlines() if "libdevice.trunc(" in line)
    assert division in line


def test_single_precision_is_not_rounded_again():
    assert "tw_rounded<tw_" not in artifact("cpu", torch.float32, "strict").kernels[0].source.split("loops_0", 1)[1]


@pytest.mark.parametrize("word", ["strict_reduction", "strict"])
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("sum", lambda a, b: prims.sum(a, (1,), False)),
        ("mm", prims.mm),
        ("scatter_add", lambda a, b: prims.scatter_add(a, 0, prims.full((64, 64), 0, torch.int64, a.device), b)),
    ],
)
def test_what_adds_up_is_left_to_eager(name, rule, word):
    assert artifact("cpu", torch.float32, word, rule).notes["fallbacks"] == [[name, f"the option numerics is {word!r}"]]


def test_a_maximum_is_not():
    assert artifact("cpu", torch.float32, "strict", lambda a, b: prims.amax(a, (1,), False)).notes["fallbacks"] == []


def test_the_word_is_in_the_fingerprint_and_checked():
    assert InductorOptions(numerics="strict").fingerprint() != InductorOptions().fingerprint()
    with pytest.raises(InductorError, match="unknown numerics 'exact'; known: default, strict_pointwise"):
        InductorOptions(numerics="exact")
