"""Processes of MPI that exchange messages of many sizes, and check them."""
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
after, before = (rank + 1) % size, (rank - 1) % size


def message(sender, length):
    pattern = bytes((i * 7 + sender + length) & 255 for i in range(251))
    return (pattern * (length // len(pattern) + 1))[:length]


# Messages in a ring, eager and by rendezvous.
for length in (0, 1, 100, 4096, 70000, 1 << 20):
    got = bytearray(length)
    world.Sendrecv([message(rank, length), MPI.BYTE], dest=after, recvbuf=[got, MPI.BYTE], source=before)
    assert got == message(before, length), f"{length} bytes from {before}"

# Everyone with everyone.
for length in (1, 30000):
    sent = b"".join(message(rank * size + to, length) for to in range(size))
    got = bytearray(size * length)
    world.Alltoall([sent, length, MPI.BYTE], [got, length, MPI.BYTE])
    assert got == b"".join(message(sender * size + rank, length) for sender in range(size)), f"{length} bytes of all"
assert world.allreduce(rank + 1) == size * (size + 1) // 2

# One-sided access: WRITE, READ and atomics.
length = 50000
window = MPI.Win.Allocate(8 + length, comm=world)
memory = memoryview(window.tomemory()).cast("B")
memory[:8] = bytes(8)
window.Fence()
sent = message(rank, length)  # in use until the fence
window.Put([sent, MPI.BYTE], after, target=(8, length, MPI.BYTE))
window.Fence()
assert memory[8:] == message(before, length), f"a put of {before}"
got = bytearray(length)
window.Get([got, MPI.BYTE], after, target=(8, length, MPI.BYTE))
window.Fence()
assert got == message(rank, length), f"a get of {after}"
one, old = (5).to_bytes(8, "little"), bytearray(8)
window.Lock(0)
window.Fetch_and_op([one, MPI.INT64_T], [old, MPI.INT64_T], 0)
window.Unlock(0)
world.Barrier()
if rank == 0:
    assert int.from_bytes(memory[:8], "little") == 5 * size
world.Barrier()
window.Free()
if rank == 0:
    print(size, "processes", flush=True)
