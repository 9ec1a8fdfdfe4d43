"""The nested spelling: an envelope's bytes, and the frames of a whole page at once."""

from app.dialects.tarko.nested import query_frames, spell, spell_each, stream_frames
from app.events.envelope import Envelope

SESSION = "sess_" + "a" * 26


def event(place: int, event_type: str = "user_message", data: bytes = b'{"content":"hi"}') -> Envelope:
    return Envelope(
        SESSION, place, place, None, event_type, 1622548800000 + place, data, b'{"source":"user"}'
    )


def test_an_envelope_is_spelled_with_its_data_as_it_is_stored() -> None:
    assert spell(event(7)) == (
        b'{"id":"evt_aaaaaaaaaaaaaaaaaaaaaaaaaa_7","type":"user_message","timestamp":1622548800007,'
        b'"sessionId":"sess_aaaaaaaaaaaaaaaaaaaaaaaaaa","data":{"content":"hi"},"metadata":{"source":"user"}}'
    )


def test_frames_of_a_page_are_those_of_its_events_one_after_the_other() -> None:
    events = [event(1), event(2, 'odd "type" é'), event(10, data=b"null")]
    ids = [b"evt_aaaaaaaaaaaaaaaaaaaaaaaaaa_%d" % each.place for each in events]
    unnamed = [b"id: %b\ndata: %b\n\n" % pair for pair in zip(ids, map(spell, events), strict=True)]
    named = [
        b"id: %b\nevent: %b\ndata: %b\n\n" % (name, each.type.encode(), spell(each))
        for name, each in zip(ids, events, strict=True)
    ]
    assert stream_frames(events) == b"".join(unnamed)
    assert query_frames(events) == b"".join(named)
    assert spell_each(events) == [spell(each) for each in events]


def test_a_page_without_events_has_no_frames() -> None:
    assert stream_frames([]) == query_frames([]) == b""
