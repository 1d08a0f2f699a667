"""Far servers for many tunnels at once: load_far.py FOLDER (with cert.pem, key.pem).

    7201 echo   7202 over TLS: a line "N", then N bytes   7203 a line "N", then N bytes as fast as they are taken;
    FOLDER/sent holds how many were, for the last client
"""
import asyncio
import os
import ssl
import sys

CHUNK = bytes(range(256)) * 1024


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def some(reader, writer):
    left = int(await reader.readline())
    while left > 0:
        writer.write(CHUNK[:left])
        left -= len(CHUNK)
        await writer.drain()
    writer.close()


async def counted(reader, writer):
    n, sent = int(await reader.readline()), 0
    writer.transport.set_write_buffer_limits(0)
    fd = os.open(f"{sys.argv[1]}/sent", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    while sent < n:
        part = CHUNK[:n - sent]
        writer.write(part)
        await writer.drain()
        sent += len(part)
        os.pwrite(fd, b"%d\n" % sent, 0)
    os.close(fd)
    writer.close()


async def quiet(handler, reader, writer):
    try:
        await handler(reader, writer)
    except (ConnectionError, ssl.SSLError):
        writer.close()


async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(f"{sys.argv[1]}/cert.pem", f"{sys.argv[1]}/key.pem")
    for port, handler, context in ((7201, echo, None), (7202, some, tls), (7203, counted, None)):
        await asyncio.start_server(lambda r, w, handler=handler: quiet(handler, r, w), None, port, ssl=context,
                                   backlog=4096)
    await asyncio.Event().wait()


asyncio.run(main())
