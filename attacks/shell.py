"""Attacks on `verus shell` as root, by the program inside and by other users of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from attacks.attack import attack
from attacks.endpoint import Ran
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
    """The caller's own folder holds links to root's file under the names of the results before the shell begins.

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
    shell_as_root(stage, folder, "id -un > who\n", "--out", "out", "--force", "--log-down", "down.log")
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
    """Another host of the local network sends through this one while a shell runs.

    Only the shell's own interface forwards; afterwards all is as before.
    """
    peer = stage.peer()  # noqa: F841 — its device is another interface of the host
    folder, _ = places(stage)

    def forwards() -> dict[str, str]:
        base = Path("/proc/sys/net/ipv4/conf")
        return {name: (base / name / "forwarding").read_text().strip() for name in ("lo", "near", "all", "default")}

    before = forwards()
    script = "id -un > who\nsleep 3\n"
    program = folder / "program.sh"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    running = stage.endpoint("shell", "--down", "rate:10", "--", "./program.sh", cwd=folder)
    from attacks.endpoint import until

    until(lambda: (folder / "who").exists(), 5)
    during = forwards()
    code = running.wait(10)
    after = forwards()
    stage.figure(before=before, during=during, after=after)
    stage.expect(code == 0, "the shell ran", f"the shell: exit {code}, {running.last_line[:100]}")
    stage.expect(
        during["near"] == before["near"], "another interface does not forward", "another interface forwards meanwhile"
    )
    stage.expect(after == before, "all is as before", f"afterwards: {after}, before: {before}")
