"""The sessions of the project: one short function for each, parametrised over PACKAGES."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.tags = ["ci"]

PYTHON = "3.11"
CONSTRAINTS = ("-c", "constraints.txt")
TEST_TOOLS = ("pytest", "pytest-xdist", "hypothesis", "expecttest")
MODEL_TOOLS = ("transformers", "numpy", "pillow")
ENGINES = ("onnx", "onnxruntime")
DOCUMENT_TOOLS = ("sphinx", "furo", "myst-parser", "sybil")
RELEASE_TOOLS = ("build", "cibuildwheel", "hatchling", "packaging", "towncrier")
PYTEST = ("timeout", "--signal=INT", "--kill-after=60", "1800", "python", "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal")
"""On two cores, and for half an hour at most: a test that hangs is ended by faulthandler_timeout of pytest.ini, this ends xdist."""


@dataclass(frozen=True)
class Package:
    """One distribution: its name, the siblings that it needs, lowest first, and what its tests need beside."""

    name: str
    needs: tuple[str, ...] = ()
    test_tools: tuple[str, ...] = ()

    @property
    def folders(self) -> list[str]:
        return [f"./packages/{n}" for n in (*self.needs, self.name)]


PACKAGES = (
    Package("primops"),
    Package("runtime", test_tools=("triton", "redis")),
    Package("capture", ("primops",), test_tools=MODEL_TOOLS),
    Package("aotautograd", ("primops",)),
    Package("inductor", ("primops", "runtime"), test_tools=("triton",)),
    Package("tracework", ("primops", "runtime", "capture", "aotautograd", "inductor"), test_tools=MODEL_TOOLS + ENGINES),
)


@dataclass(frozen=True)
class Pair:
    """A CPython, a torch that is supported on it, and the triton that this torch asks for; whether CI runs it beside CONSTRAINTS' pair."""

    python: str
    torch: str
    triton: str
    in_ci: bool = False

    @property
    def versions(self) -> list[str]:
        """What constraints.txt says, but for these and what goes with one torch alone."""
        own = ("torch", "triton", "torchvision")
        others = [line for line in Path("constraints.txt").read_text().splitlines() if line.partition("==")[0] not in own]
        return [*others, f"torch=={self.torch}", f"triton=={self.triton}"]


PAIRS = (
    Pair("3.12", "2.11.0", "3.6.0", in_ci=True),
    Pair("3.11", "2.13.0", "3.7.1"),
    Pair("3.11", "2.14.1", "3.8.0"),
    Pair("3.13", "2.15.0", "3.9.0", in_ci=True),
)
each_pair = nox.parametrize(
    "python,pair", [nox.param(p.python, p, id=f"{p.python}-torch-{p.torch}", tags=["ci"] * p.in_ci) for p in PAIRS]
)
CORE = (
    *("packages/tracework/tests", "packages/runtime/tests", "packages/capture/tests"),
    *("packages/aotautograd/tests/unit", "packages/primops/tests/unit"),
    *("packages/inductor/tests/unit/lowering", "packages/inductor/tests/cpu/test_triton_compiles.py"),
    *(
        f"integration_tests/test_{name}.py"
        for name in "caches checkpoint entry_point own_backends private_names torch_state training_step uncompiled".split()
    ),
)
"""What the matrix runs: what may differ from one torch to another, in some eight minutes. Generated text does not, nor do commands and logs."""
IN_PARTS = (
    *(
        f"packages/capture/tests/unit/{name}"
        for name in ("controls", "guards", "safety", "values", "language/test_watched_objects.py")
    ),
    *("packages/tracework/tests", "packages/aotautograd/tests", "packages/inductor/tests", "packages/runtime/tests/cpu"),
    *(
        f"integration_tests/test_{name}.py"
        for name in "caches checkpoint entry_point own_backends training_step uncompiled".split()
    ),
)
"""Of CORE, where each pair in CI runs its part of the rows of tables, and all pairs together all of them. Whole stay bytecode, exceptions and
lifetimes, which may differ by CPython, and fakes, operators and private names, which may differ by torch."""
NOT_CORE = [f"--ignore=packages/tracework/tests/unit/{name}" for name in ("test_run.py", "test_logs.py", "faults")]
each_package = nox.parametrize("package", [nox.param(p, id=p.name) for p in PACKAGES])


def install(session: nox.Session, folders: list[str], *tools: str) -> None:
    """torch first, so that nothing pulls another build of it; then the packages and the tools."""
    share_torch(session)
    session.install(*CONSTRAINTS, *folders, *tools)


SITE_PACKAGES = Path("lib", f"python{PYTHON}", "site-packages")


def installed_once(session: nox.Session, name: str, *requirements: str) -> Path:
    """The site-packages of an environment that has these requirements; made anew where constraints.txt has changed."""
    folder = Path(".nox", f"{name}-{PYTHON}").absolute()
    done = folder / "done"
    if not done.exists() or done.read_text() != Path("constraints.txt").read_text():
        session.run("python", "-m", "venv", "--clear", str(folder), silent=True)
        python = str(folder / "bin" / "python")
        session.run(python, "-m", "pip", "install", "-q", *CONSTRAINTS, *requirements, external=True)
        done.write_text(Path("constraints.txt").read_text())
    return folder / SITE_PACKAGES


def share_torch(session: nox.Session) -> None:
    """torch and the test tools are installed once, in a folder that each environment sees; the packages never are in it."""
    shared = installed_once(session, "shared", "torch", "numpy", *TEST_TOOLS)
    (Path(session.virtualenv.location) / SITE_PACKAGES / "shared.pth").write_text(f"{shared}\n")


def run_tests(session: nox.Session, *folders: str) -> None:
    """pytest on two cores; exit 5 (no test found) is a failure here too."""
    session.run(*PYTEST, "--durations=5", *folders, *session.posargs, external=True)


@nox.session(python=PYTHON, tags=["ci"])
@each_package
def tests(session: nox.Session, package: Package) -> None:
    """Tests of one package in an environment that holds only it and what it declares."""
    install(session, package.folders, *package.test_tools)
    run_tests(session, f"packages/{package.name}/tests")


@nox.session(python=PYTHON, tags=["ci"])
def integration(session: nox.Session) -> None:
    """All packages together on small real models."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision", "timm")
    run_tests(session, "integration_tests")


@nox.session(python=PYTHON, tags=["ci"])
def native(session: nox.Session) -> None:
    """The C interface, which is built and compared with Python's load."""
    install(session, PACKAGES[-1].folders, "cmake")
    run_tests(session, "native/tests")


@nox.session(python=PYTHON, tags=["ci"])
def docs(session: nox.Session) -> None:
    """The documentation, in docs/_build, with warnings as errors; and every block of Python on its pages and in the READMEs."""
    install(session, PACKAGES[-1].folders, *DOCUMENT_TOOLS)
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", "docs/_build")
    run_tests(session, "docs/tests")


BUILT: dict[str, list[str]] = {}
"""CPython -> the wheels that this run of nox built for it."""


def wheels(session: nox.Session, python: str) -> list[str]:
    """The wheels of all packages for a CPython, built once: they serve every torch."""
    if python not in BUILT:
        folder = Path("dist", f"python{python}")
        shutil.rmtree(folder, ignore_errors=True)
        session.install("hatchling")
        build = ("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder))
        session.run("python", "-m", *build, *PACKAGES[-1].folders)
        BUILT[python] = sorted(map(str, folder.glob("*.whl")))
    return BUILT[python]


@nox.session(reuse_venv=False)
@each_pair
def matrix(session: nox.Session, pair: Pair) -> None:
    """CORE on one CPython and torch, from wheels: a part of the rows IN_PARTS, or all with --write, which makes a row of SUPPORTED.md. The
    environment, 5 GB, goes at the end."""
    folder = Path(session.virtualenv.location).absolute()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pair.versions))
    session.env["PIP_CONSTRAINT"] = str(constraints)  # in the place of one that the machine may have
    report = folder / "report.xml"
    part = [f"--part={PAIRS.index(pair)}/{len(PAIRS)}", *(f"--below={path}" for path in IN_PARTS)]
    tests = [*NOT_CORE, *CORE, *([] if "--write" in session.posargs else part)]
    try:
        session.install("torch", "triton")
        session.install(*wheels(session, pair.python), *TEST_TOOLS, *MODEL_TOOLS)
        session.run(*PYTEST, "--durations=5", f"--junitxml={report}", *tests, success_codes=[0, 1], external=True)
        session.run("python", "tools/supported.py", str(report), *session.posargs)
    finally:
        shutil.rmtree(session.virtualenv.location)


@nox.session(python=PYTHON)
def zoo(session: nox.Session) -> None:
    """All architectures of integration_tests/zoo against eager; writes its RESULTS.md."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision", "timm")
    session.install(*CONSTRAINTS, "diffusers")
    session.run("python", "-m", "zoo", *session.posargs, env={"PYTHONPATH": os.pathsep.join((".", "integration_tests"))})


@nox.session(python=PYTHON)
def backends(session: nox.Session) -> None:
    """Models and all ONNX rows on ONNX Runtime, OpenVINO and TVM against eager, with speed; --write: packages/tracework/BACKENDS.md."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision", "timm")
    session.install(*CONSTRAINTS, *ENGINES, "openvino", "apache-tvm")
    session.run("python", "integration_tests/backends.py", *session.posargs)


@nox.session(python=PYTHON)
def gradients(session: nox.Session) -> None:
    """The gradients of every entry of op_db against eager's; writes packages/aotautograd/tests/cpu/GRADIENTS.md."""
    install(session, ["./packages/primops", "./packages/aotautograd"])
    session.run("python", "packages/aotautograd/tests/cpu/op_gradients.py", *session.posargs)


@nox.session(python=PYTHON)
def opdb(session: nox.Session) -> None:
    """Every entry of op_db on fakes, with symbolic sizes and on prims against eager; writes packages/primops/tests/cpu/OPDB.md."""
    install(session, ["./packages/primops"])
    session.run("python", "packages/primops/tests/cpu/opdb.py", *session.posargs)


@nox.session(python=PYTHON)
def library_results(session: nox.Session) -> None:
    """What host programs believe of library calls against what torch gives, over op_db; on a GPU with --device cuda."""
    install(session, PACKAGES[4].folders)
    session.run("python", "packages/inductor/tests/library_results.py", *session.posargs)


@nox.session(python=PYTHON)
def containers(session: nox.Session) -> None:
    """Every method of the built-in containers and numbers that a subclass may override, with every operation, against plain Python."""
    install(session, ["./packages/primops", "./packages/capture"], "pytest", "numpy")
    tests = [
        "packages/capture/tests/unit/values/test_own_containers.py",
        "packages/capture/tests/unit/values/test_own_modules.py",
    ]
    session.run("pytest", *tests, *session.posargs, env={"TRACEWORK_WHOLE_TABLE": "1"})


@nox.session(python=PYTHON)
def modules_on_fakes(session: nox.Session) -> None:
    """The metadata of every module of torch's module_db on fakes; writes packages/primops/tests/cpu/MODULES_ON_FAKES.md."""
    install(session, ["./packages/primops"])
    session.run("python", "packages/primops/tests/cpu/modules_on_fakes.py", *session.posargs)


@nox.session(python=PYTHON)
def modules(session: nox.Session) -> None:
    """Every module of torch's module_db, forward and backward, against eager; writes integration_tests/MODULES.md."""
    install(session, PACKAGES[-1].folders)
    session.run("python", "integration_tests/modules.py", *session.posargs)


@nox.session(python=PYTHON)
def operators(session: nox.Session) -> None:
    """Every entry of torch's op_db through the whole line, against eager; writes integration_tests/OPERATORS.md."""
    install(session, PACKAGES[-1].folders)
    session.run("python", "integration_tests/operators.py", *session.posargs)


@nox.session(python=PYTHON)
def numerics(session: nox.Session) -> None:
    """Rounding errors of reductions, norms, losses and scans, next to eager's; writes integration_tests/NUMERICS.md."""
    install(session, PACKAGES[-1].folders)
    session.run("python", "integration_tests/numerics.py", *session.posargs)


@nox.session(python=PYTHON)
def indices(session: nox.Session) -> None:
    """Every operator that takes an index, at indices in range and out of it, against eager; on a GPU with --device cuda."""
    install(session, PACKAGES[-1].folders)
    session.run("python", "integration_tests/indices.py", *session.posargs)


@nox.session(python=PYTHON)
def endurance(session: nox.Session) -> None:
    """A million calls of compiled programs without growth in memory; writes integration_tests/ENDURANCE.md with --write."""
    install(session, PACKAGES[-1].folders)
    session.run("python", "integration_tests/endurance.py", *session.posargs)


@nox.session(python=PYTHON)
def decoding(session: nox.Session) -> None:
    """Generation with the caches of transformers: tokens, graphs a step, graphs compiled, 256 steps; --write: DECODING.md, or DECODING_CUDA.md."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision")
    session.run("python", "integration_tests/decoding.py", *session.posargs, env={"PYTHONPATH": "."})


@nox.session(python=PYTHON)
def fuzz(session: nox.Session) -> None:
    """Thousands of random programs, captured and plain, or with --compiled through the whole compiler; a fixed sample is in CI."""
    install(session, PACKAGES[-1 if "--compiled" in session.posargs else 2].folders)
    session.run("python", "packages/capture/tests/unit/safety/fuzz.py", *session.posargs)


@nox.session(python=PYTHON)
def gradient_programs(session: nox.Session) -> None:
    """Random programs whose results are differentiated, compiled and plain; a fixed sample is in CI."""
    install(session, PACKAGES[-1].folders)
    paths = os.pathsep.join((".", "integration_tests"))
    session.run("python", "-m", "gradient_programs", *session.posargs, env={"PYTHONPATH": paths})


@nox.session(python=PYTHON)
def breaks(session: nox.Session) -> None:
    """Graph breaks of the zoo here and under torch.compile's capture; writes integration_tests/zoo/BREAKS.md."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS, "einops")
    session.install("--no-deps", *CONSTRAINTS, "torchvision", "timm")
    session.install(*CONSTRAINTS, "diffusers")
    session.run("python", "-m", "zoo.breaks", *session.posargs, env={"PYTHONPATH": os.pathsep.join((".", "integration_tests"))})


@nox.session(python=PYTHON)
def attempts(session: nox.Session) -> None:
    """How often capture begins for each record of the zoo; writes integration_tests/zoo/ATTEMPTS.md."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS, "einops")
    session.install("--no-deps", *CONSTRAINTS, "torchvision", "timm")
    session.install(*CONSTRAINTS, "diffusers")
    given = "--only", "zoo", "--zoo", "--counts", "integration_tests/zoo/ATTEMPTS.md"
    session.run("python", "tools/capture_diff.py", session.create_tmp(), *given, *session.posargs)


@nox.session(python=PYTHON, tags=["ci"])
def cpython(session: nox.Session) -> None:
    """A sample of CPython's own tests with every frame going through capture; the tables beside the tool have all of them."""
    install(session, PACKAGES[2].folders)
    session.run("python", "tools/cpython_tests.py", *(session.posargs or ["--sample"]))


@nox.session(python=PYTHON)
def libraries(session: nox.Session) -> None:
    """Programs that use libraries which call torch.compile, by `tracework run`; writes integration_tests/LIBRARIES.md with --write."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision", "timm")
    session.install(*CONSTRAINTS, "diffusers", "accelerate", "datasets", "peft", "sentence-transformers", "trl", "lightning")
    session.install(*CONSTRAINTS, "torch-geometric", "torchtune", "torchao")
    torchao = session.create_tmp()  # the newest that torchtune's last release runs with, which peft refuses
    session.install("--no-deps", "--target", torchao, "torchao==0.15.0")
    session.run("python", "integration_tests/libraries.py", "--torchao", torchao, *session.posargs)


@nox.session(python=PYTHON)
def library_tests(session: nox.Session) -> None:
    """Tests of other libraries with every frame offered to capture; tools/library_tests.txt has what was run."""
    install(session, PACKAGES[-1].folders)
    session.install(*CONSTRAINTS, "pytest", "hypothesis", "numpy")
    session.run(
        "python", "tools/library_tests.py", *(session.posargs or ["--forced", "numpy.polynomial", "numpy.linalg", "numpy.fft"])
    )


@nox.session(python=PYTHON)
def solver(session: nox.Session) -> None:
    """10,000 random systems of conditions over sizes against trying all values; writes tools/solver_check.txt."""
    install(session, PACKAGES[0].folders)
    session.run("python", "tools/solver_check.py", *(session.posargs or ["--write"]))


@nox.session(python=PYTHON, tags=["ci"])
def lint(session: nox.Session) -> None:
    """ruff: style and the ban on off-limits modules."""
    session.install(*CONSTRAINTS, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=PYTHON, tags=["ci"])
def types(session: nox.Session) -> None:
    """mypy, strictly; torch is not installed for it, its types count as unknown."""
    session.install(*CONSTRAINTS, "mypy")
    session.run("mypy")


@nox.session(python=PYTHON, tags=["ci"])
def imports(session: nox.Session) -> None:
    """The arrows of .importlinter, read from the sources: nothing needs to be installed."""
    session.install(*CONSTRAINTS, "import-linter")
    paths = os.pathsep.join(f"packages/{p.name}/src" for p in PACKAGES)
    session.run("lint-imports", env={"PYTHONPATH": paths})


@nox.session(python=PYTHON, tags=["ci"])
def api(session: nox.Session) -> None:
    """public_api.txt of each package against its `__all__`: nothing needs to be installed; --write puts the names on record."""
    session.run("python", "tools/public_api.py", *session.posargs)


@nox.session(python=PYTHON, tags=["ci"])
def changelog(session: nox.Session) -> None:
    """What differs from where the branch left main, or from --against REVISION, has a fragment; towncrier renders all fragments."""
    session.install(*CONSTRAINTS, "packaging", "towncrier")
    session.run("python", "tools/changelog.py", *session.posargs)


@nox.session(python=PYTHON)
@each_package
def build(session: nox.Session, package: Package) -> None:
    """Wheel and sdist; the wheel, with its siblings', is installed in an environment that has torch and nothing else, and imported."""
    session.install(*CONSTRAINTS, *RELEASE_TOOLS)
    torch = installed_once(session, "torch", "torch")
    session.run("python", "tools/wheels.py", "dist", package.name, "--torch", str(torch))


@nox.session(python=PYTHON)
def release(session: nox.Session) -> None:
    """A dry run: whether the tree may be released, and as what; all wheels and sdists, tried alone and together; how to tag."""
    session.install(*CONSTRAINTS, *RELEASE_TOOLS)
    torch = installed_once(session, "torch", "torch")
    dist = Path("dist", "release")
    shutil.rmtree(dist, ignore_errors=True)
    session.run("python", "tools/release.py", "--dist", str(dist), "--torch", str(torch), *session.posargs)


@nox.session(python=PYTHON)
@each_package
def minimums(session: nox.Session, package: Package) -> None:
    """Tests of one package with the oldest siblings that it claims to work with, from their tags; or a commit, where there is none."""
    if not package.needs:
        session.skip("it needs no sibling")
    share_torch(session)
    session.install(*CONSTRAINTS, "packaging")
    folder = Path(session.create_tmp()).absolute()
    session.run("python", "tools/oldest_siblings.py", package.name, str(folder))
    siblings = sorted(map(str, folder.glob("packages/*")))
    session.install(*CONSTRAINTS, *siblings, f"./packages/{package.name}", *package.test_tools)
    run_tests(session, f"packages/{package.name}/tests")


@nox.session(python=PYTHON)
def kernels(session: nox.Session) -> None:
    """Generated code of the integration models, C++ and Triton: how this tree's differs from main's, or from --against REVISION."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision")
    given = session.posargs if "--against" in session.posargs else ("--against", "main", *session.posargs)
    command = ("tools/run_in_tree.py", "python", "tools/kernel_diff.py", session.create_tmp(), *given)
    session.run("python", *command, success_codes=[0, 1])


@nox.session(python=PYTHON)
def bench(session: nox.Session) -> None:
    """eager, torch.compile and tracework on all models of benchmarks/."""
    install(session, PACKAGES[-1].folders, *MODEL_TOOLS)
    session.install("--no-deps", *CONSTRAINTS, "torchvision")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(python=PYTHON)
def results(session: nox.Session) -> None:
    """Tables and charts of benchmarks/results, and the README's, from the data there."""
    session.install(*CONSTRAINTS, "matplotlib")
    session.run("python", "-m", "benchmarks.tables")


@nox.session(python=PYTHON)
def fakes(session: nox.Session) -> None:
    """What an op on fakes costs, beside torch's FakeTensor, and decomposing a GPT; writes benchmarks/results/fakes.md."""
    install(session, PACKAGES[3].folders)
    session.install("--no-deps", *CONSTRAINTS, "torchvision")
    session.run("python", "benchmarks/micro/fakes.py", *(session.posargs or ["--write"]))


@nox.session(python=PYTHON)
def sizes(session: nox.Session) -> None:
    """The longest files, as a place to look."""
    session.run("python", "tools/sizes.py")
