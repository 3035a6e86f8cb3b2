"""What may differ between the two sides, each entry with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Explained:
    """Differences that are not counted.

    Attributes
    ----------
    path : str. Files, as a pattern of `fnmatch` over their path below the working folder.
    place : str. Places within them, as a pattern over `Difference.place`.
    reason : str. Why they differ, and why that is right.
    """

    path: str
    place: str
    reason: str


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
)
