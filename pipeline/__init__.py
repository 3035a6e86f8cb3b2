"""Offline features and embeddings of captioned images, with an id for every row.

Each command is also a function with the same defaults. Names are imported lazily, so that `import
pipeline` is fast. docs/python.md has examples.

>>> import pipeline
>>> pipeline.extract("data/mine", "features/mine", recipe="resnet152-pool")
>>> pipeline.read_features("features/mine").read(["a.jpg", "b.jpg"])
"""

import os
from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

# Idle threads of torch and BLAS sleep instead of spinning, which would block the cores for each
# other and for other programs. Both variables are read when torch and numpy are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
# Tensors of 2 MiB or more get huge pages: otherwise a fifth of the time of a network of large maps
# is spent on mapping small ones. torch warns where the kernel has no huge pages.
if os.path.isdir("/sys/kernel/mm/transparent_hugepage"):  # noqa: PTH112 (an import of pathlib)
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    # Those of the optional families, each of which one line of `pipeline.store.families` registers.
    from pipeline.clips.family import *  # noqa: F403
    from pipeline.datasets.manifest import Manifest as Manifest
    from pipeline.datasets.manifest import read_manifest as read_manifest
    from pipeline.datasets.metadata import read_metadata as read_metadata
    from pipeline.datasets.prepare import prepare as prepare
    from pipeline.datasets.readers.coco import read_coco as read_coco
    from pipeline.datasets.readers.entities import read_entities as read_entities
    from pipeline.datasets.readers.flickr8k import read_flickr8k as read_flickr8k
    from pipeline.datasets.readers.folder import read_folder as read_folder
    from pipeline.datasets.readers.karpathy import read_karpathy as read_karpathy
    from pipeline.datasets.readers.msrvtt import read_msrvtt as read_msrvtt
    from pipeline.datasets.readers.msvd import read_msvd as read_msvd
    from pipeline.datasets.readers.region_table import read_regions as read_regions
    from pipeline.datasets.readers.trecvid_vtt import read_trecvid_vtt as read_trecvid_vtt
    from pipeline.datasets.regions import read_phrases as read_phrases
    from pipeline.experiments.export_model import export_model as export_model
    from pipeline.experiments.layout import Layout as Layout
    from pipeline.experiments.run import run as run
    from pipeline.experiments.searchers import open_searcher as open_searcher
    from pipeline.heads.embed import Stored as Stored
    from pipeline.heads.embed import embed as embed
    from pipeline.heads.experiments import resolve_experiment as resolve_experiment
    from pipeline.heads.finetuning.finetune import finetune as finetune
    from pipeline.heads.fit import fit as fit
    from pipeline.heads.trained_head import load_head as load_head
    from pipeline.heads.training.training_options import TrainingOptions as TrainingOptions
    from pipeline.images.backbones.image_network import ImageNetwork as ImageNetwork
    from pipeline.images.backbones.image_network import register_backbone as register_backbone
    from pipeline.images.extract import extract as extract
    from pipeline.images.extract import extract_layers as extract_layers
    from pipeline.images.feature_extractor import FeatureExtractor as FeatureExtractor
    from pipeline.images.feature_extractor import encoder as encoder
    from pipeline.images.recipes import RECIPES as RECIPES
    from pipeline.images.recipes import Crop as Crop
    from pipeline.images.recipes import Normalise as Normalise
    from pipeline.images.recipes import Preprocessing as Preprocessing
    from pipeline.images.recipes import Resize as Resize
    from pipeline.images.recipes import resolve_recipe as resolve_recipe
    from pipeline.language.family import *  # noqa: F403
    from pipeline.regions.family import *  # noqa: F403
    from pipeline.retrieval.embedding_file import read_embeddings as read_embeddings
    from pipeline.retrieval.embedding_file import write_embeddings as write_embeddings
    from pipeline.retrieval.embeddings import Embeddings as Embeddings
    from pipeline.retrieval.ensemble import ensemble as ensemble
    from pipeline.retrieval.evaluate import evaluate as evaluate
    from pipeline.retrieval.query.searcher import Searcher as Searcher
    from pipeline.retrieval.ranking.recall_of_arrays import recall as recall
    from pipeline.store.builder.arrays import write_features as write_features
    from pipeline.store.convert.export import export as export
    from pipeline.store.convert.importers.import_features import import_features as import_features
    from pipeline.store.convert.merge import merge as merge
    from pipeline.store.convert.new_version import convert_features as convert_features
    from pipeline.store.errors import PipelineError as PipelineError
    from pipeline.store.jobs.make_features import make_features as make_features
    from pipeline.store.jobs.options import Compute as Compute
    from pipeline.store.jobs.options import Selection as Selection
    from pipeline.store.jobs.options import Storage as Storage
    from pipeline.store.progress import progress_bar as progress_bar
    from pipeline.store.shards.describe import describe as describe
    from pipeline.store.shards.feature_set import FeatureSet as FeatureSet
    from pipeline.store.shards.feature_set import read_features as read_features
    from pipeline.store.shards.index import rebuild_index as rebuild_index
    from pipeline.store.shards.verify import verify as verify
    from pipeline.store.share.cards.card import write_card as write_card
    from pipeline.store.share.pull import pull as pull
    from pipeline.store.share.push import push as push
    from pipeline.store.workers.place import Place as Place
    from pipeline.studies.family import *  # noqa: F403
    from pipeline.studies.near_duplicates.family import *  # noqa: F403
    from pipeline.text.captions import Captions as Captions
    from pipeline.text.encode import encode as encode
    from pipeline.text.fitted import load_encoder as load_encoder
    from pipeline.text.vectors.store import store_vectors as store_vectors
    from pipeline.web.family import *  # noqa: F403

__version__ = "0.1.0"

_HOMES = {
    "Captions": "pipeline.text.captions",
    "Compute": "pipeline.store.jobs.options",
    "Crop": "pipeline.images.recipes",
    "Embeddings": "pipeline.retrieval.embeddings",
    "FeatureExtractor": "pipeline.images.feature_extractor",
    "FeatureSet": "pipeline.store.shards.feature_set",
    "ImageNetwork": "pipeline.images.backbones.image_network",
    "Layout": "pipeline.experiments.layout",
    "Manifest": "pipeline.datasets.manifest",
    "Normalise": "pipeline.images.recipes",
    "PipelineError": "pipeline.store.errors",
    "Place": "pipeline.store.workers.place",
    "Preprocessing": "pipeline.images.recipes",
    "RECIPES": "pipeline.images.recipes",
    "Resize": "pipeline.images.recipes",
    "Searcher": "pipeline.retrieval.query.searcher",
    "Selection": "pipeline.store.jobs.options",
    "Storage": "pipeline.store.jobs.options",
    "Stored": "pipeline.heads.embed",
    "TrainingOptions": "pipeline.heads.training.training_options",
    "convert_features": "pipeline.store.convert.new_version",
    "describe": "pipeline.store.shards.describe",
    "embed": "pipeline.heads.embed",
    "encode": "pipeline.text.encode",
    "encoder": "pipeline.images.feature_extractor",
    "ensemble": "pipeline.retrieval.ensemble",
    "evaluate": "pipeline.retrieval.evaluate",
    "export": "pipeline.store.convert.export",
    "export_model": "pipeline.experiments.export_model",
    "extract": "pipeline.images.extract",
    "extract_layers": "pipeline.images.extract",
    "finetune": "pipeline.heads.finetuning.finetune",
    "fit": "pipeline.heads.fit",
    "import_features": "pipeline.store.convert.importers.import_features",
    "load_encoder": "pipeline.text.fitted",
    "load_head": "pipeline.heads.trained_head",
    "make_features": "pipeline.store.jobs.make_features",
    "merge": "pipeline.store.convert.merge",
    "open_searcher": "pipeline.experiments.searchers",
    "progress_bar": "pipeline.store.progress",
    "prepare": "pipeline.datasets.prepare",
    "pull": "pipeline.store.share.pull",
    "push": "pipeline.store.share.push",
    "read_coco": "pipeline.datasets.readers.coco",
    "read_embeddings": "pipeline.retrieval.embedding_file",
    "read_entities": "pipeline.datasets.readers.entities",
    "read_features": "pipeline.store.shards.feature_set",
    "read_flickr8k": "pipeline.datasets.readers.flickr8k",
    "read_folder": "pipeline.datasets.readers.folder",
    "read_karpathy": "pipeline.datasets.readers.karpathy",
    "read_manifest": "pipeline.datasets.manifest",
    "read_msrvtt": "pipeline.datasets.readers.msrvtt",
    "read_msvd": "pipeline.datasets.readers.msvd",
    "read_metadata": "pipeline.datasets.metadata",
    "read_phrases": "pipeline.datasets.regions",
    "read_regions": "pipeline.datasets.readers.region_table",
    "read_trecvid_vtt": "pipeline.datasets.readers.trecvid_vtt",
    "rebuild_index": "pipeline.store.shards.index",
    "register_backbone": "pipeline.images.backbones.image_network",
    "recall": "pipeline.retrieval.ranking.recall_of_arrays",
    "resolve_experiment": "pipeline.heads.experiments",
    "resolve_recipe": "pipeline.images.recipes",
    "run": "pipeline.experiments.run",
    "store_vectors": "pipeline.text.vectors.store",
    "verify": "pipeline.store.shards.verify",
    "write_card": "pipeline.store.share.cards.card",
    "write_embeddings": "pipeline.retrieval.embedding_file",
    "write_features": "pipeline.store.builder.arrays",
}
"""The public names of the core, and the modules that define them; families add their own."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use: one of the core, else one of an optional family."""
    from pipeline.store.arguments import checked
    from pipeline.store.families import added, additions

    value: Any
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name == "__all__":
        value = ["__version__", *_HOMES, *additions("PUBLIC")]
    elif name.startswith("_") or name not in additions("PUBLIC"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        value = added("PUBLIC", name)
    if isfunction(value):
        value = checked(value, __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
