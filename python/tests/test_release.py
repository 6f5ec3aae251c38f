"""Parts of a release that cannot run here: workflows and packages name things that exist."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, flags=re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NFPM = ROOT / ".tools" / "release" / "bin" / "nfpm"

#: Programs that a workflow may call beside make: only GitHub's machines have or permit them.
OWN = {"sudo", "rustup", "docker", "gh"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_make_as_one_does_by_hand(path: Path) -> None:
    steps = re.findall(r"^ *(?:- )?run: (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert steps
    for step in steps:
        words = step.split()
        if words[0] == "make":
            assert set(words[1:]) <= TARGETS, step
        else:
            assert words[0] in OWN, step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_an_action_is_pinned_by_its_hash(path: Path) -> None:
    for action in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8")):
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}|\./\.github/workflows/\w+\.yml", action), action
        assert not action.startswith("./") or (ROOT / action).is_file()


def test_a_release_publishes_all_that_it_built() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = re.findall(r"^  ([a-z]+):$", text.partition("\njobs:\n")[2], flags=re.MULTILINE)
    needed = re.findall(r"needs: \[(.*)\]", text)
    assert needed == [", ".join(job for job in jobs if job != "publish")]


def test_wheels_are_made_for_the_oldest_python_and_serve_all() -> None:
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert PROJECT["tool"]["cibuildwheel"]["build"] == f"cp{oldest}-*"
    manifests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("crates/*/Cargo.toml"))
    assert set(re.findall(r'"(abi3-py\w+)"', manifests)) == {f"abi3-py{oldest}"}


def test_the_sources_for_python_hold_what_a_wheel_is_built_from(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if not name.startswith("fuzz/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name, follow_symlinks=False)

    packing = "import sys, build_backend; print(build_backend.build_sdist(sys.argv[1]))"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": "scripts"}
    command = [sys.executable, "-c", packing, tmp_path]
    packed = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True)
    file = tmp_path / packed.stdout.split()[-1]
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path, filter="data")
        assert {entry.uname for entry in archive} == {""}
    sources = tmp_path / file.name.removesuffix(".tar.gz")

    # Nothing is built, but cargo reads every crate of the workspace.
    metadata = ["cargo", "metadata", "--no-deps", "--format-version=1"]
    read = subprocess.run(metadata, cwd=sources, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    built_from = ("python/verus/", "crates/", "LICENSE", "README.md", "Cargo.", "pyproject.toml")
    needed = [name for name in tracked.split("\0") if name.startswith(built_from)]
    assert needed
    assert [name for name in needed if not (sources / name).is_file()] == []


def test_the_container_compiles_with_the_pinned_rust() -> None:
    channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text(encoding="utf-8"))["toolchain"]["channel"]
    (image,) = re.findall(r"^FROM rust:([\d.]+)-", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert channel.startswith(f"{image}.")


def test_what_is_packed_exists() -> None:
    sources = re.findall(r"src: (\S+)", (ROOT / "packaging" / "nfpm.yaml").read_text(encoding="utf-8"))
    assert sources[0] == "${ENDPOINT}"
    assert all((ROOT / source).is_file() for source in sources[1:] if source != "${OBJECT}")


def test_a_debian_package_holds_the_program(tmp_path: Path) -> None:
    if not NFPM.exists():
        pytest.skip("no .tools/release (`make lint` makes it)")
    program = tmp_path / "verus-endpoint"
    program.write_bytes(b"a program")
    (tmp_path / "forward.bpf.o").write_bytes(b"an object")
    paths = {"ENDPOINT": str(program), "OBJECT": str(tmp_path / "forward.bpf.o")}
    environment = {**os.environ, **paths, "VERSION": "1.2.3", "ARCH": "amd64"}
    command = [NFPM, "package", "--config", "packaging/nfpm.yaml", "--packager", "deb", "--target", tmp_path]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(member(tmp_path / "verus-endpoint_1.2.3_amd64.deb", "data.tar.gz"))) as packed:
        installed = packed.getmember("./usr/bin/verus-endpoint")
        assert installed.mode == 0o755
        assert installed.size == len(b"a program")
        assert "./usr/share/doc/verus-endpoint/copyright" in packed.getnames()
        unit = packed.extractfile("./usr/lib/systemd/system/verus-forward.service")
        assert unit is not None
        (registered,) = re.findall(rb"ExecStart=.* register (/\S+)", unit.read())
        assert packed.getmember(f".{registered.decode()}").size == len(b"an object")
        settings = packed.extractfile("./etc/sysctl.d/60-verus-forward.conf")
        assert settings is not None
        assert all(line.startswith(b"#") for line in settings.read().splitlines())


def member(path: Path, name: str) -> bytes:
    """A file within an `ar` archive, which a Debian package is."""
    content = path.read_bytes()
    at = len(b"!<arch>\n")
    while at < len(content):
        head = content[at : at + 60]
        size = int(head[48:58])
        if head[:16].decode().strip().rstrip("/") == name:
            return content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise AssertionError(f"{path} has no {name}")


def test_what_is_to_be_cited_is_the_paper_of_the_readme() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for title in re.findall(r"^ +(?:- )?title: (.+)$|^    title: (.+)$", citation, flags=re.MULTILINE):
        assert "".join(title) in readme
    assert PROJECT["project"]["urls"]["Repository"] in citation
