"""Agents that break the contract, one way each, and sound ones of odd shapes: fixtures for hosts, middleware and this kit."""

from app.conformance.gallery.exhibit import Exhibit
from app.conformance.gallery.misbehaving import DUBIOUS, MISBEHAVING, SELF_ENDING
from app.conformance.gallery.sound import SOUND

__all__ = ["DUBIOUS", "MISBEHAVING", "SELF_ENDING", "SOUND", "Exhibit"]
