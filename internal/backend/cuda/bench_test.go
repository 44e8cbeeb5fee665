//go:build cuda

package cuda

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// benchOpen opens GPU 0.
func benchOpen(b *testing.B) *Backend {
	b.Helper()
	host, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = host.Close() })
	gpu, err := New(0, Options{Host: host, Lanes: 8})
	testenv.Need(b, "cuda", err == nil, fmt.Sprint(err))
	b.Cleanup(func() { _ = gpu.Close() })
	return gpu
}

func benchNew(b *testing.B, gpu *Backend, d meta.DType, dims ...int) tensor.Tensor {
	b.Helper()
	t, err := gpu.New(d, dims...)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkLink measures copies of host memory, through the pinned ring beside operations (fill), and with a
// wait for each chunk (copy), in bytes per second.
func BenchmarkLink(b *testing.B) {
	n := 256 << 20
	if testing.Short() {
		n = 4 << 20
	}
	host := tensor.Tensor{DType: meta.Uint8, Rank: 1, Data: make([]byte, n)}
	host.Dims[0] = n
	for name, run := range map[string]func(gpu *Backend, t tensor.Tensor) error{
		"fill":        func(gpu *Backend, t tensor.Tensor) error { return gpu.Fill(t, host.Data, gpu.Fence()) },
		"copy":        func(gpu *Backend, t tensor.Tensor) error { return gpu.Copy(t, host) },
		"copy-to-cpu": func(gpu *Backend, t tensor.Tensor) error { return gpu.Copy(host, t) },
	} {
		b.Run(name, func(b *testing.B) {
			gpu := benchOpen(b)
			t := benchNew(b, gpu, meta.Uint8, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := run(gpu, t); err != nil {
					b.Fatal(err)
				}
			}
			if err := gpu.Sync(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLinear measures products with bfloat16 matrices of the blocks of models of 1, 8 and 70 billion
// weights, in bytes of the matrix per second and in operations per second.
func BenchmarkLinear(b *testing.B) {
	shapes, tokens := [][2]int{{2048, 8192}, {4096, 14336}, {8192, 28672}}, []int{1, 8, 64, 512}
	if testing.Short() {
		shapes, tokens = [][2]int{{64, 256}}, []int{1, 8}
	}
	for _, s := range shapes {
		for _, n := range tokens {
			b.Run(fmt.Sprintf("%dx%d/rows-%d", s[1], s[0], n), func(b *testing.B) {
				gpu := benchOpen(b)
				w := backend.Matrix{Tensor: benchNew(b, gpu, meta.BFloat16, s[1], s[0])}
				x, y := benchNew(b, gpu, meta.Float32, n, s[0]), benchNew(b, gpu, meta.Float32, n, s[1])
				b.SetBytes(w.Bytes())
				for b.Loop() {
					gpu.LinearRounded(y, x, w, tensor.Tensor{}, backend.Prompt)
					if err := gpu.Sync(); err != nil {
						b.Fatal(err)
					}
				}
				operations := 2 * float64(s[0]) * float64(s[1]) * float64(n) * float64(b.N)
				b.ReportMetric(operations/b.Elapsed().Seconds()/1e9, "Gop/s")
			})
		}
	}
}
