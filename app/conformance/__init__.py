"""A kit that tells whether an agent, a caller, a host or a middleware keeps the Agent Handler's contract.

Functions to be called from any test, without a plugin; `tarko-server check` does the same from the command line, in a
process of its own, so that an agent can neither block nor end whoever checks it.
"""

from app.conformance.agent import examine_agent
from app.conformance.caller import examine_caller
from app.conformance.host import examine_host
from app.conformance.isolated import check_isolated
from app.conformance.job import Job
from app.conformance.middleware import examine_middleware
from app.conformance.playing import Limits
from app.conformance.remote import served_at
from app.conformance.report import Finding, Report, Verdict
from app.conformance.running import examine
from app.conformance.statements import AGENT, CALLER, HOST, MIDDLEWARE
from app.conformance.subject import Conversation, Subject

__all__ = [
    "AGENT",
    "CALLER",
    "HOST",
    "MIDDLEWARE",
    "Conversation",
    "Finding",
    "Job",
    "Limits",
    "Report",
    "Subject",
    "Verdict",
    "check_isolated",
    "examine",
    "examine_agent",
    "examine_caller",
    "examine_host",
    "examine_middleware",
    "served_at",
]
