"""Checkpoints on disk: written whole or not at all, and proved whole before they are read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verifiers.errors import UserError

POLICY = "policy"
LEARNER = "learner"
ADAPTER = "adapter"
STATE = "state.json"
MANIFEST = "manifest.json"
BEST = "best"
# A file system that ended a write for want of space has less than a block or two left.
NO_SPACE_BYTES = 2**16
_NAME = re.compile(r"checkpoint-(\d+)")


class DiskFull(RuntimeError):
    """A checkpoint could not be written for want of space; the ones before are untouched."""


class DamagedCheckpoint(UserError):
    """A checkpoint is not what was written."""


@contextmanager
def write_checkpoint(
    run_dir: Path, *, step: int, state: Mapping[str, Any], keep_last: int | None = None
) -> Iterator[Path]:
    """Give a folder to fill, and make it `run_dir/checkpoint-<step>` once it is filled.

    The folder has another name until the block ends without an error; then its files are listed
    with size and hash, flushed to disk, and the folder is renamed. A process that dies at any
    moment leaves either a whole checkpoint or a folder that no reader takes for one.

    Args:
        run_dir: Where checkpoints lie.
        step: The step that was finished last.
        state: The loop's own state, as JSON.
        keep_last: How many to keep, this one included; None keeps all.

    Yields:
        The folder; model and optimizer go into its `policy/` and `learner/`.

    Raises:
        DiskFull: There is no space for it.

    Example:
        >>> with write_checkpoint(run, step=10, state={"step": 10}) as folder:  # doctest: +SKIP
        ...     learners.begin_save(folder)
        ...     learners.finish_save()
    """
    final = run_dir / f"checkpoint-{step}"
    partial = run_dir / f"partial-{step}-{os.getpid()}"
    run_dir.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        (partial / STATE).write_text(json.dumps(state, sort_keys=True), encoding="utf-8")
        _write_manifest(partial)
        _replace(partial, final)
    except (OSError, RuntimeError) as error:
        # Asked while the partial files are still there: writers say it in many ways, and some of
        # them in another process.
        if shutil.disk_usage(run_dir).free < NO_SPACE_BYTES:
            raise DiskFull(f"{run_dir} is on a disk that is full: {error}") from error
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if keep_last is not None:
        prune_checkpoints(run_dir, keep_last)


def list_checkpoints(run_dir: Path) -> list[Path]:
    """List checkpoint folders, oldest step first, whole or not."""
    found = [
        (int(match[1]), path)
        for path in run_dir.glob("checkpoint-*")
        if (match := _NAME.fullmatch(path.name)) and path.is_dir()
    ]
    return [path for _, path in sorted(found)]


def latest_checkpoint(run_dir: Path, warn: Callable[[str], None]) -> Path | None:
    """Find the newest checkpoint that is whole.

    Args:
        run_dir: Where checkpoints lie.
        warn: Is told, in one sentence, of every damaged one that is passed over.

    Returns:
        Its folder, or None when there is none.
    """
    for path in reversed(list_checkpoints(run_dir)):
        try:
            verify_checkpoint(path)
        except DamagedCheckpoint as error:
            warn(f"Skipping a checkpoint: {error}")
        else:
            return path
    return None


def verify_checkpoint(folder: Path) -> None:
    """Prove that every file is there with the size and the hash it was written with.

    Raises:
        DamagedCheckpoint: If one is not; it names the file.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise DamagedCheckpoint(f"{folder} has no {MANIFEST}: it was never finished.")
    try:
        files: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
        raise DamagedCheckpoint(f"{manifest} cannot be read ({error!r}).") from error
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedCheckpoint(f"{path} is missing.")
        if path.stat().st_size != expected["size"]:
            raise DamagedCheckpoint(
                f"{path} has {path.stat().st_size} bytes, but {expected['size']} were written."
            )
        if _hash_file(path) != expected["blake2b"]:
            raise DamagedCheckpoint(f"{path} has another content than was written (blake2b).")


def read_state(folder: Path) -> dict[str, Any]:
    """Read the loop's own state back."""
    return json.loads((folder / STATE).read_text(encoding="utf-8"))


def mark_best(run_dir: Path, step: int) -> None:
    """Make `run_dir/best` a link to a step's checkpoint, which is then never pruned."""
    link = run_dir / f".{BEST}"
    link.unlink(missing_ok=True)
    link.symlink_to(f"checkpoint-{step}")
    link.replace(run_dir / BEST)


def remove_leftovers(run_dir: Path) -> None:
    """Remove what a killed process left half written or half removed."""
    for pattern in ("partial-*", "removing-*"):
        for path in run_dir.glob(pattern):
            shutil.rmtree(path)


def prune_checkpoints(run_dir: Path, keep_last: int) -> None:
    """Remove all but the newest checkpoints and the best one.

    Raises:
        UserError: If none would be kept.
    """
    if keep_last < 1:
        raise UserError(f"keep_last={keep_last} would remove every checkpoint: give at least 1")
    best = (run_dir / BEST).resolve()
    for path in list_checkpoints(run_dir)[:-keep_last]:
        if path.resolve() == best:
            continue
        # Renamed first: a removal that is interrupted must not leave half a checkpoint under its
        # name.
        doomed = path.with_name(f"removing-{path.name}")
        path.rename(doomed)
        shutil.rmtree(doomed)


def _write_manifest(folder: Path) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "blake2b": _hash_file(path),
        }
        for path in paths
    }
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"version": 1, "files": files}, indent=2), encoding="utf-8")
    for path in (*paths, manifest):
        _flush(path)
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        _flush(path)


def _replace(partial: Path, final: Path) -> None:
    if final.exists():
        # A folder cannot be renamed onto one with files in it. Only a rerun of the same step comes
        # here.
        old = final.with_name(f"removing-{final.name}")
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
        partial.rename(final)
        shutil.rmtree(old)
    else:
        partial.rename(final)
    _flush(final.parent)


def _flush(path: Path) -> None:
    """Make a file's content, or a folder's list of names, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
