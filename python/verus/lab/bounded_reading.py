"""Reads untrusted files: a small one never takes much memory, and none blocks its reader.

A file of a run's folder may be damaged or hostile. Its content may expand a thousandfold; it may be
a pipe without a writer, or a hole of a terabyte. Files larger than any run of ours leaves are
refused before they are read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from verus import _verus

if TYPE_CHECKING:
    import pyarrow as pa

#: The limit of one JSON document, bytes: as Python objects it takes up to some twenty times as
#: much.
MOST_JSON = 64 << 20

#: The limit of a file with a JSON document a line, bytes.
MOST_LINES = 512 << 20

#: The limit of a text that a person writes, such as a study, bytes.
MOST_TEXT = 4 << 20

#: The limit of any file's unpacked content, bytes.
MOST_UNPACKED = 4 << 30

#: Any file may expand to `_LEAST_UNPACKED`; a larger content must be at most `_EXPANDS` times its
#: file.
_LEAST_UNPACKED, _EXPANDS = 256 << 20, 100

#: The size of a piece that is unpacked at once, bytes.
_PIECE = 16 << 20

#: The minimum memory of a value, bytes.
_VALUE = 8


def opened(path: Path, most: int) -> BinaryIO:
    """Opens a file of at most `most` bytes.

    Raises:
        OSError: It cannot be opened.
        ValueError: It is no regular file, such as a pipe or a device, or larger.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"`{path}`: is not a file")
        if status.st_size > most:
            raise ValueError(f"`{path}`: has {status.st_size} bytes; at most {most} are read")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def content(path: Path, most: int) -> bytes:
    """All bytes of a file.

    Raises:
        OSError, ValueError: As `opened`.
    """
    with opened(path, most) as file:
        return whole(file)


def whole(file: BinaryIO) -> bytes:
    """All bytes of an open file. `read` with the limit as its argument would allocate that much memory at once."""
    return file.read(os.fstat(file.fileno()).st_size)


def given(path: Path, most: int) -> bytes:
    """As `content`, of a file that a user names, which may also be a pipe passed to this process, `<(command)`.

    Raises:
        OSError, ValueError: As `opened`.
    """
    return _verus.read_file(path, most) if _verus.is_given_pipe(path) else content(path, most)


def holds(path: Path, content: bytes) -> bool:
    """Whether there is a file with these bytes and no others."""
    try:
        with opened(path, len(content)) as file:
            return whole(file) == content
    except (OSError, ValueError):
        return False


def most_unpacked(size: int) -> int:
    """The most bytes that a file of ours with `size` bytes may hold."""
    return min(max(_LEAST_UNPACKED, _EXPANDS * size), MOST_UNPACKED)


def gunzipped(path: Path, most: int) -> bytes:
    """The content of a gzip file, at most `most` bytes.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not gzip, is damaged, or holds more.
    """
    with opened(path, most) as file:
        return gunzip(file, most).getvalue()


def gunzip(packed: BinaryIO, most: int) -> io.BytesIO:
    """Unpacks the rest of an open gzip file.

    Raises:
        ValueError: It is not gzip, is damaged, or holds more.
    """
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    unpacked = io.BytesIO()
    try:
        while not unpacker.eof and (piece := unpacker.unconsumed_tail or packed.read(_PIECE)):
            unpacked.write(unpacker.decompress(piece, _PIECE))
            if unpacked.tell() > most:
                raise ValueError(f"it expands to more than {most} bytes")
    except zlib.error as error:
        raise ValueError(f"not gzip, or damaged: {error}") from error
    if not unpacker.eof:
        raise ValueError("it is cut short")
    unpacked.seek(0)
    return unpacked


def table(path: Path) -> pa.Table:
    """A Parquet file's table.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not Parquet, is damaged, or would take more memory than a table of ours with such a file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with opened(path, MOST_UNPACKED) as file:
        limit = most_unpacked(os.fstat(file.fileno()).st_size)
        try:
            with pq.ParquetFile(file) as parquet:
                return _read(parquet, limit)
        except _TooLargeError as error:
            raise ValueError(f"`{path}`: {error}") from error
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"`{path}`: not a Parquet file, or damaged ({error})") from error


def table_schema(path: Path) -> pa.Schema:
    """A Parquet file's schema.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not Parquet, is damaged, or has more metadata than a table of ours.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with opened(path, MOST_UNPACKED) as file:
        try:
            file.seek(-8, os.SEEK_END)  # the length of the metadata is before the last word
            if int.from_bytes(file.read(4), "little") > MOST_JSON:
                raise ValueError(f"`{path}`: says more of itself than a table of ours")
            return pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"`{path}`: not a Parquet file, or damaged ({error})") from error


class _TooLargeError(Exception):
    """The table is too large; the message says by which measure."""


def _read(parquet: pa.parquet.ParquetFile, most: int) -> pa.Table:
    """The table, read in pieces that each fit by the file's metadata, until their sum exceeds the limit."""
    import pyarrow as pa

    metadata = parquet.metadata
    chunks = [
        metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]
    values = sum(chunk.num_values for chunk in chunks)
    if values * _VALUE > most or metadata.num_rows * _VALUE > most:
        raise _TooLargeError(f"has {metadata.num_rows} rows and {values} values; its file is too small for them")
    # Each row may hold a text as long as its whole unpacked column.
    longest = max((chunk.total_uncompressed_size for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"), default=0)
    if longest > most:
        raise _TooLargeError(f"has texts of up to {longest} bytes")
    rows = max(1, min(1 << 16, most // max(longest, 1)))
    pieces, taken = [], 0
    for piece in parquet.iter_batches(batch_size=rows):
        pieces.append(piece)
        taken += piece.nbytes
        if taken > most:
            raise _TooLargeError(f"takes more than {most} bytes; its file is too small for that")
    return pa.Table.from_batches(pieces, schema=parquet.schema_arrow)
