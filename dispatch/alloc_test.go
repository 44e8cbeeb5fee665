package dispatch_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/dispatch"
)

// TestDecodingAllocatesNothing: a generated token takes nothing from the Go heap, alone and
// in a batch, across pages of keys and values.
func TestDecodingAllocatesNothing(t *testing.T) {
	m, err := dispatch.LoadCheckpointAndDispatch(demoFolder(t), dispatch.Placement{}, dispatch.Options{Threads: 2, MaxSequences: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, batch := range []int{1, 3} {
		b := &dispatch.Batch{}
		for range batch {
			s := m.NewSequence()
			defer s.Free()
			b.Rows = append(b.Rows, dispatch.Row{Sequence: s, Tokens: []int32{1}, Logits: dispatch.LogitsLast})
		}
		step := func() {
			if _, err := m.Forward(context.Background(), b); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(40, step); n != 0 {
			t.Errorf("%d sequences: %v allocations a token", batch, n)
		}
	}
}
