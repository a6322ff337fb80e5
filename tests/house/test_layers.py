"""Imports point down, whether at run time or for a type checker alone; there is no cycle, and no flow touches the world."""

import ast
from functools import cache
from pathlib import Path

from tests.house.source import PACKAGE, Import, classes, imports, modules, named, python_files, short, statements, tree

# From top to bottom. A module may import what stands below its layer, and within its own group.
LAYERS = (
    ({"admin"}, {"compat"}, {"django"}, {"testing"}),
    ({"celery"},),
    ({"soloist"},),
    ({"_client", "_lock", "_keeper", "_settings"},),
    ({"stores"}, {"_flows"}, {"instrumentation"}),
    ({"contract"},),
    ({"_world", "events", "errors"},),
)
# For a type checker alone: what an error and an event carry are the contract's values.
FACTS = {Import("soloist.errors", "soloist.contract", typing=True), Import("soloist.events", "soloist.contract", typing=True)}
DEPTH = 8
# How long to wait, and what for, is a flow's to say. These stores' files sleep, and why:
SLEEPERS = {
    "src/soloist/stores/_sqlite/file.py": "a busy file is asked again: SQLite's own timeout would sleep where gevent can't switch",
    "src/soloist/stores/_redis/aio.py": "by no seconds: a closed transport closes its socket in the loop's next round",
}
FORBIDDEN_TO_FLOWS = {"time", "random", "threading", "asyncio", "socket"}


def place(module: str) -> tuple[int, set[str]]:
    """A module's layer, counted from the top, and its group there."""
    name = module.removeprefix("soloist.").partition(".")[0]
    return next((depth, group) for depth, layer in enumerate(LAYERS) for group in layer if name in group)


def test_every_module_has_its_layer() -> None:
    for module in modules():
        assert place(module)


def test_imports_point_down() -> None:
    wrong = [line for line in sorted(set(imports()) - FACTS) if not points_down(line)]
    assert not [f"{line.importer} imports {line.imported}, which stands above or beside it" for line in wrong]


def points_down(line: Import) -> bool:
    """Whether an import goes to a lower layer, or stays in its group."""
    (depth, group), (other_depth, other_group) = place(line.importer), place(line.imported)
    return other_depth > depth or other_group is group


def test_no_import_cycle() -> None:
    longest_chain()


def test_no_chain_of_imports_is_longer_than_eight() -> None:
    chain = longest_chain()
    assert len(chain) - 1 <= DEPTH, " imports ".join(chain)


def longest_chain() -> list[str]:
    """The longest chain of imports; a cycle fails, and is named."""
    direct: dict[str, set[str]] = {name: set() for name in modules()}
    for line in set(imports()) - FACTS:
        direct[line.importer].add(line.imported)
    way: list[str] = []

    @cache
    def below(name: str) -> tuple[str, ...]:
        assert name not in way, f"a cycle: {' imports '.join([*way[way.index(name) :], name])}"
        way.append(name)
        chains: list[tuple[str, ...]] = [below(other) for other in sorted(direct[name])]
        longest = max(chains, key=len) if chains else ()
        way.pop()
        return (name, *longest)

    chains = [below(name) for name in direct]
    longest = max(chains, key=len)
    return list(longest)


def test_no_flow_imports_time_or_chance_or_io() -> None:
    for path in python_files("src/soloist/_flows"):
        reached = {name.partition(".")[0] for node, _ in statements(tree(path)) for name in named(node)}
        assert not reached & FORBIDDEN_TO_FLOWS, short(path)


def test_a_flow_knows_the_world_as_a_type_alone() -> None:
    flows = [line for line in imports() if line.importer.startswith("soloist._flows")]
    assert not [line.importer for line in flows if line.imported == "soloist._world" and not line.typing]


def test_no_store_sleeps_but_for_a_reason() -> None:
    sleeping = {short(path) for path in python_files("src/soloist/stores") if sleeps(path)}
    assert sleeping == set(SLEEPERS)


def sleeps(path: Path) -> bool:
    """Whether a file calls some `sleep` of another module."""
    imported = {name for node, _ in statements(tree(path)) for name in named(node)}
    used = {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    return bool((imported | used) & {"time.sleep", "asyncio.sleep"})


def test_imports_are_absolute() -> None:
    for path in python_files("src"):
        assert not [node for node, _ in statements(tree(path)) if isinstance(node, ast.ImportFrom) and node.level], short(path)


def test_the_root_holds_nothing_but_public_names() -> None:
    root = PACKAGE / "__init__.py"
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign, ast.If, ast.FunctionDef)
    assert not classes(root)
    assert all(isinstance(node, allowed) for node in tree(root).body)
