"""The guest kernel of virtual time: user-mode Linux, built from a source of Linux into the user's cache.

The program is `virtual/linux` in the cache. Beside it, `linux.json` describes it: source, compiler,
congestion controls. It counts only for the program whose digest it names.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from verus.endpoints.program import error_line, find_endpoint
from verus.errors import FieldError

#: The environment variable with the path of another kernel.
VARIABLE = "VERUS_UML"
#: Programs that build a kernel, and their packages in Debian and Ubuntu.
TOOLS = {"gcc": "gcc", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc", "tar": "tar", "xz": "xz-utils"}
#: Where distributions put the source.
SOURCES = Path("/usr/src")
#: Files that a build compiles, about; for the progress bar.
STEPS = 1050
#: The time for the guest's first start, s of the machine's clock.
PATIENCE_S = 120

#: Makes the kernel's random numbers depend on a seed from its environment. UML has no source of
#: randomness but its host's, by this function.
RANDOM_FILE = "arch/um/os-Linux/util.c"
RANDOM_OLD = "\treturn getrandom(buf, len, flags);\n"
RANDOM_NEW = """\
	static unsigned long long state;
	const char *seed = getenv("UML_RANDOM_SEED");
	unsigned char *bytes = buf;
	size_t i;

	if (!seed)
		return getrandom(buf, len, flags);
	if (!state)
		state = strtoull(seed, NULL, 10);
	/* The highest byte of each number of SplitMix64 (Steele et al., OOPSLA 2014). */
	for (i = 0; i < len; i++) {
		unsigned long long word = state += 0x9e3779b97f4a7c15ULL;

		word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
		word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
		bytes[i] = (word ^ (word >> 31)) >> 56;
	}
	return len;
"""

#: The bytes that UML keeps of a process's vector registers: all that its host has, or the host refuses to restore them.
#: Processors with AMX have 11,008. Later versions of Linux than 6.12 ask the host for the number.
REGISTERS_FILE = "arch/x86/um/user-offsets.c"
REGISTERS_OLD = "DEFINE_LONGS(HOST_FP_SIZE, 2696);"
REGISTERS_NEW = "DEFINE_LONGS(HOST_FP_SIZE, 12288);"

#: Called with the present step, and the share of it that is done, if that is known.
Tell = Callable[[str, float | None], None]


@dataclass(frozen=True)
class GuestKernel:
    """A kernel that was built.

    Attributes:
        release: Its version, as of `uname -r`.
        sha256: The digest of the program.
        source: The source's file or folder.
        compiler: The compiler, as it names itself.
        congestion_controls: Those of its TCP.
        lacking: Options of `uml.config` that the source does not have.
    """

    release: str
    sha256: str
    source: str
    compiler: str
    congestion_controls: list[str]
    lacking: list[str]


def place() -> Path:
    """The path of the kernel that is used: `VERUS_UML`, or its place in the cache (`crates/cli/src/guest/kernel.rs`).

    Raises:
        FieldError: There is no cache.
    """
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    if cache := os.environ.get("VERUS_CACHE"):
        return Path(cache).absolute() / "virtual/linux"
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache).absolute() / "verus/virtual/linux"
    if home := os.environ.get("HOME"):
        return Path(home).absolute() / ".cache/verus/virtual/linux"
    raise FieldError("virtual", "there is no place for a cache; set VERUS_CACHE to a folder")


def digest() -> str:
    """The digest of the kernel that is used.

    Raises:
        FieldError: There is none.
    """
    path = place()
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        problem = f"takes a guest kernel, and `{path}` is not there: `verus virtual build` builds it"
        raise FieldError("virtual", problem) from None
    except OSError as error:
        raise FieldError("virtual", f"the guest kernel `{path}` cannot be read ({error.strerror})") from error


def describe() -> GuestKernel:
    """The kernel that is used.

    Raises:
        FieldError: There is none, or it was not built by `build`.
    """
    path = place()
    sha256 = digest()
    try:
        kernel = GuestKernel(**json.loads(path.with_suffix(".json").read_bytes()))
    except (OSError, ValueError, TypeError):
        kernel = None
    if kernel is None or kernel.sha256 != sha256:
        raise FieldError("virtual", f"nothing describes `{path}`: `verus virtual build` builds another")
    return kernel


def runs_here() -> str | None:
    """Why the kernel cannot run here; None if it can."""
    binary, looked = find_endpoint()
    if binary is None:
        return f"needs the program `verus-endpoint`, which is not in {looked}"
    try:
        done = _in_guest(binary, place(), ["true"])
    except subprocess.TimeoutExpired:
        return f"the guest did not start within {PATIENCE_S} s"
    return None if done.returncode == 0 else error_line(done.stderr)


def _in_guest(binary: str, kernel: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary, "guest", "run", "--", *command],
        env={**os.environ, VARIABLE: str(kernel)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def newest_source(folder: Path = SOURCES) -> Path | None:
    """The newest archive of the distribution's source of Linux (`linux-source-6.12.tar.xz`)."""
    versions = {}
    for path in folder.glob("linux-source-*.tar.*"):
        if number := re.fullmatch(r"linux-source-(\d+)\.(\d+)(?:\.(\d+))?\.tar\.\w+", path.name):
            versions[tuple(int(part or 0) for part in number.groups())] = path
    return versions[max(versions)] if versions else None


def build(source: Path | None = None, *, jobs: int, tell: Tell) -> GuestKernel:
    """Builds the kernel into the cache. Until a build has succeeded, the kernel before it stays.

    Args:
        source: An archive of Linux's source, or a folder with it, which is not changed; by default
            the newest of the distribution's.
        jobs: Compilers at the same time.
        tell: Called with the progress.

    Raises:
        FieldError: Something that it takes is missing, or the source is not one.
        RuntimeError: A step failed; its last lines.
    """
    target = place()
    if VARIABLE in os.environ:
        raise FieldError("virtual", f"{VARIABLE} names the kernel to use: unset it to build one")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise FieldError("virtual", "user-mode Linux runs on Linux on x86-64 alone")
    if missing := [package for tool, package in TOOLS.items() if shutil.which(tool) is None]:
        raise FieldError("virtual", f"a build takes {', '.join(missing)} (`apt install {' '.join(missing)}`)")
    if source is None and (source := newest_source()) is None:
        raise FieldError(
            "source", f"there is none in `{SOURCES}`: `apt install linux-source`, or name an archive or a folder"
        )
    if not source.exists():
        raise FieldError("source", f"`{source}` is not there")
    binary, looked = find_endpoint()
    if binary is None:
        raise FieldError("virtual", f"needs the program `verus-endpoint`, which is not in {looked}")
    with _workshop(target.parent) as folder:
        tree, objects = folder / "source", folder / "objects"
        tell("copying the source" if source.is_dir() else "unpacking the source", None)
        _lay(source, tree)
        _seed_random_numbers(tree, source)
        _keep_all_registers(tree)
        lacking = _configure(tree, objects)
        tell("compiling", 0.0)
        _compile(tree, objects, jobs, tell)
        tell("starting it once", None)
        built = objects / "linux"
        kernel = _described(binary, built, source, lacking)
        draft = folder / "linux.json"
        draft.write_text(json.dumps(asdict(kernel), indent=1) + "\n", encoding="utf-8")
        # Until both are in place, the digest in the description is another's.
        built.replace(target)
        draft.replace(target.with_suffix(".json"))
    return kernel


@contextlib.contextmanager
def _workshop(parent: Path) -> Iterator[Path]:
    """An empty folder to build in, for one process at a time. A build that was killed leaves it to the next."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / "build"
    with (parent / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FieldError("virtual", f"another `verus virtual build` works in `{folder}`") from None
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def _lay(source: Path, tree: Path) -> None:
    """Makes a tree of the source that may be changed."""
    if source.is_dir():
        _do(["cp", "--recursive", "--reflink=auto", str(source), str(tree)])
    else:
        tree.mkdir()
        _do(["tar", "--extract", f"--file={source.absolute()}", f"--directory={tree}", "--strip-components=1"])
    if (tree / ".config").exists():
        _do(["make", "-C", str(tree), "ARCH=um", "mrproper"])


def _seed_random_numbers(tree: Path, source: Path) -> None:
    path = tree / RANDOM_FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.count(RANDOM_OLD) != 1:
        raise FieldError(
            "source", f"`{source}` has no `{RANDOM_OLD.strip()}` in {RANDOM_FILE}: Linux 5.18 or newer has"
        )
    path.write_text(text.replace(RANDOM_OLD, RANDOM_NEW), encoding="utf-8")


def _keep_all_registers(tree: Path) -> None:
    """Makes room for all vector registers. A source without the line asks the host for their size."""
    path = tree / REGISTERS_FILE
    path.write_text(path.read_text(encoding="utf-8").replace(REGISTERS_OLD, REGISTERS_NEW), encoding="utf-8")


def _configure(tree: Path, objects: Path) -> list[str]:
    """Configures the build; returns optional options that the source does not have."""
    text = resources.files("verus.endpoints").joinpath("uml.config").read_text(encoding="utf-8")
    objects.mkdir()
    make = _make(tree, objects)
    _do([*make, "tinyconfig"])
    config = objects / ".config"
    with config.open("a", encoding="utf-8") as file:
        file.write(text)
    _do([*make, "olddefconfig"])
    has = set(config.read_text(encoding="utf-8").splitlines())
    needed, _, optional = text.partition("# former names\n")[0].partition("# optional\n")
    if missing := [line for line in needed.splitlines() if line.startswith("CONFIG_") and line not in has]:
        raise FieldError("source", f"has no {', '.join(missing)}")
    return [line.partition("=")[0] for line in optional.splitlines() if line.startswith("CONFIG_") and line not in has]


def _make(tree: Path, objects: Path) -> list[str]:
    return ["make", "-C", str(tree), "ARCH=um", f"O={objects}", "--no-print-directory"]


def _environment() -> dict[str, str]:
    """Variables of a build, with nothing of this machine that would be in the program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "KBUILD", "ARCH"))}
    fixed = {"TIMESTAMP": "@1767225600", "USER": "verus", "HOST": "verus", "VERSION": "1"}
    return {**kept, "LC_ALL": "C", **{f"KBUILD_BUILD_{name}": value for name, value in fixed.items()}}


def _do(command: list[str]) -> str:
    done = subprocess.run(
        command,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {_last(done.stdout)}")
    return done.stdout


def _last(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-10:])


def _compile(tree: Path, objects: Path, jobs: int, tell: Tell) -> None:
    command = [*_make(tree, objects), f"-j{jobs}", "linux"]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # asked for above
        try:
            for step, line in enumerate(process.stdout):
                lines = [*lines[-20:], line]
                tell("compiling", min(step / STEPS, 0.99))
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {process.returncode}: {_last(''.join(lines))}")


def _described(binary: str, built: Path, source: Path, lacking: list[str]) -> GuestKernel:
    """Starts the kernel once, and asks it."""
    names = "/proc/sys/kernel/osrelease /proc/sys/net/ipv4/tcp_available_congestion_control"
    done = _in_guest(binary, built, ["cat", *names.split()])
    if done.returncode:
        raise RuntimeError(f"the kernel that was built does not run here: {error_line(done.stderr)}")
    release, controls = done.stdout.splitlines()
    return GuestKernel(
        release=release,
        sha256=hashlib.sha256(built.read_bytes()).hexdigest(),
        source=str(source.absolute()),
        compiler=_do(["gcc", "--version"]).splitlines()[0],
        congestion_controls=sorted(controls.split()),
        lacking=lacking,
    )
