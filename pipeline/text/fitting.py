"""Fitting of an encoder on the training captions: missing files are fitted, others reused."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.files import write_json
from pipeline.store.hashing import sha256_of_texts
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted
from pipeline.text import FittedFileError
from pipeline.text.encoder_plans import CodebookPlan, EncoderPlan, EncoderSpec, vocabulary_rule
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.token_ids import TOKEN_LAYOUTS, longest_caption
from pipeline.text.fisher.codebook import Codebook, fit_codebook, load_codebook
from pipeline.text.fisher.mixture import MixtureKind
from pipeline.text.fitted import (
    ENCODER_FILE,
    FORMAT,
    FORMAT_VERSION,
    PCA_FILE,
    FittedFolder,
    codebook_file,
    read_description,
    vocabulary_file,
)
from pipeline.text.lexicon import Lexicon
from pipeline.text.pca.components import components_of, fit_disk, fit_memory, fit_pca, require_two
from pipeline.text.vectors import WordVectors
from pipeline.text.vocabulary import build_vocabulary, save_vocabulary

_MB = 1e6


@dataclass(frozen=True, eq=False)
class Fitting:
    """Data and options of a fit."""

    training: Sequence[str]  # captions of the training split
    dataset: str  # names for the record
    split: str
    codebooks: Path | None = None  # folder of shared codebooks; None: the encoder's own
    device: str = "cpu"  # for principal components: "cpu", or a torch device
    monitor: Monitor = QUIET


def fit_encoder(
    plan: EncoderPlan, folder: Path, fitting: Fitting, texts: Sequence[str]
) -> CaptionEncoder:
    """Fit an encoder, or reuse fitted files; return the result of `load_encoder(folder, texts)`."""
    if plan.pca is not None:
        require_two(len(fitting.training))
    lexicon = Lexicon(plan)
    plan = _with_lengths(plan, lexicon, fitting.training)
    fitted = FittedFolder(folder, plan, lexicon)
    words = lexicon.words_of(texts)
    _claim(folder, plan, fitting)
    try:
        vectors = fitted.vectors_of(words)
        for spec in plan.specs:
            _fit_vocabulary(spec, folder, lexicon, fitting)
            if spec.mixtures:
                assert vectors is not None
                _fit_codebooks(spec, plan, folder, lexicon, vectors, fitting)
        encoder = fitted.without_pca(vectors)
    except BaseException:
        # Nothing was fitted: release the folder, since a corrected command may have another plan.
        if [path.name for path in folder.iterdir()] == [ENCODER_FILE]:
            (folder / ENCODER_FILE).unlink()
            folder.rmdir()
        raise
    if plan.pca is not None and not (folder / PCA_FILE).is_file():
        _fit_components(encoder, plan.pca, folder, fitting)
    return fitted.with_pca(encoder)


def description_of(plan: EncoderPlan, fitting: Fitting) -> dict[str, Any]:
    """Return the contents of `encoder.json` for an encoder fitted on these captions."""
    return _description(_with_lengths(plan, Lexicon(plan), fitting.training), fitting)


def _with_lengths(plan: EncoderPlan, lexicon: Lexicon, training: Sequence[str]) -> EncoderPlan:
    """Return the plan with the row length of token ids set by the longest training caption."""
    specs = []
    for spec in plan.specs:
        if spec.layout is not None and spec.max_length is None:
            layout = TOKEN_LAYOUTS[spec.layout]
            length = longest_caption(training, lexicon.tokenizer_of(spec), layout)
            spec = replace(spec, max_length=length)
        specs.append(spec)
    return replace(plan, specs=tuple(specs))


def _fit_vocabulary(spec: EncoderSpec, folder: Path, lexicon: Lexicon, fitting: Fitting) -> None:
    path = vocabulary_file(folder, spec)
    if spec.vocabulary is None or path.exists():
        return
    with_vector = None
    if spec.takes_vectors:
        with_vector = lexicon.vectors_of(lexicon.words_of(fitting.training)).index.keys()
    rule = vocabulary_rule(spec.vocabulary)
    tokenizer = lexicon.tokenizer_of(spec)
    vocabulary = build_vocabulary(fitting.training, tokenizer, rule, with_vector)
    if vocabulary.rule != rule:
        fitting.monitor.log(
            f"vocabulary {rule.name!r}: all {len(vocabulary.words)} words, since none of them "
            f"occurs {rule.minimum_count} times in {counted(len(fitting.training), 'caption')}"
        )
    save_vocabulary(vocabulary, path)


def _fit_codebooks(
    spec: EncoderSpec,
    plan: EncoderPlan,
    folder: Path,
    lexicon: Lexicon,
    vectors: WordVectors,
    fitting: Fitting,
) -> None:
    """Copy shared codebooks into an encoder's folder, or fit new ones."""
    for kind in spec.mixtures:
        path = codebook_file(folder, kind)
        if not path.exists():
            assert plan.codebooks is not None
            shared = None
            if fitting.codebooks is not None:
                name = f"{kind}-{plan.codebooks.components}-{vectors.name}.safetensors"
                shared = fitting.codebooks / name
            if shared is not None and shared.exists():
                fitting.monitor.log(f"using the {kind} codebook of {shared}")
                codebook = load_codebook(shared, vectors)
            else:
                codebook = _fit_codebook(kind, plan.codebooks, lexicon, fitting)
                if shared is not None:
                    shared.parent.mkdir(parents=True, exist_ok=True)
                    codebook.save(shared)
            codebook.save(path)


def _fit_codebook(
    kind: MixtureKind, plan: CodebookPlan, lexicon: Lexicon, fitting: Fitting
) -> Codebook:
    words = lexicon.words_of(fitting.training) if plan.words == "training" else None
    return fit_codebook(
        lexicon.vectors_of(words),
        kind,
        plan.components,
        seed=plan.seed,
        sample=plan.sample,
        progress=fitting.monitor.log,
    )


def _fit_components(encoder: CaptionEncoder, dim: int, folder: Path, fitting: Fitting) -> None:
    """Log the sizes, then fit principal components on the rows of the training captions."""
    possible = components_of(len(fitting.training), encoder.dim, dim)
    if possible < dim:
        fitting.monitor.log(
            f"PCA: {counted(possible, 'component')}, not {dim}, from "
            f"{counted(len(fitting.training), 'caption')} with "
            f"rows of {encoder.dim} numbers"
        )
    fitting.monitor.log(
        f"{possible} principal components of {len(fitting.training)} rows of {encoder.dim} "
        f"numbers: at most {fit_memory(encoder.dim, possible) / _MB:.0f} MB of memory and "
        f"{fit_disk(encoder.dim) / _MB:.0f} MB on the disk, for any number of captions"
    )
    work = folder.absolute().parent / WORK_FOLDER / f"{folder.name}-pca"
    with fitting.monitor.progress("principal components", "caption") as progress:
        components = fit_pca(
            encoder, fitting.training, dim, work, device=fitting.device, progress=progress
        )
    components.save(folder / PCA_FILE)


def _claim(folder: Path, plan: EncoderPlan, fitting: Fitting) -> None:
    """Write the description of a fit to a folder, or raise if it has that of another."""
    about = _description(plan, fitting)
    if not (folder / ENCODER_FILE).exists():
        kind = {"format": FORMAT, "format_version": FORMAT_VERSION}
        write_json(folder / ENCODER_FILE, kind | about)
        return
    recorded = read_description(folder)
    keys = {*recorded, *about}
    if different := sorted(k for k in keys if recorded.get(k) != about.get(k)):
        inner = _differences(recorded.get("plan"), about["plan"])
        named = ", ".join(inner if different == ["plan"] else different)
        raise FittedFileError(
            f"{folder} has an encoder with another plan or other captions: it differs in {named}; "
            "`update=True` fits it again, or choose another folder",
            differences=named,
            of_captions=different != ["plan"],
        )


def _description(plan: EncoderPlan, fitting: Fitting) -> dict[str, Any]:
    about: dict[str, Any] = {"plan": plan.to_json()}
    if _is_fitted_to_captions(plan):
        about["captions"] = len(fitting.training)
        about["captions_sha256"] = sha256_of_texts(fitting.training)
        about |= {"dataset": fitting.dataset, "split": fitting.split}
    return about


def _is_fitted_to_captions(plan: EncoderPlan) -> bool:
    return (
        plan.pca is not None
        or (plan.codebooks is not None and plan.codebooks.words == "training")
        or any(spec.vocabulary for spec in plan.specs)
    )


def _differences(recorded: Any, plan: dict[str, Any]) -> list[str]:
    if not isinstance(recorded, dict):
        return ["plan"]
    return [
        f"{k} ({recorded.get(k)!r}, now {v!r})" for k, v in plan.items() if recorded.get(k) != v
    ]
