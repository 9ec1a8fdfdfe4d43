"""Agents around agents: each is called like an agent and calls one, so they nest in any order.

In code: `Deadline(Retry(agent, times=2), seconds=60)`. In the settings: `TARKO_MIDDLEWARE="deadline(seconds=60), retry(times=2)"`,
outermost first. All are relays: an event of a type that they do not know passes through unchanged.
"""
