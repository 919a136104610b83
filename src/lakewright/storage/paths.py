"""Paths inside a storage: relative, `/`-separated, never leaving the root.

Guarantees: a checked path has no empty, `.` or `..` segment, no NUL and no leading or trailing
slash, so that joining it to a root cannot escape it. `""` is the root.
"""

from __future__ import annotations

from lakewright.errors import StorageError

_SUSPECT = ("//", "/.", "\0")


def checked(path: str) -> str:
    """`path`, or `StorageError` if it is not a clean relative path."""
    if not path:
        return path
    if path[0] in "/." or path[-1] == "/" or any(part in path for part in _SUSPECT):
        for segment in path.split("/"):
            if segment in ("", ".", "..") or "\0" in segment:
                raise StorageError(
                    f"The storage path {path!r} is not a clean path below the root.",
                    hint="Use '/'-separated names without empty, '.' or '..' segments.",
                    context={"path": path},
                )
    return path


def checked_object(path: str) -> str:
    """`path` as the name of an object: checked, and not the root itself."""
    if not path:
        raise StorageError(
            "The root of a storage is not an object.",
            hint="Name an object below the root.",
            context={"path": path},
        )
    return checked(path)


def checked_range(path: str, offset: int, length: int) -> None:
    """Raise `StorageError` for a range that no object can have."""
    if offset < 0 or length < 0:
        raise StorageError(
            f"Cannot read {length} bytes from offset {offset}.",
            hint="Offsets and lengths are not negative; the caller trusted damaged bytes.",
            context={"path": path},
        )


def joined(folder: str, name: str) -> str:
    """The path of `name` in `folder`, where either may be the root."""
    if not folder or not name:
        return folder or name
    return f"{folder}/{name}"


def folder_of(path: str) -> str:
    """The folder that holds `path`; the root's folder is the root."""
    return path.rpartition("/")[0]
