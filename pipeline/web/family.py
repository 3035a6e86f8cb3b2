"""What pages and the server add to the library; see `pipeline.store.families`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.web.report.report_by_name import write_report
    from pipeline.web.serve.serve_by_name import serve

__all__ = ["serve", "write_report"]

PUBLIC = {
    "serve": "pipeline.web.serve.serve_by_name:serve",
    "write_report": "pipeline.web.report.report_by_name:write_report",
}
