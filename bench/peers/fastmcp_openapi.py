"""Makes an MCP server of an OpenAPI document with FastMCP, and says how many tools it has."""

import asyncio
import json
import sys

import httpx
from fastmcp import FastMCP

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
client = httpx.AsyncClient(base_url="http://127.0.0.1:9")
server = FastMCP.from_openapi(openapi_spec=document, client=client)


async def tools():
    listing = getattr(server, "list_tools", None) or server.get_tools
    return await listing()


print(len(asyncio.run(tools())), "tools")
