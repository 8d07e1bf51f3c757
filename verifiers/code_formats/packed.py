"""Text that was pickled, compressed and written in base64; nothing but data is ever unpickled."""

from __future__ import annotations

import base64
import io
import pickle
import zlib
from typing import Any, NoReturn

# A row with more is a bomb: the largest published one unpacks to a few hundred megabytes.
MAX_UNPACKED_BYTES = 1 << 30


class PackedTextError(ValueError):
    """Not such a text."""


def unpack_text(packed: str) -> Any:
    """Unpack what `base64(zlib(pickle(data)))` gave.

    Args:
        packed: The base64 text.

    Returns:
        A text, or lists and dictionaries of texts and numbers.

    Raises:
        PackedTextError: It is something else, or the pickle asks for anything to be imported.
    """
    try:
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
    except (ValueError, zlib.error) as error:
        raise PackedTextError(str(error)) from error
    if not decompressor.eof:
        raise PackedTextError(f"it ends early, or unpacks to more than {MAX_UNPACKED_BYTES} bytes")
    try:
        return _DataUnpickler(io.BytesIO(data)).load()
    except PackedTextError:
        raise
    except Exception as error:  # a broken pickle raises whatever its bytes happen to ask for
        raise PackedTextError(f"the pickle is broken: {error}") from error


class _DataUnpickler(pickle.Unpickler):
    """Knows lists, dictionaries, texts and numbers: names, by which code would run, are refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise PackedTextError(f"the pickle asks for {module_name}.{global_name}, and may not")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise PackedTextError(f"the pickle asks for {pid!r:.40} from outside, and may not")
