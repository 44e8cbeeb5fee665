package cpu_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/backendtest"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels"
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
	for _, variant := range kernels.Names() {
		t.Run(variant, func(t *testing.T) {
			backendtest.Run(t, func() backend.Backend { return open(t, 2, variant) })
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

func TestUnknownVariant(t *testing.T) {
	if _, err := cpu.New(cpu.Options{Variant: "abacus"}); err == nil {
		t.Fatal("an unknown variant was taken")
	}
}
