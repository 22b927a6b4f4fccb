"""The error that carries every fault of a configuration."""

from gateway.config.errors import ConfigError


def test_each_fault_stands_on_a_line_of_its_own() -> None:
    error = ConfigError(["a is wrong.", "b is wrong."])
    assert error.faults == ("a is wrong.", "b is wrong.")
    assert str(error) == "a is wrong.\nb is wrong."


def test_faults_may_come_from_a_generator() -> None:
    assert ConfigError(f"{name}." for name in "ab").faults == ("a.", "b.")
