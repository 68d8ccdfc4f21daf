"""Builds in parallel: threads that wait for compiler processes, and warm Triton processes.

Nothing here forks the user's process: C++ compilers are started directly, Triton compiles in fresh interpreters
(`triton_worker.py`) that talk JSON and raw bytes over pipes, start at first need and stay for the next kernels.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

from tracework_runtime.errors import BuildError

__all__ = ["TritonPool", "run_threads", "triton_pool"]

T = TypeVar("T")
_LENGTH = struct.Struct("<Q")
_MOST_WORKERS = 16


def run_threads(steps: Sequence[Callable[[], T]], jobs: int | None = None) -> list[T]:
    """Run steps that wait for child processes, `jobs` at a time; results in order; the first error is raised."""
    limit = min(len(steps), jobs or cores())
    if limit <= 1:
        return [step() for step in steps]
    with ThreadPoolExecutor(limit) as executor:
        return [future.result() for future in [executor.submit(step) for step in steps]]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


class _Worker:
    """One child process and its pipes."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("triton_worker.py")
        command = [sys.executable, "-u", str(script), json.dumps(sys.path)]
        # Its complaints come back in answers; what the compiler prints goes to our stderr.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for its answer. Raises EOFError where the process is gone."""
        text = json.dumps(request).encode()
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(_LENGTH.pack(len(text)) + text)
            self.process.stdin.flush()
        except BrokenPipeError as gone:
            raise EOFError from gone
        header = json.loads(_read(self.process.stdout))
        return header, _read(self.process.stdout)

    def close(self) -> None:
        """End the process by closing its input."""
        if self.process.stdin is not None:
            self.process.stdin.close()


def _read(stream: IO[bytes]) -> bytes:
    def exactly(n: int) -> bytes:
        data = stream.read(n)
        if len(data) < n:
            raise EOFError
        return data

    return exactly(_LENGTH.unpack(exactly(_LENGTH.size))[0])


class TritonPool:
    """Triton processes, started when there is work and kept warm."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or min(cores(), _MOST_WORKERS)
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._free = threading.Condition()

    def warm(self, count: int) -> None:
        """Start processes that import Triton while something else goes on."""
        with self._free:
            while len(self._all) < min(count, self.limit):
                self._idle.append(self._start())

    def build(self, requests: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], bytes]]:
        """Answers to requests, in order. Raises BuildError where a process dies."""
        self.warm(len(requests))
        return run_threads([functools.partial(self._one, r) for r in requests], self.limit)

    def close(self) -> None:
        """End all processes."""
        with self._free:
            for worker in self._all:
                worker.close()
            self._all.clear()
            self._idle.clear()

    def _one(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        worker = self._take()
        try:
            answer = worker.ask(request)
        except EOFError as gone:
            status = self._let_go(worker)
            raise BuildError(
                f"the process compiling Triton kernel {request['entry']!r} ended with status {status}",
                advice="import triton in a shell to see whether it works",
            ) from gone
        except BaseException:  # an interrupt: the answer would be taken for that to the next request
            worker.process.kill()
            self._let_go(worker)
            raise
        with self._free:
            self._idle.append(worker)
            self._free.notify()
        return answer

    def _let_go(self, worker: _Worker) -> int:
        """Others may begin a process in its place; gives the status that it ends with."""
        with self._free:
            self._all.remove(worker)
            self._free.notify()
        return worker.process.wait()

    def _take(self) -> _Worker:
        with self._free:
            while not self._idle and len(self._all) >= self.limit:
                self._free.wait()
            return self._idle.pop() if self._idle else self._start()

    def _start(self) -> _Worker:
        worker = _Worker()
        self._all.append(worker)
        return worker


_POOL: TritonPool | None = None
_LOCK = threading.RLock()


def triton_pool(limit: int | None = None) -> TritonPool:
    """The process's pool; made at first need, ended with the process."""
    global _POOL
    with _LOCK:
        if _POOL is None:
            _POOL = TritonPool(limit)
            atexit.register(_POOL.close)
        return _POOL
