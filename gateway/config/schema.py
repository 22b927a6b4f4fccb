"""Which keys each table has and what they may hold; the defaults are the model's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway import protocols
from gateway.config import values
from gateway.config.credentials import check_reference, check_references
from gateway.config.model import AUTO, HOLDS, ISOLATIONS, LOG_FORMATS, LOG_LEVELS, MODES
from gateway.config.values import Reader
from gateway.policy.preview import MIN_BYTES, MIN_LINES

Readers = Mapping[str, Reader]

SERVER: Readers = MappingProxyType(
    {
        "listen": values.listen,
        "default_provider": values.text,
        "max_body": values.size_or_unlimited,
        "retry_body": values.size,
        "buffer_total": values.size,
        "max_header": values.size_from(4096),
        "drain_timeout": values.seconds_from_0,
    }
)

LOG: Readers = MappingProxyType(
    {"level": values.word(*LOG_LEVELS), "format": values.word(*LOG_FORMATS)}
)

PROVIDER: Readers = MappingProxyType(
    {
        "base_url": values.base_url,
        "api_key": check_reference,
        "protocol": values.word(AUTO, *protocols.NAMES),
        "mode": values.word(*MODES),
        "proxy": values.proxy,
        "ca_file": values.absolute_path,
        "keepalive": values.keepalive,
        "hold": values.word(*HOLDS),
        "hold_keepalive": values.seconds,
        "hold_max_bytes": values.size,
        "hold_max": values.seconds,
        "max_event": values.size_from(1024),
        "finish_optional": values.flag,
        "fallback": values.texts,
        "model_map": values.mapping,
    }
)

TIMEOUTS: Readers = MappingProxyType(
    {
        "connect": values.seconds,
        "first_event": values.seconds,
        "response": values.seconds,
        "gap": values.seconds,
        "gap_alive": values.seconds,
        "silent_phase": values.seconds,
        "linger": values.seconds_from_0,
    }
)

RETRY: Readers = MappingProxyType(
    {
        "max_retries": values.count(0),
        "backoff_initial": values.seconds_from_0,
        "backoff_max": values.seconds_from_0,
        "retry_after_max": values.seconds_from_0,
        "retry_after_default": values.seconds_from_0,
        "max_retries_after_content": values.count(0),
        "deadline": values.seconds_from_0,
        "ambiguous": values.count(0),
        "budget": values.ratio,
        "budget_floor": values.count(0),
    }
)

CIRCUIT: Readers = MappingProxyType({"failures": values.count(0), "open_for": values.seconds})

EXEC: Readers = MappingProxyType(
    {
        "enabled": values.flag,
        "listen": values.listen,
        "allow_remote": values.flag,
        "hosts": values.host_names,
        "token": check_references,
        "allowed_roots": values.absolute_paths,
        "isolation": values.word(*ISOLATIONS),
        "run_as": values.text,
        "allow_root": values.flag,
        "spill_dir": values.absolute_path,
        "path_in_answers": values.flag,
        "text_lines": values.count(MIN_LINES),
        "text_bytes": values.size_from(MIN_BYTES),
        "max_running": values.count(1),
        "max_queued": values.count(0),
        "max_output": values.size_above_0,
        "retention": values.seconds_from_0,
        "retention_bytes": values.size,
        "min_free": values.size,
        "env_allow": values.names_of_variables,
    }
)

LIMITS: Readers = MappingProxyType(
    {
        "cpu": values.count(1),
        "memory": values.memory,
        "processes": values.count(1),
    }
)

PROVIDER_TABLES = ("timeouts", "retry", "circuit")
EXEC_TABLES = ("limits",)
TABLES = ("server", "log", "providers", "exec")

# A key in the wrong table is told the right one. Of keys that several tables have, the first wins.
HOMES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(LIMITS, "exec.limits"),
        **dict.fromkeys((*EXEC, *EXEC_TABLES), "exec"),
        **dict.fromkeys(CIRCUIT, "providers.NAME.circuit"),
        **dict.fromkeys(RETRY, "providers.NAME.retry"),
        **dict.fromkeys(TIMEOUTS, "providers.NAME.timeouts"),
        **dict.fromkeys((*PROVIDER, *PROVIDER_TABLES), "providers.NAME"),
        **dict.fromkeys(LOG, "log"),
        **dict.fromkeys(SERVER, "server"),
    }
)
