"""A process: an OPC UA server (asyncua) with variables of type ByteString, for many clients.

Arguments: ``host``, ``port``, ``names`` of the variables (``ns=1;s=NAME``), ``clients`` at most.
"""

import asyncio
import logging

from asyncua import ua
from asyncua.server.internal_session import InternalSession
from asyncua.server.server import Server

from .program import arguments, ended, say


async def main() -> None:
    """Serve until stdin ends."""
    given = arguments()
    logging.getLogger("asyncua").setLevel(logging.CRITICAL)
    server = Server()
    await server.init()
    server.set_endpoint(f"opc.tcp://{given['host']}:{given['port']}/")
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    most = given["clients"] + 10
    server.iserver.max_connections = server.iserver.max_subscriptions = most
    InternalSession.max_connections = most
    for name in given["names"]:
        node_id = ua.NodeId.from_string(f"ns=1;s={name}")
        node = await server.nodes.objects.add_variable(node_id, name, b"", ua.VariantType.ByteString)
        await node.set_writable()
    await server.start()
    say(ready=True)
    await asyncio.to_thread(ended().wait)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
