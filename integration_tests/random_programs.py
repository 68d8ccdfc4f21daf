"""What the generators of random programs share: a program is text whose first line says what it is called with."""

from __future__ import annotations

import argparse
import ast
import itertools
import linecache
import random
import sys
import time
import warnings
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

import campaign

__all__ = ["Disagreement", "load", "run_campaign"]

_numbers = itertools.count()


class Disagreement(AssertionError):
    """Compiled and plain runs differ."""


def load(text, names):
    """The function `main` of a program whose globals are `names`; tracebacks show its lines."""
    filename = f"<random program {next(_numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), names)
    return names["main"]


def run_campaign(doc, generate, check, backend):
    """The command line of a generator; the status to exit with.

    generate(random.Random) gives (description, text), and check(description, text, backend=...) raises what is wrong.
    """
    parser = argparse.ArgumentParser(description=doc)
    campaign.add_arguments(parser, "0:1000")
    parser.add_argument("--backend", default=backend, help=f"default: {backend}")
    parser.add_argument(
        "--device",
        default="cpu",
        help="where tensors are made; cuda needs CUDA_VISIBLE_DEVICES=0 PYTORCH_NVML_BASED_CUDA_CHECK=1",
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    def drawn(seed):
        described, text = generate(random.Random(seed))
        return f"# {described}\n{text}"

    def failure(program):
        described, text = program.split("\n", 1)
        try:
            torch.set_default_device(given.device)
            check(ast.literal_eval(described.removeprefix("# ")), text, backend=given.backend)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def smaller(program, found, alone, seconds):
        return _shrunk(program, lambda other: _kind(alone(other)) == _kind(found), seconds)

    if given.device == "cpu":  # what is loaded at first use; a GPU that is used before a fork cannot be used after it
        failure(drawn(0))
    _, _, failed, _ = campaign.run(given, drawn, failure, smaller)
    return 1 if failed else 0


def _shrunk(text, fails, seconds):
    """Without the lines and results that it fails without: the first line describes the program, its last returns a tuple."""
    end, lines, smaller = time.monotonic() + seconds, text.rstrip().splitlines(), True
    while smaller:
        smaller = False
        *head, last = lines
        head, body = head[:2], head[2:]
        results = [r for r in last.strip()[len("return (") : -1].split(",") if r.strip()]
        fewer = [[*head, *body[:i], *body[i + 1 :], last] for i in reversed(range(len(body)))]
        fewer += [
            [*head, *body, f"    return ({','.join(results[:i] + results[i + 1 :])},)"]
            for i in range(len(results))
            if len(results) > 1
        ]
        for candidate in fewer:
            if time.monotonic() > end:
                break
            try:
                compile("\n".join(candidate), "", "exec")
            except SyntaxError:
                continue
            if fails("\n".join(candidate) + "\n"):
                lines, smaller = candidate, True
                break
    return "\n".join(lines) + "\n"


def _kind(text):
    """The error and the part that differs."""
    return text and text.split("\n")[0].split()[:1] + text.split("\n")[0].split()[3:4]
