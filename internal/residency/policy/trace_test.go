package policy

import (
	"reflect"
	"testing"
)

func TestTraceIsReadAsWritten(t *testing.T) {
	want := routings()[3].trace(1)
	for i := range want.Layers {
		want.Layers[i].Size = int64(100 + i)
	}
	want.Measure()
	b := want.Encode()
	got, err := Decode(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("another trace, error %v", err)
	}
	for i := 0; i < len(b); i += 1 + len(b)/997 {
		for _, damaged := range [][]byte{b[:i], append(append([]byte{}, b[:i]...), append([]byte{b[i] ^ 4}, b[i+1:]...)...)} {
			if _, err := Decode(damaged); err == nil {
				t.Fatalf("a trace of %d bytes, damaged at byte %d, is read", len(damaged), i)
			}
		}
	}
}

func TestRecorderIsBounded(t *testing.T) {
	r := NewRecorder([]Layer{{8, 1}}, 10)
	if n := testing.AllocsPerRun(20, func() { r.Record(0, []int32{1, 2, 5}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if steps := r.Trace().Steps; len(steps) != 3 || len(steps[2].Segments) != 3 {
		t.Errorf("recorded %v", steps)
	}
}

// TestSteadyLeavesOutTheStart: the hits of a filled cache do not depend on the length of the trace.
func TestSteadyLeavesOutTheStart(t *testing.T) {
	r := routings()[1]
	r.prompt = 50
	short := Steady(r.trace(1), Forecast, 100)
	r.tokens *= 4
	if long := Steady(r.trace(1), Forecast, 100); long < short-0.03 || long > short+0.03 {
		t.Errorf("%.3f of the requests hit, %.3f in a longer trace", short, long)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(routings()[0].trace(1).Encode()[:4000])
	f.Add((&Trace{Layers: []Layer{{3, 9}}, Steps: []Step{{0, []int32{0, 2}}}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if trace, err := Decode(b); err == nil {
			Replay(trace, Forecast, 10, 2)
		}
	})
}

func TestCurveIsInterpolated(t *testing.T) {
	r := routings()[4]
	trace := r.trace(1)
	trace.Measure()
	for _, share := range []float64{0.03, 0.07, 0.1, 0.2, 0.4, 0.7, 0.9} {
		if got, want := trace.Hits(share), Steady(trace, Forecast, int(r.slots(share))); got < want-0.01 || got > want+0.01 {
			t.Errorf("%.0f %% in memory: %.3f of the requests hit, want %.3f", 100*share, got, want)
		}
	}
	if trace.Hits(0) != 0 || trace.Hits(1) < 0.95 {
		t.Errorf("hits from %.3f to %.3f", trace.Hits(0), trace.Hits(1))
	}
}
