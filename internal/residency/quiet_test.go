package residency

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// TestHashingWaitsWhileRequestsRun: files were hashed after warming at the disk's full rate, beside
// requests that streamed from it.
func TestHashingWaitsWhileRequestsRun(t *testing.T) {
	s := new(Store)
	pace := s.whenQuiet(time.Hour, math.MaxInt32)
	if err := pace(t.Context()); err != nil {
		t.Errorf("an idle store: %v", err)
	}
	s.acquired.Add(1) // a pass begins
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { waits <- pace(ctx) }()
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("while a pass runs: got %v, want to wait until the context ends", err)
	}
	if err := s.whenQuiet(0, busyWaits)(t.Context()); err != nil {
		t.Errorf("a new pace counts from now on: %v", err)
	}
}

// TestHashingNeverEndedUnderSteadyPasses: while passes never ceased, files were not hashed, so that a file that was
// touched and rewritten with equal bytes ended service hours later.
func TestHashingNeverEndedUnderSteadyPasses(t *testing.T) {
	s := new(Store)
	pace := s.whenQuiet(time.Hour, 1)
	for range 5 {
		s.acquired.Add(1)
		if err := pace(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaitingForQuietAllocatesNothing: the hashing of files allocated a timer each second that it waited for
// tokens, which the benchmark counted as allocations of tokens.
func TestWaitingForQuietAllocatesNothing(t *testing.T) {
	s := new(Store)
	pace := s.whenQuiet(time.Nanosecond, busyWaits)
	if n := testing.AllocsPerRun(100, func() {
		s.acquired.Add(1)
		if err := pace(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a wait allocates %v times, want 0", n)
	}
}
