"""What reaches the far side's wire, packet by packet: capture.py, run by lab.Far in the far namespace.

Each packet of IP that comes in on far0 is a line of LAB_DIR/packets.jsonl: {"proto", "to", "port",
"syn" (TCP: it opens a connection), "data" (UDP's payload, as Latin-1)}. The first line is
{"ready": true}. Anything but IP is {"ether": number}; what neighbours say to each other is left out.
"""
import json
import os
import socket
import struct

ETH_P_ALL, OUTGOING = 3, 4
IPV4, IPV6, ARP = 0x0800, 0x86dd, 0x0806
TCP, UDP, ICMPV6 = 6, 17, 58


def line_of(ether, packet):
    if ether == IPV4:
        proto, at = packet[9], (packet[0] & 15) * 4
        to = socket.inet_ntop(socket.AF_INET, packet[16:20])
    elif ether == IPV6:
        proto, at = packet[6], 40
        to = socket.inet_ntop(socket.AF_INET6, packet[24:40])
    else:
        return None if ether == ARP else {"ether": ether}
    line = {"proto": proto, "to": to}
    if proto in (TCP, UDP):
        line["port"] = struct.unpack_from(">H", packet, at + 2)[0]
    if proto == TCP:
        line["syn"] = packet[at + 13] & 0x12 == 2
    if proto == UDP:
        line["data"] = packet[at + 8:].decode("latin-1")
    return None if proto == ICMPV6 or line["to"].startswith("ff02:") else line


def main():
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as s, \
            open(os.path.join(os.environ["LAB_DIR"], "packets.jsonl"), "a", buffering=1) as out:
        s.bind(("far0", ETH_P_ALL))
        out.write('{"ready": true}\n')
        while True:
            packet, (_, ether, kind, *_) = s.recvfrom(65536)
            line = line_of(ether, packet) if kind != OUTGOING else None
            if line is not None:
                out.write(json.dumps(line) + "\n")


main()
