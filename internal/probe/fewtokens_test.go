package probe

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"
)

// TestAnOperationTookTheDifferenceOfTwoLargeTimes: the time of an operation was that of a product
// less the time of reading its weights at the rate of memory, which is measured apart: 0 to 30 µs on
// one idle machine.
func TestAnOperationTookTheDifferenceOfTwoLargeTimes(t *testing.T) {
	const rows, start, perRow = 16, 3e-6, 0.125e-6
	for _, memory := range []float64{20e9, 35e9} {
		r := &Rates{Memory: []MemoryRate{{Threads: 2, BytesPerSecond: memory}}}
		for range kinds {
			took := start + perRow*sweepRows
			r.Compute = append(r.Compute, ComputeRate{Threads: 2, ByTokens: []TokensRate{{1, 2 * sweepWeights / took}, {16, 1}}})
		}
		r.withoutStart(start+perRow*rows, rows)
		if !(math.Abs(r.OperationSeconds-start) <= 1e-9) {
			t.Errorf("memory of %g B/s: an operation takes %v s, want %v", memory, r.OperationSeconds, start)
		}
		for i, c := range r.Compute {
			if got := 2 * sweepWeights / c.ByTokens[0].OperationsPerSecond; !(math.Abs(got-perRow*sweepRows) <= 1e-9) {
				t.Errorf("kind %d: the rows of a product take %v s, want %v", i, got, perRow*sweepRows)
			}
		}
	}
}

// TestASleepingThreadSlowedProducts: a quarter of the products of all rounds counted, although a
// thread that sleeps slows all of a round, and one round of three is more than a quarter.
func TestASleepingThreadSlowedProducts(t *testing.T) {
	var f fastestRound
	f.add(nil)
	if f.known {
		t.Error("an empty round is known")
	}
	for _, round := range [][]time.Duration{{20, 21, 22, 23}, {9, 10, 11, 30}, {19, 20, 20, 20}} {
		f.add(round)
	}
	if !f.known || f.Duration != 11 {
		t.Errorf("got %v, want the median of the fastest round, 11", f.Duration)
	}
}

// TestAWaitEndedTheSearchForALargeProduct: a first run that waited for memory passed for a long
// product. The rate of prompts was then that of a product of 32 rows, a fifth of the right one.
func TestAWaitEndedTheSearchForALargeProduct(t *testing.T) {
	ran := map[int]int{}
	run := func(rows int) (time.Duration, error) {
		if ran[rows]++; ran[rows] == 1 && rows == 64 {
			return 5 * leastProduct, nil // waits
		}
		return time.Duration(rows) * leastProduct / 1000, nil
	}
	if rows, err := rowsFor(context.Background(), 32, 2048, run); err != nil || rows != 1024 {
		t.Errorf("%d rows, error %v; want 1024", rows, err)
	}
	sizes := []int{}
	for rows := range ran {
		sizes = append(sizes, rows)
	}
	if slices.Sort(sizes); !slices.Equal(sizes, []int{64, 128, 256, 512, 1024}) {
		t.Errorf("ran products of %v rows", sizes)
	}
}
