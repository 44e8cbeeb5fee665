//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cuda/driver"
)

// Options configure a Backend.
type Options struct {
	// Host computes the operations that stay on the host, such as the routing of MoE layers. The
	// Backend does not close it. Nothing else may use it at the same time.
	Host backend.Backend
	// Lanes is the number of partial sums of the CPU kernels whose results are reproduced bit by
	// bit: 8 or 16.
	Lanes int
	// Fast enables tensor-core kernels and other orders of summation for operations that may round.
	// Results then differ from the CPU's. A row still has the same bits alone and in any batch.
	Fast bool
}

// Backend computes on one GPU. It may be used from any thread, but only by one goroutine at a time.
type Backend struct {
	options         Options
	context         cu.CUContext
	queue           driver.Queue
	functions       functions
	err             error // the first error since Sync
	lost            error // the error after which the device is unusable
	live            allocations
	shared          shared
	ring            ring   // of small operands
	bounce          []byte // pinned; stages copies of memory that is not pinned
	scratch         scratch
	pending         pending
	capability9     bool    // kernels of Options.Fast may start before the previous one ends, and multiply wide tiles
	rows            []int32 // of an attention launch
	products        products
	alone           alone
	attention       attention
	partRows        partRows
	multiprocessors int
	launches        int64
	counters        counters
	filling         *filling // nil before the first Fill
}

var _ backend.Selective = (*Backend)(nil)

const bounceBytes = 1 << 20

// New opens GPU i of [List]. It returns an error if the GPU is unusable or the kernels cannot be
// loaded.
func New(i int, o Options) (*Backend, error) {
	if o.Lanes != 8 && o.Lanes != 16 {
		return nil, fmt.Errorf("cuda: results cannot have the bits of a CPU with %d lanes, want 8 or 16", o.Lanes)
	}
	devices, reason := List()
	if i < 0 || i >= len(devices) {
		if reason == "" {
			reason = fmt.Sprintf("there are %d", len(devices))
		}
		return nil, fmt.Errorf("cuda: no GPU %d: %s", i, reason)
	}
	if why := devices[i].Reason; why != "" {
		return nil, fmt.Errorf("cuda: GPU %d (%s) cannot be used: %s", i, devices[i].Name, why)
	}
	b := &Backend{options: o}
	b.shared.Backend = b
	if err := b.open(i); err != nil {
		b.release()
		return nil, fmt.Errorf("cuda: GPU %d: %w", i, err)
	}
	return b, nil
}

func (b *Backend) open(i int) error {
	runtime.LockOSThread() // gorgonia.org/cu acts on the thread's context
	defer runtime.UnlockOSThread()
	device, err := cu.GetDevice(i)
	if err != nil {
		return err
	}
	if b.context, err = device.RetainPrimaryCtx(); err != nil {
		return err
	}
	if err := cu.SetCurrentContext(b.context); err != nil {
		return err
	}
	major, _, err := device.ComputeCapability()
	if err != nil {
		return err
	}
	if err := b.functions.load(major, b.options.Fast); err != nil {
		return err
	}
	if b.multiprocessors, err = device.Attribute(cu.MultiprocessorCount); err != nil {
		return err
	}
	stream, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return err
	}
	// A context and a stream are handles of the driver.
	b.queue = driver.Queue{Context: *(*unsafe.Pointer)(unsafe.Pointer(&b.context)), Stream: *(*unsafe.Pointer)(unsafe.Pointer(&stream))}
	if b.bounce, err = b.queue.Pinned(bounceBytes); err != nil {
		return err
	}
	if b.ring.host, err = b.queue.Pinned(ringBytes); err != nil {
		return err
	}
	if b.capability9 = major == 9; b.options.Fast {
		if err := b.allowShared(); err != nil {
			return err
		}
	}
	if b.ring.device, err = b.allocate(ringBytes); err == nil {
		b.counters.own.Add(ringBytes)
	}
	return err
}

// allowShared raises the limit of dynamic shared memory for the kernels that need it.
func (b *Backend) allowShared() error {
	for k, n := range sharedBytes {
		if n == 0 || kernel(k).wide() && !b.capability9 {
			continue
		}
		if err := b.queue.AllowShared(b.functions[k], n); err != nil {
			return fmt.Errorf("cuda: %d bytes of shared memory for kernel %s: %w", n, kernelNames[k], err)
		}
	}
	return nil
}

// fail records an error, unless one has been recorded since the last Sync.
func (b *Backend) fail(format string, a ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("cuda: "+format, a...)
	}
}

// check records an error of the driver.
func (b *Backend) check(op string, err error) {
	if err == nil {
		return
	}
	var e driver.Error
	if errors.As(err, &e) && e.Lost() && b.lost == nil {
		b.lost = fmt.Errorf("the GPU was lost: %w", err)
	}
	b.fail("%s: %w", op, err)
}

// Lost returns the error after which the GPU is unusable, or nil.
func (b *Backend) Lost() error { return b.lost }

// Sync waits for the GPU. It returns the first error since the last Sync.
func (b *Backend) Sync() error {
	b.check("wait", b.flushed().Wait())
	if b.err != nil || b.ring.used > ringBytes/2 { // otherwise later passes may reuse its operands
		b.ring.empty()
	}
	if f := b.filling; f != nil && b.err == nil {
		f.over = f.made
	}
	err := b.err
	b.err = nil
	return err
}

// Close frees the GPU's memory. It keeps the context, which other backends of the device share.
func (b *Backend) Close() error {
	err := b.Sync()
	b.release()
	return err
}

func (b *Backend) release() {
	b.stopFilling()
	for _, a := range b.live {
		b.free(a.address, a.size)
	}
	b.shared.release()
	if b.ring.device != 0 {
		b.free(b.ring.device, ringBytes)
	}
	if b.scratch.address != 0 {
		b.free(b.scratch.address, b.scratch.size)
	}
	driver.FreePinned(b.ring.host)
	driver.FreePinned(b.bounce)
	b.live, b.ring, b.bounce, b.scratch = nil, ring{}, nil, scratch{}
	b.counters.own.Store(0)
}
