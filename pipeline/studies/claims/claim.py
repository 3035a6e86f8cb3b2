"""Claims as data: which system is better, by which figure, and the values printed in the paper."""

from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from pipeline.store.schema import Natural, SchemaError, decode_format
from pipeline.studies.claims import ClaimError
from pipeline.studies.claims.compare import kind_of_measure

FORMAT, FORMAT_VERSION = "pipeline-claims", 1

PAPERS = "papers"
"""Name of the list of the papers' claims, used instead of a file."""

_PUBLISHED_FILE = "published.json"


@dataclass(frozen=True)
class Figure:
    """One test of a claim.

    Attributes
    ----------
    measure : str. A figure of `pipeline.studies.claims.compare.MEASURES`.
    first, second : float or None. Values of both sides in the paper, if printed.
    """

    measure: str
    first: float | None = None
    second: float | None = None


@dataclass(frozen=True)
class Claim:
    """The claim that one system is better than another, or equally good.

    Attributes
    ----------
    name : str. Short name, unique in a list.
    claim : str. The claim in words.
    first, second : str or tuple of str. The two sides: experiment names, or files, one per training
        (seed). The first is the one claimed to be better.
    figures : tuple of Figure. Figures to test, each separately.
    says : str. Whether the first is claimed to be "better", or the two to be "level".
    paper, section : str. Source of the claim.
    of : str. Dataset, features and protocol of the printed figures.
    meaning : str. Interpretation if the claim holds.
    remark : str. Differences between the two sides and those of the paper.
    commands : tuple of str. Commands that compute the two sides, if `pipeline run NAME` does not.
    dataset : str. Folder of the experiments' dataset; "": the requested one.
    protocol, captions_per_image : str, int. For embeddings, as in `pipeline.evaluate`; 0 counts all
        captions.
    same_captions : bool. Whether both sides need the same captions; otherwise only figures of
        `text_to_image`, whose gallery are the images, can be compared.
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
    """Read a list of claims; "papers" selects that of the five papers.

    Parameters
    ----------
    file : str or Path. JSON as specified in docs/claims.md, or "papers".

    Raises
    ------
    ClaimError
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
        raise ClaimError(
            f"{file}: no such file; pass a list of claims (docs/claims.md), or {PAPERS!r}"
        ) from None
    except SchemaError as error:
        raise ClaimError(f"{file}: {error}; docs/claims.md has the format") from error
    if repeated := [name for name, n in Counter(c.name for c in claims).items() if n > 1]:
        raise ClaimError(f"{file}: {repeated[0]!r} names several claims; names must be unique")
    for claim in claims:
        _check(claim, f"{file}: {claim.name}")
    return claims


def _check(claim: Claim, where: str) -> None:
    if not claim.figures or not claim.first or not claim.second:
        raise ClaimError(f"{where}: a claim needs two sides and at least one figure")
    for figure in claim.figures:
        try:
            kind_of_measure(figure.measure)
        except ClaimError as error:
            raise ClaimError(f"{where}: {error}") from error
        if not claim.same_captions and not figure.measure.startswith("text_to_image"):
            raise ClaimError(
                f"{where}: {figure.measure} cannot be compared between different captions; only "
                "figures of text_to_image can"
            )
