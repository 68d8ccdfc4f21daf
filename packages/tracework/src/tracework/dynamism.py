"""What keeps which sizes and numbers were seen to change, a file or the cache: read at the first compile() of a run, written at its end."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import tracework_capture as capture

from .options import Options

log = logging.getLogger("tracework.capture.recompiles")
KIND, SUFFIX = "dynamism", ".json"
"""Of the cache's entries, whose keys are hashes of job ids."""
_kept: dict[str, Callable[[], None]] = {}
"""File or job -> what writes it now."""


def keep(path: str) -> None:
    """Reads the file, if it is there, and writes it when Python ends; once per path."""
    if path in _kept:
        return
    _kept[path] = lambda: save(path)
    try:
        _learn(Path(path).read_text(), path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        _say(path, error)
    atexit.register(save, path)


def keep_job(job_id: str, options: Options) -> None:
    """The same in the cache, under the id of a job, which is the same program from run to run, or any name that programs share."""
    place = f"job {job_id}"
    if place in _kept:
        return
    import tracework_runtime as runtime  # only where somebody asks for it: it takes a while

    from .entry_store import runtime_options

    store, key = runtime.open_cache(runtime_options(options)).store, hashlib.sha256(job_id.encode()).hexdigest()

    def learn() -> None:
        content = store.get(KIND, key, SUFFIX)
        if content is not None:
            _learn(content.decode(errors="replace"), place)

    def put() -> None:
        learn()  # what others have seen meanwhile
        store.put(KIND, key, capture.dump_dynamism().encode(), SUFFIX)

    _kept[place] = put
    learn()
    atexit.register(put)


def put_jobs() -> None:
    """Puts what is known now into the cache, for the jobs of this process."""
    for place, put in _kept.items():
        if place.startswith("job "):
            put()


def _learn(text: str, place: str) -> None:
    try:
        capture.load_dynamism(text)
    except capture.CaptureError as error:
        _say(place, error)


def _say(place: str, error: Exception) -> None:
    log.warning("%s cannot be read and is made anew: %s", place, error)


def save(path: str) -> None:
    """Writes what is known now; the file changes as a whole. Where it cannot be written, a warning in the log says so."""
    part = Path(f"{path}.{os.getpid()}")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(capture.dump_dynamism())
        part.replace(path)
    except OSError as error:
        log.warning("%s cannot be written, the next run will learn anew which sizes change: %s", path, error)
