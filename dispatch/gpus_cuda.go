//go:build cuda

package dispatch

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cuda"
	"github.com/heftai/heft/internal/backend/cuda/driver"
)

const gpuCode = true

func gpuSupports(m backend.Matrix) bool { return (*cuda.Backend)(nil).Supports(m) }

// openGPU opens a GPU. Exact kernels return the bits of the host's kernels if these fuse
// multiplications and additions.
func openGPU(number int, host backend.Backend, kernels GPUKernels) (backend.Backend, error) {
	lanes := 8
	if h, ok := host.(interface{ Lanes() int }); ok {
		lanes = h.Lanes()
	}
	fast := kernels == GPUKernelsFast || kernels == GPUKernelsAuto && cuda.Proven(number)
	return cuda.New(number, cuda.Options{Host: host, Lanes: lanes, Fast: fast})
}

func gpuOwn(w *backend.Work, fast bool) int64 { return cuda.OwnBytes(w, fast) }

func gpuOutOfMemory(err error) bool { return driver.OutOfMemory(err) }

func listGPUs() (gpus []GPU, reason string) {
	devices, reason := cuda.List()
	for _, d := range devices {
		gpus = append(gpus, GPU{Number: d.Number, Name: d.Name, MemoryBytes: d.Memory, AvailableBytes: d.Free, Capability: d.Capability, Reason: d.Reason})
	}
	return gpus, reason
}
