"""python -m tensor_programs [--first SEED] [--count N] [--seconds N] [--backend NAME] [--shrink SECONDS]: programs without end in sight.

A seed that fails is shown, cut down to the statements that it needs. The exit status is 1 when a seed fails.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings

from . import check, generate


def failure(described, text, options):
    try:
        check(described, text, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def alone(described, text, options):
    """The same in a process of its own: a crash is a failure, too."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        with os.fdopen(into, "w") as pipe:
            pipe.write(failure(described, text, options) or "")
            pipe.flush()
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return text or (f"Crash: the process ended with status {status}" if status else None)


def shrunk(text, fails, seconds):
    """Without the lines and results that it fails without."""
    end, lines, smaller = time.monotonic() + seconds, text.splitlines(), True
    while smaller:
        smaller = False
        head, *body, last = lines
        results = [r for r in last.strip()[len("return (") : -1].split(",") if r.strip()]
        fewer = [[head, *body[:i], *body[i + 1 :], last] for i in reversed(range(len(body)))]
        fewer += [
            [head, *body, f"    return ({','.join(results[:i] + results[i + 1 :])},)"]
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


def kind_of(text):
    """The error and the part that differs."""
    return text and text.split("\n")[0].split()[:1] + text.split("\n")[0].split()[3:4]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--backend", help="default: inductor")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to cut a program that fails down")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    options = {"backend": given.backend} if given.backend else {}
    failure([("float", (2,), "plain", False)], "def main(a):\n    return (a + 1,)\n", options)  # what is loaded at first use
    started, failed, run = time.monotonic(), [], 0
    for seed in range(given.first, given.first + given.count):
        if time.monotonic() - started > given.seconds:
            break
        run += 1
        described, text = generate(random.Random(seed))
        found = alone(described, text, options)
        if found:
            failed.append(seed)
            text = shrunk(text, lambda t: kind_of(alone(described, t, options)) == kind_of(found), given.shrink)
            print(f"seed {seed}: {alone(described, text, options) or found}"[:1200] + f"\n{described}\n{text}", flush=True)
    print(f"{run} programs from seed {given.first}, {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
