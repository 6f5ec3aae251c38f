"""The guest kernel where there is none, and builds of it that are refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from verus.endpoints import guest_kernel
from verus.endpoints.program import find_endpoint
from verus.errors import FieldError

from .conftest import Command


def nothing(_what: str, _fraction: float | None) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("VERUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(guest_kernel.VARIABLE, raising=False)
    monkeypatch.setattr(guest_kernel, "TOOLS", {"tar": "tar"})
    return tmp_path / "cache"


def test_without_a_kernel_a_sentence_says_what_to_do(verus: Command, cache: Path) -> None:
    missing = f"takes a guest kernel, and `{cache}/virtual/linux` is not there: `verus virtual build` builds it"
    for words in (("virtual", "status"), ("compare", "--virtual", "--trace", "rate:5", "--scheme", "cubic")):
        ran = verus(*words)
        assert (ran.code, ran.out) == (2, "")
        assert missing in ran.err
    binary, _ = find_endpoint()
    assert binary is not None
    shell = subprocess.run(
        [binary, "shell", "--virtual", "--down", "rate:5", "--", "true"], capture_output=True, text=True, check=False
    )
    assert shell.returncode == 2
    assert missing in shell.stderr


def test_the_newest_source_is_taken_by_its_number(tmp_path: Path) -> None:
    assert guest_kernel.newest_source(tmp_path) is None
    for name in ("6.9.tar.xz", "6.12.tar.xz", "6.1.tar.xz", "7.tar.xz", "patch-7.1.xz"):
        (tmp_path / f"linux-source-{name}").touch()
    newest = guest_kernel.newest_source(tmp_path)
    assert newest is not None
    assert newest.name == "linux-source-6.12.tar.xz"


def test_a_source_that_cannot_be_seeded_is_refused_and_nothing_is_left(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "linux"
    (source / "arch/um/os-Linux").mkdir(parents=True)
    (source / guest_kernel.RANDOM_FILE).write_text("int none;\n")
    with pytest.raises(FieldError, match=r"no `return getrandom"):
        guest_kernel.build(source, jobs=1, tell=nothing)
    with pytest.raises(FieldError, match="is not there"):
        guest_kernel.build(tmp_path / "absent", jobs=1, tell=nothing)
    assert [path.name for path in (cache / "virtual").iterdir()] == ["build.lock"]
    assert (source / guest_kernel.RANDOM_FILE).read_text() == "int none;\n"


def test_missing_tools_are_named_with_their_packages(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_kernel, "TOOLS", {"no-such-tool": "a-package", "tar": "tar"})
    with pytest.raises(FieldError, match=r"a build takes a-package \(`apt install a-package`\)"):
        guest_kernel.build(jobs=1, tell=nothing)
    assert not cache.exists()


def test_a_description_of_another_kernel_does_not_count(cache: Path) -> None:
    place = cache / "virtual/linux"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"one")
    described = {"release": "7", "sha256": "0" * 64, "source": "", "compiler": ""}
    lists: dict[str, list[str]] = {"congestion_controls": [], "lacking": []}
    place.with_suffix(".json").write_text(json.dumps({**described, **lists}))
    with pytest.raises(FieldError, match="nothing describes"):
        guest_kernel.describe()
    place.with_suffix(".json").write_text(json.dumps({**described, **lists, "sha256": guest_kernel.digest()}))
    assert guest_kernel.describe().release == "7"
