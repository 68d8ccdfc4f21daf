"""CPython's own tests with every frame of them going through capture: the same tests pass as without it.

    python tools/cpython_tests.py [--sample] [--natural] [--write] [--verbose] [MODULE ...]

Each module runs twice in a process of its own: plainly, and with a frame callback to which all code but the machinery of the tests
is offered. By default every frame that can be captured is replaced, also where there is no tensor operation (a program would run
plainly there); --natural leaves such frames alone. The exit status is 1 when a test is lost that KNOWN has no reason for, or a
module crashes, or when less than half of the frames are captured that the table has. The results of all modules are committed, one
table for each version of Python: --write renews the rows of what ran.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILD = HERE / "cpython_tests_child.py"
SAMPLE = ("unpack", "scope", "genexps", "dictcomps", "named_expressions", "positional_only_arg")
MODULES = (
    "grammar dict list set tuple generators genexps listcomps setcomps dictcomps exceptions contextlib functools itertools collections "
    "dataclasses enum descr class with patma scope super unpack unpack_ex string format fstring float int complex math iter sort copy "
    "typing inspect bool slice range enumerate operator augassign binop compare decorators extcall funcattrs keywordonlyarg "
    "positional_only_arg named_expressions opcodes property raise richcmp userdict userlist userstring weakref yield_from contains deque "
    "defaultdict ordered_dict metaclass subclassinit abc bisect heapq textwrap types global exception_variations baseexception "
    "exception_hierarchy exception_group pow bytes unicode str call builtin print index long hash json re random statistics "
    "fractions decimal datetime argparse code string_literals int_literal pprint reprlib keyword numeric_tower "
    "weakset dynamicclassattribute genericclass genericalias type_comments type_aliases type_params typechecks except_star "
    "coroutines asyncgen contextlib_async array struct cmath copyreg shelve graphlib colorsys dis syntax eof csv ipaddress configparser "
    "pickle ast tokenize logging threading queue sched html htmlparser difflib doctest traceback warnings symtable memoryview "
    "buffer dictviews isinstance shlex sys_settrace asyncio.test_locks "
    "gc zipfile unittest base64 binascii bz2 calendar cgi codecs codeop cmd compile crypt fileinput filecmp fnmatch ftplib getopt "
    "getpass glob gettext gzip hashlib hmac imghdr importlib io linecache lzma mailbox mimetypes minidom netrc ntpath optparse pathlib "
    "pickletools pkgutil platform plistlib posixpath pstats pyclbr quopri rlcompleter secrets selectors shutil site sqlite3 stat stringprep "
    "subprocess tempfile timeit tomllib trace unparse urllib urlparse uu uuid wave wsgiref xml_etree zipapp zoneinfo "
    "smtplib imaplib poplib ssl profile cprofile "
    "frame peepholer iterlen context module file fileio bufio generator_stop atexit sys_setprofile bdb threading_local thread time "
    "finalization codeccallbacks type_annotations unary univnewlines memoryio marshal asyncio.test_futures asyncio.test_queues "
    "asyncio.test_taskgroups asyncio.test_timeouts"
).split()
_HELD = "what compiled code refers to or looks things up in (a function, a class, a module) lives as long as that code"
_SPECIALISED = (
    "shows what the interpreter made of a function's own instructions when it ran them, and its replacement ran instead"
)
_LIFETIME = (
    "notices in C when a function dies: what a traced stretch deletes, and Python cannot see die, is let go at the stretch's end"
)
_TIME = "measures how long a first call takes, in which the frames it runs are captured"
_ASKED = "what is asked while tracing has no callers beyond the captured frame, so a warning that counts further up names another place"
_COUNTED = (
    "counts what a collection finds, or relies on when there is one, and with it on what capture made and left while it traced"
)
_EVALUATOR = (
    "while a frame evaluator is set, whichever, the interpreter calls what it awaits, and tells tracers of the StopIteration"
)
_REFERENT = "a collection in another thread, between the guard that asks a weak reference and the code that asks it again, shows"
_TRACED = (
    "TraceTestCase",
    "SkipLineEventsTraceTestCase",
    "TraceOpcodesTestCase",
    "TestLinesAfterTraceStarted",
    "TestSetLocalTrace",
)
KNOWN: dict[str, str] = {
    **{
        f"test.test_traceback.TestTracebackException.{test}": "asks a traceback for the locals of a frame that was traced into"
        for test in ("test_print", "test_comparison_params_variations")
    },
    **{
        f"test.test_frame.ClearTest.{test}": "asks for what the locals of a frame that was traced into hold, by a traceback"
        for test in ("test_clear_locals", "test_clear_refcycles")
    },
    "test.test_logging.LoggerTest.test_caching": "asks a logger for the answers it remembers, which tracing works out without that",
    **{f"test.test_sys_settrace.{kind}.test_20_async_for_loop": _EVALUATOR for kind in _TRACED},
    **{
        f"test.test_gc.{test}": _COUNTED
        for test in (
            "GCCallbackTests.test_collect_garbage",
            *(f"GCTogglingTests.test_bug1055820{letter}" for letter in "cd"),
            *(
                f"GCTests.test_{what}"
                for what in ("boom2", "boom2_new", "frame", "resurrection_does_not_block_cleanup_of_other_objects")
            ),
        )
    },
    "test.test_xml_etree.ElementTreeTest.test_iterparse": "a file and the generator that closes it are garbage, and which of them the "
    "collector ends first, and with it the warning, depends on the collections before: plain Python warns at times, too",
    **{
        f"test.test_memoryview.{kind}.test_getbuffer": "counts the references to a constant, which compiled code has, too"
        for kind in ("BytesMemoryviewTest", "BytesMemorySliceTest", "BytesMemorySliceSliceTest")
    },
    "test.test_memoryio.CBytesIOTest.test_sizeof": "asks for the size of a buffer, which a constant shares with it as long as something else "
    "refers to that, and compiled code does",
    "test.test_int.IntSubclassStrDigitLimitsTests.test_denial_of_service_prevented_str_to_int": _TIME,
    "test.test_int.IntSubclassStrDigitLimitsTests.test_denial_of_service_prevented_int_to_str": _TIME,
    "test.test_re.ReTests.test_search_anchor_at_beginning": _TIME,
    "test.test_re.ReTests.test_symbolic_refs_errors": _ASKED,
    **{f"test.test_code.{test}": _LIFETIME for test in ("CoExtra.test_free_called", "CoExtra.test_free_different_thread")},
    "test.test_functools.TestLRUPy.test_lru_cache_weakrefable": _HELD,
    "test.test_tomllib.test_misc.TestMiscellaneous.test_inline_table_recursion_limit": "nests its calls to within three of the recursion "
    "limit, and captured frames take a few more",
    "test.test_weakref.MappingTestCase.test_threaded_weak_valued_pop": _REFERENT,
    "test.test_weakref.MappingTestCase.test_threaded_weak_valued_setdefault": _REFERENT,
    **{
        f"test.test_dis.{kind}.{test}": _SPECIALISED
        for kind in ("DisTests", "DisWithFileTests")
        for test in ("test_loop_quicken", "test_show_caches", "test_super_instructions")
    },
    "test.test_descr.ClassPropertiesAndMethods.test_slots": "counts all objects of the process before and after a loop, and with them what "
    "capture keeps of that loop",
}


LIMIT = 2400
"""Seconds of processor time for one run of a module; other work on the machine does not count."""


def run_module(name: str, mode: str) -> dict[str, object]:
    """Results of one module in a fresh process and folder; {"crash": text} when it did not come to its end."""
    command = [sys.executable, "-X", "faulthandler", str(CHILD), f"test_{name}", mode]
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    how: dict[str, object] = {
        "capture_output": True,
        "text": True,
        "timeout": 4 * LIMIT,
        "env": env,
        "preexec_fn": _limit_processor_time,
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(command, cwd=folder, check=False, **how)
        except subprocess.TimeoutExpired:
            return {"crash": f"no end after {4 * LIMIT} s"}
    if done.returncode == -signal.SIGXCPU:
        return {"crash": f"no end after {LIMIT} s of processor time"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return {**json.loads(line[6:]), "stderr": done.stderr[-2000:], "exit": done.returncode}
    return {"crash": f"exit {done.returncode}: {done.stderr[-1500:]}"}


def _limit_processor_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))


def compare(name: str, mode: str, verbose: bool) -> tuple[bool, str]:
    """(same, row of the table)."""
    plain, captured = run_module(name, "plain"), run_module(name, mode)
    for kind, result in (("plainly", plain), ("captured", captured)):
        if "crash" in result:
            return kind == "plainly", f"{name:24} does not end {kind}: {' '.join(str(result['crash'])[-300:].split())}"
    lost = sorted((Counter(plain["ok"]) - Counter(captured["ok"])).elements())  # test_abc runs its tests twice
    unknown = [test for test in lost if test not in KNOWN]
    if verbose:
        for test in lost:
            print(f"--- {test}\n{captured['texts'].get(test, '')}")
        print(captured["stderr"])
    counts = captured["counts"]
    row = (
        f"{name:24} {len(plain['ok']):5} {len(captured['ok']):5} {len(lost) - len(unknown):5} {counts.get('frames', 0):7} "
        f"{counts.get('entries', 0):7} {counts.get('failed', 0):5}"
    )
    if captured["exit"] != plain["exit"]:
        row += f"  ENDS WITH {captured['exit']}"
    return not unknown, row + (f"  LOST {' '.join(unknown)}" if unknown else "")


HEADER = (
    "# CPython {}: tests of a module that pass plainly, and with every frame captured; those lost for a known reason (KNOWN in\n"
    "# cpython_tests.py); frames offered, captured, and failures of capture itself (the frame then runs plainly).\n"
    "# module                 plain capt. known  frames captured failed\n"
)


TABLE = HERE / "cpython_tests_{}.{}.txt".format(*sys.version_info)


def committed() -> dict[str, str]:
    """The rows of the committed table of this Python."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    return {line.split()[0]: line for line in lines if not line.startswith("#")}


def captured_frames(row: str) -> int:
    """The frames that a row says were captured; 0 where the module did not end."""
    number = row.split()[5:6]
    return int(number[0]) if number and number[0].isdigit() else 0


def write(rows: dict[str, str]) -> None:
    """Renew the rows of the committed table."""
    known = {**committed(), **rows}
    lines = [known[name] for name in MODULES if name in known]
    TABLE.write_text(HEADER.format(sys.version.split()[0]) + "\n".join(lines) + "\n")


def main() -> int:
    """Run, print, perhaps write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--natural", action="store_true", help="leave frames without tensor operations alone")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    names = given.modules or (SAMPLE if given.sample else MODULES)
    rows, all_same, before = {}, True, committed()
    for name in names:
        if importlib.util.find_spec(f"test.test_{name}") is None:
            print(f"{name:24} is not among the tests of this Python")
            continue
        same, rows[name] = compare(name, "natural" if given.natural else "forced", given.verbose)
        all_same &= same
        print(rows[name], flush=True)
        if not given.natural and captured_frames(rows[name]) < captured_frames(before.get(name, "")) / 2:
            print(f"{name:24} captured less than half the frames of the committed table: what passed shows little")
            all_same = False
        if given.write:
            write(rows)
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())
