"""What a campaign counts, and what it keeps of each failure."""

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Evidence:
    """Counts by what was tried, and the faults that were found.

    Attributes
    ----------
    folder : where the folder and the story of each failed trial are kept. seed : of the campaign.
    """

    folder: Path
    seed: int
    tried: Counter[str] = field(default_factory=Counter)
    endings: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def fault(self, what: str, number: int, story: dict[str, object], kept: Path | None) -> None:
        """Count a fault, print it, and keep its story and a folder or file of its own."""
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

    def table(self) -> str:
        """Return the table of what was tried, how often, how it ended, and the faults."""
        lines = []
        for what, tried in sorted(self.tried.items()):
            ended = ", ".join(
                f"{n} {how}" for (of, how), n in sorted(self.endings.items()) if of == what
            )
            lines.append(f"{what:32} {tried:6}  {self.faults[what]:3} faults  {ended}")
        lines.append(f"{'all':32} {self.tried.total():6}  {self.faults.total():3} faults")
        return "\n".join(lines)
