"""Products of a few rows: which are loops, what is fused with them, and their values, through Triton's interpreter, against float64."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))

import pytest  # noqa: E402
import torch  # noqa: E402

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from product_programs import BF16, F32, PROGRAMS, check, dequantised, linear, matrix, normed, turned, wide  # noqa: E402
from tracework_inductor import InductorOptions, lower, schedule  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.passes.join_products import join_products  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)
EPS = torch.finfo(torch.float32).eps


def run(program, inputs, folder, options=None, joined=True):
    """Results, and the rendered kernels, of a program that was lowered for a GPU."""
    graph = graph_of(program, *inputs, device=CUDA)
    host, kernels = rendered(join_products(graph) if joined else graph, options)
    namespace = {
        name: lambda *args, kernel=kernel: triton_interpreter.interpret(kernel, list(args), (), folder)
        for name, kernel in kernels.items()
    }
    exec(
        host.replace("empty_cpu, empty_cuda", "empty_cpu, empty_cpu as empty_cuda").replace("gpu_workspace", "workspace"),
        namespace,
    )
    return namespace["call"]([x.clone() for x in inputs]), kernels, host


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rows", (1, 2, 5, 8))
def test_values(name, rows, tmp_path):
    torch.manual_seed(0)
    program, make, reference, steps = PROGRAMS[name]
    inputs = make(rows)
    found, kernels, host = run(program, inputs, tmp_path)
    assert any("product" in dict(k.launch)["kind"] for k in kernels.values()) and "torch.mm" not in host
    wanted = reference(*wide(inputs))
    for a, b in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        check(a, b, inputs[0].dtype, steps)


QUANTISED = [name for name in PROGRAMS if name.startswith("int") and name != "int8, scale along the sum"]


@pytest.mark.parametrize(
    ("name", "rows"), [(name, rows) for name in QUANTISED for rows in (9, 16, 30, 39) if rows < 16 or "key" not in name]
)
def test_values_of_more_rows(name, rows, tmp_path):
    """Of matrices of float16 and bfloat16 that are stored in fewer bytes."""
    torch.manual_seed(0)
    program, make, reference, steps = PROGRAMS[name]
    inputs = make(rows)
    found, kernels, host = run(program, inputs, tmp_path)
    assert any(dict(k.launch)["kind"].startswith("product on tensor cores") for k in kernels.values()) and "torch.mm" not in host
    wanted = reference(*wide(inputs))
    for a, b in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        check(a, b, inputs[0].dtype, steps)


@pytest.mark.parametrize("inner", (384, 1537))
def test_values_of_many_rows_in_parts(inner, tmp_path):
    torch.manual_seed(0)
    x, w, s = inputs = matrix(64, inner), matrix(72, inner, dtype=torch.int8), matrix(72)
    (found,), kernels, _ = run(lambda x, w, s: linear(x, dequantised(w, s, x.dtype)), inputs, tmp_path)
    (kernel,) = kernels.values()
    assert ("split" in dict(kernel.launch)["kind"]) == (inner > 1000)
    check(found, x.double() @ (w.double() * s.double()[:, None]).T, BF16, 3)


@pytest.mark.parametrize("rows", range(1, 9))
def test_the_large_matrix_is_read_once(rows, tmp_path):
    inputs = matrix(rows, 128), matrix(16, 128)
    (found,), kernels, _ = run(linear, inputs, tmp_path)
    check(found, inputs[0].double() @ inputs[1].double().T, BF16, 1)
    (kernel,) = kernels.values()
    assert kernel.source.count("tl.load(p1") == 1
    assert kernel.source.count("tl.dot(") == (1 if rows >= 3 else 0)


GOLDEN = {"product_of_norm": ("norm", 1), "product_of_two_rows": ("gate and up", 2), "product_on_tensor_cores": ("int8", 8)}


def text_of(name):
    program, make, _, _ = PROGRAMS[GOLDEN[name][0]]
    (kernel,) = rendered(graph_of(program, *make(GOLDEN[name][1]), device=CUDA))[1].values()
    return kernel.source + "\n".join(f"# {key}: {value}" for key, value in kernel.launch) + "\n"


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    assert text_of(name) == (TESTS / "golden" / "triton" / f"{name}.txt").read_text()


SCALED_AFTER = ("int8", "int8, scale from a table", "int8, zero point, few columns", "int8 query, key and value")


@pytest.mark.parametrize("name", SCALED_AFTER)
def test_scales_of_columns_are_no_terms_of_the_sums(name):
    """Nor is the cast of eight bits, which is exact, rounded, and nor is what is done to several matrices done once for each of them."""
    program, make, _, _ = PROGRAMS[name]
    options, graph = InductorOptions(), join_products(graph_of(program, *make(1), device=CUDA))
    plan = schedule(lower(graph, options), options, TritonRenderer().capabilities)
    (product,) = (k for k in plan.kernels if any(p.level == "inner" for p in k.passes))
    (inner,) = (p.body for p in product.passes if p.level == "inner")
    ops = [i.op for i in inner.instructions]
    assert ops.count("sub") == ("zero" in name) and not {"mul", "round_bfloat16", "round_float16"} & set(ops)


@pytest.mark.parametrize("rows", (1, 2, 8))
def test_a_byte_of_two_values_is_loaded_once(rows):
    program, make, _, _ = PROGRAMS["int4"]
    (kernel,) = rendered(graph_of(program, *make(rows), device=CUDA))[1].values()
    (packed,) = (n for n, dtype in enumerate(kernel.signature) if dtype == "*u8")
    assert kernel.source.count(f"p{packed} +") == 1 and "tl.where(" not in kernel.source


ONE_KERNEL = ("bias", "gate and up", "residual", "norm", "layer norm", "int8", "int4")


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_is_one_kernel(name):
    program, make, _, _ = PROGRAMS[name]
    _, kernels = rendered(graph_of(program, *make(1), device=CUDA))
    assert len(kernels) == 1


def test_products_of_a_norm_are_one_kernel(tmp_path):
    torch.manual_seed(0)

    def program(x, n, q, k, v):
        h = normed(x, n)
        return linear(h, q), linear(h, k), linear(h, v)

    inputs = matrix(1, 256), matrix(256), matrix(48, 256), matrix(16, 256), matrix(16, 256)
    found, kernels, _ = run(program, inputs, tmp_path)
    products = [k for k in kernels.values() if "product" in dict(k.launch)["kind"]]
    assert len(products) == 1 and all("tl.sum(" not in k.source for k in kernels.values() if k not in products)
    x, n, *weights = wide(inputs)
    h = x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * n
    for value, w in zip(found, weights, strict=True):
        check(value, h @ w.T, BF16)


def test_what_is_read_elsewhere_is_computed_once(tmp_path):
    """A norm that leaves the graph is not computed again for each block of columns."""
    inputs = matrix(1, 256), matrix(256), matrix(40, 256)

    def program(x, n, w):
        h = normed(x, n)
        return h, linear(h, w)

    found, kernels, _ = run(program, inputs, tmp_path)
    assert len(kernels) == 2
    x, n, w = wide(inputs)
    h = x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * n
    check(found[0], h, BF16)
    check(found[1], h @ w.T, BF16)


OUTER = {
    "mm": (prims.mm, (matrix(40, 1), matrix(1, 24))),
    "bmm": (prims.bmm, (matrix(2, 32, 1, dtype=F32), matrix(2, 1, 5, dtype=F32))),
}


@pytest.mark.parametrize("name", OUTER)
def test_outer_products_are_loops(name, tmp_path):
    program, inputs = OUTER[name]
    (found,), kernels, host = run(lambda a, b: prims.neg(program(a, b)), inputs, tmp_path)
    assert len(kernels) == 1 and "torch." + name not in host
    check(found, -(inputs[0].double() @ inputs[1].double()), inputs[0].dtype, 1)
    assert not rendered(graph_of(program, *inputs, device=CUDA), InductorOptions(numerics="strict"))[1]


BY_THE_LIBRARY = {
    "nine rows": (graph_of(linear, matrix(9, 64), matrix(32, 64), device=CUDA), InductorOptions()),
    "strict": (graph_of(linear, matrix(1, 64), matrix(32, 64), device=CUDA), InductorOptions(numerics="strict")),
    "float64": (graph_of(linear, matrix(1, 64).double(), matrix(32, 64).double(), device=CUDA), InductorOptions()),
}


@pytest.mark.parametrize("name", BY_THE_LIBRARY)
def test_left_to_the_library(name):
    graph, options = BY_THE_LIBRARY[name]
    assert not rendered(graph, options)[1]


def test_training_is_left_to_the_library():
    graph = graph_of(linear, matrix(1, 64), matrix(32, 64), device=CUDA)
    host, _ = rendered(graph.replace(role="forward"))
    assert "torch.mm" in host


def test_beta_of_nothing_is_not_read(tmp_path):
    inputs = matrix(1, 64, dtype=F32), matrix(32, 64, dtype=F32), torch.full((32,), float("nan"))
    (found,), _, _ = run(lambda x, w, b: prims.addmm(b, x, turned(w), beta=0), inputs, tmp_path)
    check(found, inputs[0].double() @ inputs[1].double().T, F32)


@pytest.mark.parametrize("inner", (4096, 40000), ids=("in one piece", "in a loop"))
def test_error_does_not_grow_with_the_length(inner, tmp_path):
    """Of equal terms, which rounding moves all in the same direction: chains of at most 64 steps, and trees over lanes."""
    value = 1.8791199922561646
    inputs = torch.full((1, inner), value), torch.ones(9, inner)
    (found,), _, _ = run(linear, inputs, tmp_path)
    exact = inner * inputs[0][0, 0].double()
    assert (found.double() / exact - 1).abs().max() <= (64 + 16) * EPS / 2


def test_a_pair_of_products_is_not_joined():
    program, make, _, _ = PROGRAMS["gate and up"]
    graph = graph_of(program, *make(1), device=CUDA)
    assert join_products(graph) is graph


def test_all_compile_for_hopper(tmp_path):
    renderer, jobs = TritonRenderer(), []
    huge = (linear, lambda m: [torch.empty(m, 65536, device="meta"), torch.empty(40000, 65536, device="meta")])
    huge_halves = (linear, lambda m: [x.to(BF16) for x in huge[1](m)])
    quantised = [PROGRAMS[name] for name in QUANTISED]
    for rows, programs in (
        (1, [*PROGRAMS.values(), huge, huge_halves]),
        (8, PROGRAMS.values()),
        (24, quantised),
        (39, quantised),
    ):
        for program, make, *_ in programs:
            kernels = rendered(join_products(graph_of(program, *make(rows), device=CUDA)))[1]
            for kernel in renderer.pack([(n, k) for n, k in kernels.items() if "product" in dict(k.launch)["kind"]]):
                wide = bool(kernel.launch["fits32"])
                for entry in kernel.launch["entries"]:
                    jobs.append(build.request(kernel, entry, kernel.launch["configs"][0], build.Variant(wide=wide), 90))
    assert len(build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs) > 20


if __name__ == "__main__":
    for one in GOLDEN:
        (TESTS / "golden" / "triton" / f"{one}.txt").write_text(text_of(one))
