"""Near-duplicates: separation of copies from other photos by cosine, and cost of a search of rows.

    python -m bench.duplicates photos PHOTOS WORK [--recipe NAME ...] [--copies N] [--limit N]
    python -m bench.duplicates rows N [--approximate]

`photos` compares modified copies of N photos with all photos. One line per threshold has, for each
modification, the share of copies whose cosine with their own photo reaches it, and the number of
photos that reach it with another photo: these are false alarms, except for duplicates and second
shots in the folder itself. Then 50 copies, a few of each modification, are hidden among all photos
and searched with the calibrated threshold. A second table has the pixel comparison of candidates
(`pipeline duplicates --align`). Copies and features stay in WORK, so that a second run only
measures. `rows` times the search of synthetic rows: 512 dimensions, near 2,000 centres, one in a
hundred a near-duplicate of another.
"""

import argparse
import io
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps

import pipeline
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval.similarity import unit_rows
from pipeline.studies.near_duplicates.alignment import Field, Templates, correlation, small_grey
from pipeline.studies.near_duplicates.confirmed import CANDIDATES, LEAST_COSINE, confirmed_pairs
from pipeline.studies.near_duplicates.find import THRESHOLDS, duplicates, summary
from pipeline.studies.near_duplicates.pairs import exact_pairs
from pipeline.studies.near_duplicates.parts import parts_of_sets

RECIPES = ("dct-thumbnail", "efficientnet-lite0-pool")
ALIGNED_STEPS = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80)
STEPS = (0.60, 0.65, 0.70, 0.75, 0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.92, 0.95)
PLANTED, DIM, CENTRES = 50, 512, 2000

Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def cropped(share: float) -> Change:
    """Return a function that crops an image to a share of both sides, at a random position."""

    def crop(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        width, height = (round(share * side) for side in image.size)
        left, top = (
            int(rng.integers(whole - part + 1))
            for whole, part in zip(image.size, (width, height), strict=True)
        )
        return image.crop((left, top, left + width, top + height))

    return crop


def compressed(quality: int) -> Change:
    """Return the image as JPEG of a quality leaves it."""

    def compress(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=quality)
        return Image.open(stream).convert("RGB")

    return compress


def with_text(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return the image with two white lines of text on black over its lower sixth."""
    marked, (width, height) = image.copy(), image.size
    draw, top = ImageDraw.Draw(marked), height - height // 6
    draw.rectangle((0, top, width, height), fill="black")
    text = f"photo {int(rng.integers(10**6)):06d}\nall rights reserved"
    draw.multiline_text((4, top), text, "white", ImageFont.load_default(height / 14), spacing=0)
    return marked


CHANGES: dict[str, Change] = {
    "JPEG-30": compressed(30),
    "JPEG-10": compressed(10),
    "size-50": lambda image, rng: image.resize((image.width // 2, image.height // 2)),
    "brighter": lambda image, rng: ImageEnhance.Brightness(image).enhance(1.4),
    "darker": lambda image, rng: ImageEnhance.Brightness(image).enhance(0.6),
    "text": with_text,
    "flip": lambda image, rng: ImageOps.mirror(image),
    "crop-80": cropped(0.8),
    "crop-60": cropped(0.6),
}


def write_copies(photos: Sequence[Path], out: Path) -> None:
    """Write modified copies of photos as PNG, in one folder per modification."""
    for place, file in enumerate(photos):
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        for change, made in CHANGES.items():
            target = out / change / f"{file.stem}.png"
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                made(image, np.random.default_rng(place)).save(target)


def calibrate(photos: Path, work: Path, recipes: Sequence[str], copies: int, limit: int) -> None:
    """Print recall and false alarms of each recipe, and how many hidden copies are found."""
    files = sorted(photos.glob("*.jpg"))[:limit]
    write_copies(files[:: max(1, len(files) // copies)][:copies], work / "copies")
    found: dict[str, set[str]] = {}
    for recipe in recipes:
        sets = {"photos": list(files), "copies": [work / "copies"]}
        for name, images in sets.items():
            pipeline.extract(images, work / recipe / name, recipe=recipe)
        print_table(work / recipe, recipe)
        found[recipe] = hidden(work / recipe, recipe)
        print_aligned(work / recipe, photos, work / "copies")
    print(f"{len(set.union(*found.values()))} of {PLANTED} are found by one recipe or another")


def print_table(folder: Path, recipe: str) -> None:
    """Print one line per threshold: recall by modification, and photos with another photo."""
    photos, copies = (pipeline.read_features(folder / name) for name in ("photos", "copies"))
    originals = photos.read([own_photo(row_id) for row_id in copies])
    scores = np.vecdot(unit_rows(originals), unit_rows(copies[:]))
    changes = np.array([row_id.partition("/")[0] for row_id in copies])
    print(f"\n{recipe}: {len(copies) // len(CHANGES)} photos changed, among {len(photos)}\n")
    print(f"| cosine | {' | '.join(CHANGES)} | photos with another |")
    print("|" + "---|" * (len(CHANGES) + 2))
    for step in STEPS:
        shares = [100 * float((scores[changes == change] >= step).mean()) for change in CHANGES]
        alarms = len(duplicates(photos.folder, threshold=step).images)
        print(f"| {step:.2f} | {' | '.join(f'{s:.1f}' for s in shares)} | {alarms} |")


def hidden(folder: Path, recipe: str) -> set[str]:
    """Hide copies among the photos, print how many are found, and return their ids."""
    photos, copies = (pipeline.read_features(folder / name) for name in ("photos", "copies"))
    planted = planted_of(list(copies))
    with tempfile.TemporaryDirectory() as scratch:
        rows = np.concatenate((photos[:], copies.read(planted)))
        header = photos.index.header
        pipeline.write_features(
            scratch, [*photos, *planted], rows, recipe=header.recipe,
        )  # fmt: skip
        result = duplicates(scratch, threshold=THRESHOLDS.get(recipe, 0.84))
    partners = [{image.id for image in group.images} for group in result]
    found = {c for c in planted for group in partners if {c, own_photo(c)} <= group}
    missed = sorted(set(planted) - found)
    concerned = found | {own_photo(c) for c in found}
    alarms = sum(image.id not in concerned for image in result.images)
    print(f"\n{PLANTED} hidden: {summary(result)}; {len(found)} found, {alarms} other images")
    print(f"missed: {', '.join(c.partition('/')[0] for c in missed) or 'none'}\n")
    return found


def print_aligned(folder: Path, photo_root: Path, copy_root: Path) -> None:
    """Print recall by modification, false alarms, and hidden copies found by comparing pixels.

    A copy is found if its photo is among its candidates and both align.
    """
    photos, copies = (pipeline.read_features(folder / name) for name in ("photos", "copies"))
    files = {row_id: photo_root / row_id for row_id in photos}
    files |= {row_id: copy_root / row_id for row_id in copies}
    rows_of_photos, rows_of_copies = unit_rows(photos[:]), unit_rows(copies[:])
    cosines = rows_of_copies @ rows_of_photos.T
    own = photos.rows_of([own_photo(row_id) for row_id in copies])
    to_own = cosines[np.arange(len(copies)), own]
    proposed = (to_own >= LEAST_COSINE) & ((cosines > to_own[:, None]).sum(axis=1) < CANDIDATES)
    small = {row_id: small_grey(Image.open(files[row_id])) for row_id in files}
    scores = np.array([either_way(small[c], small[own_photo(c)]) for c in copies]) * proposed
    changes = np.array([row_id.partition("/")[0] for row_id in copies])
    planted = planted_of(list(copies))
    with tempfile.TemporaryDirectory() as scratch:
        ids = [*photos, *planted]
        pipeline.write_features(
            scratch, ids, np.concatenate((photos[:], copies.read(planted))),
            recipe=photos.index.header.recipe,
        )  # fmt: skip
        entries = [ImageEntry(i, str(files[i].resolve())[1:], "all", ()) for i in ids]
        images = {Path(scratch): Manifest("hidden", Path("/"), entries, "", "", {})}
        parts = parts_of_sets([pipeline.read_features(scratch)])
        used = time.process_time()
        candidates = exact_pairs(parts, LEAST_COSINE, between=False)
        rank = np.arange(len(ids))
        (pairs,) = confirmed_pairs(candidates, parts, rank, images, least=ALIGNED_STEPS[0])
        used = time.process_time() - used
    ids = parts[0].ids
    named = [(ids[a], ids[b]) for a, b in zip(pairs.first, pairs.second, strict=True)]
    print(f"\nwith the pixels of the images, {used:.0f} s of processor for {len(ids)} images\n")
    print(f"| correlation | {' | '.join(CHANGES)} | photos with another | of {PLANTED} hidden |")
    print("|" + "---|" * (len(CHANGES) + 3))
    for step in ALIGNED_STEPS:
        shares = [100 * float((scores[changes == change] >= step).mean()) for change in CHANGES]
        near = [pair for pair, score in zip(named, pairs.scores, strict=True) if score >= step]
        alarms = {row_id for pair in near if not {*pair} & {*planted} for row_id in pair}
        found = sum(own_photo(one) == own_photo(other) for one, other in near)
        print(
            f"| {step:.2f} | {' | '.join(f'{s:.1f}' for s in shares)} | {len(alarms)} | {found} |"
        )


def either_way(one: Image.Image, other: Image.Image) -> float:
    """Return the correlation of a small image with a part of the other, or the reverse."""
    fields = Field.of(one), Field.of(other)
    return max(
        correlation(fields[1], Templates.of(one, fields[1].shape)),
        correlation(fields[0], Templates.of(other, fields[0].shape)),
    )


def planted_of(copies: Sequence[str]) -> list[str]:
    """Return the ids of copies to hide, each of another photo, with modifications in turn."""
    by_change = [[c for c in copies if c.startswith(f"{change}/")] for change in CHANGES]
    return [by_change[n % len(CHANGES)][n] for n in range(PLANTED)]


def own_photo(copy: str) -> str:
    """Return the id of the original photo of a copy."""
    return f"{Path(copy).stem}.jpg"


def time_rows(number: int, approximate: bool) -> None:
    """Search synthetic rows in a temporary folder, and print seconds, memory and recall."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, DIM), np.float32)
    rows = centres[rng.integers(CENTRES, size=number)]
    rows += 0.6 * rng.standard_normal((number, DIM), np.float32)
    planted = number // 100
    rows[-planted:] = rows[:planted] + 0.2 * rng.standard_normal((planted, DIM), np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        ids = [f"{row:08d}" for row in range(number)]
        pipeline.write_features(scratch, ids, rows, recipe={"name": "made"})
        del rows, ids
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, used = time.monotonic(), time.process_time()
        found = duplicates(scratch, threshold=0.93, approximate=approximate)
        seconds, used = time.monotonic() - started, time.process_time() - used
    pairs = {frozenset(image.id for image in group.images) for group in found}
    right = sum(
        frozenset((f"{row:08d}", f"{number - planted + row:08d}")) in pairs
        for row in range(planted)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{summary(found)}; {right} of {planted} planted pairs")
    print(f"{seconds:.1f} s, {used:.1f} s of processor; peak {peak / 2**20:.2f} GiB, "
          f"{before / 2**20:.2f} before")  # fmt: skip


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    photos = commands.add_parser("photos")
    photos.add_argument("photos", type=Path)
    photos.add_argument("work", type=Path)
    photos.add_argument("--recipe", nargs="+", default=RECIPES)
    photos.add_argument("--copies", type=int, default=500)
    photos.add_argument("--limit", type=int, default=10**9)
    rows = commands.add_parser("rows")
    rows.add_argument("number", type=int)
    rows.add_argument("--approximate", action="store_true")
    given = parser.parse_args()
    if given.command == "photos":
        calibrate(given.photos, given.work, given.recipe, given.copies, given.limit)
    else:
        time_rows(given.number, given.approximate)


if __name__ == "__main__":
    main()
