"""Attacks on `verus shell` as root, by the program inside and by other users of the machine."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from attacks.attack import attack
from attacks.endpoint import Ran, until
from attacks.stage import Stage

#: The program inside runs as this user.
NOBODY = 65534
SHELL = ("root", "namespaces", "tun")


def shell_as_root(stage: Stage, folder: Path, script: str, *options: object, **environment: str) -> Ran:
    """`sudo verus shell OPTIONS -- SCRIPT`, called by nobody in a folder of nobody's."""
    program = folder / "program.sh"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    settings = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "SUDO_USER": "nobody", **environment}
    env = {key: value for key, value in {**os.environ, **settings}.items() if value}
    return stage.run("shell", "--down", "rate:10", *options, "--", "./program.sh", cwd=folder, env=env, seconds=25)


def places(stage: Stage) -> tuple[Path, Path]:
    """A folder of nobody's, and a file that only root may touch."""
    folder, secret = stage.folder("nobody"), stage.folder("root")
    os.chown(folder, NOBODY, NOBODY)
    secret.chmod(0o700)
    target = secret / "target"
    target.write_text("precious\n")
    return folder, target


def untouched(stage: Stage, folder: Path, target: Path) -> None:
    """Expect that root's file is as it was, and that the program ran as nobody and could not read it."""
    who = (folder / "who").read_text().strip() if (folder / "who").exists() else "(nothing)"
    stage.expect(who == "nobody", f"the program ran as {who}")
    stage.expect(
        target.read_text() == "precious\n",
        "root's file is as it was",
        f"root's file is now: {target.read_text()[:60]!r}",
    )
    others = sorted(path.name for path in target.parent.iterdir())
    stage.expect(others == ["target"], "nothing new beside it", f"beside it: {others}")
    stage.expect(target.stat().st_uid == 0, "it is still root's")


@attack("shell-planted-draft", needs=SHELL, quick=True)
def planted_draft(stage: Stage) -> None:
    """The program inside plants links to root's file in every folder and name that a draft of the results may have.

    Nothing of root's is overwritten; the results are the caller's.
    """
    folder, target = places(stage)
    script = f"""
id -un > who
cat {target} > stolen 2>/dev/null
plant() {{ for f in results.jsonl series.jsonl profile.jsonl run.json; do ln -sf {target} "$1/$f" 2>/dev/null; done; }}
for p in $PPID $$ 1; do for d in .out-$p.part .out.$p.part; do mkdir -p $d && plant $d; done; done
for d in .out* out* .*.part; do [ -d "$d" ] && plant "$d"; done
sleep 1
for d in .out* out* .*.part; do [ -d "$d" ] && plant "$d"; done
exit 0
"""
    ran = shell_as_root(stage, folder, script, "--out", "out")
    stage.expect(ran.code is not None, f"exit {ran.code}: {ran.last_line[:100]}")
    untouched(stage, folder, target)
    stage.expect(not (folder / "stolen").read_text(), "it read nothing of root's")
    made = list((folder / "out").rglob("*")) if (folder / "out").is_dir() else []
    foreign = [path.name for path in made if path.lstat().st_uid != NOBODY]
    stage.expect(not foreign, "the results are the caller's", f"root's in the results: {foreign}")


@attack("shell-planted-logs", needs=SHELL, quick=True)
def planted_logs(stage: Stage) -> None:
    """The program inside puts links to root's file where the logs are to be written, and where their drafts may be.

    Nothing of root's is overwritten.
    """
    folder, target = places(stage)
    script = f"""
id -un > who
for p in $PPID $$ 1; do for n in down up; do
  for f in .$n.log-$p.part .$n.log.$p.part $n.log.part .$n.log.part $n.log; do ln -sf {target} $f; done
done; done
for f in .down* .up*; do ln -sf {target} "$f"; done
exit 0
"""
    ran = shell_as_root(stage, folder, script, "--log-down", "down.log", "--log-up", "up.log")
    stage.expect(ran.code is not None, f"exit {ran.code}: {ran.last_line[:100]}")
    untouched(stage, folder, target)


@attack("shell-links-before", needs=SHELL, quick=True)
def links_before(stage: Stage) -> None:
    """The caller's folder holds links to root's file under every name of a result or a draft beforehand.

    Nothing of root's is overwritten.
    """
    folder, target = places(stage)
    out = folder / "out"
    out.mkdir()
    for name in ("results.jsonl", "series.jsonl", "run.json", "report.html"):
        (out / name).symlink_to(target)
    for path in (out, *out.iterdir()):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    (folder / "down.log").symlink_to(target)
    for pid in range(1, 600):  # the numbers that processes have in a sandbox
        (folder / f".down.log-{pid}.part").symlink_to(target)
    for options in (("--out", "out", "--force"), ("--log-down", "down.log")):
        shell_as_root(stage, folder, "id -un > who\n", *options)
    if not (folder / "who").exists():
        (folder / "who").write_text("nobody\n")  # refused before it began: as good
        stage.expect(True, "refused before the program began")
    untouched(stage, folder, target)


@attack("shell-user-without-group", needs=SHELL, quick=True)
def user_without_group(stage: Stage) -> None:
    """The environment names the caller's user and no group, or something that is no number.

    The program does not run as root without a word: it is refused, or runs as the user.
    """
    folder, _ = places(stage)
    for environment in ({"SUDO_GID": ""}, {"SUDO_UID": "abc"}, {"SUDO_GID": "-1"}):
        (folder / "who").unlink(missing_ok=True)
        ran = shell_as_root(stage, folder, "id -un > who\n", **environment)
        who = (folder / "who").read_text().strip() if (folder / "who").exists() else ""
        named = ", ".join(f"{key}={value or '(absent)'}" for key, value in environment.items())
        stage.expect(
            who != "root" or "root" in ran.err,
            f"{named}: {f'it ran as {who}' if who else f'refused, exit {ran.code}'}",
            f"{named}: it ran as root without a word",
        )


@attack("shell-forwarding", needs=SHELL, quick=True)
def forwarding(stage: Stage) -> None:
    """Another host of the local network sends through this one, to a third host and to the program, while a shell runs.

    Nothing passes but what the program asked for; afterwards all is as before.
    """
    one, other = stage.peer(), stage.peer(98)
    folder, _ = places(stage)
    base = Path("/proc/sys/net")

    def settings() -> dict[str, str]:
        return {str(path.relative_to(base)): path.read_text().strip() for path in base.glob("ipv?/conf/*/forwarding")}

    def passes(port: int, to: str) -> bool:
        with other.socket(other.address, port) as third, one.socket(one.address) as first:
            third.settimeout(0.5)
            for _ in range(3):
                first.sendto(b"through you", (to, port))
                time.sleep(0.05)
            with contextlib.suppress(TimeoutError):
                return len(third.recv(100)) > 0
            return False

    before = settings()
    heard = folder / "heard"
    listener = (
        "import socket, sys\n"
        "ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); ours.bind(('', 7777)); ours.settimeout(3)\n"
        "asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asked.settimeout(2)\n"
        f"asked.sendto(b'question', ('{other.address}', 7778)); open('answer', 'wb').write(asked.recv(100))\n"
        "open('who', 'w').write('ready')\n"
        f"open('{heard}', 'wb').write(ours.recv(100))\n"
    )
    (folder / "listen.py").write_text(listener)
    running = stage.endpoint("shell", "--down", "rate:10", "--", sys.executable, "listen.py", cwd=folder)
    with other.socket(other.address, 7778) as asked:
        asked.settimeout(5)
        with contextlib.suppress(TimeoutError):
            _, asker = asked.recvfrom(100)
            asked.sendto(b"answer", asker)
    until(lambda: (folder / "who").exists(), 5)
    answered = (folder / "answer").exists() and (folder / "answer").read_bytes() == b"answer"
    stage.expect(answered, "the program is answered from beyond", "the program gets no answer from beyond")
    stage.expect(not passes(7001, other.address), "nothing passes to a third host", "packets pass to a third host")
    with one.socket(one.address) as first:
        for _ in range(3):
            first.sendto(b"unasked", ("100.64.0.2", 7777))
    code = running.wait(10)
    reached = heard.exists() and heard.read_bytes() == b"unasked"
    stage.expect(not reached, "nor to the program unasked", "the program is reached unasked")
    stage.expect(code is not None, f"the program ended with {code}")
    after = settings()
    changed = {name for name in before if after.get(name) != before[name]}
    stage.expect(not changed, "all is as before", f"changed: {sorted(changed)[:4]}")
