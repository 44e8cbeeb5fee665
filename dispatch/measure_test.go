package dispatch

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestGauge(t *testing.T) {
	var g gauge
	if v := g.get(); v != nil {
		t.Errorf("a new gauge is %v", *v)
	}
	for _, want := range []float64{0, 1.5, -3, math.Inf(1)} {
		if g.set(want); g.get() == nil || *g.get() != want {
			t.Errorf("set to %v it is %v", want, g.get())
		}
	}
}

func TestAverageIsAMeanThatForgets(t *testing.T) {
	var a average
	for _, c := range []struct{ add, want float64 }{{4, 4}, {8, 6}, {3, 5}} {
		if got := a.add(c.add); !(math.Abs(got-c.want) <= 1e-12) {
			t.Errorf("after %v: %v, want %v", c.add, got, c.want)
		}
	}
	for range 500 {
		a.add(1)
	}
	if !(math.Abs(a.value-1) <= 1e-6) {
		t.Errorf("after many ones: %v", a.value)
	}
}

// TestRecorderCountsDecodingPasses follows a prompt, two tokens, a failed pass and a token.
func TestRecorderCountsDecodingPasses(t *testing.T) {
	var r recorder
	prompt := &Batch{Rows: []BatchRow{{Tokens: make([]int32, 8), Logits: LogitsLast}}}
	chunk := &Batch{Rows: []BatchRow{{Tokens: make([]int32, 8)}}}
	r.begin()
	r.end(chunk, false, 100)
	if r.firstToken.get() != nil {
		t.Error("a chunk without logits counts as the first token")
	}
	r.begin()
	time.Sleep(time.Millisecond)
	r.end(prompt, true, 200)
	first := r.firstToken.get()
	if first == nil || *first < 1e-3 || r.pass.get() != nil {
		t.Errorf("after the prompt: first token %v, pass %v", first, r.pass.get())
	}
	r.begin()
	r.end(&Batch{}, true, 250) // no row is at odds with decoding
	if r.pass.get() == nil || r.disk.get() != nil {
		t.Errorf("after a token: pass %v, disk %v", r.pass.get(), r.disk.get())
	}
	r.begin()
	r.end(&Batch{}, true, 300)
	if got := r.disk.get(); got == nil || *got != 50 {
		t.Errorf("after two tokens: disk %v", got)
	}
	r.begin() // fails
	r.begin()
	r.end(&Batch{}, true, 5000)
	if got := r.disk.get(); *got != 50 {
		t.Errorf("what a failed pass read counts: %v", *got)
	}
	if got := r.firstToken.get(); *got != *first {
		t.Errorf("the first token is now %v", *got)
	}
}

func TestRecorderAllocatesNothingAndMayBeRead(t *testing.T) {
	var r recorder
	batch := &Batch{}
	if n := testing.AllocsPerRun(100, func() { r.begin(); r.end(batch, true, 1) }); n != 0 {
		t.Errorf("%v allocations a pass", n)
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		for range 1000 {
			r.pass.get()
		}
	})
	for range 1000 {
		r.begin()
		r.end(batch, true, 1)
	}
	readers.Wait()
}
