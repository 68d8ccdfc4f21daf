"""Kernels with other block sizes than the first guess: eager's results, and the same order of sums where the candidates say so."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor import InductorOptions, lower, schedule  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton import config as config_table  # noqa: E402
from tracework_inductor.codegen.triton.tuning import question  # noqa: E402
from tracework_inductor.schedule.plan import LoopKernel  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
from triton_programs import batch_norm, cross_entropy, graph_of, half_chain, layer_norm, scans, softmax  # noqa: E402
from triton_samples import SAMPLES  # noqa: E402

LOOPS = {name: sample for name, make in SAMPLES.items() if isinstance((sample := make()).kernel, LoopKernel)}


def asked(sample):
    hints = SimpleNamespace(has_hint=lambda size: True, hint=lambda size: size.evaluate(dict.fromkeys(size.free_symbols, 40)))
    return question(sample.kernel, hints, "default", "H200")


@pytest.mark.parametrize("name", LOOPS)
def test_neighbours_equal_eager(name, tmp_path, monkeypatch):
    sample = LOOPS[name]
    monkeypatch.setattr(config_table, "is_sensible", lambda shape, config: True)
    found = asked(sample)
    computed = any(i.op == "indirect" for p in sample.kernel.passes for i in p.body.instructions)
    assert (found is None) == computed
    for candidate in found.candidates[1 : 2 if "looped" in sample.kind else None : 3] if found is not None else ():
        kernel = dataclasses.replace(sample.kernel, config=candidate.config)
        tensors = sample.tensors()
        expected = sample.eager(**{n: t.clone() for n, t in tensors.items()})
        rendered = TritonRenderer().render(kernel)
        assert dict(rendered.launch)["configs"] == [candidate.config]
        triton_interpreter.interpret(rendered, list(tensors.values()), sample.sizes, tmp_path)
        for output, value in expected.items():
            torch.testing.assert_close(tensors[output], value, rtol=sample.tolerance, atol=sample.tolerance, equal_nan=True)


def rows_of_bytes(x):
    return prims.sum(prims.convert(x, torch.float32), (1,), False)


PROGRAMS = {
    "layer norm": (layer_norm, lambda: (torch.empty(8, 512, 768), torch.empty(768), torch.empty(768), torch.empty(8, 512, 768))),
    "softmax": (softmax, lambda: (torch.empty(81920, 100),)),
    "long softmax": (softmax, lambda: (torch.empty(8192, 30000, dtype=torch.bfloat16),)),
    "cross entropy": (cross_entropy, lambda: (torch.empty(4096, 1000),)),
    "half chain": (
        half_chain,
        lambda: (torch.empty(7000, 64, dtype=torch.bfloat16), torch.empty(7000, 64, dtype=torch.bfloat16)),
    ),
    "scans": (scans, lambda: (torch.empty(3000, 40),)),
    "batch norm": (batch_norm, lambda: (torch.empty(64, 6, 32, 32), torch.empty(6), torch.empty(6))),
    "bytes": (rows_of_bytes, lambda: (torch.empty(40960, 512, dtype=torch.int8),)),
}
ORDERS = """
import json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tracework_runtime.build.triton_worker import load_module

def layouts(job, number):
    function = load_module(job["source"], number)[job["entry"]]
    signature = dict(job["arguments"]) | {name: "constexpr" for name in job["constants"]}
    positions = {name: n for n, name in enumerate(function.arg_names)}
    attributes = {(positions[name],): [["tt.divisibility", 16]] for name in job["aligned"]}
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"]}
    source = ASTSource(function, signature, job["constants"], attributes)
    text = triton.compile(source, target=GPUTarget("cuda", job["capability"], 32), options=options).asm["ttgir"]
    known = dict(re.findall(r"^(#\\w+) = (#ttg[.].*)$", text, re.M))
    found = []
    for kind, axis, types in re.findall(r'"tt[.](reduce|scan)"[(].*?[)] <[{]axis = (\\d+).*?[}]> .*?[}][)] : [(](.*?)[)] ->', text, re.S):
        for name in re.findall(r"(#\\w+)>", types):
            parts = re.findall(r"(sizePerThread|threadsPerWarp|warpsPerCTA) = \\[(.*?)\\]", known[name])
            found.append([kind, known[name] if not parts else [n.split(", ")[int(axis)] for _, n in parts]])
    return found

print("ANSWER" + json.dumps([layouts(job, n) for n, job in enumerate(json.load(sys.stdin))]))
"""


def test_candidates_with_equal_words_add_up_in_one_order(tmp_path):
    """As Triton lays rows out among the threads: what each has of a row, and how lanes and warps lie along it."""
    renderer, options = TritonRenderer(), InductorOptions()
    jobs, owners = [], []
    for name, (program, inputs) in PROGRAMS.items():
        plan = schedule(
            lower(graph_of(program, *inputs(), device=torch.device("cuda", 0)), options), options, renderer.capabilities
        )
        for kernel in plan.kernels:
            found = renderer.question(kernel, None, "default", "H200")
            assert found is not None
            for candidate in (c for c in found.candidates if c.bits == found.candidates[0].bits and c.bits):
                (source,) = renderer.pack([("k", renderer.render(dataclasses.replace(kernel, config=candidate.config)))])
                for entry in source.launch["entries"]:
                    jobs.append(build.request(source, entry, candidate.config, build.Variant(), 90))
                    owners.append((name, kernel.name, entry))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ORDERS]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    orders = {}
    for owner, order in zip(owners, json.loads(done.stdout.partition("ANSWER")[2]), strict=True):
        orders.setdefault(owner, []).append(order)
    assert sum(map(len, orders.values())) > len(orders) + 8 and any(o[0] for o in orders.values())
    assert not {owner: found for owner, found in orders.items() if any(order != found[0] for order in found)}
