"""Executes verbs with the C libraries. Each line of input is Python code as a JSON
string. The reply is a line "= value" or "! error"."""
import errno
import json
import os
import select
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
from pyverbs.xrcd import XRCD, XRCDInitAttr

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
STATUS = {getattr(e, n): n[7:] for n in dir(e) if n.startswith('IBV_WC_') and n[7:] in (
    'SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR '
    'REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR REM_ABORT_ERR GENERAL_ERR FATAL_ERR RESP_TIMEOUT_ERR').split()}


def files():
    """Returns the descriptors of event files."""
    return {n for n in map(int, os.listdir('/proc/self/fd')) if 'infinibandevent' in link(n)}


def link(n):
    try:
        return os.readlink('/proc/self/fd/%d' % n)
    except FileNotFoundError:
        return ''


class End:
    """A QP on a device with the objects that it needs."""

    def __init__(self, ctx, depth=64, size=1024, events=False):
        self.ctx, self.size, self.depth = ctx, size, depth
        self.pd = PD(ctx)
        before = files()
        self.channel = CompChannel(ctx) if events else None
        self.fds = files() - before
        self.cq = CQ(ctx, 4 * depth, None, self.channel)
        self.mr = MR(self.pd, size, ACCESS)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, sq_sig_all=1,
                                         cap=QPCap(max_send_wr=depth, max_recv_wr=depth)))

    def attr(self, to, timeout, retry, rnr):
        ah = AHAttr(port_num=1, dlid=to.ctx.query_port(1).lid)
        a = QPAttr(port_num=1)
        a.qp_access_flags = ACCESS
        a.path_mtu = e.IBV_MTU_1024
        a.ah_attr, a.dest_qp_num = ah, to.qp.qp_num
        a.rq_psn = a.sq_psn = 0x123
        a.max_rd_atomic = a.max_dest_rd_atomic = 1
        a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry = 12, timeout, retry, rnr
        return a

    def receive(self, n=1):
        for _ in range(n):
            self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, self.size, self.mr.lkey)]))

    def send(self, n=1, size=None):
        for _ in range(n):
            self.qp.post_send(SendWR(num_sge=1, sg=[SGE(self.mr.buf, size or self.size, self.mr.lkey)]))

    def poll(self, n=1, limit=20):
        """Polls n completions, as "STATUS vendor"; fewer after the time limit."""
        got, end = [], time.monotonic() + limit
        while len(got) < n and time.monotonic() < end:
            k, wcs = self.cq.poll(n - len(got))
            got += [STATUS[w.status] + (' %#x' % w.vendor_err if w.status else '') for w in wcs[:k]]
        return ', '.join(got)

    def event(self, limit):
        """Waits for a completion event."""
        if not select.select(list(self.fds), [], [], limit)[0]:
            return False
        self.channel.get_cq_event(self.cq)
        self.cq.ack_events(1)
        return True

    def state(self):
        return e_name('IBV_QPS_', self.qp.query(e.IBV_QP_STATE)[0].qp_state)

    def close(self):
        for o in (self.qp, self.mr, self.cq, self.channel, self.pd):
            if o:
                o.close()


def e_name(prefix, value):
    return next(n[len(prefix):] for n in dir(e) if n.startswith(prefix) and getattr(e, n) == value)


def pair(ca, cb, timeout=14, retry=7, rnr=7, **how):
    """Connects two new QPs."""
    a, b = End(ca, **how), End(cb, **how)
    a.qp.to_rts(a.attr(b, timeout, retry, rnr))
    b.qp.to_rts(b.attr(a, timeout, retry, rnr))
    return a, b


def once(n=1):
    """Sends n messages from a to b, and returns the completions of both."""
    b.receive(n)
    a.send(n)
    return a.poll(n) + ' / ' + b.poll(n)


def timed(f):
    start = time.monotonic()
    v = f()
    return '%.3f %s' % (time.monotonic() - start, v)


def many(ctx, n):
    """Connects n QPs of a device in pairs, and sends between all of them."""
    one = End(ctx, depth=n)
    qps = [QP(one.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=one.cq, rcq=one.cq, sq_sig_all=1,
                                 cap=QPCap(max_send_wr=1, max_recv_wr=1))) for _ in range(n)]
    for i, qp in enumerate(qps):
        a = one.attr(one, 14, 7, 7)
        a.dest_qp_num = qps[i ^ 1].qp_num
        qp.to_rts(a)
    for i, qp in enumerate(qps):
        qp.post_recv(RecvWR(num_sge=1, sg=[SGE(one.mr.buf, one.size, one.mr.lkey)]))
    for i, qp in enumerate(qps):
        qp.post_send(SendWR(num_sge=1, sg=[SGE(one.mr.buf, 64, one.mr.lkey)]))
    got = one.poll(2 * n, 60).split(', ')
    return one, qps, sorted(set(got)), len(got)


def close(everything):
    for o in everything:
        o.close()


def reply(line):
    return execute(json.loads(line))


def execute(code):
    try:
        try:
            f = compile(code, 'input', 'eval')
        except SyntaxError:
            exec(code, globals())
            return '= '
        return '= %s' % (eval(f, globals()),)
    except PyverbsRDMAError as x:
        return '! ' + errno.errorcode.get(x.error_code, str(x))
    except Exception as x:
        return '! %s: %s' % (type(x).__name__, x)


print('= ready', flush=True)
for line in sys.stdin:
    print(reply(line).replace('\n', ' '), flush=True)
