"""Published numbers: as in the papers' text, within their limits, and each row once."""

import re
from collections import Counter

import pytest

from pipeline.retrieval.measures import CUTOFFS, METRICS
from pipeline.web.report.published import (
    COLUMNS,
    DIRECTIONS,
    PublishedRow,
    beside_published,
    published_for,
    published_rows,
)
from tests.project import SHARED

PAPERS = SHARED / "papers"

# Printed rows, counted in the papers; a row of Dong's tables I to III has four text features.
PRINTED = {
    ("kiros-2014", "1", "flickr8k"): 9,
    ("kiros-2014", "2", "flickr30k"): 8,
    ("wang-2016", "1", "flickr30k"): 17,
    ("wang-2016", "2", "coco"): 12,
    ("wang-2016", "3", "flickr30k-entities"): 9,
    ("dong-2018", "I", "flickr8k"): 4 * 4,
    ("dong-2018", "II", "flickr30k"): 4 * 4,
    ("dong-2018", "III", "msvd"): 5 * 4,
    ("dong-2018", "V", "flickr8k"): 6,
    ("dong-2018", "V", "flickr30k"): 8,
    ("dong-2018", "section IV-D", "trecvid-vtt"): 4,
    ("qian-lamberti-2018", "1", "coco"): 5,
    ("yan-2019", "3.1", "coco"): 9,
}

TABLES = sorted({(paper, table) for paper, table, _ in PRINTED if "section" not in table})

# The numbers at the end of a line, with dashes where the paper has none.
_TAIL = re.compile(r"(?:(?<=\s)(?:[0-9]+(?:\.[0-9]+)?|-)\s*)+$")


def _paper(paper: str) -> str:
    if not PAPERS.is_dir():
        pytest.skip("needs the papers' text of ../shared/papers")
    (file,) = PAPERS.glob(f"{paper}-*.txt")
    return file.read_text(encoding="utf-8")


def _lines_with_numbers(text: str) -> list[tuple[str, list[str]]]:
    """What stands before a line's last numbers, and these numbers."""
    found = [(line, tail) for line in text.splitlines() if (tail := _TAIL.search(line))]
    return [
        (line[: tail.start()], [word for word in tail[0].split() if word != "-"])
        for line, tail in found
    ]


def _lines_expected(paper: str, table: str) -> list[tuple[str, list[str]]]:
    """The name and the numbers of each printed line, which may hold several of our rows."""
    rows = [row for row in published_rows() if (row.paper, row.table) == (paper, table)]
    if table in ("I", "II", "III"):
        lines = [[r for r in rows if r.image_feature == f] for f in _once("image_feature", rows)]
        return [(line[0].image_feature, _values(line)) for line in lines]
    if table == "V":  # Flickr30k has all systems
        systems = [row.system for row in rows if row.dataset == "flickr30k"]
        return [(system, _values([r for r in rows if r.system == system])) for system in systems]
    return [(row.system, _values([row])) for row in rows]


def _once(field: str, rows: list[PublishedRow]) -> list[str]:
    return list(dict.fromkeys(getattr(row, field) for row in rows))


def _values(rows: list[PublishedRow]) -> list[str]:
    return [value for row in rows for value in row.values.values()]


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_tables_are_as_in_the_papers(paper: str, table: str) -> None:
    """Line by line: the same numbers in the same order, none between them, and the same names."""
    printed = _lines_with_numbers(_paper(paper))
    expected = _lines_expected(paper, table)
    size = len(expected)
    places = [
        k
        for k in range(len(printed) - size + 1)
        if [numbers for _, numbers in printed[k : k + size]] == [n for _, n in expected]
    ]
    assert len(places) == 1
    for (label, _), (name, _) in zip(printed[places[0] :], expected, strict=False):
        words = ".*".join(re.escape(word.strip(",")) for word in name.split())
        assert re.search(rf"(?<![A-Za-z]){words}", label), (label, name)


def test_numbers_in_running_text_are_as_in_the_paper() -> None:
    (line,) = [line for line in _paper("dong-2018").splitlines() if "As shown in Fig. 6" in line]
    rows = [row for row in published_rows() if row.table.startswith("section")]
    assert re.findall(r"0\.[0-9]{3}", line) == _values(rows)


def test_works_that_rows_are_quoted_from_are_in_the_references() -> None:
    texts = {row.paper: _paper(row.paper) for row in published_rows()}
    for row in published_rows():
        if row.quoted_from:
            author, year = re.match(r"([A-Z]\w+).* (\d{4})", row.quoted_from).groups()  # type: ignore[union-attr]
            # Wang's reference list runs this author's initials into the other's.
            author = "Mikolajczyk" if author == "Yan" else author
            assert re.search(rf"{author}\b.*{year}", texts[row.paper]), row


def test_counts_of_rows() -> None:
    assert Counter((r.paper, r.table, r.dataset) for r in published_rows()) == PRINTED


def test_rows_have_printed_numbers_within_their_limits() -> None:
    for row in published_rows():
        texts, values = {**vars(row)}, row.values
        del texts["values"]
        assert all(isinstance(text, str) for text in texts.values()), row
        assert all((row.paper, row.table, row.dataset, row.protocol, row.system, values)), row
        for column, printed in values.items():
            least, most = COLUMNS[column].limits
            assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", printed), row
            assert least <= float(printed) <= most, row
        for direction in DIRECTIONS:
            recalls = [float(values[c]) for k in CUTOFFS if (c := f"{direction}_r{k}") in values]
            assert recalls == sorted(recalls), row


def test_each_row_is_there_once_and_columns_are_those_of_the_recall_table() -> None:
    keys = Counter(
        (r.paper, r.table, r.dataset, r.protocol, r.system, r.quoted_from, r.image_feature,
         r.text_feature) for r in published_rows()
    )  # fmt: skip
    assert max(keys.values()) == 1
    assert set(METRICS) <= set(COLUMNS)


def test_sums_of_recalls() -> None:
    summed = [row for row in published_rows() if "rsum" in row.values]
    assert len(summed) == 9
    for row in summed:
        recalls = [f"{d}_r{k}" for d in ("image_to_text", "text_to_image") for k in CUTOFFS]
        total = sum(float(row.values[column]) for column in recalls)
        off = abs(total - float(row.values["rsum"]))
        assert off < 0.001 or ("sum to" in row.remark and f"{total:.1f}" in row.remark)


def test_rows_of_an_experiment() -> None:
    (vsepp,) = published_for("vsepp", "coco")
    assert (vsepp.system, vsepp.quoted_from) == ("VSE++", "Faghri et al. 2017")
    assert vsepp.values["image_to_text_median_rank"] == "1.0"
    structure = "wang2016-nonlinear-bidirectional-structure"
    for name, printed in ((structure, "40.3"), (f"{structure}-mean", "35.7"),
                          (f"{structure}-tfidf", "40.1")):  # fmt: skip
        (row,) = published_for(name, "flickr30k")
        assert row.values["image_to_text_r1"] == printed
    four = published_for("dong2018-w2vv-bow", "flickr8k")
    assert [row.values["image_to_text_r1"] for row in four] == ["20.7", "27.1", "32.2", "34.7"]
    assert published_for("vsepp", "scenes") == published_for("", "coco") == ()
    weighted, baseline = (
        published_for(name, "coco")[0] for name in ("qian2018-baseline-weight", "qian2018-baseline")
    )
    assert weighted.protocol != baseline.protocol  # a row's own text replaces its table's
    assert weighted.image_feature == baseline.image_feature


def test_clips_stand_above_the_printed_rows_of_their_dataset() -> None:
    recall = {f"image_to_text_r{k}": 2.0 * k for k in CUTOFFS}
    lines = beside_published("msvd", {"mine": recall}).splitlines()
    assert lines[0] == "| system | video_to_text_r1 | video_to_text_r5 | video_to_text_r10 |"
    assert lines[2] == "| ours: mine | 2.0 | 10.0 | 20.0 |"
    assert len(lines) == 3 + 20
    assert "| dong-2018: Word2VisualVec, C3D, Multi-scale | 14.9 | 27.8 | 35.5 |" in lines
    inverted = {"image_to_text_mean_inverted_rank": 0.08765}
    assert "| ours: mine | 0.088 |" in beside_published("trecvid-vtt", {"mine": inverted})
    assert beside_published("scenes", {}) == ""


def test_experiments_are_measured_or_have_no_original_here() -> None:
    """No experiment gets a number twice: once from its paper and once as quoted by another."""
    for row in published_rows():
        if row.experiment and row.quoted_from:
            own = [r for r in published_for(row.experiment, row.dataset) if not r.quoted_from]
            assert not own
