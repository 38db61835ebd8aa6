"""Two ends that send each other RC messages of all kinds and sizes at the same
time, and check all received data.

Messages are sent in batches. Both ends know the contents of a batch: kinds,
lengths and offsets are those of a plan, the bytes are pseudo-random with the number
of the batch as the seed. So a message that is lost, duplicated, reordered or
corrupt is detected: by its completion, by the bytes of its batch, or by the result
of an atomic. READs fetch the data of preceding WRITEs of their batch, because the
bytes of a SEND may be in its completion until that is polled. A batch ends with a
message that uses a receive. When that has completed, the whole batch must have
arrived, and the other end gets credit for another batch.
"""
import collections
import functools
import json
import os
import random
import select
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

BATCH = 125  # messages
SLOTS = 4  # outstanding batches
PLANS = 16
LARGE = 1 << 20
ROOM = LARGE + (1 << 19)  # for the bytes of a batch
LARGE_EVERY, LARGE_AT = 64, 1  # batches with a large message: always in the same slot
MTU = 1024
INLINE = 32
SILENCE = 90  # seconds

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
SEND, SEND_IMM, WRITE, WRITE_IMM = e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_WRITE_WITH_IMM
READ, ADD, SWAP = e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP
KINDS = {SEND: 'SEND', SEND_IMM: 'SEND_IMM', WRITE: 'WRITE', WRITE_IMM: 'WRITE_IMM', READ: 'READ', ADD: 'FETCH_ADD', SWAP: 'CMP_SWAP'}
WEIGHTS = {SEND: 24, SEND_IMM: 16, WRITE: 20, WRITE_IMM: 14, READ: 14, ADD: 6, SWAP: 6}
CAREFUL = WEIGHTS | {READ: 5, ADD: 3, SWAP: 3}
IMMEDIATE, RECEIVED, RETURNING = (SEND_IMM, WRITE_IMM), (SEND, SEND_IMM, WRITE_IMM), (READ, ADD, SWAP)

Message = collections.namedtuple('Message', 'kind at length back')  # back: offset of the bytes of a READ


class Plan:
    """The contents of a batch. A careful end sends no SEND and no READ of more than
    a packet: rxe mixes them up when responses are reordered. Fewer of its requests
    have a response: it waits for each."""

    def __init__(self, number, careful):
        chance = random.Random(number)
        self.messages, self.writes, self.size, self.back = [], [], 0, 0
        large = self.large(number, careful)
        for i in range(BATCH):
            kind = chance.choices(*zip(*(CAREFUL if careful else WEIGHTS).items()))[0]
            if i == BATCH - 1:
                kind = chance.choice(IMMEDIATE)
            elif i == BATCH // 2 and large is not None:
                kind = large
            if kind == READ and not self.writes:
                kind = WRITE
            self.add(chance, kind, i == BATCH // 2 and large is not None, careful)
        self.receives = [i for i, m in enumerate(self.messages) if m.kind in RECEIVED]
        self.reads = [(i, m) for i, m in enumerate(self.messages) if m.kind == READ]
        lengths = [m.length for m in self.messages]
        self.counts = collections.Counter(KINDS[m.kind] for m in self.messages)
        self.counts.update(bytes=sum(lengths), longer=sum(n > MTU for n in lengths), large=sum(n >= LARGE for n in lengths))

    def large(self, number, careful):
        if number < PLANS:
            return None
        return WRITE if careful else (SEND, WRITE_IMM, WRITE)[number - PLANS]

    def add(self, chance, kind, large, careful):
        if kind in (ADD, SWAP):
            self.messages.append(Message(kind, 0, 8, 0))
            return
        top = chance.choices((64, 1024, 4096, 16384), (40, 35, 20, 5))[0]
        length = LARGE if large else chance.randint(1, top)
        if careful and kind in (SEND, SEND_IMM, READ):
            length = min(length, MTU)
        if kind == READ:
            of = chance.choice(self.writes)
            length = min(length, of.length)
            at = of.at + chance.randint(0, of.length - length)
            self.messages.append(Message(kind, at, length, self.back))
            self.back += length
        else:
            self.messages.append(Message(kind, self.size, length, 0))
            self.size += length
            if kind in (WRITE, WRITE_IMM):
                self.writes.append(self.messages[-1])


@functools.cache
def plan(number, careful):
    p = Plan(number, careful)
    assert max(p.size, p.back) <= ROOM
    return p


def number_of(batch):
    return PLANS + batch // LARGE_EVERY % 3 if batch % LARGE_EVERY == LARGE_AT else batch % PLANS


def content(sender, batch, size):
    return random.Random(sender << 40 | batch).randbytes(size)


def number64(n):
    """Returns a number that differs in many bits from those of n-1 and n+1."""
    return n * 0x9e3779b97f4a7c15 & (1 << 64) - 1


class End:
    """An end: the device with one QP, and memory. The memory has parts for sent and
    received batches, for the results of READs and atomics, and for the two words
    that the other end's atomics change."""

    def __init__(self, config, conn, number):
        self.conn, self.number, self.rest = conn, number, b''
        self.careful = config['careful']
        # Over a lossy network, everything behind a lost packet is sent again. So send little at a time.
        self.chain, self.chains = (BATCH, SLOTS) if not config['faulty'] else (16, 1) if self.careful else (16, 2)
        self.batches = config['count'] // BATCH
        self.coming, self.back, self.old = SLOTS * ROOM, 2 * SLOTS * ROOM, 3 * SLOTS * ROOM
        self.words = self.old + SLOTS * BATCH * 8
        self.ctx = Context(name=config['device'])
        self.pd = PD(self.ctx)
        self.mr = MR(self.pd, self.words + 64, ACCESS)
        before = descriptors()
        self.channel = CompChannel(self.ctx)
        self.fd, = descriptors() - before
        self.cq = CQ(self.ctx, 2 * SLOTS * BATCH, None, self.channel)
        cap = QPCap(max_send_wr=SLOTS * BATCH, max_recv_wr=SLOTS * BATCH, max_inline_data=INLINE)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, sq_sig_all=0, cap=cap))
        self.say({'qpn': self.qp.qp_num, 'gid': str(self.ctx.query_gid(1, config['gid']).gid), 'addr': self.mr.buf,
                  'rkey': self.mr.rkey, 'careful': self.careful, 'batches': self.batches})
        self.other = self.read_line()
        self.connect(config)

        self.begun = self.sent = self.credits = 0  # sent batches: posted, completed, received by the other end
        self.flights = collections.deque()  # chains of requests to be posted, by their first request
        self.posted = []  # all requests: a chain does not keep a reference to the following ones
        self.in_air = 0  # posted chains
        self.flying = collections.deque()  # expected completions: number, and whether it is the last of a chain
        self.expected = {}  # by outstanding batch: results of atomics
        self.far = [0, 0]  # the other end's words
        self.ready = self.taken = 0  # received batches: receives posted, complete
        self.due = collections.deque()  # posted receives
        self.armed = False
        self.counts = collections.Counter(events=0)

    def connect(self, config):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=GID(self.other['gid']), sgid_index=config['gid'], hop_limit=64))
        attr.dest_qp_num = self.other['qpn']
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, config['timeout'], 7, 7
        self.qp.to_rts(attr)

    # The TCP connection has a line of JSON from each end, then a dot for each batch
    # received, then another line.

    def say(self, what):
        self.conn.sendall(json.dumps(what).encode() + b'\n')

    def read_line(self):
        while b'\n' not in self.rest:
            self.fill()
        line, self.rest = self.rest.split(b'\n', 1)
        return json.loads(line)

    def fill(self):
        got = self.conn.recv(65536)
        if not got:
            raise EOFError('the other end has closed the connection: %s' % self)
        self.rest += got

    def take_credits(self):
        rest = self.rest.lstrip(b'.')
        self.credits += len(self.rest) - len(rest)
        self.rest = rest

    # Sending.

    @functools.cache
    def requests(self, number, slot):
        """The requests of a plan, as (flights, those with immediate data, atomics,
        numbers of signaled ones). They are created once for all batches."""
        chance = random.Random(~number)
        flights, immediate, atomics, signaled = [], [], [], []
        before, length = None, 0
        messages = plan(number, self.careful).messages
        for i, m in enumerate(messages):
            alone = self.careful and m.kind in RETURNING
            length += 1
            last = i == BATCH - 1 or length == self.chain or alone or self.careful and messages[i + 1].kind in RETURNING
            flags = 0
            if last or chance.random() < 0.25:
                flags |= e.IBV_SEND_SIGNALED
                signaled.append((i, last))
            if m.kind not in RETURNING and m.length <= INLINE and i % 2:
                flags |= e.IBV_SEND_INLINE
            local = slot * ROOM + m.at
            if m.kind == READ:
                local = self.back + slot * ROOM + m.back
            elif m.kind in (ADD, SWAP):
                local = self.old + (slot * BATCH + i) * 8
            wr = SendWR(wr_id=i, opcode=m.kind, num_sge=1, sg=[SGE(self.mr.buf + local, m.length, self.mr.lkey)], send_flags=flags)
            if m.kind in (WRITE, WRITE_IMM, READ):
                wr.set_wr_rdma(self.other['rkey'], self.other['addr'] + self.coming + slot * ROOM + m.at)
            if m.kind in IMMEDIATE:
                immediate.append((i, wr))
            if m.kind in (ADD, SWAP):
                atomics.append((i, wr))
            if before:
                before.next_wr = wr
            else:
                flights.append(wr)
            before, length = (None, 0) if last else (wr, length)
            self.posted.append(wr)
        return flights, immediate, atomics, signaled

    def begin(self):
        """Prepares the next batch for posting."""
        batch, slot = self.begun, self.begun % SLOTS
        flights, immediate, atomics, signaled = self.requests(number_of(batch), slot)
        size = plan(number_of(batch), self.careful).size
        self.mr.write(content(self.number, batch, size), size, slot * ROOM)
        for i, wr in immediate:
            wr.imm_data = batch * BATCH + i
        self.expected[batch] = [(i, self.atomic(wr, batch * BATCH + i)) for i, wr in atomics]
        self.flights.extend(flights)
        self.flying.extend(signaled)
        self.begun += 1

    def atomic(self, wr, n):
        """Sets the operands, and returns the expected old value."""
        word = 0 if wr.opcode == ADD else 1
        old, new = self.far[word], number64(n + 1)
        where = self.other['rkey'], self.other['addr'] + self.other['words'] + 8 * word
        if word == 0:
            wr.set_wr_atomic(*where, new)
            self.far[word] = (old + new) & (1 << 64) - 1
        elif n % 4:
            wr.set_wr_atomic(*where, old, new)
            self.far[word] = new
        else:
            wr.set_wr_atomic(*where, old ^ 1, new)  # differs from the value
        return old

    def completed(self, wc):
        i, last = self.flying.popleft()
        if wc.wr_id != i:
            raise ValueError('request %d completed, expected %d: %s' % (wc.wr_id, i, self))
        if last:
            self.in_air -= 1
        if i == BATCH - 1:
            self.check_results()
            self.sent += 1

    def check_results(self):
        batch, slot = self.sent, self.sent % SLOTS
        made = plan(number_of(batch), self.careful)
        data = content(self.number, batch, made.size)
        back = self.mr.read(made.back, self.back + slot * ROOM)
        for i, m in made.reads:
            if back[m.back:m.back + m.length] != data[m.at:m.at + m.length]:
                raise ValueError('batch %d, message %d: a READ of %d bytes returned wrong data: %s' % (batch, i, m.length, self))
        for i, old in self.expected.pop(batch):
            got, = struct.unpack('<Q', self.mr.read(8, self.old + (slot * BATCH + i) * 8))
            if got != old:
                raise ValueError('batch %d, message %d: an atomic returned %#x, want %#x: %s' % (batch, i, got, old, self))
        self.counts.update(made.counts)

    # Receiving.

    @functools.cache
    def receives(self, number, slot):
        first = before = None
        p = plan(number, self.other['careful'])
        for i in p.receives:
            m = p.messages[i]
            # A WRITE with immediate data does not write to the memory of the receive.
            at, length = (self.words + 16, 8) if m.kind == WRITE_IMM else (self.coming + slot * ROOM + m.at, m.length)
            wr = RecvWR(wr_id=slot * BATCH + i, num_sge=1, sg=[SGE(self.mr.buf + at, length, self.mr.lkey)])
            if before:
                before.next_wr = wr
            first, before = first or wr, wr
            self.posted.append(wr)
        return first

    def open(self):
        """Posts the receives of a batch."""
        batch, slot = self.ready, self.ready % SLOTS
        self.qp.post_recv(self.receives(number_of(batch), slot))
        p = plan(number_of(batch), self.other['careful'])
        self.due.extend((batch, i, p.messages[i]) for i in p.receives)
        self.ready += 1

    def received(self, wc):
        batch, i, m = self.due.popleft()
        got = (wc.wr_id, wc.opcode, wc.byte_len, wc.imm_data if m.kind in IMMEDIATE else 0)
        want = (batch % SLOTS * BATCH + i, e.IBV_WC_RECV_RDMA_WITH_IMM if m.kind == WRITE_IMM else e.IBV_WC_RECV, m.length,
                batch * BATCH + i if m.kind in IMMEDIATE else 0)
        if got != want:
            raise ValueError('batch %d, message %d: completion %s, not %s: %s' % (batch, i, got, want, self))
        if i == BATCH - 1:
            self.check_batch()
            self.taken += 1
            self.conn.sendall(b'.')

    def check_batch(self):
        made = plan(number_of(self.taken), self.other['careful'])
        want = content(1 - self.number, self.taken, made.size)
        got = self.mr.read(made.size, self.coming + self.taken % SLOTS * ROOM)
        if got != want:
            bad = [(i, KINDS[m.kind], m.length) for i, m in enumerate(made.messages)
                   if m.kind not in RETURNING and got[m.at:m.at + m.length] != want[m.at:m.at + m.length]]
            raise ValueError('batch %d: messages differ: %s: %s' % (self.taken, bad, self))

    # Both directions.

    def run(self):
        self.say({'words': self.words})
        self.other.update(self.read_line())
        while self.ready < min(SLOTS, self.other['batches']):
            self.open()
        self.say('ready')
        self.read_line()
        self.take_credits()
        while self.sent < self.batches or self.credits < self.batches or self.taken < self.other['batches']:
            while self.ready < min(self.taken + SLOTS, self.other['batches']):
                self.open()
            while self.begun < min(self.sent + SLOTS, self.credits + SLOTS, self.batches):
                self.begin()
            while self.flights and self.in_air < self.chains:
                self.qp.post_send(self.flights.popleft())
                self.in_air += 1
            if not self.poll():
                self.wait()
        self.check_words()

    def poll(self):
        n, wcs = self.cq.poll(2 * BATCH)
        for wc in wcs:
            if wc.status != e.IBV_WC_SUCCESS:
                raise ValueError('completion with status %d, vendor error %#x: %s' % (wc.status, wc.vendor_err, self))
            if wc.opcode & e.IBV_WC_RECV:
                self.received(wc)
            else:
                self.completed(wc)
        return n

    def wait(self):
        """Waits for an event or data."""
        if not self.armed:
            self.armed = True
            self.cq.req_notify()
            if self.poll():
                return
        ready = select.select([self.fd, self.conn], [], [], SILENCE)[0]
        if not ready:
            raise TimeoutError('no event: %s' % self)
        if self.fd in ready:
            self.channel.get_cq_event(self.cq)
            self.armed = False
            self.counts['events'] += 1
        if self.conn in ready:
            self.fill()
            self.take_credits()

    def check_words(self):
        """Compares the words with the values that the other end expects."""
        self.say(self.far)
        want = self.read_line()
        got = list(struct.unpack('<QQ', self.mr.read(16, self.words)))
        if got != want:
            raise ValueError('the words are %s, want %s' % (got, want))

    def __str__(self):
        return '%d batches of %d begun, %d completed, %d taken; %d of %d received; %d completions expected' % (
            self.begun, self.batches, self.sent, self.credits, self.taken, self.other['batches'], len(self.flying))

    def close(self):
        for o in self.qp, self.cq, self.channel, self.mr, self.pd, self.ctx:
            o.close()


def descriptors():
    """Returns the descriptors of event files."""
    return {n for n in map(int, os.listdir('/proc/self/fd')) if 'infinibandevent' in link(n)}


def link(n):
    try:
        return os.readlink('/proc/self/fd/%d' % n)
    except FileNotFoundError:
        return ''


def main():
    config = json.loads(sys.argv[1])
    if config['address']:
        conn = socket.create_connection((config['address'], config['port']), SILENCE)
    else:
        listener = socket.create_server(('', config['port']))
        listener.settimeout(SILENCE)
        conn, _ = listener.accept()
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    conn.settimeout(SILENCE)
    end = End(config, conn, 1 if config['address'] else 0)
    start = time.monotonic()
    end.run()
    seconds = time.monotonic() - start
    end.close()
    print(json.dumps(end.counts | {'sent': end.sent * BATCH, 'received': end.taken * BATCH, 'seconds': round(seconds, 1)}))


main()
