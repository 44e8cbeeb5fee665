package roof

import (
	"math/rand/v2"
	"testing"
)

// TestReadMemoryReadsAll: a change of any byte changes the result.
func TestReadMemoryReadsAll(t *testing.T) {
	b := make([]byte, 5*readUnit+100)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	var plain [64]byte
	readPlain(b[:5*readUnit], &plain)
	want := byte(0)
	for _, v := range plain {
		want ^= v
	}
	if got := ReadMemory(b); got != want {
		t.Fatalf("%d, want %d", got, want)
	}
	for range 200 {
		i := rng.IntN(5 * readUnit)
		b[i] ^= 0x40
		if got := ReadMemory(b); got != want^0x40 {
			t.Fatalf("byte %d was not read", i)
		}
		b[i] ^= 0x40
	}
	if ReadMemory(nil) != 0 || ReadMemory(b[:readUnit-1]) != 0 {
		t.Error("less than a KiB was read")
	}
}

// TestRoofsRun: each runs on this processor, none is slower than a multiplication a step.
func TestRoofsRun(t *testing.T) {
	for _, r := range Roofs() {
		if r.Name == "" || r.Operations < 2 {
			t.Errorf("%+v", r)
		}
		r.Run(0)
		r.Run(1000)
	}
}

func BenchmarkRoofs(b *testing.B) {
	for _, r := range Roofs() {
		b.Run(r.Name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				r.Run(1000)
				n++
			}
			b.ReportMetric(float64(n)*1000*float64(r.Operations)/b.Elapsed().Seconds()/1e9, "GOPS")
		})
	}
	b.Run("read", func(b *testing.B) {
		data := make([]byte, 256<<20)
		for i := range data {
			data[i] = 1
		}
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			for at := 0; at < len(data); at += 1 << 20 {
				ReadMemory(data[at:][:1<<20])
			}
		}
	})
}
