"""What a machine with a GPU says of the whole line: small models in bf16 and fp32, inference and training, against eager.

    python tools/run_in_tree.py python tools/gpu_check.py
"""

import copy
import sys
import time
import traceback
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "integration_tests")]

from models import MODELS, output_tensor  # noqa: E402

import tracework  # noqa: E402


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


def main() -> int:
    """Runs everything; the exit status counts failures."""
    torch.backends.cudnn.allow_tf32 = False  # its rounding turns differences of one unit in the last place into 1e-3
    failures = 0
    for name in MODELS:
        for dtype in (torch.float32, torch.bfloat16):
            for what in (infer, train):
                try:
                    print(name, str(dtype)[6:], what.__name__, what(name, dtype), flush=True)
                except Exception:
                    failures += 1
                    print(name, str(dtype)[6:], what.__name__, "FAILED")
                    traceback.print_exc(limit=-6)
                tracework.reset()
    return failures


if __name__ == "__main__":
    sys.exit(main())
