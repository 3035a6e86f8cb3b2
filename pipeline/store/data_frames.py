"""Tables for pandas, an optional dependency that is imported lazily."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.store.errors import PipelineError

if TYPE_CHECKING:
    import pandas as pd


class PandasMissing(PipelineError, ImportError):
    """pandas is not installed; an `ImportError` as well."""


def data_frame(ids: Sequence[str], columns: Any) -> "pd.DataFrame":
    """Return a DataFrame indexed by id.

    Parameters
    ----------
    ids : sequence of str. The index, named "id".
    columns : mapping of str to sequence, or array (rows, columns).

    Raises
    ------
    PandasMissing
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise PandasMissing(
            "to_pandas() needs the package pandas, which is not installed: "
            "pip install 'caption-feature-pipeline[pandas]'"
        ) from error
    return pd.DataFrame(columns, index=pd.Index(list(ids), name="id"))
