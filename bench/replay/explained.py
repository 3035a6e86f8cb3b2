"""Allowed differences between both sides, with reasons."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Explained:
    """Differences that are allowed.

    Attributes
    ----------
    path : str. `fnmatch` pattern of the file paths below the working folder.
    place : str. `fnmatch` pattern of `Difference.place`.
    reason : str. Why they differ, and why that is correct.
    """

    path: str
    place: str
    reason: str


# Cases that print recall tables.
_TABLES = (
    "commands",
    "failed-rows",
    "fine-tuning",
    "heads",
    "heads-of-clips",
    "seeds",
    "zero-shot",
)

EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "made/pointing.h5",
        "layout",
        "h5py's create_virtual_dataset stored the second in which it was called, so that "
        "`shards export --to h5` of one commit differed from run to run; today's view has no time",
    ),
    *(
        Explained(
            path,
            place,
            "AVIF is one of the formats that the reason of an unreadable image lists; hashes of "
            "the shards that store it follow",
        )
        for path, place in (
            ("*photos*/shard-*.h5", "dataset error*"),
            ("*photos*/index.json", "key shards*"),
            ("logs/*", "line *"),
        )
    ),
    *(
        Explained(
            path,
            place,
            "the card begins with the header of a dataset card, and croissant.json is written next "
            "to it; files.json lists both",
        )
        for path, place in (
            ("*/SHARDS.md", "line *"),
            ("*/croissant.json", "only in tree"),
            ("*/files.json", "key c*"),
        )
    ),
    *(
        Explained(
            path,
            place,
            "a head of CCA records the coordinates that its rows bear: fewer than were asked for "
            "where the rows are few",
        )
        for path, place in (
            ("data/heads/*/history.json", "[[]*].coordinates"),
            ("data/heads/*/head.json", "key history[[]*].coordinates"),
        )
    ),
    *(
        Explained(
            path,
            place,
            "tables of fewer than 1,000 images have the figures of chance and the bounds of 95 % "
            "intervals; the columns follow those that were there",
        )
        for path, place in (
            ("*/recall.json", "*_chance"),
            ("*/recall.json", "*_low"),
            ("*/recall.json", "*_high"),
            ("*/recall.csv", "line *"),
            ("*/recall.md", "line *"),
            ("*/provenance.json", "key intervals*"),
            ("made/report/experiments/*.html", "line *"),
            ("made/report/index.html", "line *"),
            *((f"stdout/{case}/*", "line *") for case in _TABLES),
        )
    ),
    Explained(
        "*/provenance.json",
        "key captions_per_image",
        "an evaluation records how many captions of an image count, without a protocol too",
    ),
    *(
        Explained(
            path,
            place,
            "a caption without words is not a candidate; only unfinished hypotheses are computed, "
            "in blocks of other sizes, which moves last bits of log-probabilities; scores follow",
        )
        for path, place in (
            ("data/captions/scenes/kiros2014-lstm-decoder.jsonl", "line *"),
            ("data/caption-scores/scenes/kiros2014-lstm-decoder/captions.*", "*"),
            ("data/caption-scores/scenes/kiros2014-lstm-decoder/provenance.json", "key captions_*"),
            ("stdout/language/06.txt", "line *"),
            ("made/report-of-captions/captions.html", "line *"),
        )
    ),
    Explained(
        "stdout/language/00.txt",
        "line *",
        "perplexities are printed in the order in which the experiments were asked for",
    ),
    Explained(
        "stdout/unusable-images/14.txt", "line *", "the reason of an unreadable image lists AVIF"
    ),
    *(
        Explained(
            path,
            place,
            "search and serve embed the whole dataset, in a folder of their own, and find all its "
            "images",
        )
        for path, place in (
            ("data/embeddings/scenes/*.all.h5", "only in base"),
            ("data/search/scenes/*", "only in tree"),
            ("stdout/heads/*", "line *"),
            ("stdout/zero-shot/*", "line *"),
        )
    ),
    *(
        Explained(
            path,
            "*",
            "mined boxes are all drawn, at the first rate, and of equal epochs on fewer than ten "
            "validation images the last is kept",
        )
        for path in (
            "data/heads/scenes/wang2016-phrases-d-mined/*",
            "data/localizations/scenes/wang2016-phrases-d-mined.h5",
            "stdout/phrases/*",
            "made/phrases-found/*",
            "made/report-of-regions/*",
            "made/marked/*",
        )
    ),
    *(
        Explained(
            path,
            place,
            "the hash of shards that store the reason of an unreadable image, which lists AVIF",
        )
        for path, place in (
            ("data/heads/photos/*/head.json", "key made_from.images_sha256"),
            ("data/embeddings/photos/*.h5", "attribute provenance"),
            ("data/evaluations/photos/*/provenance.json", "key *sha256"),
        )
    ),
    *(
        Explained(
            path,
            place,
            "embedding files record the CRC-32 of the features of each row, by which a file that "
            "grows keeps its rows; hashes of the files follow",
        )
        for path, place in (
            ("*.h5", "*features_crc32*"),
            ("*", "key *embeddings_sha256"),
            ("data/ensembles/*.h5", "attribute provenance"),
            ("made/ensemble.h5", "attribute provenance"),
        )
    ),
    *(
        Explained(path, place, "experiments have a map of their images, and a link to it")
        for path, place in (
            ("made/report/maps/*", "only in tree"),
            ("made/report/images/*", "only in tree"),
            ("made/report/report.json", "*"),
            ("made/report/experiments/*.html", "line *"),
        )
    ),
    Explained(
        "made/report*",
        "*",
        "reports have one colour per system, scales that end where values can, sorted tables, one "
        "chart of epochs for all systems, and other words",
    ),
    Explained("stdout/shards/16.txt", "line *", "`shards info` prints bytes per row, and in total"),
    *(
        Explained(path, place, "the ensemble `ours` is of ours-cca, ours-linear and ours-gru")
        for path, place in (
            ("data/*/scenes/ours-linear*", "only in tree"),
            ("data/ensembles/scenes/ours.h5", "*"),
            ("data/evaluations/scenes/ours/*", "*"),
            ("data/report/scenes/recall.*", "*"),
            ("made/ensemble.h5", "*"),
            ("made/first-images/*", "*"),
            ("made/tables/recall.*", "*"),
        )
    ),
)
