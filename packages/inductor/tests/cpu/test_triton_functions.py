"""Functions written without branches for Triton: over all exponents against float64, special values against eager, and sums with 1."""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton.functions import FUNCTIONS  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_primops.decomp import activation  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16
CUDA = torch.device("cuda", 0)
TINY = torch.finfo(F32).tiny
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30, 110.0, -110.0, 1e-40, -1e-40])


def all_exponents():
    """512 numbers of each, of both signs, and a dense range."""
    torch.manual_seed(0)
    bits = (torch.arange(255, dtype=torch.int32)[:, None] << 23) | torch.randint(1 << 23, (255, 512), dtype=torch.int32)
    found = torch.cat([bits.view(F32).flatten(), torch.linspace(0, 20, 100_001)])
    return torch.cat([found, -found])


def value_of(program, x, folder):
    host, kernels = rendered(graph_of(program, x))
    (found,) = triton_interpreter.host_call(host, kernels, folder)([x])
    return found


def ulps(found, exact):
    """The largest error in units of the last place of the exact result, where that is a normal number."""
    size = exact.abs().to(F32)
    normal = (size >= TINY) & (size < float("inf"))
    last = (torch.nextafter(size, torch.tensor(float("inf"))) - size).double()
    return float(((found.double() - exact).abs() / last)[normal].max())


def one_plus_erf(x):
    return prims.add(prims.erf(x), 1.0)


def one_plus_tanh(x):
    return prims.add(1, prims.tanh(x))


def erfc_of_negative(x):
    return torch.special.erfc(-x)


def twice_sigmoid(x):
    return 2 * torch.special.expit(2 * x)


LEAST = -1 + 2**-10


def log1p(x):
    return prims.log1p(prims.maximum(x, LEAST))


# Program, exact result of float64, range in which its digits count, ulps there, absolute error everywhere.
TABLE = {
    "_erf": (lambda x: prims.erf(x), torch.erf, (-1e38, 1e38), 2, 1e-7),
    "_tanh": (lambda x: prims.tanh(x), torch.tanh, (-1e38, 1e38), 3, 2e-7),
    "_sigmoid": (lambda x: prims.sigmoid(x), torch.special.expit, (-87.3, 1e38), 6, 1.3e-7),
    "_one_plus_erf": (one_plus_erf, erfc_of_negative, (-1, 1e38), 8, 2.4e-7),
    "_one_plus_tanh": (one_plus_tanh, twice_sigmoid, (-8, 1e38), 20, 2.4e-7),
    "_log1p": (log1p, lambda x: torch.log1p(x.clamp(min=LEAST)), (LEAST, 1e38), 4, 8e-6),
}
ODD = ("_erf", "_tanh", "_log1p")
"""Which keep the sign of zero, and what lies near it."""


def test_log1p_at_and_below_minus_1(tmp_path):
    x = torch.tensor([-1.0, -1 - 2**-23, -2.0, -1e30, -1 + 2**-24, -1 + 2**-20])
    found = value_of(lambda x: prims.log1p(x), x, tmp_path)
    torch.testing.assert_close(found, torch.log1p(x), rtol=2**-21, atol=0, equal_nan=True)


def test_table_has_all_functions():
    assert TABLE.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", TABLE)
def test_errors(name, tmp_path):
    program, exact, (low, high), most, apart = TABLE[name]
    x = all_exponents()
    found, wanted = value_of(program, x, tmp_path), exact(x.double())
    assert float((found.double() - wanted).abs().max()) <= apart
    inside = (x >= low) & (x <= high)
    assert ulps(found[inside], wanted[inside]) <= most


@pytest.mark.parametrize("name", TABLE)
def test_is_no_worse_than_four_times_eager(name, tmp_path):
    program, exact, _, _, _ = TABLE[name]
    x = all_exponents()
    eager, found, wanted = graph_of(program, x).run(x)[0], value_of(program, x, tmp_path), exact(x.double())
    errors = [float((v.double() - wanted).abs().max()) for v in (found, eager)]
    assert errors[0] <= 4 * errors[1]


@pytest.mark.parametrize("name", TABLE)
def test_special_values(name, tmp_path):
    """Infinities have exactly the values that eager has; denormal numbers and the sign of zero stay."""
    program = TABLE[name][0]
    (wanted,) = graph_of(program, SPECIAL).run(SPECIAL)
    found = value_of(program, SPECIAL, tmp_path)
    # That many beside 1: 1e-40 is nothing; eager's 1 - 1 has lost what is there.
    torch.testing.assert_close(found, wanted, rtol=2**-23, atol=1e-38 if name in ODD else 1e-30, equal_nan=True)
    exact = wanted.isinf() | (wanted == 0) | (wanted.abs() == 1)
    assert torch.equal(found[exact & (SPECIAL.abs() > 1)], wanted[exact & (SPECIAL.abs() > 1)])
    if name in ODD:
        assert torch.equal(found.signbit()[1:], wanted.signbit()[1:])


def test_sigmoid_far_below_zero_has_a_logarithm(tmp_path):
    """What eager gives as a denormal number is no zero."""
    x = torch.tensor([-87.0, -87.4, -88.0, -88.6, -95.0, -float("inf")])
    found = value_of(lambda x: prims.sigmoid(x), x, tmp_path)
    torch.testing.assert_close(found[:-1].log(), x[:-1], rtol=1e-3, atol=0)
    assert found[-1] == 0


def gelu_of(approximate):
    return lambda x: activation.gelu(x, approximate=approximate)


def gelu_gradient_of(approximate):
    return lambda x: activation.gelu_backward(prims.full(x.shape, 1.0, x.dtype, x.spec.device), x, approximate=approximate)


@pytest.mark.parametrize("approximate", ("none", "tanh"))
@pytest.mark.parametrize("dtype", (F32, BF16, torch.float64))
def test_gelu_and_its_gradient(approximate, dtype, tmp_path):
    """Of large numbers of either sign it is the number or 0; where it is small it has digits that eager's has not."""
    x = torch.cat([torch.linspace(-6, 6, 20_001), torch.tensor([-1e4, 1e4, -30.0, 30.0, float("inf")])]).to(dtype)
    wide = x.double().requires_grad_()
    wanted = torch.nn.functional.gelu(wide, approximate=approximate)
    (gradient,) = torch.autograd.grad(wanted[:-1].sum(), wide)
    found = value_of(gelu_of(approximate), x, tmp_path)
    slope = value_of(gelu_gradient_of(approximate), x, tmp_path)
    error = {F32: 5e-7, BF16: 2**-7, torch.float64: 1e-14}[dtype]
    torch.testing.assert_close(found.double(), wanted.detach(), rtol=error, atol=error)
    torch.testing.assert_close(slope.double()[:-1], gradient[:-1], rtol=2 * error, atol=2 * error)


EDGES = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 19.99, 20.0, 20.01, 45.0, 1e30, -45.0, -80.0, -1e30])


@pytest.mark.parametrize("dtype", (F32, torch.float64))
def test_mish_and_its_gradient(dtype, tmp_path):
    """Written with one exponential: values everywhere, and NaN where eager has it."""
    x = torch.cat([torch.linspace(-30, 30, 20_001), EDGES]).to(dtype)
    eager = x.clone().requires_grad_()
    wanted = torch.nn.functional.mish(eager)
    (slope,) = torch.autograd.grad(wanted.sum(), eager)
    gradient = lambda x: activation.mish_backward(prims.full(x.shape, 1.0, x.dtype, x.spec.device), x)
    for program, exact in ((activation.mish, wanted.detach()), (gradient, slope)):
        found = value_of(program, x, tmp_path)
        error = 1e-6 if dtype == F32 else 1e-13
        torch.testing.assert_close(found, exact, rtol=error, atol=error, equal_nan=True)
    assert torch.equal(value_of(activation.mish, EDGES, tmp_path).signbit()[1:], torch.nn.functional.mish(EDGES).signbit()[1:])


def rounded_between(x):
    return prims.add(prims.convert(prims.convert(prims.tanh(x), BF16), F32), 1.0)


def used_twice(x):
    t = prims.tanh(x)
    return prims.mul(t, prims.add(t, 1.0))


def another_number(x):
    return prims.add(prims.tanh(x), 1.5)


def twice_the_sum(x):
    t = prims.tanh(x)
    return prims.mul(prims.add(t, 1.0), prims.add(1.0, t))


SUMS = {
    "sum": (one_plus_tanh, F32, True),
    "sum in bfloat16": (one_plus_tanh, BF16, True),
    "only sums": (twice_the_sum, F32, True),
    "float64": (one_plus_tanh, torch.float64, False),
    "rounded between": (rounded_between, F32, False),
    "the function itself": (used_twice, F32, False),
    "another number": (another_number, F32, False),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_taken_together(name, tmp_path):
    program, dtype, together = SUMS[name]
    x = torch.linspace(-3, 3, 101).to(dtype)
    (kernel,) = rendered(graph_of(program, x))[1].values()
    assert ("_one_plus_tanh(" in kernel.source) == together
    assert not together or "_tanh(" not in kernel.source.replace("_one_plus_tanh(", "")
    wide = x.double()
    (wanted,) = graph_of(program, wide).run(wide)
    rough = dtype == BF16 or name == "rounded between"
    torch.testing.assert_close(
        value_of(program, x, tmp_path).double(), wanted.double(), rtol=2e-2 if rough else 1e-6, atol=1e-2 if rough else 1e-6
    )


def test_all_compile_for_hopper(tmp_path):
    """Of elements, of rows' results and of numbers."""
    renderer, jobs = TritonRenderer(), []
    for program, *_ in TABLE.values():
        of_rows = lambda x, program=program: program(prims.sum(x, (1,), False))
        of_numbers = lambda x, program=program: program(prims.sum(x, (0, 1), False))
        for one in (program, of_rows, of_numbers):
            for kernel in renderer.pack(list(rendered(graph_of(one, torch.empty(64, 100), device=CUDA))[1].items())):
                for entry in kernel.launch["entries"]:
                    jobs.append(build.request(kernel, entry, kernel.launch["configs"][0], build.Variant(), 90))
    assert len(build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs)


LENGTHS = {
    "gelu": (gelu_of("none"), 20),
    "gelu tanh": (gelu_of("tanh"), 17),
    "silu": (activation.silu, 16),
    "mish": (activation.mish, 24),
    "tanh": (prims.tanh, 20),
    "erf": (prims.erf, 25),
}
"""Program, and the most instructions that its kernel may take for an element of bfloat16; a copy takes 3."""


def test_kernels_are_short_and_have_no_branches(tmp_path):
    """Loads and stores of 16 bytes included; a GPU runs some 30 instructions in the time that memory takes for such an element."""
    tool = Path(sys.modules["triton"].__file__).parent / "backends/nvidia/bin/nvdisasm"
    if not tool.exists():
        pytest.skip("this triton has no disassembler")
    renderer, jobs, each = TritonRenderer(), [], []
    for program, _ in LENGTHS.values():
        graph = graph_of(program, torch.empty(4096, 4096, dtype=BF16, device="meta"), device=CUDA)
        (kernel,) = renderer.pack(list(rendered(graph)[1].items()))
        config = kernel.launch["configs"][0]
        jobs.append(build.request(kernel, "kernel", config, build.Variant(), 90))
        each.append(config["constants"]["XBLOCK"] // (32 * config["num_warps"]))
    cubins = build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    for (name, (_, most)), elements, cubin in zip(LENGTHS.items(), each, cubins, strict=True):
        path = tmp_path / "kernel.cubin"
        path.write_bytes(cubin.code)
        text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True, timeout=60).stdout
        found = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text)
        assert len([i for i in found if i != "NOP"]) <= most * elements, name
        assert found.count("BRA") <= 1 and "LDG.E.128" in found and "STG.E.128" in found, name  # it stops in an endless loop
