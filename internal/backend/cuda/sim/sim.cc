// A simulated CUDA driver, for tests on machines without a GPU: libcuda.so.1 with the functions that
// package cuda uses. Kernels run on the CPU, from a library built of the same sources as the PTX.
//
// It is stricter than a real driver. Each allocation is surrounded by unmapped memory and filled with
// 0xCD, so a kernel that reads or writes beyond it ends the process. A copy beyond an allocation, or
// on a device other than the current context's, is an error. If threads of a block do not all reach
// a barrier, the launch fails with error 719. A misaligned load is an illegal instruction.
//
// The environment, read by cuInit:
//   CUDASIM_KERNELS   the library of kernels
//   CUDASIM_DEVICES   how many devices there are (1)
//   CUDASIM_MEMORY    bytes of each (1 GiB)
//   CUDASIM_LATE      not empty: the work of a stream runs only when the program waits for it;
//                     "kernels": the work of a stream without kernels runs as soon as the events that it waits for allow
//   CUDASIM_SEED      threads of a block run in an order shuffled by this number
//   CUDASIM_FAIL      launch:N: launch N (from 0) fails, and the device is lost; likewise memory:N, an allocation, and
//                     copy:N, a copy between host and device
//   CUDASIM_OTHERS    a folder: processes with the same folder share the devices' memory. The file PID, which a test
//                     may also write for a live process, has the bytes that the process uses of each device, one per line
//   CUDASIM_INIT      the result of cuInit
//   CUDA_VISIBLE_DEVICES  as many devices as it lists, which are all alike; none if it is empty
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <deque>
#include <dirent.h>
#include <dlfcn.h>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

typedef int Result;
typedef uint64_t Address;
#define API extern "C" Result

enum { SUCCESS = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, NO_SUCH_DEVICE = 101, BAD_IMAGE = 200, NO_CONTEXT = 201, NO_LIBRARY = 209, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719 };
enum { MOST_DEVICES = 16, MOST_THREADS = 1024, STACK = 32 << 10, PAGE = 4096, ALIGNMENT = 256, MOST_SHARED = 227 << 10 };

struct Context { int device; bool made; };
struct Kernel { void (*run)(uint64_t *); int arguments, words, shared; }; // words of the one argument, a struct; 0 for none. shared: dynamic memory that launches may have
struct Module { void *library; };
struct Stream;
struct Event { Stream *stream; uint64_t recorded, done; };
struct Work { std::function<Result()> run; Event *event; uint64_t version; }; // event: that it waits for, if any
struct Stream { std::deque<Work> queue; bool kernels; };
struct Memory { size_t size, mapped; char *base; int device; };

static std::mutex mutex; // of everything below
static int devices = 1;
static size_t memory_of_each = (size_t)1 << 30, used[MOST_DEVICES];
static bool late, eager, lost; // eager: streams without kernels are not late
enum { LAUNCH, ALLOCATION, COPY, FAULTS };
static const char *const fault_names[FAULTS] = {"launch", "memory", "copy"};
static long fail_at[FAULTS] = {-1, -1, -1}, calls[FAULTS];
static const char *others; // CUDASIM_OTHERS
static std::mt19937 *shuffle;
static Context contexts[MOST_DEVICES];
static Stream default_stream;
static std::vector<Stream *> streams;
static std::map<Address, Memory> allocations;
static std::map<Address, size_t> pinned;
static thread_local Context *current;

#define LOCK std::lock_guard<std::mutex> guard(mutex)

static Stream *stream_of(void *s) { return s ? (Stream *)s : &default_stream; }

// drain runs the queued work, up to the record of an event's version if `until` is set. Nothing runs
// once the device is lost.
static Result drain(Stream *s, Event *until = nullptr, uint64_t version = 0) {
	Result result = lost ? LAUNCH_FAILED : SUCCESS;
	while (!s->queue.empty() && !(until && until->done >= version)) {
		Work work = std::move(s->queue.front());
		s->queue.pop_front();
		if (!result && work.event && work.event->done < work.version) result = drain(work.event->stream, work.event, work.version);
		if (!result) result = work.run();
	}
	return result;
}

// If CUDASIM_LATE is "kernels", advance runs streams without kernels as far as events allow.
static void advance() {
	for (bool again = eager; again;) {
		again = false;
		for (Stream *s : streams)
			while (!s->kernels && !s->queue.empty() && !lost) {
				Work &next = s->queue.front();
				if (next.event && next.event->done < next.version) break;
				Work work = std::move(next);
				s->queue.pop_front();
				work.run();
				again = true;
			}
	}
}

static Result submit(void *stream, std::function<Result()> work, Event *event = nullptr, uint64_t version = 0) {
	if (lost) return LAUNCH_FAILED;
	if (!late) return work();
	stream_of(stream)->queue.push_back({std::move(work), event, version});
	advance();
	return SUCCESS;
}

template <class V> static bool within(const std::map<Address, V> &all, Address p, size_t n, size_t (*size)(const V &), typename std::map<Address, V>::const_iterator *at) {
	*at = all.upper_bound(p);
	if (*at == all.begin()) return false;
	--*at;
	return p + n <= (*at)->first + size((*at)->second);
}

// on_device reports whether bytes belong to one allocation of the current context's device.
static bool on_device(Address p, size_t n) {
	std::map<Address, Memory>::const_iterator at;
	return current && within<Memory>(allocations, p, n, [](const Memory &m) { return m.size; }, &at) && at->second.device == current->device;
}

static bool is_pinned(Address p, size_t n) {
	std::map<Address, size_t>::const_iterator at;
	return within<size_t>(pinned, p, n, [](const size_t &s) { return s; }, &at);
}

// fails counts a call, and reports whether this call must fail.
static bool fails(int what) {
	if (calls[what]++ == fail_at[what]) lost = true;
	return lost;
}

// Between lets one process at a time read the memory use of others and publish its own.
struct Between {
	int lock = -1;
	Between() {
		if (others && ((lock = open(path("lock").c_str(), O_CREAT | O_RDWR, 0666)) < 0 || flock(lock, LOCK_EX))) abort();
	}
	~Between() {
		if (lock >= 0) close(lock);
	}
	static std::string path(const char *name) { return std::string(others) + "/" + name; }

	size_t used_on(int device) {
		size_t sum = used[device];
		DIR *dir = others ? opendir(others) : nullptr;
		for (dirent *e; dir && (e = readdir(dir));) {
			const int pid = atoi(e->d_name);
			if (pid <= 0 || pid == getpid() || (kill(pid, 0) && errno == ESRCH)) continue;
			FILE *f = fopen(path(e->d_name).c_str(), "r");
			size_t bytes = 0;
			for (int i = 0; f && i <= device; i++)
				if (fscanf(f, "%zu", &bytes) != 1) bytes = 0;
			if (f) fclose(f);
			sum += bytes;
		}
		if (dir) closedir(dir);
		return sum;
	}
	size_t free_on(int device) {
		const size_t n = used_on(device);
		return n < memory_of_each ? memory_of_each - n : 0;
	}
	void tell() {
		if (!others) return;
		FILE *f = fopen(path(std::to_string(getpid()).c_str()).c_str(), "w");
		if (!f) abort();
		for (int i = 0; i < devices; i++) fprintf(f, "%zu\n", used[i]);
		fclose(f);
	}
};

static const char *setting(const char *name) {
	const char *value = getenv(name);
	return value && *value ? value : nullptr;
}

API cuInit(unsigned) {
	LOCK;
	if (const char *v = setting("CUDASIM_INIT")) return atoi(v);
	if (const char *v = setting("CUDASIM_DEVICES")) devices = atoi(v);
	if (const char *v = getenv("CUDA_VISIBLE_DEVICES")) {
		devices = *v ? std::min(devices, 1 + (int)std::count(v, v + strlen(v), ',')) : 0;
		if (!devices) return NO_DEVICE;
	}
	if (const char *v = setting("CUDASIM_MEMORY")) memory_of_each = strtoull(v, nullptr, 0);
	if (const char *v = setting("CUDASIM_SEED")) shuffle = new std::mt19937((unsigned)atoi(v));
	others = setting("CUDASIM_OTHERS");
	if (const char *v = setting("CUDASIM_FAIL"))
		for (int i = 0; i < FAULTS; i++)
			if (size_t n = strlen(fault_names[i]); !strncmp(v, fault_names[i], n) && v[n] == ':') fail_at[i] = atol(v + n + 1);
	late = setting("CUDASIM_LATE");
	eager = late && !strcmp(setting("CUDASIM_LATE"), "kernels");
	for (int i = 0; i < MOST_DEVICES; i++) contexts[i].device = i;
	return devices > MOST_DEVICES ? INVALID : SUCCESS;
}

API cuDriverGetVersion(int *version) { return *version = 12090, SUCCESS; }
API cuDeviceGetCount(int *n) { return *n = devices, SUCCESS; }
API cuDeviceGet(int *device, int i) { return i < 0 || i >= devices ? (Result)NO_SUCH_DEVICE : (*device = i, (Result)SUCCESS); }
API cuDeviceGetName(char *name, int n, int device) { return snprintf(name, (size_t)n, "Simulated GPU %d", device), SUCCESS; }
API cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = memory_of_each, SUCCESS; }

API cuDeviceGetAttribute(int *value, int attribute, int) {
	switch (attribute) {
	case 75: return *value = setting("CUDASIM_CAPABILITY") ? atoi(setting("CUDASIM_CAPABILITY")) / 10 : 8, SUCCESS;
	case 76: return *value = setting("CUDASIM_CAPABILITY") ? atoi(setting("CUDASIM_CAPABILITY")) % 10 : 0, SUCCESS;
	case 16: return *value = 4, SUCCESS; // multiprocessors
	case 1: return *value = MOST_THREADS, SUCCESS;
	}
	return *value = 0, SUCCESS;
}

API cuGetErrorName(int error, const char **name) {
	switch (error) {
	case NO_MEMORY: return *name = "CUDA_ERROR_OUT_OF_MEMORY", SUCCESS;
	case INVALID: return *name = "CUDA_ERROR_INVALID_VALUE", SUCCESS;
	case NO_DEVICE: return *name = "CUDA_ERROR_NO_DEVICE", SUCCESS;
	case LAUNCH_FAILED: return *name = "CUDA_ERROR_LAUNCH_FAILED", SUCCESS;
	}
	return INVALID;
}

// A context takes memory, but none that is counted here. A process gets one only where some is free.
API cuDevicePrimaryCtxRetain(Context **c, int device) {
	LOCK;
	if (!contexts[device].made && !Between().free_on(device)) return NO_MEMORY;
	contexts[device].made = true;
	return *c = &contexts[device], SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuCtxSetCurrent(Context *c) { return current = c, SUCCESS; }
API cuCtxGetCurrent(Context **c) { return *c = current, SUCCESS; }
API cuCtxGetDevice(int *device) { return current ? (*device = current->device, (Result)SUCCESS) : (Result)NO_CONTEXT; }

API cuMemGetInfo_v2(size_t *free, size_t *total) {
	LOCK;
	if (!current) return NO_CONTEXT;
	*total = memory_of_each, *free = Between().free_on(current->device);
	return SUCCESS;
}

// An allocation ends where a page ends, but for its alignment, and an unmapped page follows.
API cuMemAlloc_v2(Address *p, size_t n) {
	LOCK;
	if (!current) return NO_CONTEXT;
	if (!n) return INVALID;
	if (fails(ALLOCATION)) return LAUNCH_FAILED;
	Between between;
	if (n > between.free_on(current->device)) return NO_MEMORY;
	const size_t room = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, mapped = (room + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
	char *base = (char *)mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED || mprotect(base + PAGE, mapped - 2 * PAGE, PROT_READ | PROT_WRITE)) return NO_MEMORY;
	memset(base + PAGE, 0xCD, mapped - 2 * PAGE);
	*p = (Address)(base + mapped - PAGE - room);
	allocations[*p] = {n, mapped, base, current->device};
	used[current->device] += n;
	between.tell();
	return SUCCESS;
}

API cuMemFree_v2(Address p) {
	LOCK;
	auto at = allocations.find(p);
	if (at == allocations.end()) return INVALID;
	Between between;
	used[at->second.device] -= at->second.size;
	between.tell();
	munmap(at->second.base, at->second.mapped);
	allocations.erase(at);
	return SUCCESS;
}

API cuMemHostAlloc(void **p, size_t n, unsigned) {
	if (posix_memalign(p, PAGE, n)) return NO_MEMORY;
	LOCK;
	pinned[(Address)*p] = n;
	return SUCCESS;
}

API cuMemFreeHost(void *p) {
	LOCK;
	if (!pinned.erase((Address)p)) return INVALID;
	free(p);
	return SUCCESS;
}

// Like the driver, it reads pageable memory at once, and pinned memory when the stream reaches the copy.
API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t n, void *stream) {
	LOCK;
	if (!on_device(to, n)) return INVALID;
	if (fails(COPY)) return LAUNCH_FAILED;
	if (is_pinned((Address)from, n)) return submit(stream, [=] { return memcpy((void *)to, from, n), SUCCESS; });
	auto bytes = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n);
	return submit(stream, [=] { return memcpy((void *)to, bytes->data(), n), SUCCESS; });
}

API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t n, void *stream) {
	LOCK;
	if (!on_device(from, n)) return INVALID;
	if (fails(COPY)) return LAUNCH_FAILED;
	return submit(stream, [=] { return memcpy(to, (void *)from, n), SUCCESS; });
}

API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, void *stream) {
	LOCK;
	if (!on_device(to, n) || !on_device(from, n)) return INVALID;
	return submit(stream, [=] { return memmove((void *)to, (void *)from, n), SUCCESS; });
}

API cuMemsetD8Async(Address to, unsigned char value, size_t n, void *stream) {
	LOCK;
	if (!on_device(to, n)) return INVALID;
	return submit(stream, [=] { return memset((void *)to, value, n), SUCCESS; });
}

API cuStreamCreate(void **s, unsigned) {
	LOCK;
	streams.push_back(new Stream{});
	return *s = streams.back(), SUCCESS;
}

API cuStreamDestroy_v2(void *s) {
	LOCK;
	drain((Stream *)s);
	streams.erase(std::find(streams.begin(), streams.end(), s));
	delete (Stream *)s;
	return SUCCESS;
}

API cuEventCreate(Event **e, unsigned) { return *e = new Event{}, SUCCESS; }

API cuEventDestroy_v2(Event *e) {
	LOCK;
	if (e->stream) drain(e->stream); // nothing may refer to it afterwards
	for (Stream *s : streams) drain(s);
	delete e;
	return SUCCESS;
}

API cuEventRecord(Event *e, void *stream) {
	LOCK;
	const uint64_t version = ++e->recorded;
	e->stream = stream_of(stream);
	return submit(stream, [=] {
		e->done = version;
		advance();
		return SUCCESS;
	});
}

API cuStreamWaitEvent(void *stream, Event *e, unsigned) {
	LOCK;
	return submit(stream, [] { return SUCCESS; }, e, e->recorded);
}

API cuEventSynchronize(Event *e) {
	LOCK;
	if (lost) return LAUNCH_FAILED;
	return e->stream ? drain(e->stream, e, e->recorded) : SUCCESS;
}

API cuStreamSynchronize(void *s) {
	LOCK;
	return drain(stream_of(s));
}

API cuStreamQuery(void *s) {
	LOCK;
	return stream_of(s)->queue.empty() ? SUCCESS : NOT_READY;
}

API cuModuleLoadData(Module **m, const char *image) {
	if (!strstr(image, ".version")) return BAD_IMAGE;
	const char *path = setting("CUDASIM_KERNELS");
	*m = new Module{dlopen(path ? path : "kernels.so", RTLD_NOW | RTLD_LOCAL)};
	if ((*m)->library) return SUCCESS;
	fprintf(stderr, "simulated driver: %s\n", dlerror());
	return NO_LIBRARY;
}

API cuModuleLoadDataEx(Module **m, const char *image, unsigned, void *, void *) { return cuModuleLoadData(m, image); }
API cuModuleUnload(Module *) { return SUCCESS; }

API cuModuleGetFunction(Kernel **k, Module *m, const char *name) {
	char symbol[128];
	snprintf(symbol, sizeof symbol, "%s__run", name);
	void *run = dlsym(m->library, symbol);
	snprintf(symbol, sizeof symbol, "%s__arguments", name);
	int *arguments = (int *)dlsym(m->library, symbol);
	snprintf(symbol, sizeof symbol, "%s__words", name);
	int *words = (int *)dlsym(m->library, symbol);
	if (!run || (!arguments && !words)) return NOT_FOUND;
	*k = new Kernel{(void (*)(uint64_t *))run, arguments ? *arguments : 0, words ? *words : 0, 48 << 10};
	return SUCCESS;
}
API cuFuncSetAttribute(Kernel *k, int what, int value) {
	if (what != 8 || value < 0 || value > MOST_SHARED) return INVALID;
	k->shared = value;
	return SUCCESS;
}

// A block runs on one CPU thread: its threads are fibers, which a barrier switches. The switch is
// hand-written, because swapcontext makes two system calls.
extern "C" {
thread_local int sim_thread, sim_threads;
thread_local int64_t sim_block_x, sim_block_y;
thread_local float sim_lane[2][8][MOST_THREADS];
thread_local uint8_t *sim_shared;
void sim_switch(void **from, void *to);
}
asm(".text\n.globl sim_switch\nsim_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

static thread_local void *scheduler, *fiber[MOST_THREADS];
static thread_local Kernel *running;
static thread_local uint64_t *words;
static thread_local int ended;

static void fiber_main() {
	running->run(words);
	ended++;
	sim_switch(&fiber[sim_thread], scheduler);
	__builtin_unreachable();
}

extern "C" void sim_barrier(void) { sim_switch(&fiber[sim_thread], scheduler); }

static Result run_block(const std::vector<int> &order) {
	static thread_local char *stacks = (char *)malloc((size_t)STACK * MOST_THREADS);
	const int n = (int)order.size();
	ended = 0;
	for (int t = 0; t < n; t++) {
		void **top = (void **)((uintptr_t)(stacks + (size_t)STACK * (t + 1)) & ~(uintptr_t)15) - 2;
		*top = (void *)fiber_main, top -= 6;
		memset(top, 0, 6 * sizeof *top);
		fiber[t] = top;
	}
	while (ended < n) {
		for (int t : order) sim_thread = t, sim_switch(&scheduler, fiber[t]);
		if (ended > 0 && ended < n) return LAUNCH_FAILED; // some wait for others that have ended
	}
	return SUCCESS;
}

// shared_memory returns the dynamic shared memory of a block, with an unmapped page behind it.
static uint8_t *shared_memory(unsigned bytes) {
	enum { ROOM = (MOST_SHARED + PAGE - 1) / PAGE * PAGE };
	static thread_local uint8_t *region = [] {
		void *p = mmap(nullptr, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED || mprotect((char *)p + ROOM, PAGE, PROT_NONE)) abort();
		return (uint8_t *)p;
	}();
	return region + ROOM - bytes;
}

static Result run_grid(Kernel *k, uint64_t *arguments, unsigned x, unsigned y, unsigned threads, unsigned shared) {
	sim_shared = shared_memory(shared);
	std::vector<int> order(threads);
	for (unsigned t = 0; t < threads; t++) order[t] = (int)t;
	running = k, words = arguments, sim_threads = (int)threads;
	for (unsigned j = 0; j < y; j++)
		for (unsigned i = 0; i < x; i++) {
			if (shuffle) std::shuffle(order.begin(), order.end(), *shuffle);
			sim_block_x = i, sim_block_y = j;
			if (Result r = run_block(order)) return lost = true, r;
		}
	return SUCCESS;
}

API cuLaunchKernel(Kernel *k, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz, unsigned shared, void *stream, void **parameters, void **) {
	LOCK;
	if (!current) return NO_CONTEXT;
	if (shared > (unsigned)k->shared) return INVALID;
	if (!x || !y || y > 65535 || z != 1 || !threads || threads > MOST_THREADS || ty != 1 || tz != 1) return INVALID;
	fails(LAUNCH); // submit says so
	stream_of(stream)->kernels = true;
	std::vector<uint64_t> arguments((size_t)(k->arguments + k->words));
	if (k->words) memcpy(arguments.data(), parameters[0], (size_t)k->words * sizeof(uint64_t));
	for (int i = 0; i < k->arguments; i++) arguments[(size_t)i] = *(uint64_t *)parameters[i];
	return submit(stream, [=]() mutable { return run_grid(k, arguments.data(), x, y, threads, shared); });
}

// CUlaunchConfig, whose attributes say that a kernel may begin early. Here none does.
struct Configuration { unsigned x, y, z, threads, ty, tz, shared; void *stream, *attributes; unsigned count; };
API cuLaunchKernelEx(const Configuration *c, Kernel *k, void **parameters, void **extra) {
	return cuLaunchKernel(k, c->x, c->y, c->z, c->threads, c->ty, c->tz, c->shared, c->stream, parameters, extra);
}
