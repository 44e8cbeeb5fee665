package cpu_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/backendtest"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

func open(t testing.TB, threads int, variant string) *cpu.Backend {
	t.Helper()
	b, err := cpu.New(cpu.Options{Threads: threads, Variant: variant})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	defer goleak.VerifyNone(t)
	names := kernels.Names()
	if testing.Short() { // of the variants only the processor's own
		names = names[:1]
	}
	for _, variant := range names {
		t.Run(variant, func(t *testing.T) {
			backendtest.Run(t, func() backend.Backend { return open(t, 2, variant) })
		})
	}
}

// TestConformancePairs: products of pairs conform too where the processor is slow at them.
func TestConformancePairs(t *testing.T) {
	for _, variant := range kernels.Names() {
		if set, err := kernels.Select(variant); err != nil || !set.SlowPairs {
			continue
		}
		backendtest.Run(t, func() backend.Backend {
			b := open(t, 2, variant)
			b.UsePairs()
			return b
		})
	}
}

// TestThreadsAgree holds that the number of threads changes no bit.
func TestThreadsAgree(t *testing.T) {
	for _, variant := range kernels.Names() {
		t.Run(variant, func(t *testing.T) {
			for threads := 2; threads <= 4; threads++ {
				one, many := open(t, 1, variant), open(t, threads, variant)
				backendtest.Same(t, one, many)
				if err := one.Close(); err != nil {
					t.Error(err)
				}
				if err := many.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestLittleScratchMemory holds that operations for which little memory is planned, so that they run in parts and in
// small units, give the same bits.
func TestLittleScratchMemory(t *testing.T) {
	for _, variant := range kernels.Names() {
		t.Run(variant, func(t *testing.T) {
			plenty, little := open(t, 2, variant), open(t, 2, variant)
			little.LimitScratch(cpu.Scratch{Input: 3000, Worker: 1, Vector: 1, Bias: 40})
			backendtest.Same(t, plenty, little)
			for _, b := range []*cpu.Backend{plenty, little} {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestUnknownVariant(t *testing.T) {
	if _, err := cpu.New(cpu.Options{Variant: "abacus"}); err == nil {
		t.Fatal("an unknown variant was taken")
	}
}

// TestLedger: all memory of a backend is counted while it is held.
func TestLedger(t *testing.T) {
	var ledger hostmem.Ledger
	b, err := cpu.New(cpu.Options{Threads: 2, Ledger: &ledger})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := b.New(meta.BFloat16, 100, 30)
	if err != nil {
		t.Fatal(err)
	}
	given, err := b.New(meta.Float32, 3000)
	if err != nil {
		t.Fatal(err)
	}
	before := ledger.Total()
	b.Free(given)
	b.Free(tensor.Floats(make([]float32, 4), 4)) // not its own
	if held := ledger.Total(); held >= before || held < kept.Bytes() {
		t.Errorf("%d bytes are held, %d before one tensor was freed", held, before)
	}
	x := tensor.Floats(make([]float32, 40*100), 40, 100)
	y := tensor.Floats(make([]float32, 40*30), 40, 30)
	before = ledger.Total()
	b.Linear(y, x, backend.Matrix{Tensor: kept, Transposed: true}, tensor.Tensor{})
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	if ledger.Total() <= before {
		t.Error("scratch is not counted")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if held := ledger.Total(); held != 0 {
		t.Errorf("%d bytes are held after Close", held)
	}
}
