"""Claims as data: which system is better than which, by which figure, and what a paper printed."""

from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from pipeline.claims import ClaimError
from pipeline.claims.compare import kind_of_measure
from pipeline.schema import Natural, SchemaError, decode_format

FORMAT, FORMAT_VERSION = "pipeline-claims", 1

PAPERS = "papers"
"""What the list of the papers' claims is called in the place of a file."""

_PUBLISHED_FILE = "published.json"


@dataclass(frozen=True)
class Figure:
    """One test of a claim.

    Attributes
    ----------
    measure : a figure of `pipeline.claims.compare.MEASURES`.
    first, second : the figures of both sides that the paper prints; None: it prints none.
    """

    measure: str
    first: float | None = None
    second: float | None = None


@dataclass(frozen=True)
class Claim:
    """That one system is better than another, or as good.

    Attributes
    ----------
    name : short, each once in a list.
    claim : in words.
    first, second : the two sides: names of experiments, or files, one for each training (seed). The
        first is the one that is said to be better.
    figures : what is tested; each is a test of its own.
    says : whether the first is said to be "better", or the two to be "level".
    paper, section : where it is claimed.
    of : dataset, features and protocol of the printed figures.
    meaning : what it would mean if it holds.
    remark : how the two sides differ from those of the paper.
    commands : that make the two sides where `pipeline run NAME` does not.
    dataset : folder of the dataset that experiments are named of; "": the one that is asked about.
    protocol, captions_per_image : of embeddings, as in `pipeline.evaluate`; 0 counts all captions.
    same_captions : whether both sides need the same captions; without, only figures of
        `text_to_image` compare, whose gallery are the images.
    """

    name: str
    claim: str
    first: str | tuple[str, ...]
    second: str | tuple[str, ...]
    figures: tuple[Figure, ...]
    says: Literal["better", "level"] = "better"
    paper: str = ""
    section: str = ""
    of: str = ""
    meaning: str = ""
    remark: str = ""
    commands: tuple[str, ...] = ()
    dataset: str = ""
    protocol: str = "all"
    captions_per_image: Natural = 5
    same_captions: bool = True


@dataclass(frozen=True)
class _ClaimList:
    claims: tuple[Claim, ...]


def read_claims(file: str | Path) -> tuple[Claim, ...]:
    """Read a list of claims; "papers" is that of the five papers.

    Parameters
    ----------
    file : str or Path. JSON, as docs/claims.md describes it, or "papers".

    Raises
    ------
    ClaimError
        The file is missing or damaged; a name occurs twice; a claim has no figure, or one that does
        not exist or does not compare between other captions.
    """
    try:
        if str(file) == PAPERS:
            text = resources.files("pipeline.claims").joinpath(_PUBLISHED_FILE).read_bytes()
        else:
            text = Path(file).read_bytes()
        claims = decode_format(text, _ClaimList, FORMAT, FORMAT_VERSION).claims
    except FileNotFoundError:
        raise ClaimError(
            f"{file}: no such file; give a list of claims (docs/claims.md), or {PAPERS!r}"
        ) from None
    except SchemaError as error:
        raise ClaimError(f"{file}: {error}; docs/claims.md has the format") from error
    if repeated := [name for name, n in Counter(c.name for c in claims).items() if n > 1]:
        raise ClaimError(f"{file}: {repeated[0]!r} names several claims; give each its own name")
    for claim in claims:
        _check(claim, f"{file}: {claim.name}")
    return claims


def _check(claim: Claim, where: str) -> None:
    if not claim.figures or not claim.first or not claim.second:
        raise ClaimError(f"{where}: a claim has two sides and at least one figure")
    for figure in claim.figures:
        try:
            kind_of_measure(figure.measure)
        except ClaimError as error:
            raise ClaimError(f"{where}: {error}") from error
        if not claim.same_captions and not figure.measure.startswith("text_to_image"):
            raise ClaimError(
                f"{where}: {figure.measure} does not compare between other captions; only figures "
                "of text_to_image do"
            )
