"""Random programs without end in sight, in many processes:

    python tools/run_in_tree.py python packages/capture/tests/unit/safety/fuzz.py --seeds 1000:4000 --jobs 16 --save failed.txt

prints a line for each seed that fails and a total at the end (tools/campaign.py says what the options do). pytest runs a fixed sample
(test_random_programs.py); this is for looking further. --compiled runs the graphs through the whole compiler instead of their eager
kernels. --write adds a row to FUZZ.md.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[4] / "tools")]

import campaign  # noqa: E402
import torch  # noqa: E402
from agreement import EvaluatorLimit, check, eager  # noqa: E402
from programs import generate, module  # noqa: E402
from shrink import shrunk  # noqa: E402

TABLE = HERE / "FUZZ.md"


def failure(function, backend):
    """What is wrong with a program; None when captured and plain runs agree."""
    try:
        check(module(function), backend, compiled=backend is not eager)
    except EvaluatorLimit as error:
        return f"{campaign.LIMIT}any frame evaluator changes this: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def compiled():
    """The backend that compiles."""
    from tracework.assemble import inductor_backend
    from tracework.options import Options

    return inductor_backend(Options(), lambda name, product: None)


def same_kind(text, other):
    """Whether two failures look like one: the same error in the same part, with the same names of types in what differs."""

    def features(text):
        return text.split()[:1] + text.split()[3:4] + re.findall(r"'(\w+(?:Error|Oops|iterator))'", text)[:2]

    return other is not None and features(text) == features(other)


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    campaign.add_arguments(parser, "1000:4000")
    parser.add_argument("--compiled", action="store_true", help="through the whole compiler")
    parser.add_argument("--write", action="store_true", help="add a row to FUZZ.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    backend = compiled() if given.compiled else eager
    failure(generate(random.Random(0)), backend)  # what is loaded at first use is loaded once
    first, count, failed, limited = campaign.run(
        given,
        lambda seed: generate(random.Random(seed)),
        lambda function: failure(function, backend),
        lambda function, found, alone, seconds: shrunk(function, lambda f: same_kind(found, alone(f)), seconds),
    )
    if given.write:
        with TABLE.open("a") as table:
            kind = "compiled" if given.compiled else "captured"
            what = [f"open: {failed}"] * bool(failed) + [f"limit of frame evaluators: {limited}"] * bool(limited)
            table.write(f"| {kind} | {first} to {first + count - 1} | {count:,} | {len(failed)} | {'; '.join(what)} |\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
