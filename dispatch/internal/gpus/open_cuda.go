//go:build cuda

package gpus

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cuda"
	"github.com/heftai/heft/internal/backend/cuda/driver"
)

const built = true

func supports(m backend.Matrix) bool { return (*cuda.Backend)(nil).Supports(m) }

// open opens a GPU. Exact kernels return the bits of the host's kernels if these fuse
// multiplications and additions.
func open(number int, host backend.Backend, kernels Kernels) (backend.Backend, error) {
	lanes := 8
	if h, ok := host.(interface{ Lanes() int }); ok {
		lanes = h.Lanes()
	}
	fast := kernels == KernelsFast || kernels == KernelsAuto && cuda.Proven(number)
	return cuda.New(number, cuda.Options{Host: host, Lanes: lanes, Fast: fast})
}

func ownBytes(w *backend.Work, fast bool) int64 { return cuda.OwnBytes(w, fast) }

func outOfMemory(err error) bool { return driver.OutOfMemory(err) }

func list() (gpus []GPU, reason string) {
	devices, reason := cuda.List()
	for _, d := range devices {
		gpus = append(gpus, GPU{Number: d.Number, Name: d.Name, MemoryBytes: d.Memory, AvailableBytes: d.Free, Capability: d.Capability, Reason: d.Reason})
	}
	return gpus, reason
}
