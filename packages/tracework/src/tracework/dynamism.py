"""The file that keeps which sizes and numbers were seen to change: read at the first compile() of a run, written at its end."""

from __future__ import annotations

import atexit
import logging
import os
from pathlib import Path
from urllib.parse import quote

import tracework_capture as capture

log = logging.getLogger("tracework.capture.recompiles")
_kept: set[str] = set()


def file_of(cache_dir: str, job_id: str) -> str:
    """The file of a job, which is the same program from run to run."""
    return str(Path(cache_dir) / "dynamism" / f"{quote(job_id, safe='')}.json")


def keep(path: str) -> None:
    """Reads the file, if it is there, and writes it when Python ends; once per path."""
    if path in _kept:
        return
    _kept.add(path)
    try:
        capture.load_dynamism(Path(path).read_text())
    except FileNotFoundError:
        pass
    except (OSError, ValueError, capture.CaptureError) as error:
        log.warning("%s cannot be read and is made anew: %s", path, error)
    atexit.register(save, path)


def save(path: str) -> None:
    """Writes what is known now; the file changes as a whole. Where it cannot be written, a warning in the log says so."""
    part = Path(f"{path}.{os.getpid()}")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(capture.dump_dynamism())
        part.replace(path)
    except OSError as error:
        log.warning("%s cannot be written, the next run will learn anew which sizes change: %s", path, error)
