"""The codebook of a dataset's sound words: loaded from its file, or fitted and saved."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from pipeline.clips.sound.read_sound import Sound, read_sound
from pipeline.clips.sound.recipes import BagRecipe
from pipeline.clips.sound.words import (
    SAMPLE,
    fit_sound_words,
    load_sound_words,
    sample_of,
)
from pipeline.datasets.manifest import Manifest
from pipeline.images.networks import WeightsError
from pipeline.store.builder.reuse import supersede
from pipeline.store.current.record import stale
from pipeline.store.current.snapshot import file_identities
from pipeline.store.hashing import sha256_of_json
from pipeline.store.jobs.ordered import ending_at_once, in_order
from pipeline.store.progress import Monitor

# Files to prefetch.
_AHEAD = 8


def default_codebook(out: Path, recipe: BagRecipe) -> Path:
    """Return the default path of the codebook of a feature set in the folder `out`."""
    return out.with_name(f"mfcc-{recipe.words}.codebook.safetensors")


def codebook_for(
    manifest: Manifest,
    out: Path,
    recipe: BagRecipe,
    given: Path | None,
    split: str,
    seed: int,
    threads: int,
    monitor: Monitor,
    update: bool = False,
) -> Path:
    """Return the path of a codebook; fit it on the clips of a split if it does not exist.

    `given` None is the default path, whose codebook must match the clips of the split; `update`
    refits one of other clips, which supersedes the rows in `out`.
    """
    file = given or default_codebook(out, recipe)
    if file.exists():
        words = load_sound_words(file)
        words.require(recipe, str(file))
        if given is not None or not stale(
            file,
            lambda _: asdict(words.metadata),
            lambda: {"clips_sha256": _clips_sha256(manifest, split)},
        ):
            return file
        others = (
            f"{file} was fitted on other clips than split {split!r} of {manifest.name!r} has now"
        )
        if not update:
            raise WeightsError(
                f"{others}; `update=True` fits it again, `codebook=...` with its path uses it as is"
            )
        monitor.log(f"{others}: it is fitted again, and all rows are recomputed")
        supersede(out)
    entries = manifest.select(split)
    paths = [manifest.image_root / entry.file for entry in entries]
    parts, left_out = [], 0
    with monitor.progress(f"{recipe.words} sound words", "clip") as progress:
        for row, sound in sounds_of(range(len(paths)), paths, recipe.mfcc.rate, threads):
            if sound.samples is None:
                left_out += 1
            else:
                windows = recipe.mfcc(sound.samples)
                parts.append(sample_of(windows, row, len(paths), seed, SAMPLE))
            progress(row + 1, len(paths), left_out)
    if left_out:
        monitor.log(f"codebook: {left_out} clips of split {split!r} cannot be decoded, left out")
    words = fit_sound_words(
        parts,
        recipe.mfcc,
        recipe.words,
        seed=seed,
        dataset=manifest.name,
        split=split,
        clips_sha256=_clips_sha256(manifest, split),
        log=monitor.log,
    )
    words.save(file)
    monitor.log(f"{file}: {words.metadata.iterations} iterations of k-means")
    return file


def sounds_of(
    rows: Iterable[int], paths: Sequence[Path], rate: int, threads: int
) -> Iterator[tuple[int, Sound]]:
    """Yield the decoded sounds of rows in order, prefetched on threads."""
    with (
        ThreadPoolExecutor(threads, thread_name_prefix="sound") as pool,
        ending_at_once(pool),
    ):
        yield from in_order(
            rows, lambda row: pool.submit(read_sound, paths[row], rate), threads + _AHEAD
        )


def _clips_sha256(manifest: Manifest, split: str) -> str:
    entries = manifest.select(split)
    sizes = file_identities(manifest.files(entries))[:, 0].tolist()
    return sha256_of_json(
        [[e.id, [n] if n >= 0 else []] for e, n in zip(entries, sizes, strict=True)]
    )
