//go:build !cuda

package dispatch

import (
	"errors"

	"github.com/heftai/heft/internal/backend"
)

const gpuCode = false

var (
	gpuSupports func(backend.Matrix) bool // a plan for another machine takes all formats
	gpuOwn      func(*backend.Work, bool) int64
)

func openGPU(int, backend.Backend, GPUKernels) (backend.Backend, error) {
	return nil, errors.New("this build has no code for GPUs: use serve-cuda, which make build-cuda builds")
}

func gpuOutOfMemory(error) bool { return false }

func listGPUs() ([]GPU, string) { return nil, "this build has no code for GPUs" }
