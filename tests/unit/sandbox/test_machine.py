"""What the sandbox reads from and says about the machine, without an engine."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from sandbox import bundle
from sandbox.apt_sources import own_source
from sandbox.canary import CanaryReport, require
from sandbox.engine import _unreachable
from sandbox.errors import Cause, SandboxUnavailable
from sandbox.image import DEFAULT_IMAGE, missing_image
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.owner import Owner

MIRROR = "http://mirror.example/debian"
DEB822 = f"""\
# a comment
Types: deb
URIs: http://security.example/
Suites: bookworm-security
Components: main

Types: deb deb-src
URIs: {MIRROR}
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP
 Suites: nonsense
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list", f"# deb x y z\ndeb [arch=amd64] {MIRROR} bookworm main contrib # on\n"),
        ("sources.list.d/debian.sources", DEB822),
    ],
)
def test_the_machines_own_mirror_is_found(tmp_path, name, text):
    file = tmp_path / "apt" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    source = own_source(tmp_path)
    assert source is not None
    assert (source.uri, source.suite) == (MIRROR, "bookworm")
    assert source.components == ("main", "contrib")


def test_no_mirror_is_none(tmp_path):
    assert own_source(tmp_path) is None
    (tmp_path / "os-release").write_text("VERSION_CODENAME=noble\n")
    assert own_source(tmp_path) is None


def test_disabled_sources_are_passed_over(tmp_path):
    file = tmp_path / "apt" / "sources.list.d" / "x.sources"
    file.parent.mkdir(parents=True)
    file.write_text("Enabled: no\n" + DEB822.split("\n\n")[1])
    (tmp_path / "os-release").write_text("VERSION_CODENAME=bookworm\n")
    assert own_source(tmp_path) is None


def test_an_owner_is_gone_only_when_it_is_certain():
    me = Owner.this_process()
    assert not me.gone()
    assert Owner.from_labels(me.labels()) == me
    assert Owner.from_labels({}) is None
    assert replace(me, started=me.started + 1).gone()
    assert replace(me, boot="another").gone()
    assert not replace(me, host="elsewhere", boot="another").gone()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.close()
    assert replace(me, pid=child.pid, started=1).gone()


def test_the_seccomp_profile_allows_what_is_needed_and_no_more():
    profile = json.loads(resources.files("sandbox").joinpath("seccomp.json").read_text())
    allowed = {
        name
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
        for name in rule["names"]
    }
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"read", "execve", "fork", "setresuid", "memfd_create"} <= allowed
    forbidden = (
        "socket connect bind ptrace process_vm_readv process_vm_writev mount unshare setns clone "
        "clone3 shmget msgget semget mq_open keyctl add_key bpf perf_event_open userfaultfd "
        "io_uring_setup personality pivot_root chroot kexec_load init_module open_by_handle_at"
    )
    assert allowed.isdisjoint(forbidden.split())


def test_the_supervisor_is_sent_whole():
    names = [name for name, _ in bundle.modules()]
    folder = resources.files("sandbox.container")
    files = {entry.name[:-3] for entry in folder.iterdir() if entry.name.endswith(".py")}
    assert set(names) == files - {"__init__"}
    compile(bundle.BOOTSTRAP, "bootstrap", "exec")


def test_the_supervisor_needs_only_the_standard_library():
    code = (
        "import sys, sandbox.container.supervisor; print(*{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-sc", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    loaded = set(done.stdout.split()) - {"sandbox", "__main__"}
    assert not {name for name in loaded if name in ("docker", "requests", "numpy", "verifiers")}


@pytest.mark.parametrize(
    ("error", "cause", "cure"),
    [
        (PermissionError(13, "Permission denied"), Cause.PERMISSION, "usermod"),
        (FileNotFoundError(2, "No such file"), Cause.NO_ENGINE, "systemctl start docker"),
    ],
)
def test_an_engine_out_of_reach_comes_with_a_cure(error, cause, cure):
    found = _unreachable(error)
    assert found.cause is cause
    assert cure in str(found)


def test_a_missing_image_comes_with_a_cure():
    assert "verigrad sandbox build" in str(missing_image(DEFAULT_IMAGE))
    assert "docker pull mine:1" in str(missing_image("mine:1"))


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(SandboxUnavailable(Cause.NO_ENGINE, "start it")))
    assert (error.cause, str(error)) == (Cause.NO_ENGINE, "start it")


def test_a_canary_that_got_through_stops_everything():
    require((CanaryReport(name="memory", problem=""),))
    with pytest.raises(SandboxUnavailable, match="memory: held") as caught:
        require((CanaryReport(name="memory", problem="held"),))
    assert caught.value.cause is Cause.LIMIT_NOT_ENFORCED


@pytest.mark.parametrize(
    "changes", [{"cpu_s": 0}, {"memory_mb": -1}, {"wall_s": 1.0}, {"processes": 0}]
)
def test_limits_make_sense(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        Limits(**changes)


@pytest.mark.parametrize("changes", [{"pool_size": 0}, {"spares": -1}])
def test_options_make_sense(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        SandboxOptions(**changes)
