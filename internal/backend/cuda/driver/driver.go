//go:build cuda

package driver

/*
#cgo LDFLAGS: -L${SRCDIR}/ld -ldl
#include <stddef.h>
#include <stdint.h>

typedef uint64_t address;
extern const char *driver_reason(void);
extern int driver_init(void);
extern int cuGetErrorName(int, const char **);
extern int cuMemHostAlloc(void **, size_t, unsigned);
extern int cuMemFreeHost(void *);
extern int cuMemHostRegister_v2(void *, size_t, unsigned);
extern int cuMemHostUnregister(void *);
extern int cuCtxSetCurrent(void *);
extern int cuFuncSetAttribute(void *, int, int);
extern int cuStreamSynchronize(void *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
// CUlaunchAttribute and CUlaunchConfig of cuda.h, which this package does not include.
struct attribute { int id; union { int value; char room[64]; } __attribute__((aligned(8))); };
struct configuration { unsigned x, y, z, threads_x, threads_y, threads_z, shared; void *stream; struct attribute *attributes; unsigned count; };
extern int cuLaunchKernelEx(const struct configuration *, void *, void **, void **);
extern int cuMemcpyHtoDAsync_v2(address, const void *, size_t, void *);
extern int cuMemcpyDtoHAsync_v2(void *, address, size_t, void *);
extern int cuMemcpyDtoDAsync_v2(address, address, size_t, void *);
extern int cuMemsetD8Async(address, unsigned char, size_t, void *);
extern int cuStreamDestroy_v2(void *);
extern int cuEventCreate(void **, unsigned);
extern int cuEventDestroy_v2(void *);
extern int cuEventRecord(void *, void *);
extern int cuEventSynchronize(void *);
extern int cuStreamWaitEvent(void *, void *, unsigned);

enum { MOST = 40 };

// IN sets the context, because the caller's thread may have another one.
#define IN(call) \
	int r = cuCtxSetCurrent(context); \
	return r ? r : call

// A kernel's operands are words, or one struct of words. early: it may start before the previous
// kernel ends.
static int launch(void *context, void *kernel, unsigned x, unsigned y, unsigned threads, unsigned shared, void *stream, uint64_t *args, int n, int whole, int early) {
	void *at[MOST];
	for (int i = 0; i < (whole ? 1 : n); i++) at[i] = args + i;
	struct attribute serialised = {6, {1}}; // programmatic stream serialisation
	struct configuration c = {x, y, 1, threads, 1, 1, shared, stream, &serialised, 1};
	IN(early ? cuLaunchKernelEx(&c, kernel, at, 0) : cuLaunchKernel(kernel, x, y, 1, threads, 1, 1, shared, stream, at, 0));
}
static int allow_shared(void *context, void *kernel, int n) { IN(cuFuncSetAttribute(kernel, 8, n)); } // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
static int to_device(void *context, address dst, void *src, size_t n, void *stream) { IN(cuMemcpyHtoDAsync_v2(dst, src, n, stream)); }
static int to_host(void *context, void *dst, address src, size_t n, void *stream) { IN(cuMemcpyDtoHAsync_v2(dst, src, n, stream)); }
static int on_device(void *context, address dst, address src, size_t n, void *stream) { IN(cuMemcpyDtoDAsync_v2(dst, src, n, stream)); }
static int clear(void *context, address dst, size_t n, void *stream) { IN(cuMemsetD8Async(dst, 0, n, stream)); }
static int wait_for(void *context, void *stream) { IN(cuStreamSynchronize(stream)); }
static int destroy(void *context, void *stream) { IN(cuStreamDestroy_v2(stream)); }
static int new_event(void *context, void **e) { IN(cuEventCreate(e, 2)); } // without a time
static int free_event(void *context, void *e) { IN(cuEventDestroy_v2(e)); }
static int record(void *context, void *e, void *stream) { IN(cuEventRecord(e, stream)); }
static int wait_for_event(void *context, void *e) { IN(cuEventSynchronize(e)); }
static int wait_behind(void *context, void *stream, void *e) { IN(cuStreamWaitEvent(stream, e, 0)); }
static int pinned(void *context, void **p, size_t n) { IN(cuMemHostAlloc(p, n, 1)); }
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// MostArguments is the largest number of arguments of a kernel.
const MostArguments = C.MOST

// Reason returns why the driver offers no GPU, or "".
func Reason() string {
	if why := C.GoString(C.driver_reason()); why != "" {
		return "no driver (" + why + ")"
	}
	if r := C.driver_init(); r != 0 {
		return "the driver cannot start: " + Error(r).Error()
	}
	return ""
}

// An Error is a result code of the driver other than success.
type Error int

// Lost reports whether the device's context is unusable after the error.
func (e Error) Lost() bool {
	switch e {
	case 2, 201, 304, 400, 500, 600: // such as out of memory or an invalid argument: the context stays usable
		return false
	}
	return e >= 700 || e == 214 || e == 46
}

func (e Error) Error() string {
	var name *C.char
	if C.cuGetErrorName(C.int(e), &name) != 0 || name == nil {
		return fmt.Sprintf("CUDA error %d", int(e))
	}
	return fmt.Sprintf("%s (CUDA error %d)", C.GoString(name), int(e))
}

func check(r C.int) error {
	if r != 0 {
		return Error(r)
	}
	return nil
}

// A Queue is a stream of a context. It runs work asynchronously, in the order of the calls. Only
// one goroutine may use a Queue at a time.
type Queue struct{ Context, Stream unsafe.Pointer }

// Pinned allocates page-locked host memory, from and to which the device copies by DMA. Free it
// with [FreePinned] once no copy uses it.
func (q *Queue) Pinned(n int) ([]byte, error) {
	var p unsafe.Pointer
	if err := check(C.pinned(q.Context, &p, C.size_t(n))); err != nil {
		return nil, fmt.Errorf("cuda: pin %d bytes of host memory: %w", n, err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// FreePinned frees memory allocated by [Queue.Pinned].
func FreePinned(b []byte) {
	if b != nil {
		C.cuMemFreeHost(unsafe.Pointer(unsafe.SliceData(b)))
	}
}

// AllowShared allows launches of a kernel to use up to n bytes of dynamic shared memory per block.
func (q *Queue) AllowShared(kernel unsafe.Pointer, n int) error {
	return check(C.allow_shared(q.Context, kernel, C.int(n)))
}

// A Launch describes how a kernel runs: X·Y blocks of Threads threads, each block with Shared bytes
// of dynamic shared memory. Its operands are words, or one struct of words. An Early kernel may
// start before the previous kernel in the queue ends; it must wait for that kernel's results
// itself.
type Launch struct {
	Kernel        unsafe.Pointer
	X, Y, Threads int
	Shared        int
	Struct, Early bool
}

// Launch runs a kernel. Its operands are read before Launch returns.
func (q *Queue) Launch(l Launch, operands []uint64) error {
	if !l.Struct && len(operands) > MostArguments {
		return fmt.Errorf("cuda: a kernel has %d arguments, at most %d are possible", len(operands), MostArguments)
	}
	return check(C.launch(q.Context, l.Kernel, C.uint(l.X), C.uint(l.Y), C.uint(l.Threads), C.uint(l.Shared), q.Stream,
		(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(operands))), C.int(len(operands)), flag(l.Struct), flag(l.Early)))
}

func flag(v bool) C.int {
	if v {
		return 1
	}
	return 0
}

// ToDevice queues a copy from pinned memory. The memory must not change before the copy has run.
func (q *Queue) ToDevice(dst uintptr, src []byte) error {
	return check(C.to_device(q.Context, C.address(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), q.Stream))
}

// ToHost queues a copy to pinned memory. It may be read after [Queue.Wait].
func (q *Queue) ToHost(dst []byte, src uintptr) error {
	return check(C.to_host(q.Context, unsafe.Pointer(unsafe.SliceData(dst)), C.address(src), C.size_t(len(dst)), q.Stream))
}

// OnDevice queues a copy of n bytes within the device.
func (q *Queue) OnDevice(dst, src uintptr, n int) error {
	return check(C.on_device(q.Context, C.address(dst), C.address(src), C.size_t(n), q.Stream))
}

// Clear queues setting n bytes to 0.
func (q *Queue) Clear(dst uintptr, n int) error {
	return check(C.clear(q.Context, C.address(dst), C.size_t(n), q.Stream))
}

// Wait waits for all queued work.
func (q *Queue) Wait() error { return check(C.wait_for(q.Context, q.Stream)) }

// Free frees the stream. No work may be queued.
func (q *Queue) Free() { C.destroy(q.Context, q.Stream) }

// An Event marks a position in the queues of one context.
type Event struct{ at unsafe.Pointer }

// NewEvent creates an event. Free it with [Queue.FreeEvent] once no queue waits for it.
func (q *Queue) NewEvent() (e Event, err error) {
	err = check(C.new_event(q.Context, &e.at))
	return e, err
}

// FreeEvent frees an event. It ignores the zero Event.
func (q *Queue) FreeEvent(e Event) {
	if e.at != nil {
		C.free_event(q.Context, e.at)
	}
}

// Record marks the end of the work queued so far.
func (q *Queue) Record(e Event) error { return check(C.record(q.Context, e.at, q.Stream)) }

// WaitBehind makes later work of the queue wait for the latest record of an event.
func (q *Queue) WaitBehind(e Event) error { return check(C.wait_behind(q.Context, q.Stream, e.at)) }

// WaitFor waits on the host for the latest record of an event.
func (q *Queue) WaitFor(e Event) error { return check(C.wait_for_event(q.Context, e.at)) }
