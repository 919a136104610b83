"""Telling a URL of a commit, in the form of Hudi's HTTP callback.

At most once: a process that dies between the commit and the call tells nobody, as in Hudi. A call
that fails is a warning and never changes the commit.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

from lakewright.engine.write_options import WriteOptions
from lakewright.errors import OptionError
from lakewright.format.table_properties import TableProperties
from lakewright.txn.transaction import Committed

__all__ = ["tell_commit"]

KEY_HEADER: Final = "HUDI-CALLBACK-KEY"
DEFAULT_KEY: Final = "hudi_write_commit_http_callback"


def tell_commit(
    options: WriteOptions,
    properties: TableProperties,
    base_path: str,
    action: str,
    committed: Committed,
) -> str | None:
    """Tell the configured URL; a sentence about what failed, or None."""
    if not options.callback or not options.callback_url:
        return None
    message = _message(properties, base_path, action, committed)
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked
        _checked(options.callback_url),
        data=json.dumps(message).encode(),
        headers={
            "Content-Type": "application/json",
            KEY_HEADER: options.callback_api_key or DEFAULT_KEY,
            **_headers(options.callback_headers),
        },
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=options.callback_timeout_s):  # noqa: S310
            return None
    except (urllib.error.URLError, OSError, ValueError) as error:
        return f"The commit {committed.instant} could not be told to its callback: {error}."


def _message(
    properties: TableProperties, base_path: str, action: str, committed: Committed
) -> dict[str, Any]:
    stats = [stat.to_avro() for stat in committed.metadata.write_stats]
    return {
        "commitTime": committed.instant,
        "tableName": properties.name,
        "basePath": base_path,
        "hoodieWriteStat": stats,
        "commitActionType": action,
        "extraMetadata": dict(committed.metadata.extra_metadata),
    }


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise OptionError(
            f"A commit cannot be told to {url!r}.",
            hint="hoodie.write.commit.callback.http.url takes an http or https URL.",
            context={"option": "hoodie.write.commit.callback.http.url"},
        )
    return url


def _headers(text: str | None) -> dict[str, str]:
    """Headers from `name:value;name:value`."""
    pairs = (part.partition(":") for part in (text or "").split(";") if part.strip())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}
