"""Features of another program, in the files of docs/precomputed.md: arrays, regions, CLIP."""

import base64
import shutil
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet

from pipeline.datasets.manifest import read_manifest


def write_files(dataset: str) -> None:
    """Write features of the images and captions of a dataset in the current folder."""
    entries = read_manifest(dataset).entries
    texts = [" ".join(entry.captions) for entry in entries]
    pooled, regions = _rows_of(texts, 256), _rows_of(texts, 36 * 32).reshape(-1, 36, 32)
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
    shutil.copytree(Path(dataset, "images"), "photos")
    for folder in ("img_emb", "text_emb", "metadata"):
        Path("clip", folder).mkdir(parents=True)
    captions = [entry.captions[0] for entry in entries]
    columns = {"image_path": [f"photos/{e.file}" for e in entries], "caption": captions}
    pyarrow.parquet.write_table(pyarrow.table(columns), "clip/metadata/metadata_0.parquet")
    text = _rows_of(captions, 512)
    noise = np.random.default_rng(1).standard_normal(text.shape)
    np.save("clip/text_emb/text_emb_0.npy", text.astype(np.float16))
    np.save("clip/img_emb/img_emb_0.npy", (text + 9 * noise).astype(np.float16))


def _rows_of(texts: list[str], dim: int) -> np.ndarray:
    """Return features in which words can be recognised: the sum of one random row per word."""
    words = sorted({word for text in texts for word in text.split()})
    vectors = np.random.default_rng(0).standard_normal((len(words), dim), np.float32)
    number = {word: row for row, word in enumerate(words)}
    return np.stack([vectors[[number[word] for word in text.split()]].sum(0) for text in texts])
