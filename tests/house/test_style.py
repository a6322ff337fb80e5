"""The measurable part of the style: sizes, docstrings, reasons beside exceptions, nothing of this machine."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import Function, functions, python_files, short, text_files, tree

LONGEST_FILE = 500
LONGEST_FUNCTION = 70
DIRECTIVE = re.compile(
    r"(type: ignore|noqa|pyright: ?ignore|fmt: ?(off|on|skip)|ruff: ?noqa|pragma: no cover)(\[[^]]*\]|: ?[A-Z]+\d+(, ?[A-Z]+\d+)*)?"
)
LATER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
ELSEWHERE = re.compile(r"(?<![\w.~])/(work|root|home|Users)/[\w.]+")
TRACKER = re.compile(r"\bGH-\d+|\b(issues?|pull requests?|ticket)\s#?\d+|\b(fix(es|ed)?|close[sd]?|see|refs?)\s#\d+", re.IGNORECASE)


def test_files_are_short() -> None:
    sizes = {short(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert not {path: size for path, size in sizes.items() if size >= LONGEST_FILE}


def test_functions_are_short() -> None:
    sizes = {f"{short(path)}: {node.name}": length(node) for path in python_files() for node in functions(tree(path))}
    assert not {name: size for name, size in sizes.items() if size >= LONGEST_FUNCTION}


def length(node: Function) -> int:
    """A function's lines without its docstring."""
    first = node.body[0]
    docstring = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_every_module_opens_with_a_docstring() -> None:
    silent = [path for path in python_files() if not ast.get_docstring(tree(path))]
    assert not [short(path) for path in silent if path.read_text(encoding="utf-8").strip()]


def test_every_public_name_is_documented() -> None:
    assert not [
        f"{short(path)}: {name}" for path in python_files("src") for name, node in public(tree(path)) if not ast.get_docstring(node)
    ]


def public(holder: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """The classes, functions and methods without an underscore; of an overloaded one the implementation."""
    for node in holder.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if not decorators & {"overload", "setter", "deleter"}:
                yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node, f"{prefix}{node.name}.")


def test_every_exception_carries_its_reason() -> None:
    directives = [(path, line, text) for path in python_files() for line, text in comments(path) if DIRECTIVE.search(text)]
    assert not [f"{short(path)}:{line}: {text}" for path, line, text in directives if not DIRECTIVE.sub("", text).strip("# -:")]


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """A file's comments, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_nothing_is_left_for_later() -> None:
    assert not lines_with(LATER)


def test_nothing_of_one_machine_is_written_down() -> None:
    assert not lines_with(ELSEWHERE)


def test_a_reason_stands_here_and_not_in_a_tracker() -> None:
    assert not lines_with(TRACKER)


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """The lines of all files in which something is found."""
    lines = [(path, number, line) for path in text_files() for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)]
    return [f"{short(path)}:{number}: {line}" for path, number, line in lines if pattern.search(line)]
