"""A remote A2A agent as an agent, in versions 1.0 and 0.3 of the protocol over JSON-RPC.

Pure: `card` chooses where and how to talk, `wire` spells requests and reads replies, `fold` turns replies into what an
agent says, `known` is what one turn leaves for the next. `guard` keeps away from addresses that strangers name, `remote`
asks the server, `turn` sees one turn through over connections that break, `agent` is the agent.

No A2A library is used: none talks to servers that answer with less than the specification asks for.
"""
