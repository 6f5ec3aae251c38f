"""Runs simulations on a Dask cluster, on workers with the same build of this package.

Traces and models travel by content: a worker needs no file that the runs name. A worker that dies
costs only time, as the scheduler gives its work to another.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from verus import _verus, controller
from verus.controller import imported
from verus.errors import FieldError
from verus.lab import inputs, store
from verus.lab.inputs import Digests, respelt, with_names
from verus.lab.runner import Ended, Progress, in_order, sandboxed
from verus.lab.sandbox import Budget, Sandbox
from verus.lab.scenario import Run

#: The number of times that a worker of `local:N` may die during a run before the run counts as the
#: cause.
_DEATHS = 10

#: The longest time for a scheduler's answer, in seconds.
_PATIENCE_S = 15

#: Simulated seconds of a flow in a batch of runs: a fraction of a second of work, much more than
#: the cost of handing it out.
_BATCH_S = 600.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of a cluster; the workers of ``local:N`` live as long as the block.

    Raises:
        FieldError: Dask is not installed, or there is no such cluster.
    """
    try:
        import dask
        from distributed import Client, LocalCluster, Security
    except ImportError as error:
        raise FieldError("cluster", f"needs Dask: pip install 'verus-cc[cluster]' ({error})") from error
    kind, _, count = address.partition(":")
    local = None
    if kind == "local":
        if not count.isascii() or not count.isdigit() or not 1 <= int(count[:6]) <= 1000:
            raise FieldError("cluster", f"`{address}` is not local:N with N from 1 to 1000")
        # Children start in the working directory of `verus`, and would load untrusted modules
        # there.
        os.environ.setdefault("PYTHONSAFEPATH", "1")
        # A scheduler runs any client's code, and every user of this machine reaches its port. So
        # clients need this run's key, which is in our memory alone. Dask's HTTP pages check no key,
        # so they are off. Their server stays, on any free port: its default, 8787, is one for all.
        silent: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
        try:
            security = Security.temporary()
        except ImportError as error:
            raise FieldError("cluster", f"`{address}` needs TLS: pip install 'verus-cc[cluster]' ({error})") from error
        with dask.config.set({"distributed.scheduler.allowed-failures": _DEATHS, **silent}):
            local = LocalCluster(
                n_workers=int(count),
                threads_per_worker=1,
                processes=True,
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                silence_logs=50,
                security=security,
            )
    elif "://" not in address:
        raise FieldError("cluster", f"`{address}` is neither an address such as tcp://HOST:PORT nor local:N")
    try:
        client = Client(local or address, timeout=_PATIENCE_S)
    except (OSError, ValueError, TypeError, ImportError) as error:  # the last two: no key for TLS, or no UCX
        raise FieldError("cluster", f"`{address}` cannot be reached ({error})") from error
    try:
        yield client
    finally:
        client.close()
        if local is not None:
            local.close()


def as_ended(
    runs: Sequence[Run], *, address: str, progress: Progress | None = None, client: Any = None
) -> Generator[tuple[int, Ended]]:
    """Runs everything on the cluster; yields each one's index and outcome, without arrays, as soon as it arrives.

    Args:
        runs: What to run.
        address: That of a scheduler, such as ``tcp://HOST:PORT``; or ``local:N`` for N processes of this machine.
        progress: Called as runs end.
        client: Connected to it already (`connected`), for those who run several things after one another.

    Raises:
        FieldError: Dask is not installed, or there is no such cluster.
        ValueError: A scenario is refused.
        OSError: A trace cannot be read.
        RuntimeError: A worker has another build of the simulator, or the cluster lost a run.
    """
    if client is None:
        with connected(address) as client:
            yield from as_ended(runs, address=address, progress=progress, client=client)
        return
    from distributed import as_completed as completed

    sent: dict[str, Any] = {}
    digests = Digests()
    futures = {}
    for indices in _batches(runs, workers=len(client.nthreads())):
        texts, files = _packed([runs[index] for index in indices], digests)
        for name, path in files.items():
            if name not in sent:
                sent[name] = client.submit(bytes, inputs.content(path), key=f"verus-file-{name}")
        parts = [sent[name] for name in files]
        box = controller.sandbox.get() if sandboxed([runs[at] for at in indices]) else None
        budget = asdict(box.budget) if isinstance(box, Sandbox) else None
        futures[client.submit(_work, texts, store.engine(), budget, [*files], *parts, pure=False)] = indices
    done = 0
    for future in completed(futures):
        try:
            ended = future.result()
        except (ValueError, OSError):
            raise
        except Exception as error:  # Dask's own errors, such as a worker that died again and again
            raise RuntimeError(f"{address}: {error}") from error
        for index, told in zip(futures[future], ended, strict=True):
            done += 1
            if progress is not None:
                progress(done, len(runs), done / len(runs))
            if isinstance(told, str):
                yield index, RuntimeError(told)
            else:
                yield index, with_names(store.unpack(told), runs[index].scenario)


def _batches(runs: Sequence[Run], *, workers: int) -> Iterator[list[int]]:
    """Indices of runs that are handed out together: `_BATCH_S` of work, but several batches for each worker."""
    batch_size = max(1, len(runs) // (4 * max(1, workers)))
    batch: list[int] = []
    seconds = 0.0
    for index, run in enumerate(runs):
        batch.append(index)
        seconds += run.scenario["duration_s"] * len(run.scenario["flows"])
        if seconds >= _BATCH_S or len(batch) == batch_size:
            yield batch
            batch, seconds = [], 0.0
    if batch:
        yield batch


def _packed(runs: Sequence[Run], digests: Digests) -> tuple[list[str], dict[str, Path]]:
    """Runs as they are sent: scenarios whose files are all in `_BOX`, and the local path of each file, by name.

    A name there is the file's digest and its suffix, which says how it is compressed.
    """
    files: dict[str, Path] = {}

    def put(_: str, path: Path) -> str:
        name = f"{digests.of(path)}{path.suffix}"
        if others := imported(path):  # they must be beside it, under their own names
            folder, name = Path(name).stem, f"{Path(name).stem}/{path.name}"
            files.update({f"{folder}/{other}": lies for other, lies in others.items()})
        files[name] = path
        return f"{_BOX}/{name}"

    return [json.dumps(respelt(run.scenario, put), allow_nan=False) for run in runs], files


#: A placeholder for the folder of a worker's files, in the runs that it gets.
_BOX = "{verus-box}"


def _work(
    texts: Sequence[str], engine: str, budget: dict[str, int] | None, names: Sequence[str], *contents: bytes
) -> list[bytes | str]:
    """Runs a batch on a worker: the outcome of each run as `verus.lab.store` packs it, or the error.

    With a budget it runs in a sandbox of the worker's.
    """
    if engine != store.engine():
        raise RuntimeError(f"a worker has another build of the simulator: {store.engine()}, not {engine}")
    for name, content in zip(names, contents, strict=True):
        path = _box() / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}-{os.urandom(4).hex()}")
            draft.write_bytes(content)
            draft.replace(path)
    box_path = json.dumps(str(_box()))[1:-1]
    placed = [text.replace(_BOX, box_path) for text in texts]
    ended: Sequence[Ended]
    if budget is None:
        ended = _verus.simulate_many(placed, 1, None, columns=False)
    else:
        with Sandbox(Budget(**budget)).used() as sandbox:
            ended = in_order(sandbox.ended(placed, threads=1, columns=False))
    return [str(end) if isinstance(end, RuntimeError) else store.pack(end) for end in ended]


@cache
def _box() -> Path:
    """The temporary folder of the files that this worker was sent."""
    global _folder
    _folder = tempfile.TemporaryDirectory(prefix="verus-")
    return Path(_folder.name)


_folder: tempfile.TemporaryDirectory[str] | None = None
