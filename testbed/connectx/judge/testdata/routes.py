"""Routes replies to librdmacm's requests for paths, at the socket of ibacm, with
paths between ports of this machine, whose LIDs the kernel knows. There is no
subnet manager."""
import glob
import os
import socket
import struct
import threading

SOCKET = '/run/ibacm.sock'
HEADER = struct.Struct('=BBB3xHQ')  # version, opcode, status, length, transaction
END = struct.Struct('=IHH')  # flags, type, reserved; a path follows
PATH = struct.Struct('>8x16s16sHHIBBHHBBBB6x')
RESOLVE, ACK, NO_DATA = 1, 0x80, 3
TYPE_PATH = 0x10
USE = 0x1 | 0x2 | 0x8 | 0x20  # for MADs, the primary one, in both directions
EXACTLY = 2 << 6
MTU_2048, RATE_10, LIFE = EXACTLY | 4, EXACTLY | 3, EXACTLY | 14


def lids():
    """Returns the LIDs of the ports by GID."""
    found = {}
    for port in glob.glob('/sys/class/infiniband/*/ports/1'):
        gid = open(port + '/gids/0').read().strip()
        found[socket.inet_pton(socket.AF_INET6, gid)] = int(open(port + '/lid').read(), 0)
    return found


def path(dgid, sgid):
    known = lids()
    sgid = sgid if any(sgid) else dgid
    return PATH.pack(dgid, sgid, known[dgid], known[sgid], 0, 0, 0x80 | 1, 0xffff, 0, MTU_2048, RATE_10, LIFE, 0)


def reply(message):
    version, opcode, _, _, tid = HEADER.unpack_from(message)
    last = message[-END.size - PATH.size:]
    try:
        if opcode != RESOLVE or END.unpack_from(last)[1] != TYPE_PATH:
            raise KeyError(opcode)
        dgid, sgid = PATH.unpack_from(last, END.size)[:2]
        body = END.pack(USE, TYPE_PATH, 0) + path(dgid, sgid)
        return HEADER.pack(version, opcode | ACK, 0, HEADER.size + len(body), tid) + body
    except KeyError:
        return HEADER.pack(version, opcode | ACK, NO_DATA, HEADER.size, tid)


def serve(conn):
    with conn:
        while message := conn.recv(4096):
            conn.sendall(reply(message))


if os.path.exists(SOCKET):
    os.unlink(SOCKET)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(SOCKET)
listener.listen()
print('ready', flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
