"""Inside the wall, for test_load.py: load_client.py idle|tls|slow N [BYTES], through $http_proxy to ok.test.

It makes the file open-<id> when all is open, waits for go-<id>, and prints what came of it.
"""
import asyncio
import os
import ssl
import sys
import urllib.parse

PROXY = urllib.parse.urlsplit(os.environ["http_proxy"])
MODE, ID, N = sys.argv[1], sys.argv[2], int(sys.argv[3])
BYTES = int(sys.argv[4]) if len(sys.argv) > 4 else 0
CHUNK = bytes(range(256)) * 1024


async def tunnel(port):
    reader, writer = await asyncio.open_connection(PROXY.hostname, PROXY.port)
    writer.write(f"CONNECT ok.test:{port} HTTP/1.1\r\nHost: ok.test\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(head.decode() + (await reader.read(2000)).decode())
    return reader, writer


async def go():
    open(f"open-{ID}", "w").close()
    while not os.path.exists(f"go-{ID}"):
        await asyncio.sleep(0.02)


async def idle():
    tunnels = [await tunnel(7201) for _ in range(N)]
    await go()
    good = 0
    for i, (reader, writer) in enumerate(tunnels):
        word = f"word {i}\n".encode()
        writer.write(word)
        good += await reader.readexactly(len(word)) == word
    for _, writer in tunnels:
        writer.close()
    return good


async def tls_one(context, i):
    reader, writer = await tunnel(7202)
    await writer.start_tls(context, server_hostname="ok.test")
    writer.write(b"%d\n" % (BYTES + i))
    data = await reader.read()
    writer.close()
    return data == (CHUNK * (len(data) // len(CHUNK) + 1))[:BYTES + i]


async def tls():
    context = ssl.create_default_context(cafile="cert.pem")
    return sum(await asyncio.gather(*(tls_one(context, i) for i in range(N))))


async def slow():
    reader, writer = await tunnel(7203)
    writer.write(b"%d\n" % BYTES)
    writer.transport.pause_reading()
    await go()
    writer.transport.resume_reading()
    n, wrong = 0, 0
    while data := await reader.read(1 << 20):
        at = n % 256
        wrong += data[:256] != (CHUNK[at:at + 256])[:len(data)]
        n += len(data)
    return n if not wrong else -wrong


print(asyncio.run({"idle": idle, "tls": tls, "slow": slow}[MODE]()))
