"""The blocking and the asyncio faces are one: the same methods in the same order, the same arguments, each documented."""

import ast
import re

from tests.house.source import Function, classes, modules

TWINS = {"_client": ("Soloist",), "_lock": ("Lock", "Semaphore", "Hold")}
# A context manager's methods differ in their names.
SAME = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
# What a type checker sees of the other face.
AWAITED = re.compile(r"\b(?:Awaitable\[|Coroutine\[Any, Any, )([^\[\]]+)\]")


def pairs() -> list[tuple[ast.ClassDef, ast.ClassDef]]:
    """Each blocking class with its twin, which stands in the same file."""
    files = {name: classes(modules()[f"soloist.{name}"]) for name in TWINS if f"soloist.{name}" in modules()}
    return [(found[name], found[f"Async{name}"]) for module, found in files.items() for name in TWINS[module]]


def methods(node: ast.ClassDef) -> dict[str, Function]:
    """A class's public methods, and those that a `with` calls, by the blocking face's names."""
    found = {SAME.get(member.name, member.name): member for member in node.body if isinstance(member, Function)}
    return {name: member for name, member in found.items() if not name.startswith("_") or name in {"__init__", *SAME.values()}}


def signature(method: Function) -> str:
    """How a method is called, with the words of asyncio taken out."""
    words = f"({ast.unparse(method.args)}) -> {ast.unparse(method.returns) if method.returns else None}"
    words = re.sub(r"\bAsync(?=[A-Z])", "", words.replace('"', "").replace("'", ""))
    return AWAITED.sub(r"\1", words)


def test_twins_have_the_same_methods_in_the_same_order() -> None:
    for blocking, asyncio in pairs():
        assert list(methods(blocking)) == list(methods(asyncio)), blocking.name


def test_twins_have_the_same_signatures() -> None:
    for blocking, asyncio in pairs():
        others = methods(asyncio)
        for name, method in methods(blocking).items():
            assert signature(method) == signature(others[name]), f"{blocking.name}.{name}"


def test_twins_are_both_documented() -> None:
    every = [(node.name, name, method) for pair in pairs() for node in pair for name, method in methods(node).items()]
    assert not [f"{of}.{name}" for of, name, method in every if not name.startswith("_") and not ast.get_docstring(method)]


def test_twins_are_read_in_the_same_order() -> None:
    for blocking, asyncio in pairs():
        assert blocking.lineno < asyncio.lineno, blocking.name
