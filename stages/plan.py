"""What `train` and `embed` share: an experiment of params.yaml, made of its preset."""

from pipeline.heads.catalogue import CaptionFeatures, Experiment
from pipeline.heads.experiments import resolve_experiment
from stages.params import Params


def experiment_of(params: Params, name: str) -> Experiment:
    """Return an experiment: its preset, at the file's size, and what the file changes.

    Parameters
    ----------
    params : the file.
    name : of one of its experiments.

    Raises
    ------
    ParamsError
        There is none of this name; the known ones are listed.
    HeadError
        Its preset, its head or a setting is unknown, or a setting is out of range.
    """
    entry = params.entry(name)
    features = params.caption_features.get(entry.captions)
    return resolve_experiment(
        name,
        preset=entry.preset,
        head=entry.head,
        size=params.size,
        images=entry.images,
        captions=CaptionFeatures(
            entry.captions,
            features.encoder if features else entry.captions,
            (features.model_extra or {}) if features else {},
        ),
        settings=entry.settings,
        word_vectors=entry.word_vectors,
        average_captions=entry.average_captions,
    )
