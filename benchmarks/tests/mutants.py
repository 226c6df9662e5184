"""Which small changes of the code do the tests notice?

    python -m benchmarks.tests.mutants draw --count 300 --seed 0 --output mutants.csv
    python -m benchmarks.tests.mutants run mutants.csv --output before.csv --processes 2

`draw` chooses mutants at random over all packages: a comparison, a constant, a sign, an index, a
condition or a returned value that is changed, as many of each. `run` applies one at a time to a
copy of the committed code, and runs the tests in the folder that mirrors the file's: the file of
the same name, or else all files of the folder. The result is `killed` if a test fails or does not
end, `survived`, or `gone` if the code no longer exists. Mutants are found by their function and the
text of their line, so that the same ones can be run again after the code has moved.

`run` continues a table that it was stopped in, and `--compare before.csv` prints the mutants that
were killed before and survive now; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import Lock

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "relpe", "tokenization", "training")
KINDS = ("comparison", "constant", "sign", "index", "condition", "returned value")
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
}
CPU_LIMIT_S = 150
"""Seconds of processor time after which the tests of a mutant count as a loop without an end."""
TIMEOUT_S = 900
"""Seconds after which they count as waiting without an end."""
PRELOADED = (
    "torch numpy numba scipy.stats hypothesis pytest matplotlib.pyplot lightning_fabric gradio "
    "jaxtyping beartype.claw miditoolkit pretty_midi"
)
"""Libraries that are imported once and shared by the test runs, which are forked."""
OPTIONS = "-x -q -p no:cacheprovider --assert=plain -W ignore::pytest.PytestAssertRewriteWarning"
"""Options of pytest; it would warn of plugins that the libraries import."""


@dataclass(frozen=True)
class Mutant:
    """A change of one expression."""

    file: str
    function: str
    """Qualified name of the function; empty at the top of a module."""
    kind: str
    line: str
    """The line of code, without indentation."""
    place: int
    """Number of the change among those of its kind with the same function and line."""
    change: str
    """The expression and what replaces it."""

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What identifies a mutant in a file."""
        return self.function, self.kind, self.line, self.place, self.change


@dataclass(frozen=True)
class Result(Mutant):
    """A mutant, and what the tests say of it."""

    result: str = ""
    tests: str = ""
    """The folder or file of tests that ran."""
    seconds: float = 0.0

    @property
    def mutant(self) -> Mutant:
        """The mutant itself."""
        return Mutant(**{field.name: getattr(self, field.name) for field in fields(Mutant)})


class _Finder(ast.NodeVisitor):
    """Collects the possible changes of a file, with the text of the changed file."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.names: list[str] = []
        self.mutants: list[tuple[Mutant, bytes]] = []
        self.visit(ast.parse(text))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _add(self, kind: str, node: ast.expr | ast.stmt, start: int, stop: int, new: str) -> None:
        content = self.text.encode()
        line = self.lines[node.lineno - 1].strip()
        old = " ".join(content[start:stop].decode().split())
        function = ".".join(self.names)
        place = sum(
            (mutant.function, mutant.kind, mutant.line) == (function, kind, line)
            for mutant, _ in self.mutants
        )
        mutant = Mutant(self.file, function, kind, line, place, f"{old} -> {' '.join(new.split())}")
        self.mutants.append((mutant, content[:start] + new.encode() + content[stop:]))

    def _replace(self, kind: str, node: ast.expr, new: str) -> None:
        self._add(kind, node, *self._span(node), new)

    def _source(self, node: ast.expr) -> str:
        start, stop = self._span(node)
        return self.text.encode()[start:stop].decode()

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.names.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _inside  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # annotations are not run
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        new = COMPARISONS.get(type(node.ops[0]))
        if new is not None and len(node.ops) == 1:
            start, stop = self._span(node.left)[1], self._span(node.comparators[0])[0]
            between = self.text.encode()[start:stop].decode()
            if "(" not in between and ")" not in between:
                self._add("comparison", node, start, stop, f" {new} ")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace("constant", node, f"({self._source(node)} + 1)")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        new = SIGNS.get(type(node.op))
        of_text = any(isinstance(x, ast.JoinedStr) for x in (node.left, node.right))
        start, stop = self._span(node.left)[1], self._span(node.right)[0]
        between = self.text.encode()[start:stop].decode()
        if new is not None and not of_text and "(" not in between and ")" not in between:
            self._add("sign", node, start, stop, f" {new} ")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            self._replace("sign", node, f"({self._source(node.operand)})")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            bounds = [part.lower, part.upper] if isinstance(part, ast.Slice) else [part]
            for bound in bounds:
                if isinstance(bound, ast.UnaryOp) or (
                    isinstance(bound, ast.Constant) and isinstance(bound.value, int)
                ):
                    self._replace("index", bound, f"{self._source(bound)} + 1")
        self.visit(node.value)

    def _condition(self, node: ast.If | ast.IfExp) -> None:
        name = getattr(node.test, "id", "")
        if name != "TYPE_CHECKING":
            self._replace("condition", node.test, f"(not ({self._source(node.test)}))")
        self.generic_visit(node)

    visit_If = visit_IfExp = _condition  # noqa: N815

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (
            isinstance(node.value, ast.Constant) and node.value.value is None
        ):
            self._replace("returned value", node.value, "None")
        self.generic_visit(node)


def candidates(root: Path) -> Iterator[tuple[Mutant, bytes]]:
    """Yield all mutants of committed files below a folder, with the text of the changed file."""
    command = ["git", "ls-files", *(f"{package}/*.py" for package in PACKAGES)]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in names.split():
        yield from _Finder(name, (root / name).read_text("utf-8")).mutants


def draw(count: int, seed: int) -> list[Mutant]:
    """Draw mutants, equally many of each kind."""
    by_kind: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for mutant, _ in candidates(ROOT):
        by_kind[mutant.kind].append(mutant)
    rng = random.Random(seed)
    drawn: list[Mutant] = []
    for number, kind in enumerate(KINDS):
        share = len(range(number, count, len(KINDS)))
        drawn += rng.sample(by_kind[kind], share)
    rng.shuffle(drawn)
    return drawn


def find(mutants: Sequence[Mutant], root: Path) -> list[tuple[Mutant, bytes] | None]:
    """Return each mutant in the code as it is now, with the changed file; None: its code is gone.

    Code that has moved is found in another file, or in a function of another name, if there is only
    one such place.
    """
    pairs = list(candidates(root))
    in_file = {(pair[0].file, *pair[0].key): pair for pair in pairs}
    rules: list[Callable[[Mutant], tuple]] = [
        lambda mutant: mutant.key,
        lambda mutant: (mutant.function.rpartition(".")[2], *mutant.key[1:]),
        lambda mutant: mutant.key[1:],
    ]
    tables: list[dict[tuple, list[tuple[Mutant, bytes]]]] = []
    for rule in rules:
        table: dict[tuple, list[tuple[Mutant, bytes]]] = {}
        for pair in pairs:
            table.setdefault(rule(pair[0]), []).append(pair)
        tables.append(table)

    def find_one(mutant: Mutant) -> tuple[Mutant, bytes] | None:
        if (mutant.file, *mutant.key) in in_file:
            return in_file[mutant.file, *mutant.key]
        matches = (table.get(rule(mutant), []) for rule, table in zip(rules, tables, strict=True))
        return next((match[0] for match in matches if len(match) == 1), None)

    return [find_one(mutant) for mutant in mutants]


def mirrored(file: str, root: Path) -> list[str]:
    """Return the tests that mirror a file: that of its name, or those of the nearest folder."""
    path = Path(file)
    exact = Path("tests") / path.parent / f"test_{path.stem}.py"
    if (root / exact).is_file():
        return [str(exact)]
    for folder in path.parents:
        tests = sorted((root / "tests" / folder).glob("test_*.py"))
        if tests and folder != Path():
            return [str(test.relative_to(root)) for test in tests]
    return []


class Tester:
    """Runs tests in a copy of the code, in a process forked from one that has the libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tests.mutants", "serve"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def passes(self, tests: Sequence[str]) -> bool:
        """Return whether tests pass with the files as they are in the folder."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(" ".join(tests) + "\n")
        self.server.stdin.flush()
        return self.server.stdout.readline() == "0\n"

    def close(self) -> None:
        """End the process and remove the copy."""
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def serve() -> None:
    """Read names of tests from standard input, a line for each run; print the exit codes."""
    sys.path.insert(0, str(Path.cwd()))
    for name in PRELOADED.split():
        __import__(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
            signal.alarm(TIMEOUT_S)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            import pytest

            os._exit(int(pytest.main([*OPTIONS.split(), *line.split()])))
        _, status = os.waitpid(child, 0)
        # servers that a killed test has left
        subprocess.run(["pkill", "-9", "-s", str(child)], check=False)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(mutants: Sequence[Mutant], output: Path, processes: int) -> list[Result]:
    """Run the tests of each mutant; results are added to a file as they come."""
    done: dict[tuple, Result] = {}
    if output.exists():
        done = {(result.file, *result.mutant.key): result for result in read(output)}
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    testers = [Tester(folder / str(number)) for number in range(processes)]
    free, lock = [*testers], Lock()
    passed: dict[str, bool] = {}
    left = [mutant for mutant in mutants if (mutant.file, *mutant.key) not in done]
    places = dict(zip(left, find(left, ROOT), strict=True))
    bar = tqdm(total=len(left), unit="mutant")

    def test(mutant: Mutant) -> None:
        with lock:
            tester = free.pop()
        try:
            result = _test(mutant, places[mutant], tester, passed)
        finally:
            free.append(tester)
        with lock:
            done[mutant.file, *mutant.key] = result
            keys = ((mutant.file, *mutant.key) for mutant in mutants)
            write([done[key] for key in keys if key in done], output)
            bar.update()

    try:
        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(test, left))
    finally:
        bar.close()
        for tester in testers:
            tester.close()
        shutil.rmtree(folder, ignore_errors=True)
    return [done[mutant.file, *mutant.key] for mutant in mutants]


def _test(
    mutant: Mutant, place: tuple[Mutant, bytes] | None, tester: Tester, passed: dict[str, bool]
) -> Result:
    start = time.monotonic()
    if place is None:
        return Result(**asdict(mutant), result="gone")
    now, content = place
    tests = mirrored(now.file, tester.folder)
    if not tests:
        return Result(**asdict(mutant), result="survived")
    name = tests[0] if len(tests) == 1 else str(Path(tests[0]).parent)
    if name not in passed:
        passed[name] = tester.passes(tests)
    if not passed[name]:
        return Result(**asdict(mutant), result="tests fail without it", tests=name)
    path = tester.folder / now.file
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        survived = tester.passes(tests)
    finally:
        path.write_bytes(original)
    seconds = round(time.monotonic() - start, 1)
    return Result(
        **asdict(mutant), result="survived" if survived else "killed", tests=name, seconds=seconds
    )


def read(path: Path) -> list[Result]:
    """Read a table of `draw` or `run`."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [
            Result(**row | {"place": int(row["place"]), "seconds": float(row.get("seconds") or 0)})  # pyright: ignore[reportArgumentType]
            for row in csv.DictReader(stream)
        ]


def write(results: Sequence[Mutant | Result], path: Path) -> None:
    """Write a table, replacing the file at once."""
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(
            stream, [field.name for field in fields(results[0])], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(result) for result in results)
    partial.replace(path)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="choose mutants at random")
    drawing.add_argument("--count", type=int, default=300)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--output", type=Path, required=True)
    running = commands.add_parser("run", help="run the tests of each mutant")
    running.add_argument("mutants", type=Path)
    running.add_argument("--output", type=Path, required=True)
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--compare", type=Path, help="an earlier table of results")
    commands.add_parser("serve", help="for `run` itself")
    options = parser.parse_args()
    if options.command == "serve":
        serve()
        return 0
    if options.command == "draw":
        write(draw(options.count, options.seed), options.output)
        return 0
    mutants = [result.mutant for result in read(options.mutants)]
    results = run(mutants, options.output, options.processes)
    for outcome in ("killed", "survived", "gone", "tests fail without it"):
        print(outcome, sum(result.result == outcome for result in results))
    if options.compare is None:
        return 0
    before = {result.mutant: result.result for result in read(options.compare)}
    survivors = [result for result in results if result.result == "survived"]
    lost = [result for result in survivors if before[result.mutant] == "killed"]
    for result in lost:
        print(f"no longer killed: {result.file} {result.function}: {result.line} ({result.change})")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
