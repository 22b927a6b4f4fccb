"""From TOML to settings, or to every fault in them."""

import pytest

from gateway.config import ConfigError, load, with_listen
from gateway.config.model import Config, Exec, Limits, Log, Provider, Retry, Server, Timeouts
from gateway.config.presets import PRESETS

KEY = "sk-live-0123456789"
FILES = {"/etc/key": f"{KEY}\n", "/etc/ca.pem": "-----BEGIN CERTIFICATE-----\n", "/etc/text": "x"}
ENVIRON = {"MY_KEY": KEY}


def read_file(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def loaded(text: str) -> Config:
    return load(text, ENVIRON, read_file)


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        loaded(text)
    assert KEY not in str(refused.value)
    return list(refused.value.faults)


def test_no_text_at_all_gives_the_built_in_providers_and_the_defaults() -> None:
    config = loaded("")
    assert (config.server, config.log, config.exec) == (Server(), Log(), Exec())
    assert [*config.providers] == [name for name in PRESETS if name != "azure"]
    assert config.providers["openai"] == Provider(name="openai", base_url="https://api.openai.com")


def test_a_provider_that_cannot_be_used_yet_says_what_is_missing() -> None:
    assert list(loaded("").unavailable) == ["azure"]
    assert "base_url" in loaded("").unavailable["azure"]


def test_the_simulated_provider_is_part_of_the_program_until_it_gets_an_address() -> None:
    assert loaded("").providers["sim"].builtin == "sim"
    assert loaded("").providers["sim"].base_url == ""
    elsewhere = loaded('providers.sim.base_url = "http://127.0.0.1:9"').providers["sim"]
    assert (elsewhere.builtin, elsewhere.base_url) == (None, "http://127.0.0.1:9")


def test_a_built_in_provider_is_overridden_key_by_key() -> None:
    config = loaded('[providers.ollama]\nmode = "observe"\ntimeouts.connect = 3')
    ollama = config.providers["ollama"]
    assert (ollama.mode, ollama.base_url) == ("observe", PRESETS["ollama"].base_url)
    assert ollama.proxy == "none"
    assert ollama.timeouts == Timeouts(connect=3.0)
    assert ollama.explicit == {"mode", "timeouts"}
    assert next(iter(config.providers)) == "openai"


def test_every_key_reaches_its_field() -> None:
    config = loaded("""
        [server]
        listen = "unix:/run/g.sock"
        default_provider = "mine"
        max_body = "1MiB"
        retry_body = 5
        [log]
        level = "debug"
        [providers.mine]
        base_url = "http://127.0.0.1:9/v2/"
        api_key = "file:/etc/key"
        ca_file = "/etc/ca.pem"
        keepalive = 7
        hold = "finish"
        fallback = ["other"]
        timeouts = { gap = 1, first_event = 5, silent_phase = 4 }
        retry = { max_retries = 2, backoff_initial = 0.1, ambiguous = 0, budget = 100.0 }
        [providers.other]
        base_url = "https://other"
        api_key = "env:MY_KEY"
        model_map = { "a" = "b" }
        [exec]
        max_running = 2
        min_free = "0"
        limits = { cpu = 60, memory = "2GiB" }
    """)
    assert config.server == Server(
        listen="unix:/run/g.sock", default_provider="mine", max_body=2**20, retry_body=5
    )
    assert config.log.level == "debug"
    mine, other = config.providers["mine"], config.providers["other"]
    assert mine.base_url == "http://127.0.0.1:9/v2"
    assert mine.api_key is not None
    assert mine.api_key.reveal() == KEY
    assert (mine.ca_file, mine.keepalive, mine.hold) == ("/etc/ca.pem", 7.0, "finish")
    assert mine.fallback == ("other",)
    assert mine.retry == Retry(max_retries=2, backoff_initial=0.1, ambiguous=0, budget=100.0)
    assert other.model_map == {"a": "b"}
    assert (config.exec.max_running, config.exec.min_free) == (2, 0)
    assert config.exec.limits == Limits(cpu=60, memory=2**31)


def test_a_gap_that_was_set_also_bounds_a_line_with_heartbeats() -> None:
    def gaps(keys: str) -> tuple[float, float]:
        timeouts = loaded(f"[providers.openai.timeouts]\n{keys}").providers["openai"].timeouts
        return timeouts.gap, timeouts.gap_alive

    assert gaps("") == (290, 600)
    assert gaps("gap = 20") == (20, 20)
    assert gaps("gap = 20\ngap_alive = 30") == (20, 20)
    assert gaps("gap = 20\ngap_alive = 10") == (20, 10)
    assert gaps("gap = 900") == (900, 600)
    assert gaps("gap_alive = 300") == (290, 300)


def test_all_faults_are_told_and_each_names_its_key() -> None:
    found = faults("""
        listen = "127.0.0.1:1"
        [server]
        listen = "nowhere"
        default_provider = "opnai"
        drain_timeout = -1
        [log]
        level = "loud"
        [providers.openai]
        gap = 3
        holdd = "finish"
        timeouts = { connect = "ten", gpa = 1 }
        retry.max_retries = 1.5
        [providers.mine]
        api_key = "env:MY_KEY"
        [exec]
        enabled = true
        isolation = "chroot"
        allowed_rots = ["/a"]
        limits.cpus = 1
        [servers]
    """)
    assert [fault.partition(" ")[0] for fault in found] == [
        "listen",
        "servers",
        "server.listen",
        "server.drain_timeout",
        "log.level",
        "providers.openai.gap",
        "providers.openai.holdd",
        "providers.openai.timeouts.gpa",
        "providers.openai.timeouts.connect",
        "providers.openai.retry.max_retries",
        "providers.mine.base_url",
        "server.default_provider",
        "exec.allowed_rots",
        "exec.isolation",
        "exec.limits.cpus",
        "exec.token",
        "exec.allowed_roots",
    ]
    assert "listen is not a known key: it belongs into [server]." in found
    assert "servers is not a known key: did you mean server?" in found
    assert "exec.allowed_rots is not a known key: did you mean allowed_roots?" in found
    assert "exec.limits.cpus is not a known key: did you mean cpu?" in found
    assert "providers.openai.timeouts.gpa is not a known key: did you mean gap?" in found


def test_text_that_is_no_toml_is_told_with_the_line() -> None:
    [fault] = faults("[server]\nlisten = 127.0.0.1")
    assert fault.startswith("This is not valid TOML: ")
    assert "line 2" in fault


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "9" * 5000])
def test_text_that_breaks_the_parser_is_a_fault_of_the_text(text: str) -> None:
    assert faults(text)[0].startswith("This is not valid TOML: ")


def test_a_key_given_literally_is_not_shown() -> None:
    [fault] = faults(f'providers.openai.api_key = "{KEY}"')
    assert fault.startswith('providers.openai.api_key must be "env:NAME" or "file:/path" and not ')


def test_a_key_that_is_not_even_a_string_is_not_shown() -> None:
    [fault] = faults(f"providers.openai.api_key = {KEY}")
    assert fault.startswith("This is not valid TOML: ")


def test_a_variable_that_is_not_set_is_a_fault() -> None:
    [fault] = faults('providers.openai.api_key = "env:OTHER"')
    assert fault == (
        "providers.openai.api_key names the environment variable OTHER, which is not set: "
        "export it before the start."
    )


@pytest.mark.parametrize("key", ["api_key", "ca_file"])
def test_a_file_that_is_not_there_is_a_fault(key: str) -> None:
    prefix = "file:" if key == "api_key" else ""
    [fault] = faults(f'providers.openai.{key} = "{prefix}/etc/none"')
    assert fault == (
        f"providers.openai.{key} names the file /etc/none, which cannot be read: "
        "No such file or directory."
    )


def test_a_ca_file_without_a_certificate_is_a_fault() -> None:
    [fault] = faults('providers.openai.ca_file = "/etc/text"')
    assert fault.endswith("names the file /etc/text, which holds no certificate in PEM.")


def test_azure_without_its_address_says_how_to_set_it() -> None:
    [fault] = faults('providers.azure.mode = "observe"')
    assert fault == (
        "providers.azure.base_url is not set: "
        'set base_url = "https://RESOURCE.openai.azure.com" in [providers.azure].'
    )
    url = "https://r.openai.azure.com"
    assert loaded(f'providers.azure.base_url = "{url}"').providers["azure"].base_url == url


def test_a_mistyped_built_in_provider_names_the_right_one() -> None:
    [fault] = faults('providers.opnai.mode = "observe"')
    assert fault.startswith("providers.opnai.base_url is not set: ")
    assert fault.endswith("or did you mean the built-in provider openai?")


@pytest.mark.parametrize("name", ["a b", "a.b", "-", "", "ü", "x" * 64, "a/b"])
def test_a_name_that_no_path_can_carry_is_refused(name: str) -> None:
    [fault] = faults(f'[providers."{name}"]\nbase_url = "https://x"')
    assert "cannot be asked for under that name: use letters, digits, - and _" in fault


@pytest.mark.parametrize("name", ["v1", "v1beta", "metrics", "healthz", "readyz"])
def test_a_name_that_is_the_gateways_own_is_refused(name: str) -> None:
    [fault] = faults(f'[providers.{name}]\nbase_url = "https://x"')
    assert fault.startswith(f"providers.{name} cannot be asked for under that name, for /{name} ")


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("opnai", "which is no provider: did you mean openai."),
        ("zzz", "which is no provider: add a table [providers.zzz]."),
        ("azure", 'set base_url = "https://RESOURCE.openai.azure.com" in [providers.azure].'),
    ],
)
def test_a_default_provider_that_cannot_be_asked_is_a_fault(name: str, end: str) -> None:
    [fault] = faults(f'server.default_provider = "{name}"')
    assert fault.startswith(f"server.default_provider names {name}, ")
    assert fault.endswith(end)


def test_a_provider_with_a_fault_is_told_once_however_often_it_is_named() -> None:
    [fault] = faults("""
        server.default_provider = "mine"
        providers.openai.fallback = ["mine"]
        providers.mine.base_url = "mine"
    """)
    assert fault.startswith("providers.mine.base_url ")


def test_a_fallback_that_cannot_work_is_a_fault() -> None:
    [fault] = faults('providers.openai.fallback = ["groq"]')
    assert fault.startswith("providers.openai.fallback names groq, which has no api_key ")


EXEC = """
    [exec]
    enabled = true
    token = ["env:MY_TOKEN", "file:/etc/token"]
    allowed_roots = ["/repo"]
"""
TOKENS = {"MY_TOKEN": "t" * 32}


def sidecar(text: str = EXEC) -> Config:
    return load(text, ENVIRON | TOKENS, lambda path: "u" * 40 if "token" in path else "")


def test_the_tokens_of_a_sidecar_that_is_enabled_are_found() -> None:
    found = sidecar().exec
    assert [token.reveal() for token in found.tokens] == ["t" * 32, "u" * 40]
    assert found.token == ("env:MY_TOKEN", "file:/etc/token")
    one = sidecar(EXEC.replace('["env:MY_TOKEN", "file:/etc/token"]', '"env:MY_TOKEN"')).exec
    assert [token.reference for token in one.tokens] == ["env:MY_TOKEN"]


def test_a_sidecar_that_is_switched_off_needs_nothing_and_reads_nothing() -> None:
    off = loaded('exec = { token = "file:/etc/none", isolation = "uid" }').exec
    assert (off.token, off.tokens) == (("file:/etc/none",), ())


def test_a_token_that_cannot_be_used_is_told_once() -> None:
    [fault] = faults(EXEC)
    assert fault.startswith("exec.token names the environment variable MY_TOKEN, which is not set")
    [fault] = faults(EXEC.replace('["env:MY_TOKEN", "file:/etc/token"]', f'"{KEY}"'))
    assert fault.startswith('exec.token must be "env:NAME" or "file:/path" and not the key itself')
    [fault] = faults(EXEC.replace("MY_TOKEN", "MY_KEY"))
    assert fault.startswith("exec.token names in env:MY_KEY a token of 18 bytes: it must have 32")


def test_the_relay_and_the_sidecar_cannot_share_an_address() -> None:
    with pytest.raises(ConfigError, match=r"^exec.listen \(127.0.0.1:8484\) is the address of"):
        sidecar(EXEC + 'listen = "127.0.0.1:8484"')
    with pytest.raises(ConfigError, match="is the address of the relay"):
        with_listen(sidecar(), "unix:/run/gateway/exec.sock")
    assert with_listen(sidecar(), "127.0.0.1:2").server.listen == "127.0.0.1:2"


@pytest.mark.parametrize("text", ["server = 1", "providers = []", "providers.openai = 'x'"])
def test_a_value_where_a_table_belongs_is_a_fault(text: str) -> None:
    [fault] = faults(text)
    assert "must be a table: write [" in fault


def test_the_address_of_the_command_line_replaces_that_of_the_file() -> None:
    config = with_listen(loaded('server.listen = "127.0.0.1:1"'), "127.0.0.1:2")
    assert config.server.listen == "127.0.0.1:2"
    with pytest.raises(ConfigError, match="--listen must be an address such as"):
        with_listen(config, "2")


def test_settings_cannot_be_changed_in_place() -> None:
    config = loaded("")
    with pytest.raises(TypeError):
        config.providers["x"] = config.providers["openai"]  # type: ignore[index]
