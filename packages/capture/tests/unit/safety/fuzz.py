"""Random programs without end in sight: python fuzz.py [--first SEED] [--count N] [--seconds N]; a seed that fails is shown and counted.

pytest runs a fixed sample (test_random_programs.py); this is for looking further. The exit status is 1 when a seed fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agreement import check
from program_generator import generate


def failure(seed: int) -> str | None:
    """What is wrong with the program of a seed; None when captured and plain runs agree."""
    try:
        check(generate(random.Random(seed)))
    except Exception as error:
        cause = f" ({error.__cause__!r})" if error.__cause__ is not None else ""
        return f"{type(error).__name__}: {error}{cause}"
    return None


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    started, failed, run = time.monotonic(), [], 0
    for seed in range(given.first, given.first + given.count):
        if time.monotonic() - started > given.seconds:
            break
        run += 1
        text = failure(seed)
        if text is not None:
            failed.append(seed)
            print(f"seed {seed}: {text[:1500]}", flush=True)
    print(f"{run} programs from seed {given.first}, {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
