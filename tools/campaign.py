"""Runs random programs by seed in many processes: the command line that fuzz.py and tensor_programs share.

Each program is drawn and run in a process of its own under a limit of time, so that one that crashes or does not end is a failure of its
seed and changes no other. Seeds that fail are printed (with --shrink, cut down) and, with --save, written to a file whole; --programs runs
such a file again. The exit status is 1 when a seed fails.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import re
import select
import signal
import sys
import time
from pathlib import Path

__all__ = ["LIMIT", "add_arguments", "alone", "run"]

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # a fork cannot use a GPU that its parent looked at: only where one is named
GRACE = 10
"""Seconds after the limit in which a process says where it is; then it is killed."""
LIMIT = "Limit: "
"""What is wrong with a program begins so where nothing could be done about it: such are counted apart and are no failures."""
BETWEEN = "\0"
"""Between the program and what is wrong with it, where one process tells another."""


def alone(wrong, program, limit):
    """`wrong(program())` in a process of its own, with the program: what it leaves behind changes nothing here.

    Returns (program, what is wrong or None). A crash is wrong, and so is to take more than `limit` seconds: the text says where it was.
    """
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(out)
        sys.unraisablehook = lambda unraisable: None  # generators that fail when they end: both runs print that
        with contextlib.suppress(BaseException), os.fdopen(into, "w") as pipe:
            # Not dump_traceback_later(): a thread of its own, which this fork lacks and waits for where the parent's runs.
            faulthandler.register(signal.SIGALRM, file=pipe, chain=True)
            signal.setitimer(signal.ITIMER_REAL, limit)
            try:
                text = program()
            except Exception as error:
                pipe.write(f"{BETWEEN}Generator: {error!r}")
            else:
                pipe.write(text + BETWEEN)
                pipe.flush()
                pipe.write(wrong(text) or "")
            pipe.flush()
            os._exit(0)
        os._exit(1)
    os.close(into)
    text, status = _said(child, out, time.monotonic() + limit + GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # compilers that it began
    given, between, found = text.partition(BETWEEN)
    if status == signal.SIGALRM:
        return (given if between else ""), f"Hang: no end within {limit:g} seconds. {found or given}"
    if status:
        return given, f"Crash: the process ended with status {status}. {found}"
    return given, found or None


def _said(child, out, end):
    """What a child writes until it ends, and its status; others that it began may hold the pipe open, and it may never end."""
    parts, status = [], None
    while status is None:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        if select.select([out], [], [], 0.2)[0]:
            part = os.read(out, 1 << 16)
            parts.append(part)
            if not part:
                status = os.waitpid(child, 0)[1]
                break
        else:
            ended, code = os.waitpid(child, os.WNOHANG)
            status = code if ended else None
    while parts and parts[-1] and select.select([out], [], [], 0)[0]:
        parts.append(os.read(out, 1 << 16))
    os.close(out)
    return b"".join(parts).decode(errors="replace"), status


def add_arguments(parser, seeds):
    """The options of a campaign; `seeds` is what runs without --seeds."""
    parser.add_argument("--seeds", default=seeds, metavar="A:B", help=f"from A to below B (default: {seeds})")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a program counts as one that hangs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more programs after this long")
    parser.add_argument(
        "--shrink", type=float, default=0.0, metavar="SECONDS", help="cut programs that fail down for so long each"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="file to add programs that fail to")
    parser.add_argument("--programs", type=Path, metavar="FILE", help="run what --save wrote instead of seeds")


_work = ()
"""(draw, wrong, smaller, options, end) of this process: functions that cannot be sent to it."""


def _begin(*work):
    global _work
    _work = work


def _one(task):
    """(seed, what is wrong or None, the program, cut down where that is asked for); None when time is over."""
    draw, wrong, smaller, given, end = _work
    if time.monotonic() > end:
        return None
    seed, text = task
    program, found = alone(wrong, (lambda: draw(seed)) if text is None else (lambda: text), given.limit)
    small = program
    if found is not None and given.shrink and program and not found.startswith(LIMIT):
        small = smaller(program, found, lambda text: alone(wrong, lambda: text, given.limit)[1], given.shrink)
    return seed, found, small


def saved(text):
    """(seed, program) of each program in the text of a file that --save wrote; a file without seeds is one program."""
    parts = re.split(r"^# seed (\d+):.*\n", text, flags=re.MULTILINE)
    return list(zip(map(int, parts[1::2]), parts[2::2])) or [(0, text)]


def run(given, draw, wrong, smaller):
    """Runs the seeds that the options say; prints what fails and a total, and returns (first seed, how many ran, seeds that failed,
    seeds at a limit).

    `draw(seed)` gives a program's text, `wrong(text)` what is wrong with it or None, `smaller(text, found, alone, seconds)` a smaller text
    that fails like `found`, where `alone(text)` asks what is wrong with one.
    """
    first, last = map(int, given.seeds.split(":"))
    tasks = saved(given.programs.read_text()) if given.programs else zip(range(first, last), iter(lambda: None, 0))
    failed, limited, count, started = [], [], 0, time.monotonic()
    work = draw, wrong, smaller, given, started + given.seconds
    with multiprocessing.get_context("fork").Pool(given.jobs, _begin, work) as pool:
        for seed, found, small in filter(None, pool.imap_unordered(_one, tasks)):
            count += 1
            if found is None:
                continue
            at_limit = found.startswith(LIMIT)
            (limited if at_limit else failed).append(seed)
            brief = " ".join(found.split())
            print(f"seed {seed}: {brief[:400]}" + (f"\n{small}" if given.shrink and not at_limit else ""), flush=True)
            if given.save:
                with given.save.open("a") as file:
                    file.write(f"# seed {seed}: {brief[:1500]}\n{small}\n\n")
    failed.sort()
    limited.sort()
    print(
        f"{count} programs of {given.programs or given.seeds} in {time.monotonic() - started:.0f} s, {len(failed)} failed: {failed}"
        + (f", {len(limited)} at a limit: {limited}" if limited else "")
    )
    return first, count, failed, limited
