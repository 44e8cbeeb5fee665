package tune

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"go.uber.org/goleak"
)

// startVariable is the environment variable that makes the test binary measure once, with so many threads, and
// print the plan: a fresh process, as a server's first start is.
const startVariable = "HEFT_TUNE_START"

func TestMain(m *testing.M) {
	threads := 0
	if _, err := fmt.Sscan(os.Getenv(startVariable), &threads); err == nil {
		r, err := Measure(context.Background(), Options{Threads: threads, Usual: fetch.Default(KeyOf("", 1).Vendor)})
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r.Plan)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// freshStart is the plan that a process of its own measures.
func freshStart(b *testing.B, threads int) (plan fetch.Plan) {
	b.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", startVariable, threads))
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &plan)
	}
	if err != nil {
		b.Fatal(err)
	}
	return plan
}

// BenchmarkTenStarts measures in ten fresh processes and compares their plans with the best fixed patterns,
// each measured in 80 interleaved rounds of 8 MiB per thread from memory, by their lower quartile. It
// reports how many of ten plans read one byte for each role within 3 % of the least time, and the
// share of all choices of a role that are within 3 %, and prints the rates. On a machine whose memory
// has neighbours the best pattern of a role itself changes from minute to minute.
// HEFT_BENCH_THREADS is the number of threads, HEFT_BENCH_MIB the memory of each.
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
			plans = append(plans, freshStart(b, threads))
		}
		block, err := hostmem.Alloc(nil, hostmem.Other, threads*size) // huge pages, as weights have
		if err != nil {
			b.Fatal(err)
		}
		w := newWorkersOf(set, block.Bytes(), threads, size, readers)
		truth := fixedPatterns(w, 80)
		w.close()
		_ = block.Release() // held once
		good, wells, all := 0, 0, 0
		for i, p := range plans {
			took, least := 0.0, 0.0
			for role := range fetch.Roles {
				times := truth[role]
				if times == nil {
					continue
				}
				best, mine := slices.Min(times), times[slices.Index(fetch.Candidates(role), p[role])]
				took, least, all = took+mine, least+best, all+1
				if mine <= 1.03*best {
					wells++
				} else {
					fmt.Printf("start %d: %s with %v is %.1f %% behind the best\n", i, role, p[role], 100*(mine/best-1))
				}
			}
			fmt.Printf("start %d: the plan takes %.3f times the best one's time\n", i, took/least)
			if took <= 1.03*least {
				good++
			}
		}
		for role := range fetch.Roles {
			for i, t := range truth[role] {
				fmt.Printf("%d threads, %s with %v: %.1f GB/s\n", threads, role, fetch.Candidates(role)[i], float64(threads*size)/t/1e9)
			}
		}
		b.ReportMetric(float64(good), "plans_of_10")
		b.ReportMetric(100*float64(wells)/float64(all), "%roles")
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
