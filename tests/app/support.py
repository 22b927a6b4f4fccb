"""Gateways and requests for the tests of the whole."""

from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.config import load


def read_file(path: str) -> str:
    """What the configuration names as ``file:``."""
    return Path(path).read_text(encoding="utf-8")


def configured(listen: str, text: str = "") -> Gateway:
    """A gateway that has not started; ``text`` follows in the ``[server]`` table."""
    config = load(f'[server]\nlisten = "{listen}"\n{text}', {}, read_file)
    return Gateway(config, sim_pace=0.0)


def chat(model: str, *, stream: bool = True) -> dict[str, object]:
    """A chat request for a model of the simulated provider."""
    messages = [{"role": "user", "content": "hi"}]
    return {"model": model, "stream": stream, "messages": messages}
