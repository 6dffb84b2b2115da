"""What has become of the copies of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """By how they came back."""

    lent: int = 0
    rolled_back: int = 0
    unused: int = 0
    unchanged: int = 0
    cloned: int = 0
    quarantined: int = 0

    def __str__(self) -> str:
        resets = (
            (self.rolled_back, "rolled back"),
            (self.unchanged + self.unused, "unchanged"),
            (self.cloned, "dropped and cloned anew"),
            (self.quarantined, "QUARANTINED"),
        )
        said = ", ".join(f"{count} {words}" for count, words in resets if count)
        return f"lent {self.lent}{': ' + said if said else ''}"
