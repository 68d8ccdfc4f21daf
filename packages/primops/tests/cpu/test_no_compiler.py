"""What rules about fakes import: torch's own compiler takes seconds to load, and is no part of this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch._decomp")
SAMPLES = 2  # of each entry

# entries whose rule is a Python function of torch that asks torch's compiler to leave it alone, which loads it
KNOWN = {
    *("addr _chunk_cat linalg.pinv linalg.pinv.hermitian linalg.pinv.singular pinverse polar renorm").split(),
    *("normal.number_mean tril_indices triu_indices").split(),
    *(
        f"nn.functional.{name}"
        for name in (
            "linear_cross_entropy.chunked linear_cross_entropy.chunked_none max_unpool3d max_unpool3d.grad multi_margin_loss "
            "multilabel_margin_loss unfold"
        ).split()
    ),
}
# on torch before 2.13 op_db has no such entry, or torch another rule
ABSENT = (
    {"block_diag", *(f"nn.functional.linear_cross_entropy.{name}" for name in ("chunked", "chunked_none"))}
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13)
    else set()
)


def loaded() -> list[str]:
    return [name for name in sys.modules if name.startswith(COMPILER)]


def unload() -> None:
    """As in a process that has not seen op_db, whose own imports load the compiler."""
    for name in loaded():
        parent, _, child = name.rpartition(".")
        del sys.modules[name]
        if parent in sys.modules and child in vars(sys.modules[parent]):
            delattr(sys.modules[parent], child)


class Watch:
    """Refuses to import the compiler, and remembers who asked."""

    def __init__(self) -> None:
        self.entry = ""
        self.seen: dict[str, str] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith(COMPILER):
            self.seen.setdefault(self.entry, name)
            raise ImportError(f"{self.entry}: {name}")


def watched() -> dict[str, str]:
    """Entry -> the module of the compiler that its rules import."""
    from opdb import entry_name
    from opdb_checks import _outcome, dtypes_of, fakes_of, is_strided, parts, spread
    from torch.testing._internal.common_methods_invocations import op_db
    from tracework_primops import FakeMode

    work = []
    for op in op_db:
        for dtype in dtypes_of(op)[:1]:
            work += [(op, parts(s)) for _, s in spread(op, dtype, SAMPLES) if is_strided(parts(s))]
    unload()
    watch = Watch()
    sys.meta_path.insert(0, watch)
    for op, sample in work:
        watch.entry = entry_name(op)
        mode = FakeMode()
        _outcome(op.op, fakes_of(mode, sample), mode)
    return watch.seen


def test_rules_do_not_load_torchs_compiler():
    run = subprocess.run([sys.executable, "-W", "ignore", __file__], capture_output=True, text=True, check=True, timeout=300)
    seen = json.loads(run.stdout.splitlines()[-1])
    assert len(seen) > 1, "op_db was not run"
    assert {entry: name for entry, name in seen.items() if entry not in KNOWN} == {}
    assert KNOWN - set(seen) <= ABSENT, "these have rules now: take them out"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    print(json.dumps(watched()))
