"""Rounds of a WRITE and a READ of the same memory, with C's libibverbs.

    rounds.py GID-INDEX PORT LENGTH              serves
    rounds.py GID-INDEX PORT LENGTH ADDRESS N    does N rounds, and prints the counts

A READ that completes with success and does not return the data of the preceding
WRITE is corrupt.
"""
import json
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

LENGTH = int(sys.argv[3])
WINDOW = 4
LIMIT = 20 * 60  # seconds
SILENCE = 30  # seconds without a completion


PATTERNS = [bytes((k * 37 + i * 7 + (i >> 8)) % 255 + 1 for i in range(LENGTH)) for k in range(31)]


def pattern(i):
    return PATTERNS[i % len(PATTERNS)]


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


def post(qp, mr, opcode, offset, other, slot, wr_id):
    wr = SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[SGE(mr.buf + offset, LENGTH, mr.lkey)])
    wr.set_wr_rdma(other["rkey"], other["addr"] + slot * LENGTH)
    qp.post_send(wr)


def begin(qp, mr, other, i):
    """Posts round i: a WRITE, followed by a READ."""
    slot = i % WINDOW
    source, landing = slot * LENGTH, (WINDOW + slot) * LENGTH
    mr.write(pattern(i), LENGTH, source)
    mr.write(bytes(LENGTH), LENGTH, landing)
    post(qp, mr, e.IBV_WR_RDMA_WRITE, source, other, slot, 2 * i)
    post(qp, mr, e.IBV_WR_RDMA_READ, landing, other, slot, 2 * i + 1)


def do_rounds(qp, cq, mr, other, n):
    result = {"rounds": n, "good": 0, "corrupt": 0, "status": "success"}
    deadline = time.monotonic() + SILENCE
    posted = done = 0
    while done < n:
        while posted < n and posted < done + WINDOW:
            begin(qp, mr, other, posted)
            posted += 1
        _, wcs = cq.poll(WINDOW)
        for wc in wcs:
            deadline = time.monotonic() + SILENCE
            if wc.status != e.IBV_WC_SUCCESS:
                result["status"] = "status %d in round %d" % (wc.status, wc.wr_id // 2)
                return result
            if wc.wr_id % 2 == 0:
                continue
            same = mr.read(LENGTH, (WINDOW + done % WINDOW) * LENGTH) == pattern(done)
            result["good" if same else "corrupt"] += 1
            done += 1
        if time.monotonic() > deadline:
            result["status"] = "hangs, %d rounds are out" % (posted - done)
            return result
    return result


def main():
    gid_index, port = int(sys.argv[1]), int(sys.argv[2])
    ctx = Context(name="rxe0")
    pd = PD(ctx)
    cq = CQ(ctx, 4 * WINDOW)
    mr = MR(pd, 2 * WINDOW * LENGTH,
            e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, sq_sig_all=1,
                           cap=QPCap(max_send_wr=2 * WINDOW, max_recv_wr=1)))
    if len(sys.argv) > 4:
        conn = socket.create_connection((sys.argv[4], port), LIMIT)
    else:
        listener = socket.create_server(("", port))
        listener.settimeout(LIMIT)
        conn, _ = listener.accept()
    conn.settimeout(LIMIT)
    lines = conn.makefile("rw")
    print(json.dumps({"qpn": qp.qp_num, "gid": str(ctx.query_gid(1, gid_index).gid),
                      "addr": mr.buf, "rkey": mr.rkey}), file=lines, flush=True)
    other = json.loads(lines.readline())
    connect(qp, gid_index, other)
    print("ready", file=lines, flush=True)
    lines.readline()
    if len(sys.argv) > 4:
        print(json.dumps(do_rounds(qp, cq, mr, other, int(sys.argv[5]))))
    else:
        lines.readline()  # until the other end closes


main()
