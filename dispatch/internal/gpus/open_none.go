//go:build !cuda

package gpus

import (
	"errors"

	"github.com/heftai/heft/internal/backend"
)

const built = false

var (
	supports func(backend.Matrix) bool // a plan for another machine takes all formats
	ownBytes func(*backend.Work, bool) int64
)

func open(int, backend.Backend, Kernels) (backend.Backend, error) {
	return nil, errors.New("this build has no code for GPUs: use serve-cuda, which make build-cuda builds")
}

func outOfMemory(error) bool { return false }

func list() ([]GPU, string) { return nil, "this build has no code for GPUs" }
