"""Numbered messages by SEND, and rounds of a WRITE and a READ, with C's libibverbs.

    sends.py GID-INDEX PORT LENGTH N             receives, and prints the counts
    sends.py GID-INDEX PORT LENGTH N ADDRESS     sends N messages

A message that was received before is a duplicate. A READ that completes with
success and does not return the data of the preceding WRITE is corrupt. After a
connection broke, the next one continues with the first message not received.
"""
import json
import select
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LENGTH = int(sys.argv[3])
COUNT = int(sys.argv[4])
SLOTS = 32
WINDOW = 16
ROUNDS = 4
ROUND = 400  # bytes of a WRITE, and of its READ
WRITTEN, FETCHED = 1 << 40, 1 << 41  # wr_ids beside those of messages
LIMIT = 20 * 60  # seconds
SILENCE = 30  # seconds without a completion

PATTERNS = [bytes((k * 37 + i * 7 + (i >> 8)) % 255 + 1 for i in range(LENGTH - 8)) for k in range(31)]


def message(i):
    return struct.pack("<Q", i) + PATTERNS[i % len(PATTERNS)]


def connect(qp, gid_index, other):
    route = GlobalRoute(dgid=GID(other["gid"]), sgid_index=gid_index, hop_limit=64)
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    attr.dest_qp_num = other["qpn"]
    attr.path_mtu = e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = WINDOW
    attr.min_rnr_timer = 12
    attr.timeout = 14
    attr.retry_cnt = 6
    attr.rnr_retry = 7
    qp.to_rts(attr)


class Line:
    """The TCP connection of the two ends, with lines of JSON."""

    def __init__(self, conn):
        self.conn = conn
        self.rest = b""

    def say(self, what):
        self.conn.sendall(json.dumps(what).encode() + b"\n")

    def receive(self, limit=LIMIT):
        """Returns the next line, or None after the time limit."""
        while b"\n" not in self.rest:
            if not select.select([self.conn], [], [], limit)[0]:
                return None
            got = self.conn.recv(65536)
            if not got:
                raise EOFError("the other end has closed the connection")
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)


def begin(qp, mr, other, i):
    """Posts round i: a WRITE, followed by a READ."""
    source = SLOTS * LENGTH + i % ROUNDS * ROUND
    landing = source + ROUNDS * ROUND
    mr.write(message(i)[:ROUND], ROUND, source)
    mr.write(bytes(ROUND), ROUND, landing)
    for opcode, offset, wr_id in (e.IBV_WR_RDMA_WRITE, source, WRITTEN), (e.IBV_WR_RDMA_READ, landing, FETCHED + i):
        wr = SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[SGE(mr.buf + offset, ROUND, mr.lkey)])
        wr.set_wr_rdma(other["rkey"], other["addr"] + source)
        qp.post_send(wr)


def fetched(mr, i):
    return mr.read(ROUND, SLOTS * LENGTH + (ROUNDS + i % ROUNDS) * ROUND) == message(i)[:ROUND]


def send(qp, cq, mr, other, counts):
    """Sends messages from first on, and returns the final status."""
    posted = done = other["due"]
    begun = ended = 0
    heard = time.monotonic()
    while done < COUNT:
        while posted < COUNT and posted < done + WINDOW:
            offset = posted % WINDOW * LENGTH
            mr.write(message(posted), LENGTH, offset)
            qp.post_send(SendWR(wr_id=posted, opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(mr.buf + offset, LENGTH, mr.lkey)]))
            posted += 1
            if begun < ended + ROUNDS:
                begin(qp, mr, other, begun)
                begun += 1
        n, wcs = cq.poll(WINDOW)
        if n:
            heard = time.monotonic()
        elif time.monotonic() > heard + SILENCE:
            return "hangs"
        for wc in wcs:
            if wc.status != e.IBV_WC_SUCCESS:
                return "status %d" % wc.status
            if wc.wr_id >= FETCHED:
                counts["rounds" if fetched(mr, ended) else "corrupt"] += 1
                ended += 1
            elif wc.wr_id != WRITTEN:
                done += 1
    return "success"


def receive(qp, mr, slot):
    qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[SGE(mr.buf + slot * LENGTH, LENGTH, mr.lkey)]))


def take(qp, cq, mr, due, line, result):
    """Receives messages until the other end has ended and all were processed.
    Returns the number of the next expected message."""
    ended = False
    arrived = 0
    while True:
        n, wcs = cq.poll(WINDOW)
        if not n and ended:
            return due
        if not n:
            ended = line.receive(0.001) is not None
        for wc in wcs:
            if wc.status != e.IBV_WC_SUCCESS:
                continue
            got = mr.read(wc.byte_len, wc.wr_id * LENGTH) if wc.byte_len else b""
            seq = struct.unpack("<Q", got[:8])[0] if len(got) >= 8 else None
            if got == message(due):
                result["good"] += 1
                due += 1
            elif seq is not None and seq < due and got == message(seq):
                result["twice"] += 1
                result["notes"].append("%d came again where %d was due, as number %d of the connection" % (seq, due, arrived))
            else:
                result["wrong"] += 1
                result["notes"].append("%d bytes, number %s where %d was due, as number %d of the connection" % (wc.byte_len, seq, due, arrived))
                if seq is not None and due < seq < COUNT:
                    due = seq + 1
            arrived += 1
            receive(qp, mr, wc.wr_id)


def session(ctx, pd, mr, gid_index, line, sends, due, result):
    """Runs one connection. Returns the number of the next expected message, and the status."""
    cq = CQ(ctx, 2 * SLOTS)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, sq_sig_all=1,
                           cap=QPCap(max_send_wr=WINDOW + 2 * ROUNDS, max_recv_wr=SLOTS)))
    line.say({"qpn": qp.qp_num, "gid": str(ctx.query_gid(1, gid_index).gid), "due": due,
              "addr": mr.buf, "rkey": mr.rkey})
    other = line.receive()
    connect(qp, gid_index, other)
    if not sends:
        for slot in range(SLOTS):
            receive(qp, mr, slot)
    line.say("ready")
    line.receive()
    if sends:
        status = send(qp, cq, mr, other, result)
        result["ends"][status] = result["ends"].get(status, 0) + 1
        line.say(status)
        status = line.receive()
    else:
        due = take(qp, cq, mr, due, line, result)
        status = "over" if due == COUNT else "continue"
        line.say(status)
    qp.close()
    cq.close()
    return due, status


def main():
    gid_index, port = int(sys.argv[1]), int(sys.argv[2])
    ctx = Context(name="rxe0")
    pd = PD(ctx)
    mr = MR(pd, SLOTS * LENGTH + 2 * ROUNDS * ROUND,
            e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE)
    sends = len(sys.argv) > 5
    if sends:
        conn = socket.create_connection((sys.argv[5], port), LIMIT)
    else:
        listener = socket.create_server(("", port))
        listener.settimeout(LIMIT)
        conn, _ = listener.accept()
    conn.settimeout(LIMIT)
    line = Line(conn)
    if sends:
        result = {"rounds": 0, "corrupt": 0, "ends": {}}
    else:
        result = {"good": 0, "twice": 0, "wrong": 0, "connections": 0, "notes": []}
    due, status = 0, ""
    while status != "over":
        due, status = session(ctx, pd, mr, gid_index, line, sends, due, result)
        if not sends:
            result["connections"] += 1
            del result["notes"][20:]
    print(json.dumps(result))


main()
