"""A lock in DynamoDB, in the way of the AWS lock client that Hudi uses; needs boto3.

One item for each lock: its key, `ownerName`, `leaseDuration` in milliseconds and a random
`recordVersionNumber` that changes with every heartbeat. Clocks are not compared: a lock is stale
once its version number has not changed for its lease duration while *we* were watching, so a dead
holder's lock is taken over only by somebody who waits that long. Every write is conditional on the
version number (and, for our own lock, on our owner name, which is unique for each acquisition); the
item is deleted when the lock is given back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lakewright.errors import (
    LakewrightError,
    MissingDependencyError,
    OptionError,
    PreconditionFailedError,
    StorageDeniedError,
    StorageUnavailableError,
)
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.txn.locks.protocol import LockHolder
from lakewright.txn.locks.renewed import Pace, RenewedLease

__all__ = ["DynamodbLock", "DynamodbTable"]

KEY: Final = "key"
_OWNER: Final = "ownerName"
_LEASE: Final = "leaseDuration"
_VERSION: Final = "recordVersionNumber"
_RELEASED: Final = "isReleased"
_SINCE: Final = "lakewrightSinceMs"
_VALID_SHARE: Final = 0.8
_OWN_CONDITION: Final = "attribute_exists(#k) AND #v = :v AND #o = :o"
_NAMES: Final = {"#k": KEY, "#v": _VERSION, "#o": _OWNER}
_DENIED: Final = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
}
_REQUEST_S: Final = 5
_LEASE_MS_UNKNOWN: Final = 60_000
T = TypeVar("T")
Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A version of the item and when we saw it first."""

    version: str
    at_s: float


class DynamodbTable:
    """The items of a DynamoDB table, with errors as ours; the table is created when missing."""

    def __init__(
        self,
        name: str,
        *,
        region: str = "us-east-1",
        endpoint: str | None = None,
        credentials: Mapping[str, str] | None = None,
        create_wait_s: float = 120.0,
        clock: Clock | None = None,
    ) -> None:
        try:
            import boto3
            import botocore.config
            import botocore.exceptions
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "Locks in DynamoDB need the package boto3, which is not installed.",
                hint='Run: pip install "lakewright[dynamodb]"',
            ) from error
        self.name = name
        self.place = f"DynamoDB table {name} in {endpoint or region}"
        self._errors = botocore.exceptions
        self._create_wait_s = create_wait_s
        self._clock = clock or SystemClock()
        self._ready = False
        self._client = boto3.client(
            "dynamodb",
            region_name=region,
            endpoint_url=endpoint,
            config=botocore.config.Config(connect_timeout=_REQUEST_S, read_timeout=_REQUEST_S),
            **(credentials or {}),
        )

    def get(self, key: str) -> Item | None:
        """The item of a key, by a consistent read."""
        self._demand_table()
        answer = self._asked(
            lambda: self._client.get_item(
                TableName=self.name, Key={KEY: {"S": key}}, ConsistentRead=True
            )
        )
        found: Item | None = answer.get("Item")
        return found

    def write(self, operation: str, **request: Any) -> None:
        """One conditional write; `PreconditionFailedError` if its condition does not hold."""
        self._asked(lambda: getattr(self._client, operation)(TableName=self.name, **request))

    def _demand_table(self) -> None:
        if self._ready:
            return
        if self._status() is None:
            in_use = self._client.exceptions.ResourceInUseException
            with contextlib.suppress(in_use):  # another process is creating it
                self._asked(
                    lambda: self._client.create_table(
                        TableName=self.name,
                        KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
                        AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
                        BillingMode="PAY_PER_REQUEST",
                    ),
                    passing=(in_use,),
                )
        deadline_s = self._clock.monotonic_s() + self._create_wait_s
        while self._status() not in {"ACTIVE", "UPDATING"}:
            if self._clock.monotonic_s() >= deadline_s:
                raise StorageUnavailableError(
                    f"The {self.place} did not become active in {self._create_wait_s:g} s.",
                    hint="Look at the table in the AWS console; create it by hand if it is not "
                    "there.",
                    retryable=True,
                )
            self._clock.sleep(1.0)
        self._ready = True

    def _status(self) -> str | None:
        missing = self._client.exceptions.ResourceNotFoundException
        try:
            found = self._asked(
                lambda: self._client.describe_table(TableName=self.name), passing=(missing,)
            )
        except missing:
            return None
        return str(found["Table"]["TableStatus"])

    def _asked(self, ask: Callable[[], T], passing: tuple[type[Exception], ...] = ()) -> T:
        """What `ask` returns, with the client's errors as ours, except `passing` ones."""
        context = {"lock": self.place}
        try:
            return ask()
        except passing:
            raise
        except self._errors.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == "ConditionalCheckFailedException":
                raise PreconditionFailedError(
                    "The lock item is another one than expected.",
                    hint="Another process changed it; look again and decide again.",
                    context=context,
                ) from None
            if code in _DENIED:
                raise StorageDeniedError(
                    f"DynamoDB refused the request ({code}).",
                    hint="Check the AWS credentials and the rights on the table.",
                    context=context,
                ) from None
            self._ready = False
            raise StorageUnavailableError(
                f"DynamoDB did not do its part ({code}).",
                hint="Check the region, the table and its limits.",
                context=context,
                retryable=True,
            ) from None
        except self._errors.BotoCoreError as error:
            raise StorageUnavailableError(
                f"DynamoDB cannot be reached ({type(error).__name__}).",
                hint="Check the network, the region and the AWS credentials.",
                context=context,
                retryable=isinstance(
                    error, (self._errors.HTTPClientError, self._errors.ConnectionError)
                ),
            ) from None


class DynamodbLock:
    """The lock `key` in a table of locks."""

    def __init__(
        self,
        table: DynamodbTable,
        key: str,
        *,
        lease_s: float = 60.0,
        clock: Clock | None = None,
        random: Random | None = None,
        spawner: Spawner | None = None,
    ) -> None:
        if lease_s < 1:
            raise OptionError(
                f"A lease of {lease_s:g} s is too short to be renewed.",
                hint="Use a lease of at least one second, better a minute.",
            )
        self._table = table
        self._key = key
        self._lease_ms = int(lease_s * 1000)
        self._pace = Pace(valid_s=lease_s * _VALID_SHARE, renew_s=lease_s / 4)
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._spawner = spawner or ThreadSpawner()
        self._seen: _Seen | None = None
        self._doubtful: set[str] = set()
        """Owner names of locks that this provider may have obtained or failed to give back."""

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return f"lock {self._key} in {self._table.place}"

    @property
    def shared(self) -> bool:
        """Other processes are excluded."""
        return True

    def try_acquire(self, who: str) -> RenewedLease | LockHolder:
        """The lock, or who is in the way."""
        found = self.look()
        condition = self._condition(found)
        if condition is None:
            return self._holder(found)
        begun_s = self._clock.monotonic_s()
        since_ms = self._clock.now_ms()
        owner = f"{who} {self._random.uuid()}"
        version = str(self._random.uuid())
        item = {
            KEY: {"S": self._key},
            _OWNER: {"S": owner},
            _LEASE: {"S": str(self._lease_ms)},
            _VERSION: {"S": version},
            _SINCE: {"S": str(since_ms)},
        }
        try:
            if not self._put(item, condition):
                return self._holder(self.look())
        except LakewrightError:
            self._doubtful.add(owner)
            raise
        return RenewedLease.start(
            LockHolder(who, since_ms, self.place),
            _HeldItem(self, owner, version),
            self._pace,
            begun_s=begun_s,
            clock=self._clock,
            spawner=self._spawner,
        )

    def held_by(self) -> LockHolder | None:
        """Who holds the lock now, or held it last and died."""
        found = self.look()
        return None if found is None or _RELEASED in found else self._holder(found)

    def look(self) -> Item | None:
        """The item as it is now."""
        return self._table.get(self._key)

    def change_own(self, operation: str, owner: str, version: str, **request: Any) -> bool:
        """A write on our own item; False if it is not that version of ours."""
        values = {":v": {"S": version}, ":o": {"S": owner}, **request.pop("values", {})}
        try:
            self._table.write(
                operation,
                Key={KEY: {"S": self._key}},
                ConditionExpression=_OWN_CONDITION,
                ExpressionAttributeNames={**_NAMES, **request.pop("names", {})},
                ExpressionAttributeValues=values,
                **request,
            )
        except PreconditionFailedError:
            return False
        return True

    def new_version(self) -> str:
        """A version number that nobody has used."""
        return str(self._random.uuid())

    @property
    def lease_ms(self) -> int:
        """For how long the lock is granted at a time."""
        return self._lease_ms

    def doubt(self, owner: str) -> None:
        """Remember a lock that may not have been given back."""
        self._doubtful.add(owner)

    def _condition(self, found: Item | None) -> dict[str, Any] | None:
        """Under which condition the lock may be taken now; None: it may not."""
        if found is None:
            return {
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": {"#k": KEY},
            }
        version = _text(found, _VERSION)
        exact = {
            "ConditionExpression": "attribute_exists(#k) AND #v = :v",
            "ExpressionAttributeNames": {"#k": KEY, "#v": _VERSION},
            "ExpressionAttributeValues": {":v": {"S": version}},
        }
        if _RELEASED in found or _text(found, _OWNER) in self._doubtful:
            return exact
        seen, now_s = self._seen, self._clock.monotonic_s()
        if seen is None or seen.version != version:
            self._seen = _Seen(version, now_s)
            return None
        return exact if (now_s - seen.at_s) * 1000 > _lease_of(found) else None

    def _put(self, item: Item, condition: dict[str, Any]) -> bool:
        try:
            self._table.write("put_item", Item=item, **condition)
        except LakewrightError as error:
            # Refused or unknown: an earlier try of the same request may have succeeded.
            found = self.look()
            if found is not None and _text(found, _VERSION) == item[_VERSION]["S"]:
                return True
            if isinstance(error, PreconditionFailedError):
                return False
            raise
        return True

    def _holder(self, found: Item | None) -> LockHolder:
        if found is None or _RELEASED in found:
            return LockHolder("a process that has just released it", None, self.place)
        since = _text(found, _SINCE)
        return LockHolder(
            _text(found, _OWNER),
            int(since) if since.isdigit() else None,
            self.place,
            if_dead=f"whoever waits for {_lease_of(found) / 1000:g} s without seeing a heartbeat "
            "takes it over.",
        )


class _HeldItem:
    """Our item."""

    def __init__(self, lock: DynamodbLock, owner: str, version: str) -> None:
        self._lock = lock
        self._owner = owner
        self._version = version

    def extend(self) -> bool:
        """Send a heartbeat: change the version number."""
        new = self._lock.new_version()
        lease = {"S": str(self._lock.lease_ms)}
        done = self._changed(
            "update_item",
            UpdateExpression="SET #v = :new, #l = :lease",
            names={"#l": _LEASE},
            values={":new": {"S": new}, ":lease": lease},
        )
        if done:
            self._version = new
        return done

    def confirm(self) -> bool:
        """Whether the item is still ours."""
        return self._current() is not None

    def free(self, *, in_time: Callable[[], bool]) -> None:  # noqa: ARG002 - the write is conditional
        """Delete the item if it is still ours."""
        try:
            self._changed("delete_item")
        except LakewrightError:
            self._lock.doubt(self._owner)
            raise

    def _current(self) -> str | None:
        """The version number of our item; None if it is not ours any more."""
        found = self._lock.look()
        if found is None or _text(found, _OWNER) != self._owner or _RELEASED in found:
            return None
        return _text(found, _VERSION)

    def _changed(self, operation: str, **request: Any) -> bool:
        version: str | None = self._version
        while version is not None:
            if self._lock.change_own(operation, self._owner, version, **request):
                return True
            version = self._current()  # another write of ours may have come in between
        return False


def _text(item: Item, name: str) -> str:
    value = item.get(name, {}).get("S", "")
    return value if isinstance(value, str) else ""


def _lease_of(item: Item) -> int:
    text = _text(item, _LEASE)
    return int(text) if text.isdigit() else _LEASE_MS_UNKNOWN
