"""The search page and its results as HTML; templates escape all text from data."""

from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from pipeline.retrieval import EmbeddingsError
from pipeline.web.pages.map_values import map_values
from pipeline.web.pages.marked import Mark, boxes_over
from pipeline.web.pages.rendering import environment
from pipeline.web.serve.clips import Clips
from pipeline.web.serve.region_service import RegionService
from pipeline.web.serve.service import CHOSEN, MAX_CHARACTERS, Answer, Query, SearchService

MAX_BODY = 20 * 2**20  # size limit of an upload, the whole form, in bytes
_IMAGES, _SENTENCES = 12, 3  # examples of the first page


class Pages:
    """The page of one experiment, in the style of the report."""

    def __init__(self, service: SearchService | RegionService) -> None:
        self._service = service
        self.clips: Clips = Clips(service.manifest, service.image_ids)
        self._templates = environment("pipeline.web.serve")
        self._templates.filters["query"] = lambda fields: urlencode(fields)
        entries = service.manifest.by_id
        images = service.image_ids[:: len(service.image_ids) // _IMAGES or 1][:_IMAGES]
        examples = [entries[image_id].first_caption for image_id in images]
        examples = [text for text in examples if 0 < len(text) <= MAX_CHARACTERS]
        if isinstance(service, RegionService):
            images, examples = (), list(service.phrases[:: len(service.phrases) // _SENTENCES or 1])
        self._templates.globals |= {
            "blank": Query(),
            "entries": entries,
            "kind_of_clip": self.clips.kind if service.manifest.media == "clips" else None,
            "images": images,
            "sentences": examples[:_SENTENCES],
            "max_body": MAX_BODY,
            "chosen": CHOSEN,
            "drawn": lambda found: Markup(boxes_over(found.size, [Mark(found.box)])),
            "max_characters": MAX_CHARACTERS,
        }

    def page(
        self, query: Query | None = None, answer: Answer | None = None, reason: str = ""
    ) -> str:
        """Return the whole page, with an answer or the reason for its absence."""
        return self.render(
            "page.html", site=self._service, query=query or Query(), answer=answer, reason=reason
        )

    def results(self, answer: Answer | None, reason: str = "") -> str:
        """Return the HTML below the forms, which the script inserts into the page."""
        return self.render("results.html", site=self._service, answer=answer, reason=reason)

    def map(self) -> str:
        """Return the page of the map, which is computed on the first call."""
        if isinstance(self._service, RegionService) or (embedding_map := self._service.map) is None:
            raise EmbeddingsError("these images have no map")
        entries = self._service.manifest.by_id
        values = map_values(embedding_map, lambda image: entries[image].first_caption)
        return self.render("map_page.html", site=self._service, map=values)

    def render(self, name: str, **values: Any) -> str:
        """Return a template with its values."""
        return self._templates.get_template(name).render(**values)
