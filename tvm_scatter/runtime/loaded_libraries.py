"""Which shared libraries this process has loaded."""

from __future__ import annotations

from pathlib import Path


def loaded_libraries(stem: str) -> list[str]:
    """The paths of loaded libraries whose file name begins with ``stem``, in order.

    Empty if the operating system does not list them.
    """
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    # Fields of a line: address, permissions, offset, device, inode and, for a file, its path.
    fields = (line.split(maxsplit=5) for line in mapped)
    paths = {parts[5] for parts in fields if len(parts) == 6}
    return sorted(path for path in paths if Path(path).name.startswith(stem))
