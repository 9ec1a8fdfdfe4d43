"""A kit that tells whether an agent, a caller, a host or a middleware keeps the Agent Handler's contract.

Functions to be called from any test, without a plugin; `tarko-server check` does the same from the command line, in a
process of its own, so that an agent can neither block nor end whoever checks it.
"""
