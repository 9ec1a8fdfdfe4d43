"""The tokens an operator writes, and the cookies made from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.principals import Credential, Principals
from app.errors import ConfigurationError

ALICE = "alice-token-0123456789"
ALICE_2 = "alice-second-0123456789"
BOB = "bob-token-0123456789=="
NOW = 1_800_000_000


def parse(text: str = f"alice={ALICE}, bob={BOB},alice={ALICE_2}") -> Principals:
    return Principals.parse(text)


def cookie_of(principals: Principals, token: str, expires: int = NOW + 60) -> str:
    credential = principals.by_token(token)
    assert credential is not None
    return credential.cookie(expires)


def name_of(credential: Credential | None) -> str | None:
    return credential.principal if credential else None


@pytest.mark.parametrize(("token", "principal"), [(ALICE, "alice"), (ALICE_2, "alice"), (BOB, "bob")])
def test_each_token_names_its_principal(token: str, principal: str) -> None:
    assert name_of(parse().by_token(token)) == principal


@pytest.mark.parametrize("token", ["", "alice", ALICE[:-1], ALICE + " ", ALICE.upper(), "Zoë" * 9, "\ud800"])
def test_any_other_text_names_nobody(token: str) -> None:
    assert parse().by_token(token) is None


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_no_tokens_make_no_principals(text: str) -> None:
    assert not Principals.parse(text)
    assert Principals.parse(text).by_token("") is None


def test_principals_are_true_when_there_are_any() -> None:
    assert len(parse()) == 3


def test_a_token_written_twice_for_one_principal_counts_once() -> None:
    assert len(parse(f"alice={ALICE},alice={ALICE}")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"alice={ALICE},", "Entry 2 .* is empty"),
        (",", "Entry 1 .* is empty"),
        (ALICE, "Entry 1 .* has no `=`"),
        (f"={ALICE}", "Entry 1 .* needs a name"),
        (f"al ice={ALICE}", "Entry 1 .* needs a name"),
        (f"{'a' * 65}={ALICE}", "Entry 1 .* needs a name of 1 to 64"),
        (f"zoë={ALICE}", "Entry 1 .* needs a name"),
        ("alice=short-token-123", r"of 15 characters; at least 16 .*token_urlsafe"),
        ("alice=", r"of 0 characters"),
        (f"bob={BOB},alice=with space 0123456789", "Entry 2 .* no header can carry"),
        ("alice=zoë-zoë-zoë-zoë-zoë", "no header can carry.*token_urlsafe"),
        (f"alice={ALICE},bob={ALICE}", "Entry 2 .* 'bob' a token .* belongs to 'alice'"),
    ],
)
def test_each_way_to_write_tokens_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Principals.parse(text)


@pytest.mark.parametrize("text", [ALICE, f"{ALICE}:alice=x", f"a b={ALICE}", f"a={ALICE},b={ALICE}"])
def test_no_message_tells_a_token(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Principals.parse(text)
    assert ALICE not in str(caught.value)


def test_no_repr_tells_a_secret() -> None:
    assert repr(Credential.of("alice", ALICE)) == "Credential(principal='alice')"


@pytest.mark.parametrize("name", ["a", "a.b@example.org", "A-9_z", "v1.2.3", "x" * 64])
def test_a_cookie_proves_its_principal_whatever_the_name(name: str) -> None:
    principals = Principals.parse(f"{name}={ALICE}")
    assert principals.by_cookie(cookie_of(principals, ALICE), NOW) == name


def test_a_cookie_is_good_on_another_replica_and_after_a_restart() -> None:
    assert parse().by_cookie(cookie_of(parse(), BOB), NOW) == "bob"


def test_a_cookie_dies_with_its_token_and_no_other() -> None:
    cookie = cookie_of(parse(), ALICE_2)
    assert parse(f"alice={ALICE_2}").by_cookie(cookie, NOW) == "alice"
    assert parse(f"alice={ALICE},bob={BOB}").by_cookie(cookie, NOW) is None


def test_a_cookie_dies_when_its_token_goes_to_another_principal() -> None:
    cookie = cookie_of(parse(), ALICE)
    assert parse(f"bob={ALICE}").by_cookie(cookie, NOW) is None


@pytest.mark.parametrize(("now", "principal"), [(NOW + 59.9, "alice"), (NOW + 60, None), (NOW + 61, None)])
def test_a_cookie_is_good_until_it_expires(now: float, principal: str | None) -> None:
    assert parse().by_cookie(cookie_of(parse(), ALICE), now) == principal


def test_a_token_is_no_cookie_and_a_cookie_no_token() -> None:
    assert parse().by_cookie(ALICE, NOW) is None
    assert parse().by_token(cookie_of(parse(), ALICE)) is None


@given(st.text())
def test_no_made_up_cookie_is_accepted(value: str) -> None:
    assert parse().by_cookie(value, NOW) is None


@given(st.data())
def test_no_tampered_cookie_is_accepted(data: st.DataObject) -> None:
    cookie = cookie_of(parse(), ALICE)
    start = data.draw(st.integers(0, len(cookie)))
    end = data.draw(st.integers(start, min(start + 4, len(cookie))))
    patch = data.draw(st.text(st.sampled_from("0123456789abcdefABCDEF.v-٣ \n"), max_size=4))
    tampered = cookie[:start] + patch + cookie[end:]
    assert (parse().by_cookie(tampered, NOW) is not None) == (tampered == cookie)


@given(
    name=st.sampled_from(["alice", "bob", "carol"]),
    expires=st.integers(0, 10**12 - 1),
    donor=st.sampled_from([ALICE, BOB]),
)
def test_a_signature_is_good_for_its_own_name_and_time_alone(name: str, expires: int, donor: str) -> None:
    genuine = cookie_of(parse(), donor)
    forged = f"v1.{name}.{expires}.{genuine.rpartition('.')[2]}"
    assert (parse().by_cookie(forged, NOW) is not None) == (forged == genuine)
