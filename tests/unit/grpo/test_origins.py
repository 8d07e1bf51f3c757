"""Foreign packages in the way are found before they are imported, with the cure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo import origins
from verifiers.errors import UserError

ROOT = Path(origins.__file__).resolve().parent.parent


def write_package(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text('raise SystemExit("a foreign package was run")\n')


def write_distribution(folder: Path, name: str, package: str) -> None:
    write_package(folder, package)
    info = folder / f"{name.replace('-', '_')}-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
    (info / "top_level.txt").write_text(f"{package}\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n")


def run_verigrad(
    *path: Path, arguments: tuple[str, ...] = ("--version",)
) -> subprocess.CompletedProcess[str]:
    # Started by file, as the installed command is: the current folder is not on sys.path.
    command = [sys.executable, "-c", "import sys; from grpo.__main__ import main; sys.exit(main())"]
    search = os.pathsep.join(map(str, path))
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": search, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_this_installation_is_sound():
    assert origins.find_conflict() is None
    origins.check_origins()


@pytest.mark.parametrize("name", ["verifiers", "sandbox", "datasets"])
def test_an_installed_namesake_is_named_with_the_command_that_removes_it(tmp_path, name):
    write_distribution(tmp_path, f"other-{name}", name)

    done = run_verigrad(tmp_path)

    assert done.returncode == 2
    assert str(tmp_path / name) in done.stderr
    assert f"pip uninstall other-{name}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["verifiers", "sandbox", "datasets"])
def test_a_stray_folder_is_named_and_no_uninstall_is_proposed(tmp_path, name):
    write_package(tmp_path, name)

    done = run_verigrad(tmp_path)

    assert done.returncode == 2
    assert str(tmp_path / name) in done.stderr
    assert "PYTHONPATH" in done.stderr
    assert "pip uninstall" not in done.stderr


def test_a_folder_of_data_called_datasets_hides_nothing(tmp_path):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "rows.jsonl").write_text("{}\n")

    done = run_verigrad(tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("verigrad ")


def test_a_distribution_that_overwrote_our_files_is_found(tmp_path, monkeypatch):
    for name in ("grpo", "verifiers", "sandbox"):
        write_package(tmp_path, name)
    (tmp_path / "verifiers" / "__init__.py").unlink()
    (tmp_path / "verifiers").rmdir()
    write_distribution(tmp_path, "verifiers", "verifiers")
    monkeypatch.setattr(origins, "_ROOT", tmp_path)
    monkeypatch.setattr(origins, "_find_origin", lambda name: tmp_path / name / "__init__.py")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UserError, match=r"verifiers 9\.9 has written .*pip uninstall --yes verifi"):
        origins.check_origins()


def test_a_missing_datasets_library_is_told_apart_from_the_data_folder(monkeypatch):
    # Without the library, `import datasets` finds at most the folder of data, which has no file.
    real = origins._find_origin
    monkeypatch.setattr(
        origins, "_find_origin", lambda name: None if name == "datasets" else real(name)
    )

    with pytest.raises(UserError, match="pip install datasets"):
        origins.check_origins()


def test_the_folder_datasets_never_becomes_a_package():
    assert not list((ROOT / "datasets").rglob("__init__.py"))
