"""What the standard library reads of the outer world is read in each call: twice under capture with another world each time."""

import contextvars
import datetime
import decimal
import gc
import importlib
import io
import linecache
import locale
import logging
import os
import queue
import re
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import warnings
import weakref

import numpy
import pytest
import torch
import tracework_capture as capture

X = torch.ones(2)
EPOCH = 1_700_000_000
MOMENT = datetime.datetime(2020, 5, 17, 12, 30, 15)
EACH_CALL = """
time.time_ns() | time.monotonic_ns() | time.perf_counter_ns() | time.process_time_ns() | time.thread_time_ns()
time.clock_gettime_ns(time.CLOCK_REALTIME) | operator.call(time.time_ns) | getattr(time, "time_ns")() | next(iter(time.time_ns, 0))
functools.partial(time.time_ns)() | functools.reduce(lambda a, b: b(), [0, time.time_ns])
property(lambda number: time.time_ns()).__get__(3) | staticmethod(time.time_ns).__call__()
datetime.datetime.now() | datetime.datetime.utcnow() | datetime.datetime.today() | datetime.datetime.now(datetime.timezone.utc)
getattr(datetime.datetime, "now")() | Day.now() | random.random() | random.SystemRandom().random() | random.Random().random()
random.getrandbits(60) | secrets.token_hex() | os.urandom(8) | os.getrandom(8) | uuid.uuid1() | uuid.uuid4()
numpy.random.rand() | numpy.random.default_rng().random() | torch.Generator().seed()
"""
"""Expressions that give something else whenever they are asked."""
OF_THE_WORLD = """
datetime.date.today() | datetime.datetime.fromtimestamp(EPOCH) | datetime.date.fromtimestamp(EPOCH) | MOMENT.timestamp()
MOMENT.astimezone().isoformat() | datetime.datetime(2020, 1, 2).timestamp() | time.localtime(EPOCH) | time.ctime(EPOCH)
time.mktime((2020, 1, 1, 1, 1, 1, 0, 1, 0)) | time.strftime("%Z") | time.tzname | time.timezone
os.environ["WORLD"] | os.environ.get("WORLD") | os.getenv("WORLD") | os.environb[b"WORLD"] | dict(os.environ)["WORLD"]
os.path.expandvars("$WORLD") | os.getcwd() | os.path.abspath("a") | os.path.realpath("a") | pathlib.Path.cwd()
pathlib.Path("a").absolute() | pathlib.Path("file").stat().st_size | pathlib.Path("file").read_text() | os.listdir()
pathlib.Path("only_1").exists() | sorted(path.name for path in pathlib.Path().iterdir()) | os.stat("file").st_size | os.lstat("file").st_mtime
os.path.exists("only_1") | os.path.getsize("file") | os.path.getmtime("file") | [entry.name for entry in os.scandir()]
[names for _, _, names in os.walk(".")] | glob.glob("*") | open("file").read() | io.FileIO("file").readall() | linecache.getline("file", 1)
os.read(os.open("file", os.O_RDONLY), 10) | shutil.which("program") | tempfile.gettempdir()
subprocess.check_output(["/bin/sh", "-c", "echo $WORLD"]) | os.popen("echo $WORLD").read() | socket.getdefaulttimeout() | SOCKET.gettimeout()
sys.getswitchinterval() | sys.getrecursionlimit() | sys.get_int_max_str_digits() | sys.argv[0] | sys.path[-1] | gc.isenabled()
gc.get_threshold() | threading.get_ident() | threading.current_thread().name | threading.current_thread().ident | threading.active_count()
EVENT.is_set() | QUEUE.qsize() | VARIABLE.get() | STREAM.getvalue() | STREAM.tell() | signal.getsignal(signal.SIGUSR1)
resource.getrlimit(resource.RLIMIT_NOFILE) | warnings.filters[0][0] | logging.getLogger().level | logging.getLogger("a").getEffectiveLevel()
weakref.getweakrefcount(TARGET) | decimal.getcontext().prec | decimal.Decimal(1) / decimal.Decimal(3) | numpy.get_printoptions()["precision"]
os.getpid() | os.getppid() | os.cpu_count() | os.uname() | os.getuid() | os.sched_getaffinity(0) | socket.gethostname() | platform.node()
getpass.getuser() | multiprocessing.current_process().name | locale.getlocale() | asyncio._get_running_loop() | os.path.expanduser("~")
"""
"""Expressions that give the same in the same world."""
PURE = """
datetime.datetime.fromisoformat("2020-01-02") | datetime.date.fromordinal(5)
int.from_bytes(b"ab", "big") | float.fromhex("0x1p3") | bytes.fromhex("ff") | operator.add(1, 2) | math.sqrt(4)
"""


class Day(datetime.datetime):
    pass


class Target:
    pass


TARGET, REFERENCES = Target(), []
EVENT, QUEUE, STREAM = threading.Event(), queue.Queue(), io.StringIO()
SOCKET = socket.socket()
weakref.finalize(TARGET, SOCKET.close)
VARIABLE = contextvars.ContextVar("variable", default=0)


def expressions(text):
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


READ = "asyncio datetime functools getpass glob io locale math multiprocessing operator os pathlib platform random secrets shutil socket"
READ += " subprocess threading uuid"


def function_of(expression):
    namespace = {name: importlib.import_module(name) for name in READ.split()} | globals()
    exec(f"def fn(x):\n    x = x + 1\n    return x * 2, {expression}", namespace)
    return namespace["fn"]


@pytest.fixture
def turn(tmp_path, monkeypatch):
    """A function that makes the world another one."""
    kept = (sys.getswitchinterval(), sys.getrecursionlimit(), gc.isenabled(), gc.get_threshold(), logging.getLogger().level)
    limit, mask, place, name = (
        resource.getrlimit(resource.RLIMIT_NOFILE),
        os.umask(0o022),
        os.getcwd(),
        threading.current_thread().name,
    )
    digits, precision, shown = sys.get_int_max_str_digits(), decimal.getcontext().prec, numpy.get_printoptions()["precision"]
    before, timeout = signal.getsignal(signal.SIGUSR1), socket.getdefaulttimeout()
    monkeypatch.setattr(sys, "argv", [""])
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    monkeypatch.setattr(tempfile, "tempdir", None)

    def change(number):
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        for file in ("file", f"only_{number}", "program"):
            (folder / file).write_text("x" * (number + 1))
            (folder / file).chmod(0o755)
            os.utime(folder / file, (number, number))
        for variable, value in (("WORLD", str(number)), ("TZ", f"AAA{number:+}"), ("PATH", str(folder)), ("HOME", str(folder))):
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("LOGNAME", f"user{number}")
        time.tzset()
        tempfile.tempdir = str(folder)
        linecache.clearcache()
        os.umask(number)
        sys.setswitchinterval(0.005 + number / 1000)
        sys.setrecursionlimit(1500 + number)
        sys.set_int_max_str_digits(5000 + number)
        sys.argv[0], sys.path[-1] = f"program{number}", str(number)
        (gc.enable if number % 2 else gc.disable)()
        gc.set_threshold(700 + number)
        signal.signal(signal.SIGUSR1, (signal.SIG_DFL, signal.SIG_IGN)[number % 2])
        warnings.simplefilter(("ignore", "always")[number % 2])
        logging.getLogger().setLevel(10 + number)
        socket.setdefaulttimeout(number + 1)
        SOCKET.settimeout(number + 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[0] - number, limit[1]))
        decimal.getcontext().prec = 5 + number
        numpy.set_printoptions(precision=3 + number)
        threading.current_thread().name = f"thread{number}"
        (EVENT.set if number % 2 else EVENT.clear)()
        QUEUE.put(number)
        VARIABLE.set(number)
        STREAM.write("text")
        REFERENCES.append(weakref.ref(TARGET, lambda gone: None))

    with warnings.catch_warnings():
        yield change
    os.chdir(place)
    os.umask(mask)
    sys.setswitchinterval(kept[0])
    sys.setrecursionlimit(kept[1])
    (gc.enable if kept[2] else gc.disable)()
    gc.set_threshold(*kept[3])
    logging.getLogger().setLevel(kept[4])
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    sys.set_int_max_str_digits(digits)
    decimal.getcontext().prec = precision
    numpy.set_printoptions(precision=shown)
    signal.signal(signal.SIGUSR1, before)
    socket.setdefaulttimeout(timeout)
    threading.current_thread().name = name
    monkeypatch.undo()
    time.tzset()


def compiled(function, **options):
    return capture.optimize(lambda gm, inputs: gm.forward, **options)(function)


@pytest.mark.parametrize("expression", expressions(EACH_CALL))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_call_asks_anew(fresh, expression):
    function = compiled(function_of(expression))
    assert len({repr(function(X)[1]) for _ in range(3)}) == 3


@pytest.mark.parametrize("expression", expressions(OF_THE_WORLD))
@pytest.mark.filterwarnings("ignore")
def test_each_world_is_seen(fresh, turn, expression):
    plain = function_of(expression)
    function = compiled(plain)
    for number in (1, 2, 3):
        turn(number)
        given = function(X)
        expected = plain(X)
        assert isinstance(given[0], torch.Tensor) and repr(given[1]) == repr(expected[1])


@pytest.mark.parametrize("expression", expressions(PURE))
def test_what_depends_on_its_arguments_alone_is_known(fresh, expression):
    plain = function_of(expression)
    assert compiled(plain, fullgraph=True)(X)[1] == plain(X)[1]


def test_every_method_of_a_class_of_c_that_is_called_while_tracing_is_listed():
    """Those of the classes of datetime that look at clocks and zones are not."""
    from tracework_capture.values.protocol.pure import is_pure

    classes = (int, float, bytes, str, complex, dict, datetime.date, datetime.time, datetime.datetime, datetime.timedelta)
    found = {f"{cls.__name__}.{name}" for cls in classes for name in vars(cls) if is_pure(getattr(cls, name))}
    assert not found & {f"{c}.{n}" for c in ("date", "datetime") for n in ("today", "now", "utcnow", "fromtimestamp", "strptime")}
    assert {"int.from_bytes", "datetime.combine", "date.fromisoformat"} <= found
    assert not any(is_pure(f) for f in vars(time).values() if isinstance(f, types.BuiltinFunctionType))


LETTERS = re.compile(rb"\w+", re.LOCALE)
TEMPLATE = "{:n}"
UNDER_A_LOCALE = {
    "specification": (lambda x: (x + 1, f"{1234567:n}"), 2),
    "format": (lambda x: (x + 1, format(2.5, ".3n")), 2),
    "template": (lambda x: (x + 1, TEMPLATE.format(1234567)), 2),
    "nested template": (lambda x: (x + 1, "{:{}}".format(1234567, "n")), 2),
    "method": (lambda x: (x + 1, (1234567).__format__("n")), 2),
    "pattern": (lambda x: (x + 1, LETTERS.findall(b"a\xe9")), 2),
    "other specification": (lambda x: (x + 1, f"{1234567:,d}", format(2.5, ".3g"), "{:d} {}".format(3, "n")), 1),
    "other pattern": (lambda x: (x + 1, re.findall(rb"\w+", b"a\xe9")), 1),
}


@pytest.mark.parametrize("name", UNDER_A_LOCALE)
def test_what_depends_on_the_locale_is_computed_in_each(fresh, name):
    function, count = UNDER_A_LOCALE[name]
    graphs, before = [], locale.setlocale(locale.LC_ALL)
    compiled = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(function)
    try:
        for _ in range(2):
            for other in ("C", "C.UTF-8"):
                locale.setlocale(locale.LC_ALL, other)
                assert compiled(X)[1:] == function(X)[1:]
    finally:
        locale.setlocale(locale.LC_ALL, before)
    assert len(graphs) == count
