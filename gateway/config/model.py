"""What can be configured, as frozen structs with every default; reads nothing and checks nothing.

Times are in seconds, sizes in bytes. The structs say what is in force: who reads them needs no
second rule. The meaning of each key is in ``config.example.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from gateway.config.credentials import Secret

KiB = 2**10
MiB = 2**20
GiB = 2**30

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "json", "console")
MODES = ("protect", "observe")
HOLDS = ("first_event", "first_content", "finish")
ISOLATIONS = ("none", "uid", "bwrap")
AUTO = "auto"

FINISH_HOLD_MAX_BYTES = 16 * MiB
"""The bound of ``hold = "finish"`` where ``hold_max_bytes`` was not set."""

FINISH_HOLD_KEEPALIVE = 15.0
"""``hold_keepalive`` of ``hold = "finish"`` where it was not set."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The listener. ``None`` is "no default provider" and "no limit"."""

    listen: str = "127.0.0.1:8484"
    default_provider: str | None = None
    max_body: int | None = None
    retry_body: int = 64 * MiB
    buffer_total: int = 1 * GiB
    max_header: int = 64 * KiB
    drain_timeout: float = 600.0


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged and how."""

    level: str = "info"
    format: str = "auto"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each kind of silence may last, per provider.

    ``gap_alive`` is never above a ``gap`` that was set: the loader has lowered it.
    """

    connect: float = 10.0
    first_event: float = 280.0
    response: float = 1800.0
    gap: float = 290.0
    gap_alive: float = 600.0
    silent_phase: float = 900.0
    linger: float = 2.0


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When a request is tried again, per provider."""

    max_retries: int = 3
    backoff_initial: float = 0.25
    backoff_max: float = 8.0
    retry_after_max: float = 30.0
    retry_after_default: float = 5.0
    max_retries_after_content: int = 1
    deadline: float = 270.0
    ambiguous: int = 1
    budget: float = 0.2
    budget_floor: int = 10


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """When a provider is not asked for a while; ``failures`` of 0 switches it off."""

    failures: int = 5
    open_for: float = 15.0


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One provider: a built-in one, perhaps overridden key by key, or one of the user's own.

    Not keys of the file: ``name`` is the table's name and the first part of the path;
    ``explicit`` are the keys of ``[providers.NAME]`` that the user has set; ``builtin`` names the
    part of this program that serves the provider (``"sim"``), and then ``base_url`` is empty
    until the app has started it.
    """

    name: str
    base_url: str
    api_key: Secret | None = None
    protocol: str = AUTO
    mode: str = "protect"
    proxy: str = "env"
    ca_file: str | None = None
    keepalive: float | str = AUTO
    hold: str = "first_content"
    hold_keepalive: float = 45.0
    hold_max_bytes: int = 1 * MiB
    hold_max: float = 240.0
    max_event: int = 8 * MiB
    finish_optional: bool = False
    fallback: tuple[str, ...] = ()
    model_map: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    circuit: Circuit = Circuit()
    explicit: frozenset[str] = frozenset()
    builtin: str | None = None

    def held_bytes(self, hold: str) -> int:
        """Most bytes to hold back under ``hold``, which a request may have chosen for itself."""
        if hold == "finish" and "hold_max_bytes" not in self.explicit:
            return FINISH_HOLD_MAX_BYTES
        return self.hold_max_bytes

    def held_keepalive(self, hold: str) -> float:
        """Seconds after which a held stream is shown to be alive under ``hold``."""
        if hold == "finish" and "hold_keepalive" not in self.explicit:
            return FINISH_HOLD_KEEPALIVE
        return self.hold_keepalive


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may use of the machine; ``None`` is "no limit".

    ``cpu`` is processor time in seconds, of all its threads together; ``processes`` counts every
    process and thread.
    """

    cpu: int | None = None
    memory: int | None = None
    processes: int | None = None


class Exec(msgspec.Struct, frozen=True, kw_only=True):
    """The sidecar that runs shell commands for agents.

    ``token`` are the references (``file:/path``). Not a key of the file: ``tokens`` are what they
    refer to, in the same order, and empty where the sidecar is not enabled.
    """

    enabled: bool = False
    listen: str = "unix:/run/gateway/exec.sock"
    allow_remote: bool = False
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")
    token: tuple[str, ...] = ()
    allowed_roots: tuple[str, ...] = ()
    isolation: str = "none"
    run_as: str | None = None
    allow_root: bool = False
    spill_dir: str = "/var/lib/gateway/exec"
    path_in_answers: bool = True
    text_lines: int = 2000
    text_bytes: int = 28 * KiB
    max_running: int = 8
    max_queued: int = 16
    max_output: int = 1 * GiB
    retention: float = 86400.0
    retention_bytes: int = 5 * GiB
    min_free: int = 2 * GiB
    env_allow: tuple[str, ...] = ("PATH", "HOME", "LANG")
    limits: Limits = Limits()
    tokens: tuple[Secret, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is configured.

    ``providers`` are the usable ones by name: the built-in ones, then the user's own.
    ``unavailable`` are built-in ones that need a setting first, each with the sentence that says
    which.
    """

    server: Server = Server()
    log: Log = Log()
    providers: Mapping[str, Provider]
    unavailable: Mapping[str, str]
    exec: Exec = Exec()
