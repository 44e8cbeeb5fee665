package tune

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// BenchmarkTenStarts makes ten measurements and compares their choices with fixed patterns, each
// measured in 80 interleaved rounds of 8 MiB per thread from memory, by their lower quartile: it
// reports how many starts chose patterns within 3 % of the best for all roles, and prints the
// rates. HEFT_BENCH_THREADS is the number of threads, HEFT_BENCH_MIB the memory of each.
func BenchmarkTenStarts(b *testing.B) {
	defer fetch.Use(fetch.Current())
	number := func(name string, usual int) int {
		if _, err := fmt.Sscan(os.Getenv(name), &usual); err != nil {
			return usual
		}
		return usual
	}
	threads, size := number("HEFT_BENCH_THREADS", 1), number("HEFT_BENCH_MIB", 8)<<20
	set, err := kernels.Select("")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var plans []fetch.Plan
		for range 10 {
			r, err := Measure(context.Background(), Options{Threads: threads, Usual: fetch.Default(KeyOf("", 1).Vendor)})
			if err != nil {
				b.Fatal(err)
			}
			plans = append(plans, r.Plan)
		}
		w := newWorkersOf(set, make([]byte, threads*size), threads, size)
		truth := fixedPatterns(w, 80)
		w.close()
		good := 0
		for i, p := range plans {
			well := true
			for role := range fetch.Roles {
				times := truth[role]
				if times == nil {
					continue
				}
				best := slices.Min(times)
				if mine := times[slices.Index(fetch.Candidates(role), p[role])]; mine > 1.03*best {
					well = false
					fmt.Printf("start %d: %s with %v is %.1f %% behind the best\n", i, role, p[role], 100*(mine/best-1))
				}
			}
			if well {
				good++
			}
		}
		for role := range fetch.Roles {
			for i, t := range truth[role] {
				fmt.Printf("%d threads, %s with %v: %.1f GB/s\n", threads, role, fetch.Candidates(role)[i], float64(threads*size)/t/1e9)
			}
		}
		b.ReportMetric(float64(good), "of10")
	}
}

// fixedPatterns are the lower quartiles of interleaved rounds for each role's candidates.
func fixedPatterns(w *workers, rounds int) (truth [fetch.Roles][]float64) {
	for role := range fetch.Roles {
		candidates := fetch.Candidates(role)
		samples := make([][]float64, len(candidates))
		for range rounds {
			for i, p := range candidates {
				if t := w.measure(role, p); t > 0 {
					samples[i] = append(samples[i], t)
				}
			}
		}
		if samples[0] == nil {
			continue
		}
		for _, s := range samples {
			slices.Sort(s)
			truth[role] = append(truth[role], s[len(s)/4])
		}
	}
	return truth
}
