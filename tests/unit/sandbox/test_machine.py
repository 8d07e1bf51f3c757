"""What the sandbox reads from and says about the machine, without an engine."""

import json
import os
import pickle
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from sandbox import bundle, unsafe
from sandbox.apt_sources import own_source
from sandbox.backends import check_backend, open_pool
from sandbox.canary import CanaryReport, require
from sandbox.container import processes
from sandbox.container.meter import Meter
from sandbox.engine import _unreachable
from sandbox.errors import Cause, SandboxUnavailable
from sandbox.image import DEFAULT_IMAGE, missing_image
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.owner import Owner
from sandbox.result import Job

UNSAFE = SandboxOptions(backend="subprocess", allow_unsafe_backend=True)
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
    names = [name for name, _ in bundle.modules(for_tests=True)]
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


@pytest.mark.parametrize(
    "changes",
    [
        {"pool_size": 0},
        {"spares": -1},
        {"isolation": "none"},
        {"backend": "chroot"},
        {"allow_unsafe_backend": False, "backend": "subprocess"},
        {"isolation": "namespace", "backend": "bubblewrap", "allow_unsafe_backend": True},
    ],
)
def test_options_make_sense(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        SandboxOptions(**changes)


def test_a_container_for_each_program_is_started_ahead():
    assert SandboxOptions(pool_size=3, spares=1).stock == 4
    assert SandboxOptions(pool_size=3, isolation="container_per_candidate").stock == 6


# What a container sees of its control group: version 2, version 1, and none at all.
CGROUPS = {
    "v2": {
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n",
        "memory.events": "low 0\nhigh 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 0\n",
    },
    "v1": {
        "cpuacct/cpuacct.usage": "2500000000\n",
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    },
}


@pytest.mark.parametrize("version", CGROUPS)
def test_both_versions_of_control_groups_are_read(tmp_path, version):
    for name, text in CGROUPS[version].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    meter = Meter(tmp_path)
    assert meter.cpu_seconds(()) + time.process_time() == pytest.approx(2.5, abs=0.1)
    assert meter.out_of_memory_kills() == 3


@pytest.mark.parametrize("cgroup", [None, Path("/nonexistent")])
def test_without_control_groups_processes_are_asked(cgroup):
    meter = Meter(cgroup)
    assert meter.cpu_seconds({os.getpid()}) > 0
    assert meter.cpu_seconds(()) == 0
    assert meter.out_of_memory_kills() == 0


def test_descendants_are_found_and_nobody_else():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        give_up = time.monotonic() + 10
        while not (below := processes.descendants({child.pid})):
            assert time.monotonic() < give_up
        found = processes.descendants({os.getpid()})
        assert {child.pid, *below} <= found
        assert len(below) == 1
        assert not {os.getpid(), child.pid} & below
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("readable", "system", "found"), [(True, True, "own"), (False, True, "system")]
)
def test_programs_of_another_user_get_a_python_that_they_can_read(
    monkeypatch, readable, system, found
):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    own = Path(sys.executable).resolve()
    monkeypatch.setattr(unsafe, "_open_to_all", lambda path: readable if path == own else system)
    python = unsafe._interpreter(UNSAFE)
    assert python == (own if found == "own" else unsafe._SYSTEM_PYTHON)


def test_no_python_that_others_can_read_is_named(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(unsafe, "_open_to_all", lambda _path: False)
    with pytest.raises(SandboxUnavailable, match="no other user can read"):
        check_backend(UNSAFE)


def test_bubblewrap_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        check_backend(replace(UNSAFE, backend="bubblewrap"))


def test_an_unsafe_backend_comes_with_a_warning(caplog):
    with closing(open_pool(replace(UNSAFE, pool_size=1, spares=0))) as pool:
        assert pool.run(Job(program="print(1)", inputs=(b"",)))[0].stdout == b"1\n"
    assert "hostile programs can break out" in caplog.text
