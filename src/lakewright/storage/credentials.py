"""Credentials by name: who may open a storage, without the secret ever travelling.

Guarantees: a secret lives only inside `Credentials`, which prints as nothing and refuses to be
pickled; configuration carries the *name* of a provider, and the provider is called where the
storage is used, again whenever its credentials expire. A name is either registered in the process,
or an importable `package.module:function`, which also works in other processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NoReturn

from lakewright.errors import ConfigError


class Credentials:
    """Secret values and when they expire.

    Keys by storage: S3 `access_key_id`, `secret_access_key` and optionally `token`; Google `token`;
    Azure one of `access_key`, `sas_token`, `token`.
    """

    __slots__ = ("_values", "expires_ms")

    def __init__(self, *, expires_ms: int | None = None, **values: str) -> None:
        self._values = values
        self.expires_ms = expires_ms

    def reveal(self) -> dict[str, str]:
        """The secret values, for the client library that needs them."""
        return dict(self._values)

    def __repr__(self) -> str:
        return "Credentials(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            "Credentials are never pickled.",
            hint="Ship the provider's name; it is resolved where the storage is used.",
        )


CredentialProvider = Callable[[str], Credentials]
"""Takes the URI of the storage's root, returns credentials that are valid now."""

_PROVIDERS: dict[str, CredentialProvider] = {}


def register_credential_provider(name: str, provider: CredentialProvider) -> None:
    """Make `provider` known under `name` in this process; the last registration counts."""
    if not name or ":" in name:
        raise ConfigError(
            f"{name!r} cannot name a credential provider.",
            hint="Use a plain word; names with ':' are importable functions already.",
        )
    _PROVIDERS[name] = provider


def credential_provider(name: str) -> CredentialProvider:
    """The provider called `name`; `ConfigError` if there is none in this process."""
    if name in _PROVIDERS:
        return _PROVIDERS[name]
    module_name, colon, attribute = name.partition(":")
    if colon:
        try:
            found = getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The credential provider {name!r} cannot be imported: {error}.",
                hint="Install the module where the storage is used, or correct its name.",
                context={"provider": name},
            ) from error
        if callable(found):
            return lambda uri: _credentials(name, found(uri))
    raise ConfigError(
        f"No credential provider is called {name!r} in this process.",
        hint="Call register_credential_provider here, or name an importable module:function.",
        context={"provider": name, "known": ", ".join(sorted(_PROVIDERS)) or "none"},
    )


def _credentials(name: str, value: object) -> Credentials:
    if isinstance(value, Credentials):
        return value
    raise ConfigError(
        f"The credential provider {name!r} returned {type(value).__name__}.",
        hint="Return lakewright's Credentials.",
        context={"provider": name},
    )
