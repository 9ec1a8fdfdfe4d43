"""An MCP server that a chat agent starts and asks by itself: `python weather_server.py`."""

from mcp.server import MCPServer

server = MCPServer("weather")


@server.tool()
def weather(city: str) -> str:
    """The weather in a city."""
    return f"11 degrees in {city}"


if __name__ == "__main__":
    server.run()
