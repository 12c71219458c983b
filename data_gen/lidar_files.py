"""The two binary files of a lidar sweep: points as five 32-bit floats each, and one lidarseg class per point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.nuscenes_tables import WorldError

FLOATS_PER_POINT = 5  # x, y, z, intensity, ring
POINT_BYTES = 4 * FLOATS_PER_POINT


def point_count(path: Path, byte_count: int) -> int:
    """How many points a lidar file of so many bytes has. Raises WorldError when these are no whole points, or none."""
    if byte_count == 0 or byte_count % POINT_BYTES:
        raise WorldError(f"the lidar file {path} is cut short: {byte_count} bytes are no whole points; fetch it again")
    return byte_count // POINT_BYTES


def check_label_count(path: Path, labels: int, points: int) -> None:
    """Raise WorldError when a label file does not have one label for each lidar point."""
    if labels != points:
        raise WorldError(
            f"the label file {path} has {labels} labels for {points} lidar points; fetch it and the lidar file again"
        )


def read_values(path: Path) -> NDArray[np.float32]:
    """All values (P, 5) of a lidar file. Raises WorldError as `point_count` does."""
    point_count(path, path.stat().st_size)
    return np.fromfile(path, dtype=np.float32).reshape(-1, FLOATS_PER_POINT)


def read_point_labels(path: Path, points: int) -> NDArray[np.uint8]:
    """One lidarseg class per point. Raises WorldError as `check_label_count` does."""
    labels = np.fromfile(path, dtype=np.uint8)
    check_label_count(path, len(labels), points)
    return labels
