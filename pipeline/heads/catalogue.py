"""The heads by name."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.heads import HeadError
from pipeline.heads.base import Head, settings_from
from pipeline.heads.data.feature_spec import HeadInputs
from pipeline.heads.models import relational, scan, two_branch, word2visualvec
from pipeline.heads.models import vse as joint_embedding
from pipeline.heads.models.cca import CcaHead, CcaSettings
from pipeline.heads.models.ridge import RidgeHead, RidgeSettings
from pipeline.heads.training.task import TrainingTask
from pipeline.heads.training.trainer import NetworkHead


@dataclass(frozen=True)
class HeadKind:
    """A head's settings and how to make it from them and the facts of its inputs."""

    settings: type[Any]
    make: Callable[[Any, HeadInputs], Head]


def network(settings: type[Any], task: Callable[[Any, HeadInputs], TrainingTask]) -> HeadKind:
    """Return the kind of head that trains a network for this task."""

    def make(values: Any, inputs: HeadInputs) -> Head:
        # Without the number of epochs, so that it may be raised before a training goes on.
        named = {name: value for name, value in asdict(values).items() if name != "epochs"}
        recipes = [inputs.images.recipe_hash, inputs.captions.recipe_hash]
        return NetworkHead(task(values, inputs), [task.__module__, named, recipes])

    return HeadKind(settings, make)


HEADS = {
    "cca": HeadKind(CcaSettings, CcaHead),
    "ridge": HeadKind(RidgeSettings, RidgeHead),
    "vse": network(joint_embedding.VseSettings, joint_embedding.task),
    "relational": network(relational.RelationalSettings, relational.task),
    "scan": network(scan.ScanSettings, scan.task),
    "two-branch": network(two_branch.TwoBranchSettings, two_branch.task),
    "word2visualvec": network(word2visualvec.Word2VisualVecSettings, word2visualvec.task),
}


def make_head(name: str, settings: Mapping[str, Any], inputs: HeadInputs) -> Head:
    """Return an unfitted head.

    Parameters
    ----------
    name : a key of `HEADS`.
    settings : what differs from the head's defaults.
    inputs : facts of the features of both sides.

    Raises
    ------
    HeadError
        No such head (the nearest names are listed), unknown settings, or features that the head
        cannot take.
    """
    kind = _kind(name)
    return kind.make(settings_from(kind.settings, settings, name), inputs)


def with_epochs_at_most(
    name: str, settings: Mapping[str, Any], most: int | None
) -> Mapping[str, Any]:
    """Return settings of a head that train for `most` epochs or fewer; None changes nothing.

    A head that trains in no epochs keeps its settings.

    Raises
    ------
    HeadError
        No such head.
    """
    epochs = settings.get("epochs", getattr(_kind(name).settings, "epochs", None))
    if most is None or not isinstance(epochs, int) or epochs <= most:
        return settings
    return {**settings, "epochs": most}


def _kind(name: str) -> HeadKind:
    if name not in HEADS:
        if name == "recurrent":
            raise HeadError("head 'recurrent' is now called vse")
        near = difflib.get_close_matches(name, HEADS, n=3, cutoff=0.4) or list(HEADS)
        raise HeadError(f"no head is called {name!r}; did you mean {' or '.join(near)}?")
    return HEADS[name]
