// A library that is preloaded into a C program: its system calls on RDMA nodes are executed by a server in another
// process. See internal/sim/foreign for the messages. It is built without the C runtime's start files, so it has no
// constructor.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

enum { OP_OPEN = 1, OP_IOCTL, OP_MMAP, OP_STORE, OP_NAME, OP_WRITE, OP_EVENT };
enum { NODE_NONE = -1, NODE_VERBS, NODE_CM, COMPLETION_EVENTS, OTHER_EVENTS };
enum { GET_EVENT = 12 }; // of rdma_cm
enum { MAX_FILES = 4096, MAX_PAGES = 256, PAGE = 4096, TRAP_FLAG = 0x100 };

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1
#endif

struct request {
	uint32_t op, pad;
	uint64_t a, b, c;
};

struct reply {
	uint32_t errnum, kind;
	uint64_t a, b;
};

// A file is an open node: its socket has the same number.
struct file {
	int open; // kind + 1
	int node; // of an event descriptor
	uint64_t rdev;
	int lock;
	int original; // number + 1 of the descriptor that this one is a copy of
	int closed; // how often a node with the number was closed
};

static struct file files[MAX_FILES];

// A page is a mapping of a register page. What the program stores is found by comparing it with a pattern.
struct page {
	char *at;
	uint64_t *words; // another mapping of the same memory
	uint32_t number;
	int fd;
};

static struct page pages[MAX_PAGES];
static int pages_lock, pages_owner;
static struct page *stepped;
static int stepped_end, steps, idle_steps; // the word after those that have been stored, and instructions
static uint64_t pattern = 0x9e3779b97f4a7c15;
static int handlers;

// swap stores a value, and returns the one before.
static int swap(int *at, int value)
{
	__asm__ __volatile__("xchgl %0, %1" : "+r"(value), "+m"(*at) : : "memory");
	return value;
}

static void lock(int *l)
{
	while (swap(l, 1))
		syscall(SYS_sched_yield);
}

static void unlock(int *l) { swap(l, 0); }

// call sends a request and receives the reply, which may come with a descriptor. It returns -1 if the server is gone.
static int call(int fd, struct request *q, const void *data, size_t n, struct reply *p, int *passed)
{
	struct iovec out[2] = {{q, sizeof *q}, {(void *)data, n}}, in = {p, sizeof *p};
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} c;
	struct msghdr m = {0};
	long got;
	int *one = &files[files[fd].original ? files[fd].original - 1 : fd].lock;

	m.msg_iov = out;
	m.msg_iovlen = n ? 2 : 1;
	lock(one);
	do
		got = syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);
	while (got < 0 && errno == EINTR);
	if (got >= 0) {
		memset(&m, 0, sizeof m);
		m.msg_iov = &in;
		m.msg_iovlen = 1;
		m.msg_control = &c;
		m.msg_controllen = sizeof c;
		do
			got = syscall(SYS_recvmsg, fd, &m, MSG_CMSG_CLOEXEC);
		while (got < 0 && errno == EINTR);
	}
	unlock(one);
	if (got != sizeof *p)
		return -1;
	if (passed) {
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		*passed = h && h->cmsg_type == SCM_RIGHTS ? *(int *)CMSG_DATA(h) : -1;
	}
	return 0;
}

static int fail(int e)
{
	errno = e;
	return -1;
}

static struct file *file_of(int fd, int kind)
{
	return fd >= 0 && fd < MAX_FILES && files[fd].open == kind + 1 ? &files[fd] : NULL;
}

// node returns the kind of a path, and its number if the machine has the node.
static int node(const char *path, uint64_t *rdev)
{
	static const char dir[] = "/dev/infiniband/";
	const char *sys = getenv("SYSFS_PATH"), *name;
	char file[512], text[32] = "", *end;
	int kind, fd;
	long n;

	if (!path || !sys || !getenv("GOVERBS_SHIM") || strncmp(path, dir, sizeof dir - 1))
		return NODE_NONE;
	name = path + sizeof dir - 1;
	kind = strcmp(name, "rdma_cm") ? NODE_VERBS : NODE_CM;
	*rdev = 0;
	if (strlen(sys) + strlen(name) + 64 > sizeof file)
		return kind;
	strcpy(file, sys);
	strcat(file, kind == NODE_CM ? "/class/misc/" : "/class/infiniband_verbs/");
	strcat(file, name);
	strcat(file, "/dev");
	fd = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return kind;
	n = syscall(SYS_read, fd, text, sizeof text - 1);
	syscall(SYS_close, fd);
	if (n > 0) {
		unsigned long major = strtoul(text, &end, 10);
		*rdev = makedev(major, strtoul(end + 1, NULL, 10));
	}
	return kind;
}

static int open_node(int kind, uint64_t rdev)
{
	struct sockaddr_un to = {AF_UNIX};
	struct request q = {OP_OPEN, 0, kind};
	struct reply p;
	const char *path = getenv("GOVERBS_SHIM");
	int fd, passed = -1;

	if (!rdev)
		return fail(ENOENT);
	if (strlen(path) >= sizeof to.sun_path)
		return fail(ENAMETOOLONG);
	strcpy(to.sun_path, path);
	fd = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	p.errnum = EMFILE;
	if (fd >= MAX_FILES || syscall(SYS_connect, fd, &to, sizeof to) || call(fd, &q, NULL, 0, &p, &passed) || p.errnum) {
		syscall(SYS_close, fd);
		return fail(p.errnum ? p.errnum : ENXIO);
	}
	if (kind == NODE_CM) { // the program polls what was passed
		struct request name = {OP_NAME, 0, 0, (uint32_t)passed};
		if (passed < 0 || passed >= MAX_FILES || call(fd, &name, NULL, 0, &p, NULL)) {
			syscall(SYS_close, fd);
			return fail(EMFILE);
		}
		files[passed].node = fd;
		fd = passed;
	}
	files[fd].rdev = rdev;
	files[fd].open = kind + 1;
	return fd;
}

static int open_at(int dir, const char *path, int flags, int mode)
{
	uint64_t rdev;
	int kind = node(path, &rdev);

	if (kind != NODE_NONE)
		return open_node(kind, rdev);
	return syscall(SYS_openat, dir, path, flags, mode);
}

#define MODE(last) \
	int mode = 0; \
	if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
		va_list l; \
		va_start(l, last); \
		mode = va_arg(l, int); \
		va_end(l); \
	}

int open(const char *path, int flags, ...)
{
	MODE(flags)
	return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	MODE(flags)
	return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	MODE(flags)
	return open_at(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	MODE(flags)
	return open_at(dir, path, flags, mode);
}

int close(int fd)
{
	int node = file_of(fd, NODE_CM) ? files[fd].node : -1;

	if (fd >= 0 && fd < MAX_FILES && files[fd].open) {
		files[fd].open = files[fd].original = 0;
		files[fd].closed++;
	}
	if (node >= 0) // last: a write that fails looks whether the file was closed
		syscall(SYS_close, node);
	return syscall(SYS_close, fd);
}

// copied notes that a descriptor is a copy.
static int copied(int from, int to)
{
	if (from >= 0 && from < MAX_FILES && files[from].open && to >= 0 && to < MAX_FILES) {
		files[to].open = files[from].open;
		files[to].node = files[from].node;
		files[to].rdev = files[from].rdev;
		files[to].original = files[from].original ? files[from].original : from + 1;
	}
	return to;
}

int dup(int fd) { return copied(fd, syscall(SYS_dup, fd)); }

int fcntl(int fd, int command, ...)
{
	long arg, got;
	va_list l;

	va_start(l, command);
	arg = va_arg(l, long);
	va_end(l);
	got = syscall(SYS_fcntl, fd, command, arg);
	return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, got) : got;
}

int fcntl64(int fd, int command, ...)
{
	long arg;
	va_list l;

	va_start(l, command);
	arg = va_arg(l, long);
	va_end(l);
	return fcntl(fd, command, arg);
}

// is_config reports whether a path is that of the configuration of libibverbs, or in it.
static int is_config(const char *path)
{
	static const char dir[] = "/etc/libibverbs.d";
	const char *sys = getenv("SYSFS_PATH");

	return sys && strlen(sys) < 400 && getenv("GOVERBS_SHIM") && !strncmp(path, dir, sizeof dir - 1);
}

static int describe(struct stat *st, uint32_t mode, uint64_t rdev)
{
	if (mode == S_IFCHR && !rdev)
		return fail(ENOENT);
	memset(st, 0, sizeof *st);
	st->st_mode = mode | 0666;
	st->st_rdev = rdev;
	st->st_nlink = 1;
	return 0;
}

int stat(const char *path, struct stat *st)
{
	uint64_t rdev;

	if (node(path, &rdev) != NODE_NONE)
		return describe(st, S_IFCHR, rdev);
	if (is_config(path))
		return describe(st, S_IFDIR, 0);
	return syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

int fstat(int fd, struct stat *st)
{
	if (file_of(fd, NODE_VERBS) || file_of(fd, NODE_CM))
		return describe(st, S_IFCHR, files[fd].rdev);
	return syscall(SYS_fstat, fd, st);
}

int stat64(const char *path, struct stat64 *st) { return stat(path, (struct stat *)st); }
int fstat64(int fd, struct stat64 *st) { return fstat(fd, (struct stat *)st); }

// opendir finds no providers in the host's configuration: they would be of another version of the libraries. Those
// of IBV_DRIVERS are used.
DIR *opendir(const char *path)
{
	char empty[512];
	int fd;

	if (is_config(path)) {
		strcpy(empty, getenv("SYSFS_PATH"));
		path = strcat(empty, "/drivers");
	}
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, 0);
	return fd < 0 ? NULL : fdopendir(fd);
}

// The kernel's netlink knows the devices of the real machine.
int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == 20 && getenv("GOVERBS_SHIM")) // NETLINK_RDMA
		return fail(EPROTONOSUPPORT);
	return syscall(SYS_socket, domain, type, protocol);
}

int ioctl(int fd, unsigned long number, ...)
{
	struct request q = {OP_IOCTL};
	struct reply p;
	int passed;
	void *arg;
	va_list l;

	va_start(l, number);
	arg = va_arg(l, void *);
	va_end(l);
	if (!file_of(fd, NODE_VERBS))
		return syscall(SYS_ioctl, fd, number, arg);
	if ((number & 0xffff) != 0x1b01) // RDMA_VERBS_IOCTL
		return fail(ENOTTY);
	q.a = (uintptr_t)arg;
	if (call(fd, &q, NULL, 0, &p, &passed))
		return fail(EIO);
	if (p.errnum)
		return fail(p.errnum);
	if (passed >= 0) {
		struct request name = {OP_NAME, 0, p.b, (uint32_t)passed};
		if (p.kind == 8)
			*(uint64_t *)(uintptr_t)p.a = passed;
		else
			*(uint32_t *)(uintptr_t)p.a = passed;
		if (passed < MAX_FILES) {
			files[passed].node = fd;
			files[passed].open = (p.kind == 8 ? OTHER_EVENTS : COMPLETION_EVENTS) + 1;
		}
		if (call(fd, &name, NULL, 0, &p, NULL))
			return fail(EIO);
	}
	return 0;
}

static int blocks(int fd) { return !(fcntl(fd, F_GETFL) & O_NONBLOCK); }

// await waits until a descriptor is readable. If it is closed meanwhile, the kernel does not end the wait.
static int await(int fd, int closed)
{
	struct pollfd ready = {fd, POLLIN};
	int n = poll(&ready, 1, -1); // a thread can be cancelled here

	while (files[fd].closed != closed)
		pause();
	return n;
}

// counts reports whether an event that was read is one of an object that exists.
static int counts(struct file *f, const void *event)
{
	struct request q = {OP_EVENT, 0, *(uint64_t *)event, f->open == COMPLETION_EVENTS + 1};
	struct reply p;

	return !file_of(f->node, NODE_VERBS) || call(f->node, &q, NULL, 0, &p, NULL) || p.kind;
}

ssize_t read(int fd, void *buffer, size_t n)
{
	struct file *f = file_of(fd, COMPLETION_EVENTS);
	int closed;
	long got;

	if (!f)
		f = file_of(fd, OTHER_EVENTS);
	if (!f)
		return syscall(SYS_read, fd, buffer, n);
	closed = f->closed;
	do {
		if (blocks(fd) && await(fd, closed) < 0)
			return -1;
		got = syscall(SYS_recvfrom, fd, buffer, n, MSG_DONTWAIT, NULL, NULL);
	} while (got < 0 ? errno == EAGAIN && blocks(fd)
			 : got >= 8 && !counts(f, buffer));
	return got;
}

// The commands of rdma_cm are written. GET_EVENT waits for an event.
ssize_t write(int fd, const void *buffer, size_t n)
{
	struct file *f = file_of(fd, NODE_CM);
	struct reply p;
	int closed;
	char byte;

	if (!f)
		return syscall(SYS_write, fd, buffer, n);
	for (closed = f->closed;;) {
		struct request q = {OP_WRITE, 0, (uintptr_t)buffer, n};
		if (call(f->node, &q, NULL, 0, &p, NULL)) {
			while (*(const uint32_t *)buffer == GET_EVENT && f->closed != closed) // as in await
				pause();
			return fail(EIO);
		}
		if (p.kind)
			syscall(SYS_recvfrom, fd, &byte, 1, MSG_DONTWAIT, NULL, NULL);
		if (p.errnum != EAGAIN || *(const uint32_t *)buffer != GET_EVENT || !blocks(fd))
			return p.errnum ? fail(p.errnum) : (ssize_t)n;
		if (await(fd, closed) < 0)
			return -1;
	}
}

// page_at returns the page with an address.
static struct page *page_at(void *at)
{
	int i;

	for (i = 0; i < MAX_PAGES; i++)
		if (pages[i].at && (char *)at >= pages[i].at && (char *)at < pages[i].at + PAGE)
			return &pages[i];
	return NULL;
}

static void fill(struct page *g)
{
	int i;

	pattern ^= pattern << 13;
	pattern ^= pattern >> 7;
	pattern ^= pattern << 17;
	for (i = 0; i < PAGE / 8; i++)
		g->words[i] = pattern;
}

// report sends what was stored: pieces of 8 bytes that are next to each other, or one of 4 bytes.
static void report(struct page *g)
{
	int i, from;
	struct reply p;

	for (i = 0; i < PAGE / 8; i++) {
		struct request q = {OP_STORE, 0, g->number};
		uint64_t other = g->words[i] ^ pattern;
		if (!other)
			continue;
		if (!(uint32_t)other || !(other >> 32)) {
			q.b = 8 * i + ((uint32_t)other ? 0 : 4);
			call(g->fd, &q, (char *)g->words + q.b, 4, &p, NULL);
			continue;
		}
		from = i;
		while (i + 1 < PAGE / 8 && (uint32_t)(g->words[i + 1] ^ pattern) && (g->words[i + 1] ^ pattern) >> 32)
			i++;
		q.b = 8 * from;
		call(g->fd, &q, g->words + from, 8 * (i + 1 - from), &p, NULL);
	}
}

static void fatal(int sig)
{
	struct sigaction dfl = {0};

	sigaction(sig, &dfl, NULL); // the access is repeated, and ends the program
}

// The instructions that copy a work request to a register follow each other closely.
enum { SEND_REGISTERS = 0x800, MOST_IDLE = 8, MOST_STEPS = 128 };

// more reports whether further instructions may belong to the same burst.
static int more(void)
{
	idle_steps++;
	while (stepped_end < PAGE / 8 && stepped->words[stepped_end] != pattern) {
		stepped_end++;
		idle_steps = 0;
	}
	return stepped_end * 8 > SEND_REGISTERS && idle_steps < MOST_IDLE && ++steps < MOST_STEPS;
}

// plain executes an instruction that stores a register, and returns how many bytes of value it stores. Other
// instructions return 0.
static int plain(ucontext_t *u, uint64_t *value)
{
	static const int names[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
		REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	greg_t *r = u->uc_mcontext.gregs;
	const unsigned char *at = (void *)r[REG_RIP];
	int rex = 0, mod, base;

	if (*at >> 4 == 4)
		rex = *at++;
	if (at[0] != 0x89 || (mod = at[1] >> 6) == 3) // MOV to memory
		return 0;
	*value = r[names[(at[1] >> 3 & 7) | (rex & 4) << 1]];
	base = at[1] & 7;
	at += 2;
	if (base == 4)
		base = *at++ & 7;
	if (mod == 1)
		at++;
	else if (mod == 2 || base == 5)
		at += 4;
	r[REG_RIP] = (greg_t)at;
	return rex & 8 ? 8 : 4;
}

// on_access executes an instruction that stores to a register. Those that copy to a send register, and others, run by
// themselves. What another thread stores to the same register meanwhile is lost.
static void on_access(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	int saved = errno;
	struct page *g;
	uint64_t at, value;
	int n;

	lock(&pages_lock);
	g = page_at(info->si_addr);
	if (!g) {
		unlock(&pages_lock);
		fatal(sig);
		errno = saved;
		return;
	}
	at = (char *)info->si_addr - g->at;
	if (at < SEND_REGISTERS && (n = plain(u, &value))) {
		struct request q = {OP_STORE, 0, g->number, at};
		struct reply p;

		call(g->fd, &q, &value, n, &p, NULL);
		unlock(&pages_lock);
		errno = saved;
		return;
	}
	pages_owner = syscall(SYS_gettid);
	stepped = g;
	stepped_end = at / 8;
	steps = idle_steps = 0;
	fill(g);
	mprotect(g->at, PAGE, PROT_READ | PROT_WRITE);
	u->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
	errno = saved;
}

// on_step sends what the instruction has stored.
static void on_step(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	int saved = errno;

	if (!stepped || pages_owner != syscall(SYS_gettid)) {
		fatal(sig);
		return;
	}
	if (more())
		return;
	u->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	mprotect(stepped->at, PAGE, PROT_NONE);
	report(stepped);
	stepped = NULL;
	pages_owner = 0;
	unlock(&pages_lock);
	errno = saved;
}

static int handle(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction a;

	memset(&a, 0, sizeof a);
	a.sa_sigaction = f;
	a.sa_flags = SA_SIGINFO | SA_RESTART;
	return sigaction(sig, &a, NULL);
}

static void *map_registers(int fd, void *addr, size_t n, int flags, uint32_t number)
{
	struct page *g = NULL;
	void *at = MAP_FAILED, *words;
	int i, memory;

	memory = syscall(SYS_memfd_create, "registers", MFD_CLOEXEC);
	if (memory < 0)
		return MAP_FAILED;
	if (n != PAGE || syscall(SYS_ftruncate, memory, PAGE)) {
		syscall(SYS_close, memory);
		errno = EINVAL;
		return MAP_FAILED;
	}
	words = (void *)syscall(SYS_mmap, NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (words != MAP_FAILED)
		at = (void *)syscall(SYS_mmap, addr, PAGE, PROT_NONE, MAP_SHARED | (flags & MAP_FIXED), memory, 0);
	syscall(SYS_close, memory);
	if (at == MAP_FAILED)
		return at;
	lock(&pages_lock);
	if (!handlers++) {
		handle(SIGSEGV, on_access);
		handle(SIGTRAP, on_step);
	}
	for (i = 0; i < MAX_PAGES && !g; i++)
		if (!pages[i].at)
			g = &pages[i];
	if (g) {
		g->at = at;
		g->words = words;
		g->number = number;
		g->fd = fd;
	}
	unlock(&pages_lock);
	if (!g) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return at;
}

void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t offset)
{
	struct request q = {OP_MMAP, 0, offset, n, prot};
	struct reply p;
	int passed = -1;
	void *at;

	if (!file_of(fd, NODE_VERBS))
		return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, offset);
	if (call(fd, &q, NULL, 0, &p, &passed))
		p.errnum = EIO;
	if (p.errnum) {
		errno = p.errnum;
		return MAP_FAILED;
	}
	if (p.kind == 2) {
		at = (void *)syscall(SYS_mmap, addr, n, prot, flags, passed, offset);
		syscall(SYS_close, passed);
		return at;
	}
	if (p.kind == 1)
		return map_registers(fd, addr, n, flags, p.a);
	return (void *)syscall(SYS_mmap, addr, n, prot, MAP_PRIVATE | MAP_ANONYMOUS | (flags & MAP_FIXED), -1, 0);
}

void *mmap64(void *addr, size_t n, int prot, int flags, int fd, off64_t offset)
{
	return mmap(addr, n, prot, flags, fd, offset);
}

int munmap(void *addr, size_t n)
{
	struct page *g;

	lock(&pages_lock);
	if ((g = page_at(addr)) && g->at == addr) {
		syscall(SYS_munmap, g->words, PAGE);
		g->at = NULL;
	}
	unlock(&pages_lock);
	return syscall(SYS_munmap, addr, n);
}
