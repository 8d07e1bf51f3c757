import gzip
import json

import pytest

from grpo.config.schema import DataConfig
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
    return file


@pytest.mark.parametrize("kind", [".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet"])
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
