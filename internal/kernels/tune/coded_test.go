package tune

import (
	"context"
	"math"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// TestGainOfCodedWeights: at equal bytes per second the speedup is the ratio of the sizes; a busy measurement
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
		next, err := Measure(context.Background(), Options{Variant: "avx512bf16", Usual: fetch.Default(""), meter: slower, expired: after(1000)})
		if err != nil {
			t.Fatal(err)
		}
		return before.with(next, fetch.Default(""))
	}
	var r *Report
	for _, share := range []float64{0.9, 0.2, 0.9, 0.9} {
		r = measured(r, share)
		if want := 0.9 * fewer; share == 0.9 && !(math.Abs(r.CodedGain("avx2", false)-want) <= 0.01) && len(r.measured) != 2 && kernels.Names()[0] != "go" {
			t.Errorf("after %d measurements coded weights are %.3f times as fast, want %.3f", len(r.measured), r.CodedGain("avx2", false), want)
		}
	}
	if got := r.CodedGain("no such variant", false); got != 0 {
		t.Errorf("an unknown variant gains %v", got)
	}
	r.measured = append(r.measured, measurement{}, measurement{}, measurement{}, measurement{}, measurement{})
	if got := r.CodedGain(kernels.Names()[0], false); got != 0 {
		t.Errorf("4 measurements of 9 have the kernels, and the gain is %v", got)
	}
}

// TestGainOfCodedWeightsForSeveralTokens: several sequences gain no more than the lesser of what one token gains and what
// eight do, and nothing in variants without kernels for several.
func TestGainOfCodedWeightsForSeveralTokens(t *testing.T) {
	keep(t)
	set, err := kernels.Select("avx512bf16")
	if err != nil {
		t.Skip(err)
	}
	fewer := float64(2*columns) / float64(coded.RowBytes(columns))
	for _, c := range []struct{ one, eight, want float64 }{{0.9, 0.8, 0.8}, {0.8, 0.9, 0.8}} {
		shares := map[fetch.Role]float64{fetch.CodedPairs: c.one, fetch.CodedTokens: c.eight}
		slower := func(r fetch.Role, p fetch.Pattern) float64 {
			if share := shares[r]; share > 0 {
				return 1 / share
			}
			return 1
		}
		next, err := Measure(context.Background(), Options{Variant: "avx512bf16", Usual: fetch.Default(""), meter: slower, expired: after(1000)})
		if err != nil {
			t.Fatal(err)
		}
		r := (*Report)(nil).with(next, fetch.Default(""))
		want := c.want * fewer
		if set.SlowPairs { // several tokens are not rounded there
			want = 0
		}
		if got := r.CodedGain("avx512bf16", true); !(math.Abs(got-want) <= 0.01) {
			t.Errorf("one token at %.1f and eight at %.1f of the plain rate gain %.3f, want %.3f", c.one, c.eight, got, want)
		}
		if got := r.CodedGain("avx2", true); got != 0 {
			t.Errorf("several tokens gain %v with avx2, which has no kernel for them", got)
		}
	}
}

// TestTilesHadNoGain: with AMX nothing measured the gain of coded weights, so that no plan chose them. Each variant with
// products of rounded tokens measures it.
func TestTilesHadNoGain(t *testing.T) {
	keep(t)
	plan := fetch.Default("")
	for _, name := range kernels.Names() {
		set, err := kernels.Select(name)
		if err != nil {
			t.Fatal(err)
		}
		got, rounds := measureGains(t.Context(), set, &plan, 1, nil), set.BF16 && !(set.AMX && set.SlowPairs)
		for _, role := range []fetch.Role{fetch.CodedPairs, fetch.CodedTokens} {
			if gain := got[role.String()]; (gain > 0) != rounds {
				t.Errorf("%s: the gain of %v is %v, and it has such products: %v", name, role, gain, rounds)
			}
		}
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
	if r := s.Ensure(context.Background(), o); r == nil || len(r.measured) != 1 {
		t.Fatalf("got %+v, want a report of one measurement", r)
	}
	once := count
	<-s.Start(context.Background(), o)
	if count != once {
		t.Errorf("measured %d times more", count-once)
	}
}
