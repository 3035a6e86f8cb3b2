"""The commands write the outputs whose digests tests/golden/commands.json has."""

from pathlib import Path

import pytest

from bench.golden import (
    CHAINS,
    Golden,
    differences,
    golden_of,
    libraries,
    processor,
    read,
    run_chain,
)


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_outputs_of_commands(chain: str, tmp_path: Path) -> None:
    """On failure, correct the code, or renew the file: `python -m bench.golden`."""
    golden, compared, here = read(), "bytes", f"{processor()}, {libraries()}"
    if golden["processor"] != processor():
        compared = "portable"
    if golden["libraries"] != libraries():
        compared = "structure"
    recorded = f"{golden['processor']}, {golden['libraries']}"
    found = differences(run_chain(chain, tmp_path), golden, compared)
    renew = f"compared: {compared}; to renew the file, run python -m bench.golden"
    assert not found, "\n".join([*found, renew])
    if compared != "bytes":
        pytest.skip(
            f"golden bytes are those of {recorded}; here {here}: {compared} compared, equal"
        )


_FOUND = {"ids.txt": ("0a", "-"), "shard.h5": ("1a", "2a"), "table.txt": ("3a", "-")}


@pytest.fixture
def golden(monkeypatch: pytest.MonkeyPatch) -> Golden:
    """A file whose ids are the same on every processor, the table of which is not even in form."""
    monkeypatch.setattr("bench.golden.libraries", dict)
    older = {**_FOUND, "shard.h5": ("1b", "2a"), "table.txt": ("3b", "-")}
    made = golden_of({"scenes": _FOUND}, [{"scenes": _FOUND}, {"scenes": older}])
    assert made["cases"]["scenes"] == {
        "ids.txt": "0a - everywhere", "shard.h5": "1a 2a", "table.txt": "3a -"
    }  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("file", "digests", "seen"),
    [
        ("ids.txt", ("0b", "-"), "bytes portable"),
        ("shard.h5", ("1b", "2a"), "bytes"),
        ("shard.h5", ("1b", "2b"), "bytes portable structure"),
        ("table.txt", ("3b", "-"), "bytes"),
        ("new.txt", ("4a", "-"), "bytes portable structure"),
    ],
)
def test_differences_are_found(
    golden: Golden, file: str, digests: tuple[str, str], seen: str
) -> None:
    found = {"scenes": {**_FOUND, file: digests}}
    for compared in ("bytes", "portable", "structure"):
        lines = differences(found, golden, compared)
        assert [line.split()[1] for line in lines] == [file] * (compared in seen.split())
        assert differences({"scenes": _FOUND}, golden, compared) == []


def test_a_missing_output_is_found(golden: Golden) -> None:
    (line,) = differences(
        {"scenes": {"ids.txt": ("0a", "-"), "shard.h5": ("1a", "2a")}}, golden, "structure"
    )
    assert line == "scenes: table.txt is missing"
