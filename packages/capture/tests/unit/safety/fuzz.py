"""Random programs without end in sight: python fuzz.py [--first SEED] [--count N] [--seconds N] [--compiled] [--shrink SECONDS] [--write].

A seed that fails is shown and counted; --shrink cuts its program down first. pytest runs a fixed sample (test_random_programs.py); this is for
looking further. --compiled runs the graphs through the whole compiler instead of their eager kernels. --write adds a row to FUZZ.md.
The exit status is 1 when a seed fails.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agreement import check, eager
from programs import generate, module
from shrink import shrunk

TABLE = Path(__file__).parent / "FUZZ.md"


def failure(function, backend):
    """What is wrong with a program; None when captured and plain runs agree."""
    try:
        check(module(function), backend, compiled=backend is not eager)
    except Exception as error:
        cause = f" ({error.__cause__!r})" if error.__cause__ is not None else ""
        return f"{type(error).__name__}: {error}{cause}"
    return None


def alone(function, backend):
    """The same in a process of its own: what a failure leaves behind changes no other program, and a crash is a failure."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        with os.fdopen(into, "w") as pipe:
            pipe.write(failure(function, backend) or "")
            pipe.flush()
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return text or (f"Crash: the process ended with status {status}" if status else None)


def compiled():
    """The backend that compiles."""
    from tracework.assemble import inductor_backend
    from tracework.options import Options

    return inductor_backend(Options(), lambda name, product: None)


def same_kind(text, other):
    """Whether two failures look like one: the same error, in the same part."""
    return other is not None and text.split()[0] == other.split()[0] and text.split()[3:4] == other.split()[3:4]


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--compiled", action="store_true", help="through the whole compiler")
    parser.add_argument("--shrink", type=float, default=0.0, help="seconds to cut a program that fails down")
    parser.add_argument("--write", action="store_true", help="add a row to FUZZ.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    backend = compiled() if given.compiled else eager
    failure(generate(random.Random(0)), backend)  # what is loaded at first use is loaded once
    started, failed, run = time.monotonic(), [], 0
    for seed in range(given.first, given.first + given.count):
        if time.monotonic() - started > given.seconds:
            break
        run += 1
        function = generate(random.Random(seed))
        text = alone(function, backend)
        if text is not None:
            failed.append(seed)
            small = shrunk(function, lambda f: same_kind(text, alone(f, backend)), seconds=given.shrink)
            print(f"seed {seed}: {alone(small, backend) or text}"[:1500] + f"\n{small}", flush=True)
    print(f"{run} programs from seed {given.first}, {len(failed)} failed: {failed}")
    if given.write:
        with TABLE.open("a") as table:
            kind = "compiled" if given.compiled else "captured"
            table.write(f"| {kind} | {given.first} to {given.first + run - 1} | {run:,} | {len(failed)} | {failed or ''} |\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
