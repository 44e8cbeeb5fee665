package model_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// TestDecodingAllocatesNothing: a generated token takes nothing from the Go heap, alone and
// in a batch, across pages of keys and values, wherever the weights are and however stored.
func TestDecodingAllocatesNothing(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	for name, c := range map[string]struct {
		place string
		o     dispatch.Options
	}{
		"as stored":          {"cpu", dispatch.Options{}},
		"high precision":     {"cpu", dispatch.Options{Precision: dispatch.PrecisionHigh}},
		"q8_0":               {"cpu", dispatch.Options{Quantize: meta.QuantQ8}},
		"q4_0":               {"cpu", dispatch.Options{Quantize: meta.QuantQ4}},
		"disk tier":          {"disk", dispatch.Options{}},
		"q8_0 on disk":       {"disk", dispatch.Options{Quantize: meta.QuantQ8, CacheDir: t.TempDir()}},
		"keys of eight bits": {"cpu", dispatch.Options{KVDType: meta.Int8}},
	} {
		for _, promoted := range []bool{false, true} {
			c.o.Threads, c.o.MaxSequences = 2, 8
			policy, err := devicemap.ParsePolicy(c.place)
			if err != nil {
				t.Fatal(err)
			}
			c.o.DeviceMap = policy
			m, err := dispatch.Open(dir, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if promoted {
				m.Warm(context.Background())
				m.Promote(context.Background())
				dispatchtest.AwaitConversion(t, m)
			}
			for _, batch := range []int{1, 8} {
				if n := dispatchtest.Allocations(t, m, batch); n != 0 {
					t.Errorf("%s, promoted %v, %d sequences: %v allocations a token", name, promoted, batch, n)
				}
			}
			m.Close()
		}
	}
}

// BenchmarkDecode generates a token with a small model on the CPU, so that the cost of a pass other than
// arithmetic shows.
func BenchmarkDecode(b *testing.B) {
	m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	dispatchtest.BenchmarkTokens(b, m)
}
