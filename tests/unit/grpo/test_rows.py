import gzip
import json
import sys

import pytest

from grpo.config.data import DataConfig
from grpo.data.rows import read_rows
from verifiers.errors import UserError

ROWS = [{"prompt": "1+1", "answer": "2"}, {"prompt": "2+2", "answer": "4"}]


def write(folder, kind):
    file = folder / f"rows{kind}"
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    match kind:
        case ".jsonl":
            file.write_text(lines)
        case ".jsonl.gz":
            file.write_bytes(gzip.compress(lines.encode()))
        case ".json":
            file.write_text(json.dumps(ROWS))
        case ".csv":
            file.write_text("prompt,answer\n1+1,2\n2+2,4\n")
        case ".parquet":
            import datasets

            datasets.Dataset.from_list(ROWS).to_parquet(str(file))
        case ".arrow":
            import datasets

            datasets.Dataset.from_list(ROWS).save_to_disk(str(folder / "saved"))
            next((folder / "saved").glob("*.arrow")).rename(file)
    return file


@pytest.mark.parametrize("kind", [".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet", ".arrow"])
def test_every_format_gives_the_same_rows(tmp_path, kind):
    file = write(tmp_path, kind)
    assert [row for _, row in read_rows(DataConfig(path=str(file)))] == ROWS


def test_places_name_file_and_line(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert [place for place, _ in read_rows(DataConfig(path=str(file)))] == [
        f"{file}:1",
        f"{file}:3",
    ]


def test_limit_takes_the_first_rows(tmp_path):
    file = write(tmp_path, ".jsonl")
    assert len(read_rows(DataConfig(path=str(file), limit=1))) == 1


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        ("rows.jsonl", b'{"a": 1}\n{"a": \n', ["rows.jsonl:2", "not valid JSON"]),
        ("rows.jsonl", b"[1]\n", ["rows.jsonl:1", "JSON object"]),
        ("rows.json", b'{"a": 1}', ["list of rows"]),
        ("rows.jsonl", b"\xff\xfe{}", ["UTF-8"]),
        ("rows.jsonl.gz", b"not gzip", ["cannot be read"]),
        ("rows.jsonl", b"\n", ["no rows"]),
        ("rows.parquet", b"not parquet", ["cannot be read as parquet"]),
        ("rows.csv", b"a,b\n1,2,3\n", ["rows.csv:2", "number of cells"]),
        ("rows.csv", b'a,b\n1,"2\n', ["not valid CSV"]),
        ("rows.parquet.gz", b"", ["no known data format"]),
        ("rows.txt", b"hello", ["no known data format"]),
    ],
)
def test_a_malformed_file_is_named(tmp_path, name, content, fragments):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_rows(DataConfig(path=str(file)))
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_an_absent_file_is_not_sought_on_the_hub():
    with pytest.raises(UserError, match="does not exist"):
        read_rows(DataConfig(path="somewhere/rows.jsonl"))


def test_a_cell_of_a_csv_file_may_have_several_lines(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('prompt,answer\n"one\n\ntwo",2\nthree,4\n')
    rows = read_rows(DataConfig(path=str(file)))
    assert rows[0] == (f"{file}:4", {"prompt": "one\n\ntwo", "answer": "2"})


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"level": 2}, [2]),
        ({"level": [1, 3]}, [1, 3]),
        ({"level": {"from": 2}}, [2, 3]),
        ({"day": {"from": "2024-10", "to": "2024-11"}}, [1, 2]),
        ({"day": {"to": "2024-10-31"}, "level": {"to": 1}}, [1]),
    ],
)
def test_where_keeps_values_lists_and_ranges_with_their_ends(tmp_path, where, kept):
    file = tmp_path / "rows.jsonl"
    days = ["2024-10-31T00:00:00", "2024-11-30T00:00:00", "2024-12-01T00:00:00"]
    rows = [{"level": i, "day": day} for i, day in enumerate(days, start=1)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = DataConfig(path=str(file), where=where)
    assert [row["level"] for _, row in read_rows(data)] == kept


@pytest.mark.parametrize(
    ("where", "fragment"),
    [
        ({"levle": 1}, "'levle'"),
        ({"a": {"above": 1}}, "`from` and `to`"),
        ({"a": 7}, "no rows that `where` keeps, of 1"),
    ],
)
def test_a_wrong_where_is_named(tmp_path, where, fragment):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n')
    with pytest.raises(UserError, match=fragment):
        read_rows(DataConfig(path=str(file), where=where))


def test_a_hub_that_cannot_be_reached_says_what_to_set(monkeypatch):
    import datasets

    def refuse(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(UserError) as caught:
        read_rows(DataConfig.model_validate({"recipe": "gsm8k"}))
    for fragment in ("openai/gsm8k", "no route", "data.0.path=", "HF_ENDPOINT", "HF_TOKEN"):
        assert fragment in str(caught.value)


def test_files_of_a_hub_repository_are_read_at_the_revision(monkeypatch):
    import datasets

    asked = []
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *a, **k: asked.append((a, k)) or [{"a": 1}]
    )
    data = DataConfig(path="o/n", files=("x.jsonl", "y.jsonl"), revision="abc", split="test")
    assert read_rows(data) == [("o/n[test]:0", {"a": 1})]
    ((kind,), options) = asked[0]
    assert kind == "json"
    assert options["data_files"] == [f"hf://datasets/o/n@abc/{name}.jsonl" for name in "xy"]


def test_a_path_that_is_nearly_a_recipe_gives_its_name():
    with pytest.raises(UserError, match="recipe: gsm8k"):
        read_rows(DataConfig(path="gsm8k"))


def test_puzzles_are_made_from_a_seed_for_each_split(monkeypatch):
    asked = []

    class Package:
        @staticmethod
        def create_dataset(task, size, seed):
            asked.append((task, size, seed))
            return [{"question": "1+1", "answer": "2", "metadata": {}}] * size

    monkeypatch.setitem(sys.modules, "reasoning_gym", Package)
    data = DataConfig(path="reasoning_gym:chain_sum", split="test", limit=2)
    assert [place for place, _ in read_rows(data)] == [
        "reasoning_gym:chain_sum[test]:0",
        "reasoning_gym:chain_sum[test]:1",
    ]
    assert asked == [("chain_sum", 2, 1)]
    with pytest.raises(UserError, match="splits train and test"):
        read_rows(data.model_copy(update={"split": "dev"}))
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"verigrad\[reasoning-gym\]"):
        read_rows(data)
