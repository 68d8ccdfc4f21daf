"""The pool of processes that compile Triton kernels, with processes that compile nothing."""

import subprocess
import threading

import pytest
from tracework_runtime import BuildError
from tracework_runtime.build import pool


class Asked:
    """A process that answers, or fails as `failures` say."""

    failures: list[BaseException] = []

    def __init__(self):
        self.process = subprocess.Popen(["sleep", "60"])

    def ask(self, request):
        if self.failures:
            error = self.failures.pop()
            if isinstance(error, EOFError):
                self.process.terminate()
            raise error
        return {"ok": True}, b""

    def close(self):
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def of_two(monkeypatch):
    monkeypatch.setattr(pool, "_Worker", Asked)
    made = pool.TritonPool(2)
    yield made
    made.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, EOFError])
def test_processes_that_failed_are_begun_anew(of_two, error):
    """Else nobody would ever be free once each has failed."""
    for _ in range(2):
        Asked.failures = [error()]
        with pytest.raises(BuildError if error is EOFError else error):
            of_two.build([{"entry": "k"}])
    found = []
    last = threading.Thread(target=lambda: found.extend(of_two.build([{"entry": "k"}] * 3)), daemon=True)
    last.start()
    last.join(60)
    assert found == [({"ok": True}, b"")] * 3 and len(of_two._all) == len(of_two._idle) <= 2
