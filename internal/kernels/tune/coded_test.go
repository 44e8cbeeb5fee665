package tune

import (
	"context"
	"math"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// TestGainOfCodedWeights: as many coded bytes a second as plain ones gain what the bytes are fewer, a busy measurement
// among several does not decide, and variants without such kernels gain nothing that is known.
func TestGainOfCodedWeights(t *testing.T) {
	keep(t)
	fewer := float64(2*columns) / float64(coded.RowBytes(columns))
	measured := func(before *Report, share float64) *Report {
		slower := func(r fetch.Role, p fetch.Pattern) float64 {
			if r == fetch.CodedPairs || r == fetch.CodedFloats {
				return zen4(r, p) / share
			}
			return zen4(r, p)
		}
		next, err := Measure(context.Background(), Options{Usual: fetch.Default(""), meter: slower, expired: after(1000)})
		if err != nil {
			t.Fatal(err)
		}
		return before.with(next, fetch.Default(""))
	}
	var r *Report
	for _, share := range []float64{0.9, 0.2, 0.9, 0.9} {
		r = measured(r, share)
		if want := 0.9 * fewer; share == 0.9 && math.Abs(r.CodedGain("avx2")-want) > 0.01 && len(r.starts) != 2 && kernels.Names()[0] != "go" {
			t.Errorf("after %d measurements coded weights are %.3f times as fast, want %.3f", len(r.starts), r.CodedGain("avx2"), want)
		}
	}
	if got := r.CodedGain("no such variant"); got != 0 {
		t.Errorf("an unknown variant gains %v", got)
	}
	r.starts = append(r.starts, rates{}, rates{}, rates{}, rates{}, rates{})
	if got := r.CodedGain(kernels.Names()[0]); got != 0 {
		t.Errorf("4 measurements of 9 have the kernels, and the gain is %v", got)
	}
}

// TestServersMeasureOncePerStart: what Ensure has measured for a plan, Start does not measure again.
func TestServersMeasureOncePerStart(t *testing.T) {
	keep(t)
	t.Cleanup(func() { known.reports = nil })
	key := Key{Vendor: "AuthenticAMD", Processor: "AMD EPYC 9R14 family 25", Variant: "avx512bf16", Threads: 2}
	count := 0
	o := Options{meter: func(r fetch.Role, p fetch.Pattern) float64 { count++; return zen4(r, p) }, expired: after(1000), fixed: &key}
	s := Store{Folder: t.TempDir()}
	if r := s.Ensure(context.Background(), o); r == nil || len(r.starts) != 1 {
		t.Fatalf("got %+v, want a report of one measurement", r)
	}
	once := count
	<-s.Start(context.Background(), o)
	if count != once {
		t.Errorf("measured %d times more", count-once)
	}
}
