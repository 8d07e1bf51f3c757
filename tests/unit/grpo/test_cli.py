import subprocess
import sys

import pytest

from grpo.cli import main, parse


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "grpo", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("command", ["train", "eval", "verify", "data", "sandbox"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert "example" in capsys.readouterr().out


CONFIG = """
model: {model}
data: {{path: {data}, verifier: {verifier}}}
max_prompt_length: 64
max_completion_length: 64
"""


@pytest.mark.parametrize(
    ("model", "row", "verifier", "overrides", "fragments"),
    [
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "math",
            ["stepss=3"],
            ["stepss", "steps"],
        ),
        ("embedded:quickstart", '{"prompt": "1+1="', "math", [], ["rows.jsonl:1", "JSON"]),
        ("embedded:quickstart", '{"answer": "2"}', "math", [], ["rows.jsonl:1", "'prompt'"]),
        ("embedded:quickstart", '{"prompt": "1+1="}', "math", [], ["rows.jsonl:1"]),
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "maths",
            [],
            ["'maths'", "math"],
        ),
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "nowhere.py:f",
            [],
            ["nowhere.py"],
        ),
        ("/no/such/model", '{"prompt": "1+1=", "answer": "2"}', "math", [], ["/no/such/model"]),
        ("embedded:other", '{"prompt": "1+1=", "answer": "2"}', "math", [], ["embedded:other"]),
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "math",
            ["max_prompt_length=2"],
            ["rows.jsonl:1", "max_prompt_length=2"],
        ),
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "math",
            ["max_tokens_per_microbatch=10"],
            ["max_tokens_per_microbatch=10"],
        ),
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "math",
            ["loss_type=grppo"],
            ["grppo"],
        ),
        (
            "embedded:quickstart",
            '{"prompt": "1+1=", "answer": "2"}',
            "math",
            ["max_completion_length=512"],
            ["128 positions", "576"],
        ),
    ],
)
def test_a_mistake_is_one_paragraph_and_exit_code_2(
    tmp_path, capsys, model, row, verifier, overrides, fragments
):
    (tmp_path / "rows.jsonl").write_text(row + "\n")
    config = tmp_path / "run.yaml"
    config.write_text(CONFIG.format(model=model, data=tmp_path / "rows.jsonl", verifier=verifier))
    assert main(["train", str(config), "--dry-run", *overrides]) == 2
    printed = capsys.readouterr()
    for fragment in fragments:
        assert fragment in printed.err
    assert "Traceback" not in printed.err


def test_a_dry_run_asks_no_cluster(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("grpo.environment.find_device", lambda: "cpu")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    config = tmp_path / "run.yaml"
    config.write_text(
        CONFIG.format(model="embedded:quickstart", data=tmp_path / "rows.jsonl", verifier="math")
    )
    assert main(["train", str(config), "--dry-run", "ray.address=192.0.2.1:6379"]) == 0
    shown = capsys.readouterr().out
    assert "device     of the cluster at ray.address='192.0.2.1:6379'" in shown
    assert "rows       packed where flash-attention is installed" in shown
    assert "memory     " not in shown
    assert main(["train", str(config), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "device     " not in shown
    assert "rows       padded: flash-attention, which packing pays off with, needs a GPU" in shown
    assert "memory     about" in shown


def test_a_verifier_whose_parameters_the_data_cannot_supply_is_refused(tmp_path, capsys):
    (tmp_path / "checks.py").write_text("def check(completion, difficulty):\n    return 1.0\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1=", "answer": "2", "level": 3}\n')
    config = tmp_path / "run.yaml"
    spec = f"{tmp_path}/checks.py:check"
    config.write_text(
        CONFIG.format(model="embedded:quickstart", data=tmp_path / "rows.jsonl", verifier=spec)
    )
    assert main(["train", str(config), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert "difficulty" in error
    assert "level" in error


def test_debug_shows_the_traceback():
    done = run("--debug", "train", "absent.yaml")
    assert "Traceback" in done.stderr


def test_the_start_of_the_command_imports_nothing_heavy():
    heavy = ["torch", "ray", "vllm", "transformers", "datasets"]
    code = (
        "import sys; import grpo.cli; grpo.cli.make_parser();"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["a.yaml", "beta=0.04", "rollout.dtype=float32", "--dry-run"],
        ["--dry-run", "a.yaml", "beta=0.04", "rollout.dtype=float32"],
        ["a.yaml", "--beta", "0.04", "--dry-run", "--rollout.dtype=float32"],
        ["beta=0.04", "a.yaml", "--rollout.dtype", "float32", "--dry-run"],
    ],
)
def test_overrides_may_stand_anywhere_and_in_any_form(words):
    args = parse(["train", *words])
    assert (args.config, args.dry_run) == ("a.yaml", True)
    assert [text.removeprefix("--") for text in args.overrides] == [
        "beta=0.04",
        "rollout.dtype=float32",
    ]


def test_options_of_the_command_keep_their_values():
    args = parse(["train", "a.yaml", "--resume", "runs/x", "seed=1"])
    assert (args.resume, args.overrides) == ("runs/x", ["seed=1"])
    assert parse(["eval", "a.yaml", "--output=out", "seed=1"]).output == "out"


def test_a_mistyped_option_is_not_taken_for_an_override(capsys):
    assert main(["train", "configs/quickstart.yaml", "--dryrun"]) == 2
    assert "--dryrun" in capsys.readouterr().err
