"""A remote Tarko server as an agent, in either of its dialects: documented (`nested`) and runtime (`flat`).

Pure: `told`, `nested`, `flat` turn what the server says into what an agent says. `remote` asks the server, `turn` sees
one turn through over connections that break, `agent` is the agent.
"""
