"""Which hosts are answered, which origins may call, and where the server may listen."""

from typing import Any

import pytest

from app.access.policy import Policy, Standing, check_exposure, is_loopback
from app.errors import ConfigurationError
from app.settings import Settings


def policy(**settings: Any) -> Policy:
    return Policy.of(Settings(**settings))


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "localhost:8888",
        "LocalHost:1",
        "127.0.0.1",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:8888",
        "localhost:",
    ],
)
def test_loopback_names_are_answered_on_any_port(header: str) -> None:
    assert policy().admits_host(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example:8888",
        "localhost@evil.example",
        "evil.example#localhost",
        "localhost,evil.example",
        "localhost:80:80",
        "localhost:port",
        "localhost ",
        "localhost\n",
        "127.0.0.2",
        "::1",
        "[::1",
        "[::2]",
        "chat.example",
    ],
)
def test_no_other_host_is_answered(header: str) -> None:
    assert not policy().admits_host(header)


@pytest.mark.parametrize(
    "header", ["chat.example", "Chat.Example:443", "10.0.0.7:8888", "[fd00::1]:8888", "[fd00::2]"]
)
def test_allowed_hosts_are_answered(header: str) -> None:
    assert policy(allowed_hosts="CHAT.example, 10.0.0.7, fd00::1, [fd00::2],").admits_host(header)


@pytest.mark.parametrize(
    ("bound", "header"),
    [("192.168.1.5", "192.168.1.5:8888"), ("[fd00::1]", "[fd00::1]"), ("fd00::1", "[FD00::1]:1")],
)
def test_the_bound_host_is_answered(bound: str, header: str) -> None:
    assert policy(host=bound).admits_host(header)


@pytest.mark.parametrize("header", ["evil.example", "", "not a host"])
def test_a_star_admits_any_host(header: str) -> None:
    assert policy(allowed_hosts="chat.example,*").admits_host(header)


@pytest.mark.parametrize(
    "entry", ["https://chat.example", "chat.example:443", "*.example", "chat.example/x", "a b"]
)
def test_a_host_entry_that_can_never_match_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="TARKO_ALLOWED_HOSTS"):
        policy(allowed_hosts=entry)


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "standing"),
    [
        ("http://localhost:8888", "localhost:8888", "http", "same"),
        ("HTTP://LOCALHOST:8888", "LocalHost:8888", "ws", "same"),
        ("http://[::1]:8888", "[::1]:8888", "http", "same"),
        ("http://localhost", "localhost:80", "http", "same"),
        ("https://chat.example", "chat.example", "https", "same"),
        ("https://chat.example", "chat.example:443", "wss", "same"),
        ("https://chat.example", "chat.example", "http", "same"),
        ("http://chat.example", "chat.example", "https", "foreign"),
        ("http://chat.example", "chat.example", "wss", "foreign"),
        ("http://localhost:3000", "localhost:8888", "http", "foreign"),
        ("http://127.0.0.1:8888", "localhost:8888", "http", "foreign"),
        ("http://evil.example", "localhost:8888", "http", "foreign"),
        ("http://localhost:8888.evil.example", "localhost:8888", "http", "foreign"),
        ("http://localhost:8888@evil.example", "localhost:8888", "http", "foreign"),
        ("http://localhost:8888/", "localhost:8888", "http", "foreign"),
        ("ext://localhost:8888", "localhost:8888", "http", "foreign"),
        ("null", "localhost:8888", "http", "foreign"),
        ("", "localhost:8888", "http", "foreign"),
        ("http://localhost:8888 http://evil.example", "localhost:8888", "http", "foreign"),
        ("http://localhost", "not a host", "http", "foreign"),
        ("https://app.example", "localhost:8888", "http", "allowed"),
        ("https://app.example:443", "localhost:8888", "http", "allowed"),
        ("http://app.example", "localhost:8888", "http", "foreign"),
        ("https://app.example:8443", "localhost:8888", "http", "foreign"),
        ("http://localhost:5173", "localhost:8888", "http", "allowed"),
        ("chrome-extension://abcdef", "localhost:8888", "http", "allowed"),
    ],
)
def test_the_standing_of_an_origin(origin: str, host: str, scheme: str, standing: Standing) -> None:
    allowed = "https://app.example/, http://localhost:5173, chrome-extension://abcdef"
    assert policy(allowed_origins=allowed).standing(origin, host, scheme) == standing


@pytest.mark.parametrize("entry", ["*", "null", "app.example", "https://app.example/path", "https://"])
def test_an_origin_entry_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="TARKO_ALLOWED_ORIGINS"):
        policy(allowed_origins=entry)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_a_loopback_address_needs_no_tokens(host: str) -> None:
    assert is_loopback(host)
    check_exposure(Settings(host=host))


OPEN_HOSTS = ["0.0.0.0", "::", "[::]", "192.168.1.5", "chat.example", "localhost.example", ""]  # noqa: S104


@pytest.mark.parametrize("host", OPEN_HOSTS)
def test_any_other_address_is_refused_with_the_three_ways_out(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"TARKO_HOST=127\.0\.0\.1.*TARKO_TOKENS=.*--insecure"):
        check_exposure(Settings(host=host))


@pytest.mark.parametrize("host", OPEN_HOSTS)
def test_tokens_or_a_word_open_any_address(host: str) -> None:
    check_exposure(Settings(host=host, tokens="alice=alice-token-0123456789"))
    check_exposure(Settings(host=host, insecure=True))
