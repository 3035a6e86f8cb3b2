"""docs/precomputed.md: its commands run on files like those it names, and print what it shows."""

import base64
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet

import pipeline as library
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import read_manifest
from tests.project import PROJECT, Call

PAGE = (PROJECT / "docs/precomputed.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^\$ ((?:[^\\\n]|\\\n)*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def rows_of(texts: list[str], dim: int) -> np.ndarray:
    """Return features from which words can be told: the sum of one random row per word."""
    words = sorted({word for text in texts for word in text.split()})
    vectors = np.random.default_rng(0).standard_normal((len(words), dim), np.float32)
    number = {word: row for row, word in enumerate(words)}
    return np.stack([vectors[[number[word] for word in text.split()]].sum(0) for text in texts])


def write_examples(entries: list[ImageEntry]) -> None:
    """Write the files of the page: arrays, regions, and clip-retrieval's output."""
    texts = [" ".join(entry.captions) for entry in entries]
    pooled, regions = rows_of(texts, 256), rows_of(texts, 36 * 32).reshape(-1, 36, 32)
    np.save("resnet.npy", pooled)
    Path("ids.txt").write_text("".join(f"{entry.id}\n" for entry in entries))
    with h5py.File("resnet.h5", "w") as file, h5py.File("regions.h5", "w") as each:
        file["features"], file["image_ids"] = pooled, [entry.id for entry in entries]
        for entry, row in zip(entries, regions, strict=True):
            each[entry.id] = row
    Path("npz").mkdir()
    lines = []
    for entry, row in zip(entries, regions, strict=True):
        np.savez(f"npz/{entry.id}.npz", features=row)
        encoded = base64.b64encode(row.tobytes()).decode()
        lines.append("\t".join([entry.id, "256", "256", "36", "", encoded]) + "\n")
    Path("trainval_36.tsv").write_text("".join(lines))
    shutil.copytree("data/mine/images", "photos")
    for folder in ("img_emb", "text_emb", "metadata"):
        Path("clip", folder).mkdir(parents=True)
    captions = [entry.captions[0] for entry in entries]
    columns = {"image_path": [f"photos/{e.file}" for e in entries], "caption": captions}
    pyarrow.parquet.write_table(pyarrow.table(columns), "clip/metadata/metadata_0.parquet")
    text = rows_of(captions, 512)
    noise = np.random.default_rng(1).standard_normal(text.shape)
    np.save("clip/text_emb/text_emb_0.npy", text.astype(np.float16))
    np.save("clip/img_emb/img_emb_0.npy", (text + 9 * noise).astype(np.float16))


def masked(text: str) -> str:
    """Return a text with # in place of its numbers and of the rules of its tables."""
    return re.sub(r"-{2,}:?", "--", re.sub(r"[0-9a-f]{16}|\d+(\.\d+)?", "#", text))


def test_the_commands_of_the_page_print_what_it_shows(project: Path, pipeline: Call) -> None:
    Path("params.yaml").unlink()
    Path("data/scenes").rename("data/mine")
    write_examples([*read_manifest("data/mine").entries])
    blocks = "".join(re.findall(r"```\n(\$ .*?)```", PAGE, re.DOTALL))
    commands = COMMAND.findall(blocks)
    assert len(commands) >= 8

    def text_model(texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 512), np.float32)

    for command, expected in commands:
        _, *arguments = shlex.split(command.replace("\\\n", ""))
        ended = pipeline(*arguments)
        assert ended.status == 0, ended.stderr
        found = iter(masked(ended.stderr + ended.stdout).splitlines())
        for line in masked(expected).splitlines():  # each is printed, in this order
            like = re.escape(line).replace(r"\.\.\.", ".*")
            assert any(re.fullmatch(like, other) for other in found), f"{command}: {line}"
    (search,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"pipeline": library, "text_model": text_model}
    exec(search, names)
    assert len(names["hits"]) == 5
