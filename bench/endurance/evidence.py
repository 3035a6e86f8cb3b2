"""Counts of a campaign, and the evidence of each failure."""

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_LINES = 40


@dataclass
class Evidence:
    """Counts by kind of trial, and the failures.

    Attributes
    ----------
    folder : parent of the folder and the report of each failed trial.
    seed : seed of the campaign.
    """

    folder: Path
    seed: int
    tried: Counter[str] = field(default_factory=Counter)
    endings: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def fault(
        self,
        what: str,
        number: int,
        story: dict[str, object],
        kept: Path | None,
        said: str = "",
    ) -> None:
        """Count and print a failure and its command's last lines; keep its report and files."""
        self.faults[what] += 1
        place = self.folder / f"{what.replace(' ', '-').replace('/', '-')}-{self.seed}-{number}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "story.json").write_text(json.dumps(story, indent=1, default=str))
        if kept is not None and kept.is_dir():
            shutil.copytree(kept, place / "project", dirs_exist_ok=True)
        elif kept is not None:
            shutil.copy(kept, place / kept.name)
        print(
            f"FAULT {what}, seed {self.seed}, number {number}: {story['fault']}; see {place}",
            flush=True,
        )
        for line in said.splitlines()[-_LINES:]:  # CI keeps no folder
            print(f"    {line}", flush=True)

    def table(self) -> str:
        """Return a table of trials by kind, with their outcomes and failures."""
        lines = []
        for what, tried in sorted(self.tried.items()):
            ended = ", ".join(
                f"{n} {how}" for (of, how), n in sorted(self.endings.items()) if of == what
            )
            lines.append(f"{what:32} {tried:6}  {self.faults[what]:3} faults  {ended}")
        lines.append(f"{'all':32} {self.tried.total():6}  {self.faults.total():3} faults")
        return "\n".join(lines)
