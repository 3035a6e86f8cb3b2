"""Claims as data: which system is better, by which figure, and the values printed in the paper."""

from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from pipeline.store.schema import Natural, SchemaError, decode_format
from pipeline.studies import StudyError
from pipeline.studies.claims.compare import kind_of_measure

FORMAT, FORMAT_VERSION = "pipeline-claims", 1

PAPERS = "papers"
"""Name of the list of the papers' claims, used instead of a file."""

_PUBLISHED_FILE = "published.json"


@dataclass(frozen=True)
class Figure:
    """One test of a claim."""

    measure: str
    first: float | None = None  # values of both sides in the paper, if printed
    second: float | None = None


@dataclass(frozen=True)
class Claim:
    """The claim that one system is better than another, or equally good."""

    name: str  # short name, unique in a list
    claim: str
    first: str | tuple[str, ...]
    second: str | tuple[str, ...]
    """Experiment names, or files, one per training (seed); `first` is claimed to be better."""
    figures: tuple[Figure, ...]
    says: Literal["better", "level"] = "better"
    """Whether the first is claimed to be "better", or the two to be "level"."""
    paper: str = ""  # source of the claim
    section: str = ""
    of: str = ""  # dataset, features and protocol of the printed figures
    meaning: str = ""
    remark: str = ""  # differences between the two sides and those of the paper
    commands: tuple[str, ...] = ()
    """Commands that compute the two sides, if `pipeline run NAME` does not."""
    dataset: str = ""  # folder of the experiments' dataset; "": the requested one
    protocol: str = "all"
    captions_per_image: Natural = 5
    """For embeddings, with the protocol, as in `pipeline.evaluate`; 0 counts all captions."""
    same_captions: bool = True
    """Otherwise only figures of `text_to_image`, whose gallery are images, can be compared."""


@dataclass(frozen=True)
class _ClaimList:
    claims: tuple[Claim, ...]


def read_claims(file: str | Path) -> tuple[Claim, ...]:
    """Read a list of claims; "papers" selects that of the five papers.

    Parameters
    ----------
    file : str or Path. JSON as specified in docs/evaluation.md, or "papers".

    Returns
    -------
    tuple of Claim
        In file order; `pipeline.judge` tests them.

    Raises
    ------
    StudyError
        The file is missing or corrupt; a name occurs twice; a claim has no figure, an unknown one,
        or one that cannot be compared between different captions.

    Examples
    --------
    >>> claims = pipeline.read_claims("papers")
    >>> claims[0].claim
    '...'
    """
    try:
        if str(file) == PAPERS:
            text = resources.files("pipeline.studies.claims").joinpath(_PUBLISHED_FILE).read_bytes()
        else:
            text = Path(file).read_bytes()
        claims = decode_format(text, _ClaimList, FORMAT, FORMAT_VERSION).claims
    except FileNotFoundError:
        raise StudyError(
            f"{file}: no such file; pass a list of claims in JSON, or {PAPERS!r}"
        ) from None
    except SchemaError as error:
        raise StudyError(f"{file}: {error}; correct the list of claims") from error
    if repeated := [name for name, n in Counter(c.name for c in claims).items() if n > 1]:
        raise StudyError(f"{file}: {repeated[0]!r} names several claims; names must be unique")
    for claim in claims:
        _check(claim, f"{file}: {claim.name}")
    return claims


def _check(claim: Claim, where: str) -> None:
    if not claim.figures or not claim.first or not claim.second:
        raise StudyError(f"{where}: a claim needs two sides and at least one figure")
    for figure in claim.figures:
        try:
            kind_of_measure(figure.measure)
        except StudyError as error:
            raise StudyError(f"{where}: {error}") from error
        if not claim.same_captions and not figure.measure.startswith("text_to_image"):
            raise StudyError(
                f"{where}: {figure.measure} cannot be compared between different captions; only "
                "figures of text_to_image can"
            )
