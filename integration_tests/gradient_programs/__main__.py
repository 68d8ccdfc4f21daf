"""python -m gradient_programs [--seeds A:B] [--jobs N] [--backend NAME]: programs without end in sight; tools/campaign.py has the options."""

from __future__ import annotations

import argparse
import ast
import random
import sys
import warnings
from pathlib import Path

import torch
from tensor_programs.shrink import kind_of, shrunk

from . import check, generate

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

import campaign


def drawn(seed):
    """A program and, on its first line, what is done with its results."""
    described, text = generate(random.Random(seed))
    return f"# {described}\n{text}"


def failure(program, backend):
    """What is wrong with a program, or None."""
    described, text = program.split("\n", 1)
    try:
        check(ast.literal_eval(described.removeprefix("# ")), text, backend=backend)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    campaign.add_arguments(parser, "0:1000")
    parser.add_argument("--backend", default="aot_eager", help="default: aot_eager")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    failure(drawn(0), given.backend)  # what is loaded at first use
    _, _, failed = campaign.run(
        given,
        drawn,
        lambda program: failure(program, given.backend),
        lambda program, found, alone, seconds: shrunk(program, lambda p: kind_of(alone(p)) == kind_of(found), seconds),
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
