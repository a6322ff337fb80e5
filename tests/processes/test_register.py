"""The counter that the processes write to refuses whoever is late, whether its successor has written already or only read."""

from __future__ import annotations

from tests.processes import register


def change(fence, value):
    return {"key": "k", "fence": fence, "value": value}


def test_a_write_with_a_smaller_fence_than_the_last_is_refused(tmp_path):
    path = tmp_path / "k"
    assert register.write(path, change(2, 1))
    assert not register.write(path, change(1, 9))
    assert register.write(path, change(2, 2))
    assert register.value(path) == 2


def test_a_write_between_a_successors_read_and_write_is_refused(tmp_path):
    path = tmp_path / "k"
    assert register.read(path, 1) == register.read(path, 2) == 0
    assert not register.write(path, change(1, 9))
    assert register.write(path, change(2, 1))


def test_a_late_reader_lowers_nothing(tmp_path):
    path = tmp_path / "k"
    register.write(path, change(2, 1))
    assert register.read(path, 1) == 1
    assert not register.write(path, change(1, 9))
