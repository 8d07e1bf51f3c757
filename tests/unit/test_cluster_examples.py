"""The cluster files that the documentation shows are whole, and name options that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()


def blocks(language):
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found


@pytest.mark.parametrize("text", blocks("yaml"))
def test_the_values_for_kuberay_are_yaml_with_head_and_workers(text):
    values = yaml.safe_load(text)
    assert set(values) == {"image", "head", "worker"}
    assert values["worker"]["minReplicas"] <= values["worker"]["replicas"]
    for group in (values["head"], values["worker"]):
        named = {volume["name"] for volume in group["volumes"]}
        assert {mount["name"] for mount in group["volumeMounts"]} == named
        assert group["resources"]["requests"] == group["resources"]["limits"]


@pytest.mark.parametrize("text", blocks("bash"))
def test_the_scripts_are_bash(text):
    checked = subprocess.run(
        ["bash", "-n"], input=text, text=True, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_job_script_names_what_it_asks_for():
    (script,) = (text for text in blocks("bash") if text.startswith("#!"))
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.MULTILINE))
    assert {"nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time"} <= set(asked)
    assert set(re.findall(r"SLURM_\w+", script)) == {
        "SLURM_JOB_NODELIST",
        "SLURM_CPUS_PER_TASK",
        "SLURM_JOB_NUM_NODES",
    }
