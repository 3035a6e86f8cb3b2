"""What several tests of this room use."""

from pipeline.progress import QUIET


class Lines:
    """A monitor that keeps the lines of a job."""

    def __init__(self) -> None:
        """Start with no line."""
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)

    progress = QUIET.progress
