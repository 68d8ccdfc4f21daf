"""Random programs without end in sight, in many processes:

    python tools/run_in_tree.py python packages/capture/tests/unit/safety/fuzz.py --first 1000 --count 3000 --processes 16 --seconds 540

runs the seeds from --first on, until --count of them or --seconds are over. It prints a line for each seed that fails (after it, with
--shrink SECONDS, the program cut down) and a total at the end; --save FILE keeps the programs that failed whole. pytest runs a fixed
sample (test_random_programs.py); this is for looking further. --compiled runs the graphs through the whole compiler instead of their
eager kernels. --programs FILE runs what --save wrote instead of seeds. --write adds a row to FUZZ.md.
The exit status is 1 when a seed fails.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import re
import signal
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from agreement import check, eager
from programs import generate, module
from shrink import shrunk

TABLE = Path(__file__).parent / "FUZZ.md"
PATIENCE = 240
"""Seconds after which a program counts as one that hangs."""


def failure(function, backend):
    """What is wrong with a program; None when captured and plain runs agree."""
    if backend is not eager and ".half()" in function:
        backend = compiled("strict_pointwise")  # by default a kernel keeps what is rounded to half precision and back as it was
    try:
        check(module(function), backend, compiled=backend is not eager)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def alone(function, backend):
    """The same in a process of its own: what a failure leaves behind changes no other program, and a crash is a failure."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        signal.alarm(PATIENCE)
        sys.unraisablehook = lambda unraisable: None  # generators that fail when they end: both runs print that
        with contextlib.suppress(BaseException), os.fdopen(into, "w") as pipe:
            pipe.write(failure(function, backend) or "")
            pipe.flush()
            os._exit(0)
        os._exit(1)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status == signal.SIGALRM:
        return f"Hang: the process did not end within {PATIENCE} seconds"
    return text or (f"Crash: the process ended with status {status}" if status else None)


def compiled(numerics="default"):
    """The backend that compiles."""
    from tracework.assemble import inductor_backend
    from tracework.options import Options

    return inductor_backend(Options(numerics=numerics), lambda name, product: None)


def same_kind(text, other):
    """Whether two failures look like one: the same error in the same part, with the same names of types in what differs."""

    def features(text):
        return text.split()[:1] + text.split()[3:4] + re.findall(r"'(\w+(?:Error|Oops|iterator))'", text)[:2]

    return other is not None and features(text) == features(other)


_run = ()
"""(options, backend, time to end) of this process: a backend cannot be sent to it."""


def begin(*run):
    """Called in each process."""
    global _run
    _run = run


def one(seed):
    """(seed, what is wrong or None, the program, the program cut down) of a seed or (seed, program); None when time is over."""
    given, backend, end = _run
    if time.monotonic() > end:
        return None
    seed, function = seed if isinstance(seed, tuple) else (seed, None)
    try:
        function = function or generate(random.Random(seed))
    except Exception as error:
        return seed, f"Generator: {error!r}", "", ""
    text = small = alone(function, backend)
    if text is not None and given.shrink:
        small = shrunk(function, lambda f: same_kind(text, alone(f, backend)), seconds=given.shrink)
        text = alone(small, backend) or text
    return seed, text, function, small


def saved(text):
    """(seed, program) of each program in the text of a file that --save wrote."""
    parts = re.split(r"^# seed (\d+):.*\n", text, flags=re.MULTILINE)
    return list(zip(map(int, parts[1::2]), parts[2::2])) or [(0, text)]


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more programs after this long")
    parser.add_argument("--compiled", action="store_true", help="through the whole compiler")
    parser.add_argument("--shrink", type=float, default=0.0, help="seconds to cut a program that fails down")
    parser.add_argument("--save", type=Path, help="file to add programs that fail to")
    parser.add_argument("--programs", type=Path, help="file of programs to run")
    parser.add_argument("--write", action="store_true", help="add a row to FUZZ.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    backend = compiled() if given.compiled else eager
    failure(generate(random.Random(0)), backend)  # what is loaded at first use is loaded once
    sys.unraisablehook = lambda unraisable: None  # generators that fail when they end
    failed, run, end = [], 0, time.monotonic() + given.seconds
    seeds = saved(given.programs.read_text()) if given.programs else range(given.first, given.first + given.count)
    with multiprocessing.get_context("fork").Pool(given.processes, begin, (given, backend, end)) as pool:
        for seed, text, function, small in filter(None, pool.imap_unordered(one, seeds)):
            run += 1
            if text is None:
                continue
            failed.append(seed)
            print(f"seed {seed}: {' '.join(text.split())[:400]}" + (f"\n{small}" if given.shrink else ""), flush=True)
            if given.save:
                with given.save.open("a") as file:
                    file.write(f"# seed {seed}: {' '.join(text.split())[:1500]}\n{small if given.shrink else function}\n\n")
    failed.sort()
    print(f"{run} programs from seed {given.first}, {len(failed)} failed: {failed}")
    if given.write:
        with TABLE.open("a") as table:
            kind = "compiled" if given.compiled else "captured"
            table.write(f"| {kind} | {given.first} to {given.first + run - 1} | {run:,} | {len(failed)} | {failed or ''} |\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
