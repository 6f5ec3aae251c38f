"""Files and folders that commands write."""

import os
import stat
from pathlib import Path

import pytest

from verus.errors import FieldError
from verus.lab.atomic_write import refuse_existing, write_whole


def test_a_file_is_replaced_whole_and_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"before")
    with pytest.raises(FieldError, match="exists; --force replaces it"):
        refuse_existing(path, force=False)
    refuse_existing(path, force=True)
    write_whole(path, b"after")
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    null = Path(os.devnull)
    refuse_existing(null, force=False)
    write_whole(null, b"nothing")
    assert stat.S_ISCHR(null.stat().st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        refuse_existing(pipe, force=False)
        write_whole(pipe, b"a table")
        assert os.read(reader, 100) == b"a table"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
