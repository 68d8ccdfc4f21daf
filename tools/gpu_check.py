"""What a machine with a GPU says of the whole line: small models in bf16 and fp32, inference and training, against eager.

python tools/run_in_tree.py python tools/gpu_check.py [infer train exact replayed lengths autocast dropout channels_last mask]
"""

import copy
import sys
import time
import traceback
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "integration_tests")]

import tracework
from models import MODELS, output_tensor


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    """||got - expected|| / ||expected|| in float64."""
    return ((got.double() - expected.double()).norm() / expected.double().norm()).item()


def on_gpu(built, dtype):
    """Model and inputs on the GPU."""
    model, inputs = built
    return model.to("cuda", dtype), {k: v.to("cuda", dtype if v.is_floating_point() else v.dtype) for k, v in inputs.items()}


def infer(name, dtype):
    """First-call seconds and error of one inference call."""
    model, inputs = on_gpu(MODELS[name](), dtype)
    model.eval()
    compiled = tracework.compile(model, fullgraph=True)
    with torch.no_grad():
        started = time.perf_counter()
        got = output_tensor(compiled(**inputs))
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        return f"first {seconds:.2f} s, error {relative(got, output_tensor(model(**inputs))):.1e}"


def train(name, dtype):
    """Error of output and gradients of one step."""
    reference, inputs = on_gpu(MODELS[name](), dtype)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True)
    outputs = [output_tensor(m(**inputs)) for m in (reference, compiled)]
    for out in outputs:
        out.float().square().mean().backward()
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True) if q.grad is not None]
    got, expected = (torch.cat([pair[i].flatten() for pair in pairs]) for i in (0, 1))
    return f"error {relative(outputs[1], outputs[0]):.1e}, gradients {relative(got, expected):.1e}"


def exact(name, dtype):
    """Whose gradients are nearer to those of float64: the errors of eager's and of ours."""
    truth, inputs = on_gpu(MODELS[name](), dtype)
    eager, ours = copy.deepcopy(truth), copy.deepcopy(truth)
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    models = [(truth.double(), wide), (eager, inputs), (tracework.compile(ours, fullgraph=True), inputs)]
    gradients = []
    for (model, given), plain in zip(models, (truth, eager, ours), strict=True):
        output_tensor(model(**given)).double().square().mean().backward()
        gradients.append(torch.cat([p.grad.double().flatten() for p in plain.parameters() if p.grad is not None]))
    return f"eager {relative(gradients[1], gradients[0]):.1e}, ours {relative(gradients[2], gradients[0]):.1e}"


def replayed(name, dtype):
    """Errors of a training step and of inference in mode reduce-overhead, and what was recorded."""
    import tracework_runtime

    reference, inputs = on_gpu(MODELS[name](), dtype)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True, mode="reduce-overhead")
    tracework_runtime.reset_counters()
    errors = []
    for _ in range(4):
        for m, run in ((reference, reference), (model, compiled)):
            m.zero_grad(set_to_none=True)
            out = output_tensor(run(**inputs))
            out.float().square().mean().backward()
            errors.append([out.detach().clone(), *(p.grad.clone() for p in m.parameters() if p.grad is not None)])
    flat = [torch.cat([x.flatten() for x in one]) for one in errors]
    worst = max(relative(got, expected) for expected, got in zip(flat[::2], flat[1::2], strict=True))
    counts = {k: v for k, v in tracework_runtime.counters().items() if "cudagraph" in str(k)}
    return f"error {worst:.1e}, {counts}"


def lengths(name, dtype):
    """Errors for four lengths, inference and training, and seconds of each first call."""
    reference, inputs = on_gpu(MODELS[name](), dtype)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True)
    found = []
    for n in (16, 12, 9, 14):
        given = {k: v[:, :n] for k, v in inputs.items()}
        started = time.perf_counter()
        out = output_tensor(compiled(**given))
        out.float().square().mean().backward()
        torch.cuda.synchronize()
        found.append(f"{relative(out, output_tensor(reference(**given))):.1e} in {time.perf_counter() - started:.2f} s")
    return ", ".join(found)


def autocast(name, dtype):
    """Error of a training step under autocast to bfloat16, float32 weights."""
    reference, inputs = on_gpu(MODELS[name](), torch.float32)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True)
    outputs = []
    for run in (reference, compiled):
        with torch.autocast("cuda", dtype):
            outputs.append(output_tensor(run(**inputs)))
        outputs[-1].float().square().mean().backward()
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True) if q.grad is not None]
    got, expected = (torch.cat([pair[i].flatten() for pair in pairs]) for i in (0, 1))
    return f"error {relative(outputs[1], outputs[0]):.1e}, gradients {relative(got, expected):.1e}"


def dropout(name, dtype):
    """Error of a training step with dropout, both from one seed: eager's random numbers in eager's order."""
    reference, inputs = on_gpu(MODELS[name](dropout=0.1), dtype)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True)
    outputs = []
    for run in (reference, compiled):
        torch.manual_seed(7)
        outputs.append(output_tensor(run(**inputs)))
        outputs[-1].float().square().mean().backward()
    return f"error {relative(outputs[1], outputs[0]):.1e}"


def channels_last(name, dtype):
    """Error of a training step with channels-last weights and image."""
    reference, inputs = on_gpu(MODELS[name](), dtype)
    reference = reference.to(memory_format=torch.channels_last)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True)
    inputs = {k: v.contiguous(memory_format=torch.channels_last) for k, v in inputs.items()}
    outputs = [output_tensor(run(**inputs)) for run in (reference, compiled)]
    outputs[1].float().square().mean().backward()
    return f"error {relative(outputs[1], outputs[0]):.1e}"


def mask(name, dtype):
    """Error with a padding mask given, and which attention kernel eager takes without one."""
    model, inputs = on_gpu(MODELS[name](), dtype)
    model.eval()
    given = torch.ones_like(inputs["input_ids"])
    given[0, 5:] = 0
    compiled = tracework.compile(model, fullgraph=True)
    with torch.no_grad():
        out = [output_tensor(run(**inputs, attention_mask=given)) for run in (model, compiled)]
    return f"error {relative(out[1], out[0]):.1e}"


LANGUAGE, F32, BF16 = ("gpt2", "bert", "llama"), torch.float32, torch.bfloat16
CHECKS = (
    [(check, name, dtype) for name in MODELS for dtype in (F32, BF16) for check in (infer, train)]
    + [(exact, name, dtype) for name in MODELS for dtype in (F32, BF16)]
    + [(replayed, name, dtype) for name, dtype in (("gpt2", F32), ("bert", BF16), ("resnet18", F32))]
    + [(lengths, name, dtype) for name in LANGUAGE for dtype in (F32, BF16)]
    + [(autocast, name, BF16) for name in ("gpt2", "bert", "resnet18", "vit")]
    + [(dropout, name, dtype) for name in ("gpt2", "bert") for dtype in (F32, BF16)]
    + [(channels_last, "resnet18", F32), (mask, "bert", BF16), (mask, "gpt2", F32), (mask, "llama", BF16)]
)


def main() -> int:
    """Runs everything, or the checks whose names are given; the exit status counts failures."""
    torch.backends.cudnn.allow_tf32 = False  # its rounding turns differences of one unit in the last place into 1e-3
    failures = 0
    for check, name, dtype in CHECKS:
        if len(sys.argv) > 1 and check.__name__ not in sys.argv[1:]:
            continue
        try:
            print(name, str(dtype)[6:], check.__name__, check(name, dtype), flush=True)
        except Exception:
            failures += 1
            print(name, str(dtype)[6:], check.__name__, "FAILED", flush=True)
            traceback.print_exc(limit=-6, file=sys.stdout)
        tracework.reset()
    return failures


if __name__ == "__main__":
    sys.exit(main())
