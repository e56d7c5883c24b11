"""When the next step of answers may begin where other processes have the cores.

A decode step reads every weight, whether for one answer or for eight. Where decode gives way to
pictures and prompts, answers leave as fast as others join, so steps that follow at once hold one or
two of them. Some time from one step to the next lets others join it, and leaves the cores to what
they wait for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How far apart steps begin.

    Args:
        seconds: at least, from the beginning of a step to that of the next; 0 is no pace.
        most: cores that can be free; where there is but one, nobody tells whether others have it.
    """

    seconds: float
    most: int

    def rest(self, now: float, began: float, free_cores: int) -> float:
        """Seconds from ``now`` until a step of answers may begin, at least 0.

        Args:
            now: the time.
            began: when the last step did.
            free_cores: that this process can count on.
        """
        if self.most == 1 or free_cores > 1:
            return 0.0
        return max(0.0, began + self.seconds - now)
