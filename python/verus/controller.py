"""Controllers written in Python: the class to derive from, and its lookup from a scheme's text.

    class Mine(verus.Controller):
        def __init__(self, *, gain: float = 2.0) -> None: ...

A scheme names such a class by its file, `mine.py:Mine:gain=3`; functions in Python also take the
class itself. Its keys are the keyword arguments of `__init__`. Classes run in the simulator alone.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import difflib
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import math
import random
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Union, get_args, get_origin, get_type_hints

from verus import _verus

if TYPE_CHECKING:
    from verus._verus import Departure, Feedback, Timeout

#: The prefix, in place of a file, of the name of a class that was passed in Python.
GIVEN = "python:"

#: The limit of a Python file, bytes.
MOST_SOURCE = 8 << 20

#: The least similarity of a word to a valid one that is suggested (`difflib`'s ratio and its
#: default).
_NEAR = 0.6


class Controller:
    """Decides how much a flow may send; derive from it.

    An object of it serves one flow. Its methods are called at events. Its first five attributes,
    read after each event, bound the data that may be sent; None means no bound. At least one of the
    first three must be set by the end of `on_start`.

    Attributes:
        window_bytes: The congestion window: the most bytes in flight, at most a GiB (2^30 bytes).
        budget_bytes: The most bytes that may still be sent, whatever is in flight. Each packet sent
            is subtracted from it.
        pacing_mbps: The pacing rate, in Mbit/s.
        burst_bytes: The most bytes that pacing lets leave back to back; 32 packets if None.
        next_tick_s: When to call `on_tick`, in seconds since the run began.
        ecn: The response to congestion marks (ECN), read once, as the flow begins. ``classic``: to
            a mark as to a loss (its packets are ECT(0), RFC 3168). ``l4s``: a small one to each of
            many marks (ECT(1), RFC 9331). None: its packets cannot be marked, so queues drop them.
        random: The only source of randomness to use, so that one seed gives one result. It is
            seeded from the run's seed and the flow.

    A class whose decisions can be delayed sets `feedback_every_ms`. Then `on_feedback` is called
    that long after the first acknowledgement that it has not seen, once for all since then. One
    `Feedback` has all that they revealed, in order. This is many times faster. A timeout is
    reported at once, after any feedback before it.

    Times are in simulated seconds since the run began (`…_s`), durations in milliseconds (`…_ms`),
    sizes in bytes. The class may set two limits, in seconds of wall time. A call longer than
    `call_limit_s`, or a run longer than `run_limit_s`, is ended, and the run has failed.
    """

    window_bytes: float | None = None
    budget_bytes: float | None = None
    pacing_mbps: float | None = None
    burst_bytes: float | None = None
    next_tick_s: float | None = None
    ecn: Literal["classic", "l4s"] | None = None
    random: random.Random

    feedback_every_ms: ClassVar[float | None] = None
    call_limit_s: ClassVar[float] = 10.0
    run_limit_s: ClassVar[float] = 3600.0

    def on_start(self, now_s: float, packet_bytes: int) -> None:
        """The flow begins; every packet will have `packet_bytes` (IP size)."""

    def on_sent(self, packet: Departure) -> None:
        """A packet left. Called once for each, retransmissions included."""

    def on_feedback(self, feedback: Feedback) -> None:
        """The news of one acknowledgement or expired loss timer, or of several (see `feedback_every_ms`)."""
        raise NotImplementedError("on_feedback is to be written")

    def on_timeout(self, timeout: Timeout) -> None:
        """The retransmission timeout expired without feedback; everything in flight is presumed lost."""
        raise NotImplementedError("on_timeout is to be written")

    def on_tick(self, now_s: float, in_flight_bytes: int) -> None:
        """The time `next_tick_s` has come, perhaps late. Set the next one, or None."""

    def probe(self) -> Mapping[str, float]:
        """Quantities to record over time, by name with the unit last: always the same names."""
        return {}


#: A scheme, as functions in Python take it: a text, a class, or a callable that returns a
#: controller.
Scheme = str | Callable[..., Controller]

#: Classes and callables that were passed to this process, by their names in schemes.
_given: dict[str, Callable[..., Controller]] = {}

#: Loaded modules, by the file and the digests of it and of the modules that it imports.
_loaded: dict[tuple[object, ...], ModuleType] = {}

#: Whether files that schemes name are loaded (see `unloaded`).
_may_load = ContextVar("_may_load", default=True)


class Sandbox(Protocol):
    """Loads files that schemes name, and runs them, in other processes."""

    def find(self, file: str, name: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, str, float, float]:
        """The values that `find` returns behind the factory.

        Raises:
            ValueError: As `find`.
        """
        ...

    def ended(
        self,
        scenarios: Sequence[str],
        *,
        threads: int | None = None,
        columns: bool = True,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Generator[tuple[int, Any]]:
        """Runs scenarios; yields each one's index and outcome as soon as it ends."""
        ...


#: The sandbox of files that schemes name; None if they are loaded into this process.
sandbox: ContextVar[Sandbox | None] = ContextVar("sandbox", default=None)

#: Called before a file that a scheme names is loaded.
before_loading: Callable[[], None] = lambda: None  # noqa: E731 (replaced in a sandbox)

#: Classes that were tried once with these keys, successfully, and need no second try.
_tried: set[tuple[Any, ...]] = set()


def file_of(text: str) -> str | None:
    """The file by which a scheme's text names a class; None if it does not.

    Example:
        >>> file_of("mine.py:Mine:gain=2"), file_of("python:Mine"), file_of("model:file=a.model")
        ('mine.py', None, None)
    """
    files = _verus.named_files("scheme", text) if is_python(text) else []
    return next((text[begin:end] for begin, end, _ in files), None)


def names_file(flows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the scheme of one of these flows names a class by its file."""
    return any(file_of(flow["scheme"]) for flow in flows)


def is_python(text: str) -> bool:
    """Whether a scheme's text names a class.

    Example:
        >>> is_python("mine.py:Mine:gain=2"), is_python("verus:ratio=2"), is_python("cmd:python3 mine.py")
        (True, False, False)
    """
    return _verus.runs_in(text) == "python"


def text_of(scheme: Scheme) -> str:
    """The text that names `scheme` in this process.

    Raises:
        ValueError: It makes no controllers.

    Example:
        >>> class Sleeper(Controller): ...
        >>> text_of(Sleeper), text_of("cubic")
        ('python:Sleeper', 'cubic')
    """
    if isinstance(scheme, str):
        return scheme
    if isinstance(scheme, Controller):
        kind = type(scheme).__name__
        raise ValueError(f"an object of `{kind}` is one flow's: give the class, or functools.partial({kind}, …)")
    if not callable(scheme) or (isinstance(scheme, type) and not issubclass(scheme, Controller)):
        raise ValueError(f"{scheme!r} is neither a text nor a verus.Controller, nor does it make one")
    name = re.sub(r"\W", "_", _name(scheme))
    taken, number = name, 1
    while _given.setdefault(taken, scheme) is not scheme:
        number += 1
        taken = f"{name}_{number}"
    return GIVEN + taken


@contextlib.contextmanager
def given(scheme: Scheme) -> Iterator[str]:
    """The text that names `scheme` within the block only."""
    text = text_of(scheme)
    try:
        yield text
    finally:
        _given.pop(text.removeprefix(GIVEN), None)


@contextlib.contextmanager
def unloaded() -> Iterator[None]:
    """Within the block a scheme's file is not loaded, since that runs it, which commands that only inspect must not do.

    The existence of the class and its keys are then not checked, and no controllers can be made.
    """
    before = _may_load.set(False)
    try:
        yield
    finally:
        _may_load.reset(before)


def _name(make: Callable[..., Any]) -> str:
    while isinstance(make, functools.partial):
        make = make.func
    return getattr(make, "__name__", type(make).__name__)


# The extension calls the functions below.


def find(
    file: str, name: str, pairs: Sequence[tuple[str, str]]
) -> tuple[Callable[[], Controller], str, str, float, float]:
    """A factory for controllers of the class `name` of `file`, with these keys set.

    Returns:
        The factory, the class's name, its name in messages, and its two limits.

    Raises:
        ValueError: There is no such class or key, or a value is not of its kind, or the class refuses it.
    """
    if file == GIVEN:
        make, place = _find_given(name), ""
    elif not _may_load.get():
        return Controller, name, f"`{file}`: {name}", Controller.call_limit_s, Controller.run_limit_s
    elif (box := sandbox.get()) is not None:
        return Controller, *box.find(file, name, pairs)
    else:
        make, place = _find_in(file, name), f"`{file}`: "
    shown = _name(make) if file == GIVEN else name
    keys = _keywords(make, shown, pairs)
    made = functools.partial(make, **keys)
    key = (make, *keys.items())
    if key not in _tried:
        with contextlib.nullcontext() if file == GIVEN else _printing_to_stderr():
            _try(made, shown)
        if isinstance(make, type):
            _tried.add(key)
    kind = make if isinstance(make, type) else Controller
    call_limit_s, run_limit_s = (_limit(kind, name) for name in ("call_limit_s", "run_limit_s"))
    return made, shown, f"{place}{shown}", call_limit_s, run_limit_s


def _limit(kind: type, name: str) -> float:
    """A limit of a class, s."""
    value = getattr(kind, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:  # NaN is neither
        raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
    return float(value)


def _printing_to_stderr() -> contextlib.AbstractContextManager[object]:
    """Prints of a file go to standard error: standard output has the results of a command, and nothing else."""
    return contextlib.redirect_stdout(sys.stderr)


def make(factory: Callable[[], Controller], seed: int) -> Controller:
    """One flow's controller."""
    controller = factory()
    controller.random = random.Random(seed)
    return controller


def hears(controller: Controller, event: str) -> bool:
    """Whether its class overrides the method for this event."""
    return getattr(type(controller), event) is not getattr(Controller, event)


def ecn_of(controller: Controller) -> str | None:
    """Its response to congestion marks.

    Raises:
        ValueError: `ecn` is invalid.
    """
    ecn = controller.ecn
    if ecn not in (None, "classic", "l4s"):
        raise ValueError(f"ecn must be `classic`, `l4s` or None, not {ecn!r}")
    return ecn


def every_of(controller: Controller) -> float | None:
    """The longest delay of feedback, in ms; None for none.

    Raises:
        ValueError: It is no valid delay.
    """
    every_ms = controller.feedback_every_ms
    if every_ms is None:
        return None
    if isinstance(every_ms, bool) or not isinstance(every_ms, (int, float)) or not 0 < every_ms <= 1000:
        raise ValueError(f"feedback_every_ms must be above 0 and at most 1000, or None, not {every_ms!r}")
    return float(every_ms)


def told(error: BaseException) -> str:
    """An exception in one line, with the line of the class's file at which it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    files = {module.__file__ for module in _loaded.values()}
    lines = [frame.lineno for frame in frames if str(Path(frame.filename).absolute()) in files]
    lines = lines or [frame.lineno for frame in frames]
    return _sentence(error) + (f" (line {lines[-1]})" if lines else "")


def thread() -> int:
    """The identity of the calling thread, for `interrupt`."""
    return threading.get_ident()


class TooLong(BaseException):
    """Ends a call that exceeds its limit."""


def interrupt(ident: int) -> None:
    """Makes the thread raise `TooLong` at the next Python instruction that it interprets."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(TooLong))


def spare(ident: int) -> None:
    """Undoes `interrupt`, if nothing was raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), None)


def _sentence(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _find_given(name: str) -> Callable[..., Controller]:
    if name not in _given:
        raise ValueError(
            f"no class `{name}` was given in this process: name its file, as in `mine.py:{name or 'Mine'}`"
        )
    return _given[name]


def _find_in(file: str, name: str) -> type[Controller]:
    module = _load(file)
    classes = {
        member.__name__: member
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, Controller) and member.__module__ == module.__name__
    }
    if name in classes:
        return classes[name]
    if not classes:
        raise ValueError(f"`{file}` has no class derived from verus.Controller")
    if not name:
        raise ValueError(f"needs the name of a class: `{file}:{next(iter(classes))}`")
    if name in vars(module):
        raise ValueError(f"`{name}` of `{file}` is not derived from verus.Controller")
    raise ValueError(f"`{file}` has no class `{name}`; it has {', '.join(classes)}{_perhaps(name, classes)}")


def _load(file: str) -> ModuleType:
    before_loading()
    path = Path(file)
    try:
        source = _verus.read_file(path, MOST_SOURCE)
        helpers = {
            name: (found, _digest(_verus.read_file(found, MOST_SOURCE))) for name, found in imported(path).items()
        }
    except OSError as error:
        raise ValueError(f"`{file}` cannot be read: {error.strerror}") from error
    key = (str(path.resolve()), _digest(source), *((name, digest) for name, (_, digest) in helpers.items()))
    if key in _loaded:
        return _loaded[key]
    name = f"verus_controller_{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # its suffix is `.py`
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    _forget_changed(helpers)
    folder = str(path.resolve().parent)
    beside = _Beside(folder)
    sys.path.insert(0, folder)  # so that it can import modules beside it
    sys.meta_path.insert(_before_paths(), beside)
    try:
        with _printing_to_stderr():
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(str(path), error)
        problem = error.msg if isinstance(error, SyntaxError) else _sentence(error)
        where = f"line {line}: " if line else ""
        raise ValueError(f"`{file}` cannot be loaded: {where}{problem}") from error
    finally:
        sys.meta_path.remove(beside)
        if folder in sys.path:
            sys.path.remove(folder)
    _loaded[key] = module
    return module


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _FromSource(importlib.machinery.SourceFileLoader):
    """Compiles the file's current content. Python's own loader would reuse code of the same time stamp and size."""

    digest = ""

    def get_code(self, fullname: str) -> types.CodeType:
        source = self.get_data(self.path)
        self.digest = _digest(source)
        return self.source_to_code(source, self.path)


class _Beside(importlib.abc.MetaPathFinder):
    """Finds the modules in a folder, and in its packages."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for place in [self._folder] if path is None else path:
            if Path(place).is_relative_to(self._folder):
                finder = importlib.machinery.FileFinder(place, (_FromSource, importlib.machinery.SOURCE_SUFFIXES))
                if (spec := finder.find_spec(fullname)) is not None and spec.loader is not None:
                    return spec
        return None


def _before_paths() -> int:
    """The index for a finder just before that of `sys.path`, after those of built-in modules."""
    finders: list[Any] = sys.meta_path
    paths = importlib.machinery.PathFinder
    return finders.index(paths) if paths in finders else len(finders)


def _forget_changed(helpers: Mapping[str, tuple[Path, str]]) -> None:
    """Makes the modules beside a controller be imported again if one of them has changed since its import."""
    names = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for name, file in helpers.items()
    }
    loaders = {name: getattr(sys.modules.get(name), "__loader__", None) for name in names}
    ours = {name: loader for name, loader in loaders.items() if isinstance(loader, _FromSource)}
    is_known = (
        Path(loader.path).resolve() == names[name][0].resolve() and loader.digest == names[name][1]
        for name, loader in ours.items()
    )
    if not all(is_known):
        for name in ours:
            del sys.modules[name]


def imported(path: Path) -> dict[str, Path]:
    """The modules beside a Python file that it imports, directly or indirectly: their paths, by relative path.

    Raises:
        OSError: One cannot be read.
        ValueError: One is no file, or too large.
    """
    modules: dict[str, Path] = {}
    unread = [path] if path.suffix == ".py" else []
    while unread:
        for name in _names_imported(unread.pop(), path.parent):
            parts = name.split(".")
            # The import of `a.b` first imports `a`.
            for module in (path.parent.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)):
                for file in (module.with_suffix(".py"), module / "__init__.py"):
                    relative = file.relative_to(path.parent).as_posix()
                    if file != path and relative not in modules and file.is_file():
                        modules[relative] = file
                        unread.append(file)
    return dict(sorted(modules.items()))


def _names_imported(file: Path, root: Path) -> Iterator[str]:
    """The modules that a file's import statements name, relative to `root`.

    Only these statements are parsed: the syntax tree of a whole file may take some hundred times
    its size. An import within a string adds a file that may not be needed.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no file, or too large.
    """
    source = _verus.read_file(file, MOST_SOURCE).replace(b"\\\n", b" ")
    package = file.parent.relative_to(root).parts
    for statement in _IMPORT.finditer(source):
        try:
            (node,) = ast.parse(statement[1]).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            before = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*before, *filter(None, [node.module])))
            # A name imported from a package may be one of its modules.
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*" or module)


#: An import statement, at the beginning of a line or after a colon or a semicolon; its names may be
#: in parentheses.
_IMPORT = re.compile(
    rb"(?:^|[;:])[ \t]*+(import[ \t][^\n\r;#]{1,4000}|from[ \t.][^\n\r;#(]{1,4000}(?:\((?:[^)#]|#[^\n]*){0,4000}\))?)",
    re.MULTILINE,
)


def _line_in(path: str, error: BaseException) -> int | None:
    """The last line of this file in the exception's traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return lines[-1] if lines else None


def _perhaps(word: str, words: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word, list(words), 1, _NEAR)
    return f" (did you mean `{near[0]}`?)" if near else ""


def _keywords(make: Callable[..., Controller], name: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The keyword arguments for these keys."""
    parameters, names = inspect.signature(make).parameters, _globals(make)
    accepted = {
        parameter.name: parameter
        for parameter in parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    keys = {}
    for key, text in pairs:
        if key not in accepted and not anything:
            keys_are = ", ".join(accepted) or "none"
            raise ValueError(f"`{name}` has no key `{key}`; its keys are {keys_are}{_perhaps(key, accepted)}")
        keys[key] = _value(key, text, _kind(accepted[key], names) if key in accepted else None)
    for key, parameter in accepted.items():
        if parameter.default is parameter.empty and key not in keys:
            raise ValueError(f"{key} must be given, as in `{name}:{key}=1`")
    return keys


def _globals(make: Callable[..., Any]) -> dict[str, Any]:
    """The names that annotations of its keys may have."""
    while isinstance(make, functools.partial):
        make = make.func
    taking = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    return getattr(inspect.unwrap(taking), "__globals__", {})


def _kind(parameter: inspect.Parameter, names: dict[str, Any]) -> type | None:
    """The type of a key by its annotation, or by its default if that does not evaluate; None if it has neither."""
    kind = parameter.annotation
    if isinstance(kind, str):
        try:
            kind = get_type_hints(types.SimpleNamespace(__annotations__={"key": kind}), names)["key"]
        except Exception:  # whatever a name in it is, or is not
            kind = parameter.empty
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        kind = next((one for one in get_args(kind) if one is not type(None)), None)
    for candidate in (bool, int, float, str):
        if kind is candidate or (kind is parameter.empty and type(parameter.default) is candidate):
            return candidate
    return None


def _value(key: str, text: str, kind: type | None) -> Any:
    """A key's value, with the syntax and the error messages of built-in keys."""
    if kind is bool or (kind is None and text in ("yes", "no")):
        if text in ("yes", "no"):
            return text == "yes"
        raise ValueError(f"{key} must be one of yes, no, not `{text}`")
    if kind is str:
        return text
    if kind is not float:
        try:
            return int(text)
        except ValueError:
            if kind is int:
                raise ValueError(f"{key} must be a whole number, not `{text}`") from None
    try:
        number = float(text)
    except ValueError:
        if kind is None:
            return text
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key} must be a number, not `{text}`")
    return number


def _try(make: Callable[[], Any], name: str) -> None:
    """Makes one controller, so that the class refuses invalid keys now."""
    try:
        made = make()
    except Exception as error:
        words = " ".join(str(error).split())
        problem = words if isinstance(error, ValueError) and words else told(error)
        raise ValueError(problem) from error
    if not isinstance(made, Controller):
        raise ValueError(f"`{name}` makes a {type(made).__name__}, not a verus.Controller")
    for method in (method for method, member in vars(Controller).items() if inspect.isfunction(member)):
        called = getattr(made, method)
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise ValueError(f"`{method}` of `{name}` must be a `def`, not an `async def`, whose body would never run")
        if inspect.isgeneratorfunction(called):
            raise ValueError(f"`{method}` of `{name}` must not `yield`: its body would never run")
    ecn_of(made)
    every_of(made)
