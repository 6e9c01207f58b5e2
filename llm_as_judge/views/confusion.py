"""A picture of a judge's verdicts against the labels, one bar a kind of candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PARTS = (
    ("true_accepts", "right, accepted", "#2c7fb8"),
    ("true_rejects", "wrong, refused", "#a6bddb"),
    ("false_rejects", "right, refused", "#fdae6b"),
    ("false_accepts", "wrong, accepted", "#d7301f"),
    ("abstained", "abstained", "#bdbdbd"),
)


def confusion_chart(counts: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Write a PNG of stacked bars in shares of the pairs; ``counts`` are ``Counts.as_json``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.5 * len(counts)))
    kinds = [str(row["kind"]) for row in counts]
    left = [0.0] * len(counts)
    for name, label, colour in _PARTS:
        shares = [100 * row[name] / row["pairs"] if row["pairs"] else 0.0 for row in counts]
        axes.barh(kinds, shares, left=left, label=label, color=colour)
        for i, (share, row) in enumerate(zip(shares, counts, strict=True)):
            if share > 4:
                axes.text(left[i] + share / 2, i, str(row[name]), ha="center", va="center", fontsize=8)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the pairs")
    axes.set_title(title)
    axes.legend(ncols=len(_PARTS), loc="upper center", bbox_to_anchor=(0.5, -0.25), fontsize=8, frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
