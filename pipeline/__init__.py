"""Offline features and embeddings for captioned images, with ids beside every row.

Each job is one function with the defaults of its command; names are loaded when they are used, so
that `import pipeline` is quick. docs/python.md shows them at work.

>>> import pipeline
>>> pipeline.extract("data/mine", "features/mine", recipe="resnet152-pool")
>>> pipeline.read_features("features/mine").read(["a.jpg", "b.jpg"])
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Threads of torch and BLAS that wait for work sleep, where they would spin and take the cores from
# each other and from other programs. Both are read when torch and numpy are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

if TYPE_CHECKING:
    from pipeline.clips.extract_clips import extract_clips as extract_clips
    from pipeline.cluster.place import Place as Place
    from pipeline.datasets.manifest import read_manifest as read_manifest
    from pipeline.datasets.regions import read_phrases as read_phrases
    from pipeline.experiments.run import run as run
    from pipeline.finetuning.finetune import finetune as finetune
    from pipeline.heads.embed import embed as embed
    from pipeline.heads.fit import fit as fit
    from pipeline.heads.trained_head import load_head as load_head
    from pipeline.heads.training.training_options import TrainingOptions as TrainingOptions
    from pipeline.images.extract import extract as extract
    from pipeline.images.feature_extractor import FeatureExtractor as FeatureExtractor
    from pipeline.jobs.make_features import make_features as make_features
    from pipeline.jobs.options import Compute as Compute
    from pipeline.jobs.options import Selection as Selection
    from pipeline.jobs.options import Storage as Storage
    from pipeline.recipes import RECIPES as RECIPES
    from pipeline.recipes import resolve_recipe as resolve_recipe
    from pipeline.regions.features import Regions as Regions
    from pipeline.regions.features import extract_regions as extract_regions
    from pipeline.regions.proposal_source import Proposer as Proposer
    from pipeline.regions.proposals import read_proposals as read_proposals
    from pipeline.regions.propose import propose as propose
    from pipeline.report.write import write_report as write_report
    from pipeline.retrieval.evaluate import evaluate as evaluate
    from pipeline.retrieval.recall import recall as recall
    from pipeline.shards.feature_set import FeatureSet as FeatureSet
    from pipeline.shards.feature_set import read_features as read_features
    from pipeline.shards.resume.arrays import write_features as write_features
    from pipeline.text.encode import Captions as Captions
    from pipeline.text.encode import encode as encode
    from pipeline.text.fitted import load_encoder as load_encoder

__version__ = "0.1.0"

_HOMES = {
    "Captions": "pipeline.text.encode",
    "Compute": "pipeline.jobs.options",
    "FeatureExtractor": "pipeline.images.feature_extractor",
    "FeatureSet": "pipeline.shards.feature_set",
    "Place": "pipeline.cluster.place",
    "Proposer": "pipeline.regions.proposal_source",
    "RECIPES": "pipeline.recipes",
    "Regions": "pipeline.regions.features",
    "Selection": "pipeline.jobs.options",
    "Storage": "pipeline.jobs.options",
    "TrainingOptions": "pipeline.heads.training.training_options",
    "embed": "pipeline.heads.embed",
    "encode": "pipeline.text.encode",
    "evaluate": "pipeline.retrieval.evaluate",
    "extract": "pipeline.images.extract",
    "extract_clips": "pipeline.clips.extract_clips",
    "extract_regions": "pipeline.regions.features",
    "finetune": "pipeline.finetuning.finetune",
    "fit": "pipeline.heads.fit",
    "make_features": "pipeline.jobs.make_features",
    "load_encoder": "pipeline.text.fitted",
    "load_head": "pipeline.heads.trained_head",
    "propose": "pipeline.regions.propose",
    "read_features": "pipeline.shards.feature_set",
    "read_manifest": "pipeline.datasets.manifest",
    "read_phrases": "pipeline.datasets.regions",
    "read_proposals": "pipeline.regions.proposals",
    "recall": "pipeline.retrieval.recall",
    "resolve_recipe": "pipeline.recipes",
    "run": "pipeline.experiments.run",
    "write_features": "pipeline.shards.resume.arrays",
    "write_report": "pipeline.report.write",
}
"""The public names, and the modules that define them."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
