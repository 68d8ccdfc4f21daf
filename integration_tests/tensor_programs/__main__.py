"""python -m tensor_programs [--seeds A:B] [--jobs N] [--backend NAME] [--device cuda]: programs without end in sight; tools/campaign.py has the options."""

from __future__ import annotations

import argparse
import ast
import random
import sys
import warnings
from pathlib import Path

import torch

from . import check, generate
from .shrink import kind_of, shrunk

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

import campaign


def drawn(seed):
    """A program and, on its first line, the arguments that it is called with."""
    described, text = generate(random.Random(seed))
    return f"# {described}\n{text}"


def failure(program, options, device="cpu"):
    """What is wrong with a program whose tensors are made on a device, or None."""
    described, text = program.split("\n", 1)
    try:
        torch.set_default_device(device)
        check(ast.literal_eval(described.removeprefix("# ")), text, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    campaign.add_arguments(parser, "0:1000")
    parser.add_argument("--backend", help="default: inductor")
    parser.add_argument("--device", default="cpu", help="where tensors are made; programs are drawn on the CPU")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options = {"backend": given.backend} if given.backend else {}
    if given.device == "cpu":  # what is loaded at first use; a GPU that is used before a fork cannot be used after it
        failure("# [('float', (2,), 'plain', False)]\ndef main(a):\n    return (a + 1,)\n", options)
    _, _, failed = campaign.run(
        given,
        drawn,
        lambda program: failure(program, options, given.device),
        lambda program, found, alone, seconds: shrunk(program, lambda p: kind_of(alone(p)) == kind_of(found), seconds),
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
