"""What the site has beyond docs/*.md: the notebook as a page, and the help of every command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOK = "quickstart.ipynb"
_CODE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")
"""A link out of docs/."""
_SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebook's page."""
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text(encoding="utf-8"))
    files.append(File.generated(config, "quickstart.md", content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Fix links that hold in a checkout only, and add the help texts to commands.md.

    Links to the notebook lead to its page, and files of the code are named without a link. In the
    search the pages of prose come before those of the API.
    """
    if page.file.src_uri.startswith("api/"):
        page.meta["search"] = {"boost": 1e-6}
    if page.file.src_uri == "quickstart.md":
        return markdown
    if page.file.src_uri == "commands.md":
        markdown += "\n".join(command_help())
    if not page.file.src_uri.startswith("api/"):
        markdown = _CODE.sub(r"\1", markdown)
    return markdown.replace(f"]({NOTEBOOK})", "](quickstart.md)")


def on_post_page(output: str, **kwargs: Any) -> str:
    """Name the search dialog for screen readers; the theme leaves it without a name."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return the notebook's cells as Markdown, with their texts and images."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/jpeg" in data:
                image = "".join(data["image/jpeg"]).replace("\n", "")
                parts.append(f"![Output of the cell above](data:image/jpeg;base64,{image})")
            text = output.get("text") or data.get("text/plain")
            if text:
                parts.append(f"```text\n{''.join(text)}\n```")
    parts.insert(1, f"This page is a notebook: [{NOTEBOOK}]({NOTEBOOK}).")
    return "\n\n".join(parts) + "\n"


def command_help() -> Iterator[str]:
    """Yield a section for each command of `pipeline`, with its help text."""
    from stages.cli import cli

    def sections(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
        context = click.Context(command, info_name=name, parent=parent, max_content_width=80)
        context.terminal_width = 80
        if parent is not None:
            yield f"\n{'#' * (2 if parent.parent is None else 3)} {context.command_path}\n"
            yield f"```text\n{command.get_help(context)}\n```"
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                if found is not None:
                    yield from sections(found, context, child)

    return sections(cli, None, "pipeline")
