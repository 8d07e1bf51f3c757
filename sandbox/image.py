"""The image that programs run in: Python and numpy, and nothing else worth reading."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.apt_sources import AptSource, own_source
from sandbox.engine import Engine
from sandbox.errors import Cause, SandboxUnavailable

# A change in what the image holds raises the tag, so that an old image is never taken for the new
# one.
DEFAULT_IMAGE = "verigrad-sandbox:1"
BASE_IMAGE = "python:3.12-slim"
DOCKERFILE = f"""\
FROM {BASE_IMAGE}
RUN pip install --no-cache-dir --root-user-action=ignore numpy \\
    && pip uninstall --yes --root-user-action=ignore pip \\
    && rm -rf /usr/share/doc /usr/share/man /var/lib/apt /var/cache
"""
PACKAGES = "python3,python3-numpy"
DEBOOTSTRAP_TIMEOUT_S = 1200

# Left out of the root file system: what neither Python nor numpy needs at run time.
STRIPPED = (
    "./boot",
    "./dev/*",
    "./home",
    "./media",
    "./mnt",
    "./opt",
    "./proc/*",
    "./*/.bashrc",
    "./*/.profile",
    "./run/*",
    "./srv",
    "./sys/*",
    "./tmp/*",
    "./var/*",
    "./usr/bin/[!p]*",
    "./usr/bin/p[!y]*",
    "./usr/games",
    "./usr/include",
    "./usr/local/*",
    "./usr/sbin/*",
    "./usr/share/[!z]*",
    "./usr/src",
    "./usr/lib/apt",
    "./usr/lib/dpkg",
    "./usr/lib/init",
    "./usr/lib/systemd",
    "./usr/lib/udev",
    "./usr/lib/python3*/ensurepip",
    "./usr/lib/python3*/idlelib",
    "./usr/lib/python3*/lib2to3",
    "./usr/lib/python3*/pydoc_data",
    "./usr/lib/python3*/test",
    "*/numpy/f2py",
    "*/numpy/*/tests",
    "*/gconv",
    "*/perl*",
    "*/libapt-*",
    "*/security",
)

Report = Callable[[str], None]


def _silent(_line: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageState:
    """What `ensure_image` found or did.

    Attributes:
        image: The image's name.
        origin: `present`, `registry` (built on the published Python image) or `debootstrap`.
        megabytes: Its size.
    """

    image: str
    origin: str
    megabytes: float


def ensure_image(
    engine: Engine,
    image: str = DEFAULT_IMAGE,
    *,
    rebuild: bool = False,
    report: Report = _silent,
) -> ImageState:
    """Make sure that the sandbox image exists; returns at once when it does.

    A missing default image is built on the published Python image where a registry hands that out,
    else from this machine's own Debian or Ubuntu packages. Any other image is only pulled: it
    belongs to the user.

    Args:
        engine: Where the image must be.
        image: Its name.
        rebuild: Build it even when it is there.
        report: Receives a line of progress before each slow step.

    Raises:
        SandboxUnavailable: It is missing and there is no way to get it; the message says what was
            tried.
    """
    with _one_at_a_time():
        if not rebuild and engine.has_image(image):
            origin = "present"
        elif image != DEFAULT_IMAGE:
            report(f"pulling {image}")
            if not engine.pull(image):
                raise missing_image(image)
            origin = "registry"
        else:
            origin = _build_default(engine, report)
    return ImageState(image=image, origin=origin, megabytes=engine.image_bytes(image) / 1e6)


def missing_image(image: str) -> SandboxUnavailable:
    """The error for an image that is not on this machine."""
    if image == DEFAULT_IMAGE:
        cure = "Build it: verigrad sandbox build"
    else:
        cure = (
            f"Pull or build it: docker pull {image}; or use the default one: verigrad sandbox build"
        )
    return SandboxUnavailable(
        Cause.NO_IMAGE, f"The sandbox image {image} is not on this machine. {cure}"
    )


def _build_default(engine: Engine, report: Report) -> str:
    report(f"asking the registry for {BASE_IMAGE}")
    complaint = f"no registry hands out {BASE_IMAGE}"
    if engine.pull(BASE_IMAGE):
        report(f"building {DEFAULT_IMAGE} on {BASE_IMAGE}")
        with tempfile.TemporaryDirectory(prefix="verigrad-image-") as context:
            failed = engine.build(DOCKERFILE, context=Path(context), image=DEFAULT_IMAGE)
        if failed is None:
            return "registry"
        complaint = f"the build on {BASE_IMAGE} failed ({failed})"
    report(f"{complaint}; building {DEFAULT_IMAGE} from this machine's packages, about a minute")
    source = _debootstrap_source(complaint)
    with tempfile.TemporaryDirectory(prefix="verigrad-image-") as scratch:
        _debootstrap(source, Path(scratch))
        engine.import_tar(_archive(Path(scratch)), image=DEFAULT_IMAGE)
    return "debootstrap"


def _debootstrap_source(complaint: str) -> AptSource:
    source = own_source(Path("/etc"))
    missing = [name for name in ("debootstrap", "tar") if shutil.which(name) is None]
    if source is None or missing or os.geteuid() != 0:
        problem = (
            "this machine's apt sources name no mirror for its own release"
            if source is None
            else f"{' and '.join(missing)} is not installed (apt-get install debootstrap)"
            if missing
            else "building a root file system needs root (sudo verigrad sandbox build)"
        )
        raise SandboxUnavailable(
            Cause.CANNOT_BUILD,
            f"The sandbox image {DEFAULT_IMAGE} cannot be built: {complaint}, and {problem}.",
        )
    return source


def _debootstrap(source: AptSource, scratch: Path) -> None:
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={PACKAGES}",
        f"--components={','.join(source.components)}",
        source.suite,
        str(scratch / "root"),
        source.uri,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEBOOTSTRAP_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        tail = " ".join((done.stdout + done.stderr).split()[-60:])
        raise SandboxUnavailable(
            Cause.CANNOT_BUILD,
            f"The sandbox image {DEFAULT_IMAGE} cannot be built: debootstrap of {source.suite} "
            f"from {source.uri} failed: {tail}",
        )


def _archive(scratch: Path) -> Path:
    archive = scratch / "root.tar"
    excludes = [f"--exclude={pattern}" for pattern in STRIPPED]
    subprocess.run(
        ["tar", "-C", str(scratch / "root"), *excludes, "-cf", str(archive), "."], check=True
    )
    return archive


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one process of this user build at a time; the others then find the image present."""
    path = Path(tempfile.gettempdir()) / f"verigrad-image-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
