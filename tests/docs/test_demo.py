"""The demo's summary is computed from its history: a history in which a lock didn't hold is found out."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The demo, imported without being played."""
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # a dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def happened(demo: ModuleType) -> Callable[..., list[object]]:
    """A short history: a is killed with the key, b is stopped and continued, c takes over; some lines may be told differently."""
    told: dict[str, dict[str, object]] = {
        "a asks": {"at": 1.0},
        "a acquired": {"at": 1.1, "fence": 1, "token": "a", "seconds": 0.1},
        "a wrote": {"at": 1.2, "fence": 1, "value": 1},
        "a killed": {"at": 1.3, "fence": 1, "token": "a"},
        "b acquired": {"at": 4.2, "fence": 2, "token": "b", "seconds": 2.0},
        "b stopped": {"at": 4.3, "fence": 2, "token": "b"},
        "c acquired": {"at": 7.3, "fence": 3, "token": "c", "seconds": 5.0},
        "c wrote": {"at": 7.4, "fence": 3, "value": 2},
        "b continued": {"at": 7.5, "fence": 2, "token": "b"},
        "b write refused": {"at": 7.6, "fence": 2, "value": 3},
        "b lost": {"at": 7.7, "fence": 2, "token": "b", "seconds": 0.5},
        "c gives back": {"at": 7.8, "fence": 3, "token": "c"},
    }

    def history(**otherwise: dict[str, object]) -> list[object]:
        lines = {name: facts | otherwise.get(name.replace(" ", "_"), {}) for name, facts in told.items()}
        return [demo.Event(who=name[0], what=name[2:], **facts) for name, facts in lines.items()]

    return history


def false(demo: ModuleType, history: list[object]) -> list[str]:
    return [sentence for right, sentence in demo.verdicts(history) if not right]


def test_a_true_history_passes(demo: ModuleType, happened: Callable[..., list[object]]) -> None:
    assert not false(demo, happened())


def test_a_fence_that_fell_is_found(demo: ModuleType, happened: Callable[..., list[object]]) -> None:
    assert any("fence" in line for line in false(demo, happened(c_acquired={"fence": 1, "seconds": 0.1})))


def test_two_holders_at_once_are_found(demo: ModuleType, happened: Callable[..., list[object]]) -> None:
    assert any("at once" in line for line in false(demo, happened(b_lost={"seconds": 0.1})))


def test_a_late_write_that_was_taken_is_found(demo: ModuleType, happened: Callable[..., list[object]]) -> None:
    late = [event for event in happened() if event.what != "write refused"]
    late.append(demo.Event(at=7.65, who="b", what="wrote", fence=2, value=3))
    assert any("register" in line for line in false(demo, late))


def test_a_loss_that_nobody_noticed_is_found(demo: ModuleType, happened: Callable[..., list[object]]) -> None:
    assert any("stood still" in line for line in false(demo, [event for event in happened() if event.what != "lost"]))


@pytest.mark.long
def test_the_demo_ends_well_and_leaves_its_history(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    done = subprocess.run([sys.executable, DEMO, "locks", "--json", file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    history = json.loads(file.read_text(encoding="utf-8"))
    assert all(check["true"] for check in history["checks"])
    assert {"killed", "stopped", "continued", "lost", "write refused"} <= {event["what"] for event in history["events"]}
    described = {name for names in history["fields"] for name in names.split(", ")}
    assert {name for event in history["events"] for name in event} <= described
