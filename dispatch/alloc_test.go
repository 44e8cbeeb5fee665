package dispatch_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// TestDecodingAllocatesNothing: a generated token takes nothing from the Go heap, alone and
// in a batch, across pages of keys and values, wherever the weights are and however stored.
func TestDecodingAllocatesNothing(t *testing.T) {
	dir := demoFolder(t)
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
				await(t, m)
			}
			for _, batch := range []int{1, 8} {
				if n := allocations(t, m, batch); n != 0 {
					t.Errorf("%s, promoted %v, %d sequences: %v allocations a token", name, promoted, batch, n)
				}
			}
			m.Close()
		}
	}
}

// allocations is how many one token of each of so many sequences takes.
func allocations(t *testing.T, m *dispatch.Model, batch int) float64 {
	b := &dispatch.Batch{}
	for range batch {
		s := m.NewSequence()
		defer s.Free()
		b.Rows = append(b.Rows, dispatch.BatchRow{Sequence: s, Tokens: []int32{1}, PromptLen: 1, Logits: dispatch.LogitsLast})
	}
	step := func() {
		if _, err := m.Forward(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		step()
	}
	return testing.AllocsPerRun(40, step)
}

// BenchmarkDecode is a generated token of a small model on the CPU, so that what a pass costs beside
// arithmetic shows.
func BenchmarkDecode(b *testing.B) {
	m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s := m.NewSequence()
	defer s.Free()
	batch := &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{5}, PromptLen: 1, Logits: dispatch.LogitsLast}}}
	b.ReportAllocs()
	for b.Loop() {
		if s.Len() >= 100 {
			s.Truncate(1)
		}
		if _, err := m.Forward(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
