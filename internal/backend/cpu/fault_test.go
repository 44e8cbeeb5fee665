//go:build linux

package cpu_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// truncated is a mapping of n bytes whose file has been cut to nothing.
func truncated(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTruncatedWeight: an operation on a mapped weight whose file was cut short ends
// with a FaultError, and the backend works on.
func TestTruncatedWeight(t *testing.T) {
	const rows, cols = 512, 256
	for _, variant := range kernels.Names() {
		for _, dtype := range []meta.DType{meta.BFloat16, meta.Float16, meta.Float32} {
			t.Run(variant+"/"+dtype.String(), func(t *testing.T) {
				b := open(t, 2, variant)
				defer b.Close()
				gone, err := tensor.Of(truncated(t, rows*cols*dtype.Bits()/8), dtype, rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				x := tensor.Floats(make([]float32, 9*cols), 9, cols)
				y := tensor.Floats(make([]float32, 9*rows), 9, rows)
				vector := gone
				vector.Rank, vector.Dims = 1, [tensor.MaxRank]int{cols}
				whole := tensor.Floats(make([]float32, rows*cols), rows, cols)
				for what, op := range map[string]func(){
					"linear of one token":  func() { b.Linear(y.Slice(0, 1), x.Slice(0, 1), backend.Matrix{Tensor: gone}, tensor.Tensor{}) },
					"linear of many":       func() { b.Linear(y, x, backend.Matrix{Tensor: gone}, tensor.Tensor{}) },
					"embed":                func() { b.Embed(x, backend.Matrix{Tensor: gone}, []int32{0, 1, 2, 3, 4, 5, 6, 7, 511}, 1) },
					"weight of a norm":     func() { b.Norm(x, x, vector, tensor.Tensor{}, meta.NormSpec{Dim: cols}) },
					"linear, both threads": func() { b.Linear(y, x, backend.Matrix{Tensor: gone}, tensor.Tensor{}) },
				} {
					op()
					var fault *backend.FaultError
					if err := b.Sync(); !errors.As(err, &fault) {
						t.Errorf("%s: %v, want a fault", what, err)
					}
					b.Linear(y, x, backend.Matrix{Tensor: whole}, tensor.Tensor{})
					if err := b.Sync(); err != nil {
						t.Errorf("after %s: %v", what, err)
					}
				}
				var fault *backend.FaultError
				copied := tensor.Tensor{DType: dtype, Rank: 2, Dims: gone.Dims, Data: make([]byte, len(gone.Data))}
				if err := b.Copy(copied, gone); !errors.As(err, &fault) {
					t.Errorf("copy: %v, want a fault", err)
				}
			})
		}
	}
}
