"""An option is one field of one option object: command, params.yaml and records follow from it."""

import pickle
from dataclasses import dataclass, fields, replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.current.record import made_from
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.option_fields import documented, option, require_bounds
from pipeline.store.workers.place import Place
from stages import options, params
from stages.command import Command

KINDS = (Selection, Storage, Compute, Place)


@documented
@dataclass(frozen=True)
class Filled(Storage):
    """Storage with an option that no other file knows."""

    fill: int = option(3, least=1, help="Value of failed rows.")
    fill_style: str | None = option(
        None, choices=("solid", "dotted"), recorded=False, help="Not of bytes."
    )


def test_a_field_is_all_that_an_option_needs() -> None:
    @click.command(cls=Command)
    @options.options_of(Filled)
    def command(filled: Filled) -> None:
        click.echo(f"{filled.fill} {filled.fill_style}")

    run = CliRunner().invoke
    shown = " ".join(run(command, ["--help"]).stdout.split())
    assert "--fill INTEGER RANGE Value of failed rows. [default: 3; x>=1]" in shown
    assert "--fill-style [solid|dotted] Not of bytes." in shown
    assert run(command, ["--fill", "5", "--fill-style", "dotted"]).stdout == "5 dotted\n"
    assert run(command, []).stdout == "3 None\n"
    assert run(command, ["--fill", "0"]).exit_code == 2
    with pytest.raises(WrongUsage, match="fill is 0, expected at least 1"):
        Filled(fill=0)
    other = pickle.loads(pickle.dumps(Filled(fill=5, fill_style="dotted")))  # as sent to workers
    assert (other.fill, other.fill_style) == (5, "dotted")
    assert made_from(other)["filled"] == {**made_from(Storage())["storage"], "fill": 5}
    assert "fill : int. Value of failed rows." in (Filled.__doc__ or "")
    assert [f.name for f in params.extract_fields(Filled)] == [
        *(f.name for f in params.extract_fields(Storage)), "fill",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, TrainingOptions])
def test_fields_state_their_help_and_the_class_repeats_it(kind: type) -> None:
    text = " ".join((kind.__doc__ or "").split())
    for field in fields(kind):
        if "help" in field.metadata:
            assert " ".join(field.metadata["help"].split()) in text
        else:
            assert field.name == "monitor"


@pytest.mark.parametrize("kind", KINDS)
def test_options_with_defaults_are_allowed(kind: type) -> None:
    require_bounds(kind())


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_have_a_least_value(kind: type) -> None:
    for field in fields(kind):
        if field.type == int | None:
            with pytest.raises(WrongUsage, match=f"{field.name} is 0, expected at least 1"):
                replace(kind(), **{field.name: 0})


def test_params_yaml_sets_the_defaults_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(
        "image_features: []\nextract: {storage: float16, engine: reference}\n"
    )
    assert params.extract_defaults() == {
        **{f.name: f.default for f in params.EXTRACT if f.default is not None},
        "dtype": "float16",
        "engine": "reference",
    }
    for key in ("update", "threads", "dtype", "workers"):
        Path("params.yaml").write_text(f"image_features: []\nextract: {{{key}: 1}}\n")
        with pytest.raises(Exception, match=f"extract: Object contains unknown field `{key}`"):
            params.load_params()
