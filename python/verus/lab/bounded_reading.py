"""Reading files that others may have made: a small one never takes much memory, and none keeps its reader waiting.

A file of a run's folder may be damaged, or made by a stranger: compressed content that expands a thousandfold, a pipe
that nobody writes to, a hole of a terabyte. What is too large for any run of ours is refused before it is read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

#: Of one JSON document, bytes: as objects of Python it takes up to some twenty times as much.
MOST_JSON = 64 << 20

#: Of a file with a JSON document a line.
MOST_LINES = 512 << 20

#: Of what a file holds, unpacked, bytes, whatever the size of the file.
MOST_UNPACKED = 4 << 30

#: A smaller file may still become so large; beyond, what is ours is at most `_EXPANDS` times its file.
_LEAST_UNPACKED, _EXPANDS = 256 << 20, 100

#: What is unpacked at once, bytes.
_PIECE = 16 << 20

#: What a value takes in memory at the least, bytes.
_VALUE = 8


def opened(path: Path, most: int) -> BinaryIO:
    """Opens a file of at most `most` bytes.

    Raises:
        OSError: It cannot be opened.
        ValueError: It is no file, such as a pipe, or larger.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"`{path}`: is not a file")
        if found.st_size > most:
            raise ValueError(f"`{path}`: has {found.st_size} bytes; at most {most} are read")
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
        return file.read(most)


def most_unpacked(size: int) -> int:
    """How many bytes a file of `size` bytes may hold, if it is ours."""
    return min(max(_LEAST_UNPACKED, _EXPANDS * size), MOST_UNPACKED)


def gunzipped(path: Path, most: int) -> bytes:
    """What a gzip file holds, `most` bytes at the most.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not gzip, is damaged, or holds more.
    """
    return gunzip(content(path, most), most).getvalue()


def gunzip(packed: bytes, most: int) -> io.BytesIO:
    """The same of what was read.

    Raises:
        ValueError: It is not gzip, is damaged, or holds more.
    """
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    found = io.BytesIO()
    try:
        while packed and not unpacker.eof:
            if found.write(unpacker.decompress(packed, _PIECE)) == 0:
                break
            packed = unpacker.unconsumed_tail
            if found.tell() > most:
                raise ValueError(f"it expands to more than {most} bytes")
    except zlib.error as error:
        raise ValueError(f"not gzip, or damaged: {error}") from error
    if not unpacker.eof:
        raise ValueError("it is cut short")
    found.seek(0)
    return found


def table(path: Path) -> pa.Table:
    """A Parquet file's table.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not Parquet, is damaged, or would take more memory than a table of ours with such a file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with opened(path, MOST_UNPACKED) as file:
        most = most_unpacked(os.fstat(file.fileno()).st_size)
        try:
            with pq.ParquetFile(file) as parquet:
                return _read(parquet, most)
        except _TooLargeError as error:
            raise ValueError(f"`{path}`: {error}") from error
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"`{path}`: not a Parquet file, or damaged ({error})") from error


class _TooLargeError(Exception):
    """What a table would take."""


def _read(parquet: pa.parquet.ParquetFile, most: int) -> pa.Table:
    """The table, read in pieces of which each fits by what the file says of itself, until they do not fit together."""
    import pyarrow as pa

    found = parquet.metadata
    chunks = [found.row_group(g).column(c) for g in range(found.num_row_groups) for c in range(found.num_columns)]
    values = sum(chunk.num_values for chunk in chunks)
    if values * _VALUE > most or found.num_rows * _VALUE > most:
        raise _TooLargeError(f"has {found.num_rows} rows and {values} values; its file is too small for them")
    # A text may stand in each row, and takes at most what its column has unpacked.
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
