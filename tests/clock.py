"""A clock for code that is given one."""


class Clock:
    """A clock that tests move, in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
