"""Options of a storage: how to reach it, never with what secret.

Guarantees: a `StorageOptions` may be printed, pickled and stored; it names a credential provider
instead of carrying credentials, and an endpoint with credentials in it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lakewright.errors import OptionError
from lakewright.runtime.retry import RetryBudget


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How to reach a storage. Local folders need none of it."""

    provider: str | None = None
    """Name of a credential provider; None uses what the environment offers."""
    region: str | None = None
    endpoint: str | None = None
    """URL of an S3-compatible, Google or Azure endpoint other than the public one."""
    account: str | None = None
    """Azure storage account of `az:` URIs."""
    allow_http: bool = False
    """Allow an endpoint without TLS, such as a test server on this machine."""
    anonymous: bool = False
    """Do not sign requests: public buckets."""
    virtual_hosted: bool = False
    """Put the bucket into the host name instead of the path (S3)."""
    timeout_s: float = 30.0
    """Time for one request."""
    retry: RetryBudget = field(default_factory=RetryBudget)
    """How passing failures are tried again."""
    unfinished: str | None = None
    """Folder below the root in which local files are written before they get their names; None is
    the folder that they go to."""

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise OptionError(
                f"A request cannot take {self.timeout_s} s.", hint="Choose timeout_s > 0."
            )
        if self.anonymous and self.provider is not None:
            raise OptionError(
                f"Requests cannot be anonymous and use the provider {self.provider!r}.",
                hint="Drop anonymous=True or provider=.",
            )
        if self.endpoint is not None:
            _check_endpoint(self.endpoint, allow_http=self.allow_http)


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    parts = urlsplit(endpoint)
    if parts.username is not None or parts.query:
        raise OptionError(
            "An endpoint must not carry credentials.",
            hint="Register a credential provider and name it in StorageOptions(provider=...).",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(
            f"{endpoint!r} is not an endpoint.", hint="Write https://host or http://host:port."
        )
    if parts.scheme == "http" and not allow_http:
        raise OptionError(
            f"{endpoint!r} has no TLS.", hint="Use https:, or allow it with allow_http=True."
        )
